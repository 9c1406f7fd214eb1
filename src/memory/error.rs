//! Why memory is not to be had.

use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use thiserror::Error;

use crate::memory::cuda::CudaError;
use crate::memory::governor::BudgetError;

/// Memory that was refused, or that is not what it was said to be. Whatever was asked for, nothing of it is to be had.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum MemoryError {
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error(transparent)]
    Cuda(#[from] CudaError),
    #[error("the kernel does not {doing} ({bytes} bytes): {hint}")]
    Os { doing: &'static str, bytes: u64, hint: String, source: io::Error },
    #[error("{asked} bytes were asked for where {reserved} are reserved")]
    Beyond { asked: u64, reserved: u64 },
    #[error("huge pages are required and not to be had: {0}")]
    HugePages(String),
    #[error("the descriptor that was received {0}")]
    Descriptor(String),
    #[error("the layout that was announced {0}")]
    Layout(String),
}

impl MemoryError {
    /// What the kernel said to a call of that purpose.
    pub(crate) fn os(doing: &'static str, bytes: u64) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Os { doing, bytes, hint: hint(doing, errno), source: errno.into() }
    }
}

/// What to do about it.
fn hint(doing: &'static str, errno: Errno) -> String {
    match (doing, errno) {
        (LOCK, Errno::NOMEM | Errno::AGAIN | Errno::PERM) => {
            let limit = match getrlimit(Resource::Memlock).current {
                Some(bytes) => format!("{bytes} bytes"),
                None => "unlimited".into(),
            };
            format!(
                "RLIMIT_MEMLOCK is {limit}: raise it (LimitMEMLOCK=infinity in the unit), or do not ask for pin"
            )
        }
        (_, Errno::NOMEM | Errno::AGAIN) => match getrlimit(Resource::As).current {
            Some(bytes) => {
                format!("RLIMIT_AS is {bytes} bytes: raise it, unless the machine has no memory left")
            }
            None => "the machine or the control group has not so much left".into(),
        },
        (_, Errno::FBIG) => "it is more than RLIMIT_FSIZE allows one file".into(),
        (_, Errno::MFILE | Errno::NFILE) => "too many descriptors are open: raise LimitNOFILE".into(),
        (_, Errno::FAULT) => "its pages could not be had".into(),
        (_, errno) => errno.to_string(),
    }
}

/// `doing` of a failed `mlock`.
pub(crate) const LOCK: &str = "lock the pages";
