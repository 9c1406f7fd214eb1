//! Waiting for words in shared memory: first polling, if that is wanted, then asleep.

use std::time::{Duration, Instant};

use echo::sync::{AtomicU32, AtomicU64, Ordering, futex_wait_any, low_half};

/// Longest sleep at a time. A peer that died between its commit and its wake is noticed after it.
const SLICE: Duration = Duration::from_millis(250);
/// Looks between two readings of the clock, which costs as much as some of them.
const LOOKS: u32 = 32;

/// A moment so far from now, or for ever.
pub(crate) fn deadline_in(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout).unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

/// A word, and what was seen in it.
#[derive(Clone, Copy)]
pub(crate) enum Watched<'a> {
    /// 4 bytes.
    Half(&'a AtomicU32, u32),
    /// 8 bytes, of which the kernel compares the lower half.
    Word(&'a AtomicU64, u64),
}

impl Watched<'_> {
    fn has_changed(&self) -> bool {
        // Relaxed: whoever finds a change looks again, with acquire.
        match *self {
            Self::Half(word, seen) => word.load(Ordering::Relaxed) != seen,
            Self::Word(word, seen) => word.load(Ordering::Relaxed) != seen,
        }
    }

    fn futex(&self) -> (&AtomicU32, u32) {
        match *self {
            Self::Half(word, seen) => (word, seen),
            Self::Word(word, seen) => (low_half(word), seen as u32),
        }
    }
}

/// Waits while all words are as they were seen: polls for so long, then sleeps, until the deadline or for a slice.
/// Returns for any reason or none: the caller looks again.
///
/// Polling watches these words alone. Of a block that is the state and not its commit words: a poller that loads
/// those takes their cache line from the workers at each commit.
pub(crate) fn wait(words: &[Watched<'_>], poll: Duration, deadline: Instant) {
    if !poll.is_zero() && changes_within(words, poll, deadline) {
        return;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        let words: Vec<_> = words.iter().map(Watched::futex).collect();
        match words[..] {
            // Nothing to wait for is waited for all the same.
            [] => std::thread::sleep(left.min(SLICE)),
            _ => futex_wait_any(&words, left.min(SLICE)),
        }
    }
}

fn changes_within(words: &[Watched<'_>], poll: Duration, deadline: Instant) -> bool {
    let started = Instant::now();
    let poll = poll.min(deadline.saturating_duration_since(started));
    loop {
        for _ in 0..LOOKS {
            if words.iter().any(Watched::has_changed) {
                return true;
            }
            std::hint::spin_loop();
        }
        if started.elapsed() >= poll {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_the_polling_and_nothing_else_does_before_its_time() {
        let (half, word) = (AtomicU32::new(1), AtomicU64::new(1 << 40));
        let unchanged = [Watched::Half(&half, 1), Watched::Word(&word, 1 << 40)];
        let far = Instant::now() + Duration::from_secs(60);
        assert!(!changes_within(&unchanged, Duration::from_micros(10), far));
        let changed = [Watched::Half(&half, 1), Watched::Word(&word, 0)];
        assert!(changes_within(&changed, Duration::from_secs(60), far), "the upper half counts");
        assert!(!changes_within(&unchanged, Duration::from_secs(60), Instant::now()), "the deadline counts");
    }
}
