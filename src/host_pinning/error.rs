//! Why memory is not page-locked, with everything that was tried.

use std::fmt;

use thiserror::Error;

use super::advice::advice;
use super::api::{Code, CudaApi};
use super::resolve::Rung;
use crate::memory::MemoryError;

/// One candidate of the ladder, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The rung that it stood on.
    pub rung: Rung,
    /// What was tried: a path or a name for the loader; `(none)` where the rung had no candidate.
    pub what: String,
    /// Why it is not used; none if it is.
    pub reason: Option<String>,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.as_deref().unwrap_or("used");
        write!(f, "{}: {}: {reason}", self.rung, self.what)
    }
}

/// An error of CUDA's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Its number.
    pub code: Code,
    /// Its symbol.
    pub name: String,
    /// What to do.
    pub advice: String,
}

impl Failure {
    pub(super) fn of(api: &CudaApi, code: Code) -> Self {
        Self { code, name: api.error_name(code), advice: advice(code, api.versions()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.code, self.advice)
    }
}

/// A piece of memory that was to be registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Of which region.
    pub region: String,
    /// Which piece of it, counted from 0.
    pub index: usize,
    /// How many pieces the region has.
    pub of: usize,
    /// Where it begins.
    pub address: usize,
    /// Its length.
    pub bytes: usize,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, index, of, address, bytes } = self;
        write!(f, "{region} (piece {} of {of}: {bytes} bytes at {address:#x})", index + 1)
    }
}

/// Memory that is not page-locked. Nothing of what was asked for is registered then, unless it says so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PinError {
    /// There is no library that could do it.
    #[error(
        "no CUDA library was found that can page-lock memory: install the CUDA runtime (pip install \
         nvidia-cuda-runtime, for example) and name the directory of its wheels (.../site-packages/nvidia) in \
         ECHO_CUDA_VENDOR_ROOTS, or its file in ECHO_CUDART{}", probed(.probes)
    )]
    NotFound {
        /// All that was tried.
        probes: Vec<Probe>,
    },
    /// The library that was named cannot be used; no other was tried.
    #[error("{path} cannot be used, which {source_name} names: {reason}; correct it, or take it away")]
    Override {
        /// The path.
        path: String,
        /// What names it.
        source_name: String,
        /// What the loader said, or what is missing.
        reason: String,
    },
    /// CUDA does not start in this process.
    #[error("CUDA does not start in this process, by {library}: {failure}{}", probed(.probes))]
    Initialise {
        /// The library.
        library: String,
        /// What it said.
        failure: Failure,
        /// All that was tried.
        probes: Vec<Probe>,
    },
    /// A piece was refused. The pieces before it were unregistered, as far as CUDA let go of them.
    #[error("{library} does not page-lock {piece}: {failure}{}{}", stays(*.left), probed(.probes))]
    Register {
        /// The library.
        library: String,
        /// What it said.
        failure: Failure,
        /// What was refused.
        piece: Box<Piece>,
        /// How many pieces before it could not be unregistered.
        left: usize,
        /// All that was tried until the library was found.
        probes: Vec<Probe>,
    },
    /// What was registered could not be unregistered: it stays pinned, and must stay mapped, as long as this process
    /// lives.
    #[error("{library} does not unregister {left} pieces of memory, which stay pinned: {failure}")]
    Unregister {
        /// The library.
        library: String,
        /// What it said first.
        failure: Failure,
        /// How many.
        left: usize,
    },
    /// The mapping is read-only, and the device does not register such memory.
    #[error(
        "this process has its samples mapped read-only, which the device of {library} does not register: attach with \
         ReaderOptions::registrable, for which the table's access list must give the role `pin`"
    )]
    ReadOnlyMapping {
        /// The library.
        library: String,
    },
    /// It is registered already.
    #[error("it is page-locked already, through {library}")]
    Already {
        /// The library.
        library: String,
    },
    /// This process is a forked child: its parent's mappings are not there.
    #[error("this process was forked from the one that mapped the memory: attach again in the child")]
    Forked,
    /// The kernel did not prepare the memory.
    #[error("the memory cannot be prepared to be page-locked")]
    Memory(#[from] MemoryError),
}

impl PinError {
    /// With what was tried until the library was found.
    #[must_use]
    pub fn after(mut self, tried: &[Probe]) -> Self {
        if let Self::NotFound { probes } | Self::Initialise { probes, .. } | Self::Register { probes, .. } =
            &mut self
        {
            *probes = tried.to_vec();
        }
        self
    }

    /// CUDA's error, if it was one.
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Initialise { failure, .. }
            | Self::Register { failure, .. }
            | Self::Unregister { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// All that was tried to find a library.
    pub fn probes(&self) -> &[Probe] {
        match self {
            Self::NotFound { probes } | Self::Initialise { probes, .. } | Self::Register { probes, .. } => {
                probes
            }
            _ => &[],
        }
    }
}

fn stays(left: usize) -> String {
    match left {
        0 => String::new(),
        left => format!("; {left} pieces before it cannot be unregistered, and stay pinned"),
    }
}

/// The list of what was tried, a line each; nothing if that is nothing.
pub fn probed(probes: &[Probe]) -> String {
    let lines = probes.iter().map(|probe| format!("\n  {probe}"));
    if probes.is_empty() { String::new() } else { format!("; tried were{}", lines.collect::<String>()) }
}
