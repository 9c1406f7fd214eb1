//! Whether this process is a forked copy of the one that mapped the rings.
//!
//! Rings are not inherited (`MADV_DONTFORK`), so in a child every pointer into one dangles, and unmapping could
//! hit what the child has mapped there since. A page that the kernel wipes on fork tells the two apart with one
//! load, which is cheap enough for every sample.

use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::Advice;
use rustix::process::{Pid, getpid};

use crate::memory::syscalls;
use crate::sync::{AtomicU32, Ordering};

/// How this process was marked.
enum Mark {
    /// Holds 1 here, and 0 in a child.
    Wiped(NonNull<AtomicU32>),
    /// Kernels before 4.14 do not wipe.
    Pid(Pid),
}

// SAFETY: the page is never unmapped, and what is in it is atomic.
unsafe impl Send for Mark {}
// SAFETY: as above.
unsafe impl Sync for Mark {}

static MARK: OnceLock<Mark> = OnceLock::new();

/// Marks this process, so that its children are told apart. To be called before anything is mapped.
pub fn mark() {
    MARK.get_or_init(|| wiped_page().map_or_else(|| Mark::Pid(getpid()), Mark::Wiped));
}

/// Whether this process was forked from one that had been marked.
#[inline]
pub fn forked() -> bool {
    match MARK.get() {
        None => false,
        // SAFETY: the page was mapped for good; it is aligned and holds a word.
        // Relaxed: the kernel wipes it before the child runs.
        Some(Mark::Wiped(page)) => unsafe { page.as_ref() }.load(Ordering::Relaxed) == 0,
        Some(Mark::Pid(marked)) => getpid() != *marked,
    }
}

fn wiped_page() -> Option<NonNull<AtomicU32>> {
    let bytes = syscalls::page_size();
    let address = syscalls::reserve(bytes).ok()?;
    let writable = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: reserved just now, for this alone.
    let mapped = unsafe { syscalls::map_private_over(address, bytes, writable) };
    // SAFETY: mapped; the advice is about children.
    let wiped = mapped.and_then(|()| unsafe { syscalls::advise(address, bytes, Advice::LinuxWipeOnFork) });
    if wiped.is_err() {
        // SAFETY: mapped just now, used by nobody.
        unsafe { syscalls::unmap(address, bytes) };
        return None;
    }
    let page = NonNull::new(address as *mut AtomicU32)?;
    // SAFETY: mapped and zeroed, for good.
    unsafe { page.as_ref() }.store(1, Ordering::Relaxed);
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        mark();
        assert!(!forked());
        // SAFETY: the child calls nothing but a load and _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(i32::from(forked())) };
        }
        let mut status = 0;
        // SAFETY: the child of this process, waited for once.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(!forked());
    }
}
