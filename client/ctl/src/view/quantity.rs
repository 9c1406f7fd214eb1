//! Bytes and durations, rounded for people; `--json` has them exactly.

use std::time::Duration;

/// `640 B`, `1.5 GiB`: units of 1024.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would round up to 1024.0 is 1.0 of the next unit.
    while value >= 1023.95 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Bytes that somebody says are registered with CUDA; `-` if none are.
pub(crate) fn pinned(of: u64) -> String {
    if of == 0 { "-".into() } else { bytes(of) }
}

/// `0.4s`, `2m 5s`, `3days 4h`: two units at most.
pub(crate) fn age(ms: u64) -> String {
    if ms < 10_000 {
        return format!("{:.1}s", ms as f64 / 1000.0);
    }
    let exact = humantime::format_duration(Duration::from_secs(ms / 1000)).to_string();
    exact.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_572_864, "1.5 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn ages_have_two_units() {
        for (ms, text) in [(0, "0.0s"), (9_940, "9.9s"), (125_000, "2m 5s"), (273_723_000, "3days 4h")] {
            assert_eq!(age(ms), text);
        }
    }
}
