//! The only door to atomics, fences and the futex: std's and the kernel's in a build, loom's under
//! `--cfg echo_loom`.
//!
//! The cfg is our own, since tokio reacts to `cfg(loom)`. A test (`tests/one_door_to_atomics.rs`) forbids std's elsewhere.

#[cfg(not(echo_loom))]
mod imp {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex;

    /// Sleeps while the word holds `seen`, for at most `slice`. Returns for any reason or none: the caller
    /// looks again. Works on a read-only shared mapping.
    pub fn futex_wait(word: &AtomicU32, seen: u32, slice: Duration) {
        let slice = rustix::time::Timespec {
            tv_sec: slice.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: slice.subsec_nanos().into(),
        };
        // Without PRIVATE: the word is shared between processes. Every error (EAGAIN: the word had changed,
        // EINTR, ETIMEDOUT, EFAULT where a hostile peer spoiled the mapping) means the same: look again.
        let _: Result<(), Errno> = futex::wait(word, futex::Flags::empty(), seen, Some(&slice));
    }

    /// Sleeps while the word's low half is that of `seen`. The half is only ever looked at by the kernel: in
    /// Rust the word is one word.
    pub fn futex_wait_low(word: &AtomicU64, seen: u64, slice: Duration) {
        futex_wait(low_half(word), seen as u32, slice);
    }

    /// Wakes everybody who sleeps on the word's low half.
    pub fn futex_wake_low(word: &AtomicU64) {
        futex_wake_all(low_half(word));
    }

    /// Sleeps while each of the words holds what is beside it, for at most `slice`. At most [`MAX_WORDS`] count.
    pub fn futex_wait_any(words: &[(&AtomicU32, u32)], slice: Duration) {
        let [first, rest @ ..] = words else { return };
        let waiters: Vec<futex::Wait> = words
            .iter()
            .take(MAX_WORDS)
            .map(|&(word, seen)| {
                let mut wait = futex::Wait::new();
                wait.val = seen.into();
                // The kernel only compares what is there.
                wait.uaddr = futex::WaitPtr::new(std::ptr::from_ref(word).cast_mut().cast());
                wait.flags = futex::WaitFlags::SIZE_U32;
                wait
            })
            .collect();
        let clock = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(clock);
        let nanos = now.tv_nsec + i64::from(slice.subsec_nanos());
        let until = rustix::time::Timespec {
            tv_sec: now.tv_sec.saturating_add_unsigned(slice.as_secs()).saturating_add(nanos / 1_000_000_000),
            tv_nsec: nanos % 1_000_000_000,
        };
        // As in `futex_wait`, every other outcome means: look again.
        let waited = futex::waitv(&waiters, futex::WaitvFlags::empty(), Some(&until), clock);
        if matches!(waited, Err(errno) if ![Errno::AGAIN, Errno::INTR, Errno::TIMEDOUT].contains(&errno)) {
            // Kernels before 5.16 wait on one word, and so do sandboxes that know no other call: the others are
            // looked at often.
            let slice = if rest.is_empty() { slice } else { slice.min(FALLBACK_SLICE) };
            futex_wait(first.0, first.1, slice);
        }
    }

    /// Whether the kernel can watch several words at a time; if not, [`futex_wait_any`] watches one.
    pub fn can_wait_any() -> bool {
        let (word, clock) = (AtomicU32::new(0), rustix::time::ClockId::Monotonic);
        let mut wait = futex::Wait::new();
        wait.val = 1;
        wait.uaddr = futex::WaitPtr::new(std::ptr::from_ref(&word).cast_mut().cast());
        wait.flags = futex::WaitFlags::SIZE_U32;
        let past = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        // The word does not hold 1, which is said at once by a kernel that looks.
        let waited = futex::waitv(&[wait], futex::WaitvFlags::empty(), Some(&past), clock);
        matches!(waited, Err(Errno::AGAIN))
    }

    /// Words on which one thread can sleep at a time: the kernel's limit.
    pub const MAX_WORDS: usize = 128;
    /// How long a sleeper overlooks all words but the first where the kernel cannot watch several.
    const FALLBACK_SLICE: Duration = Duration::from_millis(10);

    /// The address that the kernel compares and keys on. Nothing loads or stores through it here.
    pub fn low_half(word: &AtomicU64) -> &AtomicU32 {
        const { assert!(cfg!(target_endian = "little"), "the low half comes first") };
        let half: *const AtomicU32 = std::ptr::from_ref(word).cast();
        // SAFETY: in bounds of the word's 8 bytes, aligned to 8, alive for as long as the word's borrow.
        unsafe { &*half }
    }

    /// Asks for the cache line of what will be written soon, and waits for nothing. It changes no value, and means
    /// nothing to the memory model.
    #[inline]
    pub fn expect_write<T>(what: *const T) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint that neither faults nor changes memory, registers or flags, whatever the address; processors
        // that do not know it do nothing.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = what;
    }

    /// As [`expect_write`], of what will be read.
    #[inline]
    pub fn expect_read<T>(what: *const T) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a hint that neither faults nor changes memory, registers or flags, whatever the address.
        unsafe {
            std::arch::asm!("prefetcht0 [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        let _ = what;
    }

    /// Wakes everybody who sleeps on the word.
    pub fn futex_wake_all(word: &AtomicU32) {
        // An error is possible only for an address that is not mapped; there is then nobody to wake.
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(echo_loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

    use std::time::Duration;

    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        /// One queue for all words: wakes are spurious for the others, which a futex may always be.
        static ref SLEEPERS: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// Means nothing to the memory model.
    pub fn expect_write<T>(_what: *const T) {}

    /// Means nothing to the memory model.
    pub fn expect_read<T>(_what: *const T) {}

    /// Sleeps while the word holds `seen`; without the slice, so that a lost wake is a deadlock that loom
    /// reports. The kernel compares the word under its own lock, as this does.
    pub fn futex_wait(word: &AtomicU32, seen: u32, _slice: Duration) {
        let guard = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == seen {
            drop(SLEEPERS.1.wait(guard).unwrap());
        }
    }

    /// As [`futex_wait`], for a whole word.
    pub fn futex_wait_low(word: &AtomicU64, seen: u64, _slice: Duration) {
        let guard = SLEEPERS.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == seen {
            drop(SLEEPERS.1.wait(guard).unwrap());
        }
    }

    /// Wakes everybody.
    pub fn futex_wake_low(_word: &AtomicU64) {
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }

    /// Wakes everybody.
    pub fn futex_wake_all(_word: &AtomicU32) {
        let _guard = SLEEPERS.0.lock().unwrap();
        SLEEPERS.1.notify_all();
    }
}

pub use imp::*;
