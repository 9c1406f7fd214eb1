//! Whether the kernel does what this module asks of it, found out by asking: each with a page that is given back.
//!
//! Asking and not comparing versions, since containers and sandboxes refuse calls that their kernel has, and
//! distributions give old kernels new calls.

use rustix::fs::MemfdFlags;
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, ProtFlags};

use crate::memory::error::MemoryError;
use crate::memory::memfd::Unsealed;
use crate::memory::syscalls;

/// A memory file that can never be executed. Without it, [`Unsealed`] makes do with one that nobody made executable.
pub fn never_executable() -> Result<()> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
    syscalls::memfd_create("echo-probe", flags).map(drop)
}

/// A memory file that is sized, sealed, and opened again read-only through `/proc`, as a table's are.
///
/// # Errors
/// Which of these steps does not work.
pub fn sealed_file() -> std::result::Result<(), MemoryError> {
    let file = Unsealed::create("echo-probe", syscalls::page_size() as u64)?.seal()?;
    file.read_only().map(drop)
}

/// Pages that are made resident by advice (`MADV_POPULATE_WRITE`), which a table's are.
pub fn populate() -> Result<()> {
    // Not through `populate`: one page needs no thread, and an interrupted call has answered.
    with_page(|address, bytes| {
        // SAFETY: mapped by `with_page`, which nobody else knows; populating changes no content.
        unsafe { syscalls::advise(address, bytes, Advice::LinuxPopulateWrite) }
    })
    .or_else(|errno| if errno == Errno::INTR { Ok(()) } else { Err(errno) })
}

/// A page that is zeros in a child (`MADV_WIPEONFORK`), by which a forked child knows that it is one.
pub fn wipe_on_fork() -> Result<()> {
    // SAFETY: mapped by `with_page`, which nobody else knows; the advice is about children.
    with_page(|address, bytes| unsafe { syscalls::advise(address, bytes, Advice::LinuxWipeOnFork) })
}

/// A page that is locked, which takes a limit that is not 0.
pub fn lock() -> Result<()> {
    // SAFETY: mapped by `with_page`.
    with_page(|address, bytes| unsafe { syscalls::lock(address, bytes) })
}

/// Does that to a page of private memory.
fn with_page(probe: impl FnOnce(usize, usize) -> Result<()>) -> Result<()> {
    let bytes = syscalls::page_size();
    let address = syscalls::reserve(bytes)?;
    // SAFETY: reserved just now, for this alone.
    let mapped = unsafe { syscalls::map_private_over(address, bytes, ProtFlags::READ | ProtFlags::WRITE) };
    let result = mapped.and_then(|()| probe(address, bytes));
    // SAFETY: reserved here, and the probe keeps nothing of it.
    unsafe { syscalls::unmap(address, bytes) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::syscalls::{Call, with_fault};

    #[test]
    fn a_kernel_that_runs_these_tests_does_what_tables_need() {
        sealed_file().unwrap();
        assert_eq!(populate(), Ok(()));
    }

    #[test]
    fn what_the_kernel_refuses_is_said() {
        let (answer, came) = with_fault(Call::Lock, 0, Errno::PERM, lock);
        assert_eq!((answer, came), (Err(Errno::PERM), true));
        let (answer, came) = with_fault(Call::MemfdCreate, 0, Errno::INVAL, never_executable);
        assert_eq!((answer, came), (Err(Errno::INVAL), true));
        // The second one, without the seal, is made.
        assert!(with_fault(Call::MemfdCreate, 0, Errno::INVAL, sealed_file).0.is_ok());
        assert!(with_fault(Call::Truncate, 0, Errno::FBIG, sealed_file).0.is_err());
    }
}
