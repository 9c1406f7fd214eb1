//! The waiting policy of both sides of a throughput row: poll for 50 µs, then sleep.

use std::time::{Duration, Instant};

use echo::sync::{AtomicU64, futex_wait_low};

/// How long to poll before sleeping.
pub const POLL: Duration = Duration::from_micros(50);
/// How long to sleep at a time where nobody wakes.
const SLICE: Duration = Duration::from_millis(1);
/// Looks between two readings of the clock.
const LOOKS: u32 = 64;

/// Waits until the word makes `so` true, and returns it. The word's writer wakes nobody.
pub fn wait(word: &AtomicU64, so: impl Fn(u64) -> bool) -> u64 {
    use echo::sync::Ordering::Acquire;
    let started = Instant::now();
    loop {
        for _ in 0..LOOKS {
            // acquire: pairs with the release of whoever moves the word
            let seen = word.load(Acquire);
            if so(seen) {
                return seen;
            }
            std::hint::spin_loop();
        }
        if started.elapsed() > POLL {
            futex_wait_low(word, word.load(Acquire), SLICE);
        }
    }
}
