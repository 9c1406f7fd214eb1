//! How often something may be done: so many times a second, and as many at once after a second of silence.
//!
//! Pure: the time comes in. What comes too early is not refused but told how long to wait, so that a hasty client is
//! slow and not broken.

use std::time::Duration;

/// What is left of a rate.
#[derive(Debug)]
pub struct Allowance {
    interval: Duration,
    /// When everything that was taken will have been regained.
    full_at: Duration,
}

/// How much may be taken at once: what is regained in this time.
const BURST: Duration = Duration::from_secs(1);
/// How much is ever remembered: nobody waits longer than a second, whatever was taken.
const LONGEST: Duration = Duration::from_secs(2);

impl Allowance {
    /// So many a second, at least one, and nothing taken yet.
    pub fn new(per_second: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.max(1), full_at: Duration::ZERO }
    }

    /// Takes one, and says how long to wait before it may be used.
    pub fn take(&mut self, now: Duration) -> Duration {
        self.spend(now, self.interval);
        self.full_at.saturating_sub(now + BURST)
    }

    /// Takes so much time of it.
    pub fn spend(&mut self, now: Duration, time: Duration) {
        self.full_at = (self.full_at.max(now) + time).min(now + LONGEST);
    }

    /// Whether something of what was taken is not regained yet.
    pub fn is_spent(&self, now: Duration) -> bool {
        self.full_at > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_work_is_free_and_the_rest_comes_at_its_rate() {
        let mut allowance = Allowance::new(100);
        let now = Duration::from_secs(7);
        assert!((0..100).all(|_| allowance.take(now).is_zero()));
        assert_eq!(allowance.take(now), Duration::from_millis(10));
        assert_eq!(allowance.take(now), Duration::from_millis(20));
        // Half a second later fifty are back, of which two are spent.
        let later = now + Duration::from_millis(500);
        assert_eq!((0..60).filter(|_| allowance.take(later).is_zero()).count(), 48);
        allowance.spend(later, Duration::from_secs(3600));
        assert_eq!(allowance.take(later), LONGEST - BURST, "no debt is longer");
        let much_later = Duration::from_secs(60);
        assert_eq!((0..200).filter(|_| allowance.take(much_later).is_zero()).count(), 100);
    }
}
