//! What the run has to say: a line now and then, and a summary.
//!
//! It counts and words, and prints nothing. The time is passed in.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use crate::learner::Learned;
use crate::sample::Batch;

/// Episodes that the mean return is taken over.
const EPISODES: usize = 100;
/// Mean return at which the task counts as solved, of 500.
pub const SOLVED: f32 = 475.0;
/// Time between two lines of progress.
const INTERVAL: Duration = Duration::from_millis(250);

/// The counters of a run. `Display` is the line of progress.
pub struct Report {
    started: Instant,
    /// When the last batch was done.
    now: Instant,
    due: Instant,
    sample_bytes: u64,
    samples: u64,
    batches: u64,
    episodes: u64,
    waited: Duration,
    /// Returns of the last episodes, the newest last.
    returns: VecDeque<f32>,
    last: Learned,
}

impl Report {
    /// A report on samples of `sample_bytes` bytes each.
    pub fn new(sample_bytes: u64, now: Instant) -> Self {
        Self {
            started: now,
            now,
            due: now + INTERVAL,
            sample_bytes,
            samples: 0,
            batches: 0,
            episodes: 0,
            waited: Duration::ZERO,
            returns: VecDeque::with_capacity(EPISODES),
            last: Learned { lag: 0.0, entropy: 0.0 },
        }
    }

    /// Counts a batch that the trainer waited for and then learned from. Says whether a line of progress is due.
    pub fn add(&mut self, batch: &Batch<'_>, learned: Learned, waited: Duration, now: Instant) -> bool {
        self.samples += batch.len() as u64;
        self.batches += 1;
        self.waited += waited;
        self.last = learned;
        self.now = now;
        for &episode in batch.episode_return.iter().filter(|&&episode| episode > 0.0) {
            if self.returns.len() == EPISODES {
                self.returns.pop_front();
            }
            self.returns.push_back(episode);
            self.episodes += 1;
        }
        let due = now >= self.due;
        if due {
            self.due = now + INTERVAL;
        }
        due
    }

    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Mean return of the last episodes, up to 100 of them; 0 before the first has ended.
    pub fn mean_return(&self) -> f32 {
        self.returns.iter().fold(0.0, |sum, episode| sum + episode) / self.returns.len().max(1) as f32
    }

    /// Whether the mean return of 100 episodes is at least `goal`.
    pub fn reached(&self, goal: f32) -> bool {
        self.returns.len() == EPISODES && self.mean_return() >= goal
    }

    /// The whole run, in a few lines; the last one is the outcome.
    pub fn summary(&self) -> String {
        let seconds = self.seconds();
        let bytes = self.samples * self.sample_bytes;
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        let outcome = if self.reached(SOLVED) { "solved" } else { "not solved" };
        format!(
            "{} samples in {} batches, {bytes} bytes, {} episodes\n\
             {seconds:.1} s: {:.0} samples/s, {:.1} MiB/s; the trainer waited for {:.0} % of it\n\
             {outcome}: mean return {:.1} over {} episodes",
            self.samples,
            self.batches,
            self.episodes,
            self.samples as f64 / seconds,
            mebibytes / seconds,
            100.0 * self.waited.as_secs_f64() / seconds,
            self.mean_return(),
            self.returns.len(),
        )
    }

    /// Seconds so far, never 0, so that it can be divided by.
    fn seconds(&self) -> f64 {
        (self.now - self.started).as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        write!(
            f,
            "{seconds:5.1} s  {:8} samples  {:7.0}/s  mean return {:5.1}  policy lag {:3.1}  entropy {:.2}",
            self.samples,
            self.samples as f64 / seconds,
            self.mean_return(),
            self.last.lag,
            self.last.entropy,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEARNED: Learned = Learned { lag: 1.5, entropy: 0.4 };

    /// Adds a batch of two steps, the second of which ends an episode with that return.
    fn add(report: &mut Report, episode_return: f32, waited: Duration, now: Instant) -> bool {
        let batch = Batch {
            observation: &[[0.0; 4]; 2],
            action: &[0, 1],
            log_prob: &[0.0; 2],
            advantage: &[0.0; 2],
            value_target: &[0.0; 2],
            episode_return: &[0.0, episode_return],
            policy_version: &[0; 2],
        };
        report.add(&batch, LEARNED, waited, now)
    }

    #[test]
    fn the_goal_is_reached_by_the_last_hundred_episodes_and_by_no_fewer() {
        let now = Instant::now();
        let mut report = Report::new(40, now);
        add(&mut report, 1.0, Duration::ZERO, now);
        for _ in 0..99 {
            add(&mut report, 479.0, Duration::ZERO, now);
        }
        assert!(report.mean_return() < SOLVED && !report.reached(SOLVED), "{report}");
        add(&mut report, 479.0, Duration::ZERO, now);
        assert!(report.reached(SOLVED), "{report}");

        let mut few = Report::new(40, now);
        add(&mut few, 500.0, Duration::ZERO, now);
        assert!(!few.reached(SOLVED), "{few}");
    }

    #[test]
    fn a_line_is_due_once_an_interval() {
        let start = Instant::now();
        let mut report = Report::new(40, start);
        let at = |intervals: f32| start + INTERVAL.mul_f32(intervals);
        let due: Vec<bool> =
            [0.5, 1.1, 1.2, 2.05, 2.15].map(|t| add(&mut report, 0.0, Duration::ZERO, at(t))).into();
        assert_eq!(due, [false, true, false, false, true]);
    }

    #[test]
    fn the_summary_ends_with_the_outcome() {
        let start = Instant::now();
        let mut report = Report::new(40, start);
        assert!(report.summary().ends_with("not solved: mean return 0.0 over 0 episodes"));
        for batch in 1..=100 {
            add(&mut report, 500.0, Duration::from_millis(5), start + Duration::from_millis(20 * batch));
        }
        let expected = "200 samples in 100 batches, 8000 bytes, 100 episodes\n\
                        2.0 s: 100 samples/s, 0.0 MiB/s; the trainer waited for 25 % of it\n\
                        solved: mean return 500.0 over 100 episodes";
        assert_eq!(report.summary(), expected);
    }
}
