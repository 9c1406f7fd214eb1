//! One clock for all processes.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started; the same in every process.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
