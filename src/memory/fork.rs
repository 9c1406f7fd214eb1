//! In which process something was mapped.
//!
//! Rings are not inherited (`MADV_DONTFORK`), so in a forked child every pointer into one dangles, and unmapping could
//! hit what the child has mapped there since. Each process that maps something has a number, in a page that the
//! kernel wipes on fork: one load tells whether this is still the process where something was born, which is cheap
//! enough for every sample. A child gets a number of its own when it maps something itself.

use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::mm::Advice;
use rustix::process::getpid;

use crate::memory::syscalls;
use crate::sync::{AtomicU32, Ordering};

/// The process in which something was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Birthplace(u32);

impl Birthplace {
    /// This process.
    pub fn here() -> Self {
        let page = PAGE.get_or_init(wiped_page);
        let Some(Wiped(page)) = page else { return Self(current()) };
        // A child counts on from its parent, so no ancestor has its number.
        let fresh = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        // SAFETY: the page was mapped for good; it is aligned and holds a word.
        let number = unsafe { page.as_ref() };
        // Relaxed: whoever is first in this process decides, and only equality counts.
        match number.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(fresh),
            Err(taken) => Self(taken),
        }
    }

    /// Whether this process is a forked one, in which that memory is not.
    #[inline]
    pub fn is_elsewhere(self) -> bool {
        current() != self.0
    }
}

/// A page that is zeros in a child.
struct Wiped(NonNull<AtomicU32>);

// SAFETY: the page is never unmapped, and what is in it is atomic.
unsafe impl Send for Wiped {}
// SAFETY: as above.
unsafe impl Sync for Wiped {}

/// None on kernels before 4.14, which do not wipe.
static PAGE: OnceLock<Option<Wiped>> = OnceLock::new();
static LAST: AtomicU32 = AtomicU32::new(0);

/// This process's number, or 0 if it has none yet.
#[inline]
fn current() -> u32 {
    match PAGE.get() {
        None => 0,
        // SAFETY: the page was mapped for good; it is aligned and holds a word.
        // Relaxed: the kernel wipes it before the child runs.
        Some(Some(Wiped(page))) => unsafe { page.as_ref() }.load(Ordering::Relaxed),
        Some(None) => getpid().as_raw_pid().cast_unsigned(),
    }
}

fn wiped_page() -> Option<Wiped> {
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
    NonNull::new(address as *mut AtomicU32).map(Wiped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_elsewhere_and_has_a_place_of_its_own() {
        let here = Birthplace::here();
        assert_eq!(here, Birthplace::here());
        assert!(!here.is_elsewhere());
        // SAFETY: the child calls nothing but atomics and _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let was_elsewhere = here.is_elsewhere();
            let there = Birthplace::here();
            let good = was_elsewhere && here.is_elsewhere() && !there.is_elsewhere() && there != here;
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(i32::from(good)) };
        }
        let mut status = 0;
        // SAFETY: the child of this process, waited for once.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 1);
        assert!(!here.is_elsewhere());
    }
}
