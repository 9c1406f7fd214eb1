//! Memory of a device: a memfd that says in its name whose it is and how large.
//!
//! It lives while a handle, a mapping or a descriptor of it does, in any process: that is the kernel's doing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::Code;
use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::devices::Uuid;

const NAME: &str = "echo-fake-gpu:";

pub(crate) struct Physical {
    pub(crate) file: OwnedFd,
    pub(crate) bytes: usize,
    pub(crate) device: Uuid,
    pub(crate) is_exportable: bool,
    pub(crate) for_rdma: bool,
    pub(crate) is_imported: bool,
}

impl Physical {
    pub(crate) fn create(
        bytes: usize,
        device: Uuid,
        is_exportable: bool,
        for_rdma: bool,
    ) -> Result<Self, Code> {
        let name = format!("{NAME}{:032x}:{bytes}:{}", u128::from_be_bytes(device), u8::from(for_rdma));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).map_err(|_| OUT_OF_MEMORY)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(|_| OUT_OF_MEMORY)?;
        rustix::fs::fcntl_add_seals(&file, seals()).map_err(|_| OUT_OF_MEMORY)?;
        Ok(Self { file, bytes, device, is_exportable, for_rdma, is_imported: false })
    }

    /// Only what was exported by a fake driver, here or elsewhere.
    pub(crate) fn import(file: BorrowedFd<'_>) -> Result<Self, Code> {
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(|_| INVALID_VALUE)?;
        let (device, bytes, for_rdma) = look(file.as_fd()).ok_or(INVALID_VALUE)?;
        Ok(Self { file, bytes, device, is_exportable: true, for_rdma, is_imported: true })
    }

    /// A descriptor of its own, that programs inherit: nothing says that CUDA's are closed before.
    pub(crate) fn export(&self) -> Result<OwnedFd, Code> {
        rustix::io::dup(&self.file).map_err(|_| OUT_OF_MEMORY)
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn look(file: BorrowedFd<'_>) -> Option<(Uuid, usize, bool)> {
    use std::os::fd::AsRawFd;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = path.to_str()?.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?.strip_prefix(NAME)?;
    let mut parts = name.split(':');
    let device = u128::from_str_radix(parts.next()?, 16).ok()?.to_be_bytes();
    let (bytes, for_rdma): (usize, u8) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let as_made = rustix::fs::fcntl_get_seals(file).ok()? == seals();
    let as_large = rustix::fs::fstat(file).ok()?.st_size.try_into() == Ok(bytes);
    (as_made && as_large).then_some((device, bytes, for_rdma != 0))
}
