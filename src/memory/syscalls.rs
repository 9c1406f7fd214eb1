//! The door to the kernel's memory calls. Each can be made to fail in a test, once, as the kernel might.
//!
//! Nothing here decides anything; the arguments' meaning is the callers'.

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::thread;

use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

use crate::memory::mapping::Access;

/// The calls that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum Call {
    MemfdCreate,
    Truncate,
    Map,
    Populate,
    Lock,
    Protect,
    PunchHole,
}

/// Bytes of a small page.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Bytes that one call of `madvise` populates: what progress is counted in, and threads share.
const CHUNK: usize = 64 << 20;

/// `memfd_create`.
pub fn memfd_create(name: &str, flags: MemfdFlags) -> Result<OwnedFd> {
    fault(Call::MemfdCreate)?;
    rustix::fs::memfd_create(name, flags)
}

/// `ftruncate`.
pub fn truncate(fd: BorrowedFd<'_>, bytes: u64) -> Result<()> {
    fault(Call::Truncate)?;
    rustix::fs::ftruncate(fd, bytes)
}

/// `fallocate(PUNCH_HOLE)`.
pub fn punch_hole(fd: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<()> {
    fault(Call::PunchHole)?;
    rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
}

/// Addresses without memory behind them, anywhere.
pub fn reserve(bytes: usize) -> Result<usize> {
    fault(Call::Map)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses addresses that nothing uses, so no memory of anybody is changed.
    let address =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::empty(), flags) }?;
    Ok(address as usize)
}

/// A file, anywhere.
pub fn map_file(fd: &impl AsFd, bytes: usize, prot: ProtFlags) -> Result<usize> {
    fault(Call::Map)?;
    // SAFETY: the kernel chooses addresses that nothing uses.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, fd, 0) }?;
    Ok(address as usize)
}

/// A part of a file over a part of a reservation.
///
/// # Safety
/// The range is part of a reservation of the caller, and nobody uses what it holds now.
pub unsafe fn map_file_over(
    address: usize,
    bytes: usize,
    prot: ProtFlags,
    fd: BorrowedFd<'_>,
    offset: u64,
) -> Result<()> {
    fault(Call::Map)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: MAP_FIXED replaces what is at these addresses, which are the caller's and in nobody's use.
    unsafe { rustix::mm::mmap(address as *mut c_void, bytes, prot, flags, fd, offset) }?;
    Ok(())
}

/// Private memory, or none (`prot` empty), over a part of a reservation.
///
/// # Safety
/// As [`map_file_over`].
pub unsafe fn map_private_over(address: usize, bytes: usize, prot: ProtFlags) -> Result<()> {
    fault(Call::Map)?;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: as above.
    unsafe { rustix::mm::mmap_anonymous(address as *mut c_void, bytes, prot, flags) }?;
    Ok(())
}

/// `munmap`. It fails only for arguments that no mapping has, so there is nothing to be said to the caller.
///
/// # Safety
/// The range was mapped by the caller, and nobody uses it any more.
pub unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's.
    let result = unsafe { rustix::mm::munmap(address as *mut c_void, bytes) };
    debug_assert_eq!(result, Ok(()), "munmap({address:#x}, {bytes})");
}

/// Advice that changes no content: what the kernel makes of it may be nothing.
///
/// # Safety
/// The range is mapped, and the advice neither frees nor replaces pages.
pub unsafe fn advise(address: usize, bytes: usize, advice: Advice) -> Result<()> {
    // SAFETY: the caller's: such advice leaves the content alone.
    unsafe { rustix::mm::madvise(address as *mut c_void, bytes, advice) }
}

/// Makes the pages of a mapping resident, with several threads, reporting bytes done.
///
/// # Safety
/// The range is mapped, and `granule` is what it is mapped in.
pub unsafe fn populate(
    address: usize,
    bytes: usize,
    access: Access,
    granule: usize,
    threads: u32,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    fault(Call::Populate)?;
    let advice = match access {
        Access::ReadOnly => Advice::LinuxPopulateRead,
        Access::ReadWrite => Advice::LinuxPopulateWrite,
    };
    let chunk = CHUNK.next_multiple_of(granule);
    let chunks = bytes.div_ceil(chunk);
    let each = chunks.div_ceil(threads.max(1) as usize).max(1);
    // One thread takes neighbouring chunks: they are of one array, and the kernel's locks are by range.
    let populate_chunks = |first: usize| {
        for index in first..(first + each).min(chunks) {
            let length = chunk.min(bytes - index * chunk);
            let at = (address + index * chunk) as *mut c_void;
            // SAFETY: within the caller's mapped range; populating changes no content.
            while let Err(errno) = unsafe { rustix::mm::madvise(at, length, advice) } {
                if errno != Errno::INTR {
                    return Err(errno);
                }
            }
            progress(length as u64);
        }
        Ok(())
    };
    if chunks <= each {
        return populate_chunks(0);
    }
    thread::scope(|scope| {
        let populate_chunks = &populate_chunks;
        let mut workers = Vec::new();
        for first in (0..chunks).step_by(each) {
            match thread::Builder::new().spawn_scoped(scope, move || populate_chunks(first)) {
                Ok(worker) => workers.push(worker),
                // No more threads: it takes longer.
                Err(_) => populate_chunks(first)?,
            }
        }
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(Errno::IO)))
    })
}

/// `mprotect`: what this process may do to its own mapping.
///
/// # Safety
/// The range is mapped by the caller, and nobody does to it what is forbidden from now on.
pub unsafe fn protect(address: usize, bytes: usize, access: Access) -> Result<()> {
    fault(Call::Protect)?;
    let flags = match access {
        Access::ReadOnly => MprotectFlags::READ,
        Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
    };
    // SAFETY: the caller's; the content stays as it is.
    unsafe { rustix::mm::mprotect(address as *mut c_void, bytes, flags) }
}

/// `mlock`.
///
/// # Safety
/// The range is mapped.
pub unsafe fn lock(address: usize, bytes: usize) -> Result<()> {
    fault(Call::Lock)?;
    // SAFETY: the caller's; locking changes no content.
    unsafe { rustix::mm::mlock(address as *mut c_void, bytes) }
}

/// Bytes of a huge page, where this kernel has transparent ones.
pub fn huge_page_size() -> Option<usize> {
    static SIZE: OnceLock<Option<usize>> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").ok()?;
        text.trim().parse().ok().filter(|size: &usize| size.is_power_of_two() && *size > page_size())
    })
}

#[cfg(not(test))]
#[inline(always)]
fn fault(_call: Call) -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub use faults::{fault, with_fault};

#[cfg(test)]
mod faults {
    use std::cell::Cell;

    use super::{Call, Errno, Result};

    thread_local! {
        static NEXT: Cell<Option<(Call, u32, Errno)>> = const { Cell::new(None) };
    }

    pub fn fault(call: Call) -> Result<()> {
        match NEXT.get() {
            Some((kind, 0, errno)) if kind == call => {
                NEXT.set(None);
                Err(errno)
            }
            Some((kind, left, errno)) if kind == call => {
                NEXT.set(Some((kind, left - 1, errno)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Runs with the call of that kind failing, after `skip` that work. Whether it came to that.
    pub fn with_fault<R>(call: Call, skip: u32, errno: Errno, run: impl FnOnce() -> R) -> (R, bool) {
        NEXT.set(Some((call, skip, errno)));
        let result = run();
        (result, NEXT.take().is_none())
    }
}
