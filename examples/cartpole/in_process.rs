//! The whole run in one process: threads for the workers, a channel for the ring, a lock for the newest policy.
//!
//! It shows how the learning half takes what the ring does to samples, without the ring: the steps of several
//! workers interleave, batches are cut anywhere, what waits in the channel was made by older policies, and a worker
//! that dies takes its segment and its episode along.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::env::Observation;
use crate::learner::Learner;
use crate::policy::Policy;
use crate::report::Report;
use crate::rollout;
use crate::sample::{BATCH_SIZE, Batch, CAPACITY, Sample, table_spec};

const WORKERS: u64 = 4;
const NO_PANIC: &str = "a worker does not panic";

/// What a run is like, and when it ends.
#[derive(Clone, Copy)]
pub struct Setting {
    pub seed: u64,
    /// Mean time between two deaths of a worker, which is replaced at once.
    pub death_every: Option<Duration>,
    /// The run ends at this mean return over 100 episodes, or after so many samples.
    pub goal: f32,
    pub max_samples: u64,
}

/// Why a worker stopped.
enum Stop {
    Died,
    /// Nobody wants samples any more.
    Closed,
}

/// Trains until the goal is reached or the samples are used up. `progress` is called when a line is due.
pub fn train(setting: Setting, mut progress: impl FnMut(&Report)) -> Report {
    let mut learner = Learner::new(setting.seed);
    let newest = Mutex::new(learner.policy().clone());
    let (sender, receiver) = sync_channel((CAPACITY * BATCH_SIZE) as usize);
    thread::scope(|scope| {
        let newest = &newest;
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let sender = sender.clone();
            workers.push(scope.spawn(move || work(setting, worker, newest, &sender)));
        }
        drop(sender);
        let mut rng = fastrand::Rng::with_seed(setting.seed);
        let mut report = Report::new(table_spec().sample_bytes(), Instant::now());
        while !report.reached(setting.goal) && report.samples() < setting.max_samples {
            let asked = Instant::now();
            let columns = Columns::receive(&receiver, rng.u32(BATCH_SIZE / 2..BATCH_SIZE * 3 / 2));
            if columns.action.is_empty() {
                break; // no worker is left; that they panicked is said below
            }
            let waited = asked.elapsed();
            let learned = learner.learn(&columns.batch());
            newest.lock().expect(NO_PANIC).clone_from(learner.policy());
            if report.add(&columns.batch(), learned, waited, Instant::now()) {
                progress(&report);
            }
        }
        drop(receiver);
        for worker in workers {
            worker.join().expect(NO_PANIC);
        }
        report
    })
}

/// One worker and, when it dies, its successors. It ends when nobody wants samples any more.
fn work(setting: Setting, worker: u64, newest: &Mutex<Policy>, sender: &SyncSender<Sample>) {
    let mut rng = fastrand::Rng::with_seed(setting.seed * WORKERS + worker);
    loop {
        let born = Instant::now();
        // Deaths are independent of one another: lifetimes are exponentially distributed.
        let lifetime = setting.death_every.map(|mean| mean.mul_f32(-(1.0 - rng.f32()).ln() * WORKERS as f32));
        let newest = |policy: &mut Policy| {
            policy.clone_from(&newest.lock().expect(NO_PANIC));
            Ok(())
        };
        let append = |sample: &Sample| match lifetime {
            Some(lifetime) if born.elapsed() > lifetime => Err(Stop::Died),
            _ => sender.send(*sample).map_err(|_| Stop::Closed),
        };
        let stop: Result<Infallible, Stop> = rollout::run(rng.u64(..), newest, append);
        match stop {
            Err(Stop::Died) => {}
            Err(Stop::Closed) => return,
        }
    }
}

/// A batch of its own memory, laid out as the ring lays it out.
#[derive(Default)]
struct Columns {
    observation: Vec<Observation>,
    action: Vec<i32>,
    log_prob: Vec<f32>,
    advantage: Vec<f32>,
    value_target: Vec<f32>,
    episode_return: Vec<f32>,
    policy_version: Vec<u32>,
}

impl Columns {
    /// The next `samples` samples in the order of their arrival; fewer if there are no more workers.
    fn receive(receiver: &Receiver<Sample>, samples: u32) -> Self {
        let mut columns = Self::default();
        for sample in receiver.iter().take(samples as usize) {
            columns.observation.push(sample.observation);
            columns.action.push(sample.action);
            columns.log_prob.push(sample.log_prob);
            columns.advantage.push(sample.advantage);
            columns.value_target.push(sample.value_target);
            columns.episode_return.push(sample.episode_return);
            columns.policy_version.push(sample.policy_version);
        }
        columns
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            observation: &self.observation,
            action: &self.action,
            log_prob: &self.log_prob,
            advantage: &self.advantage,
            value_target: &self.value_target,
            episode_return: &self.episode_return,
            policy_version: &self.policy_version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A goal that a build without optimisation reaches soon, and that no policy reaches by chance (about 22).
    const GOAL: f32 = 100.0;

    fn learns(death_every: Option<Duration>) {
        let setting = Setting { seed: 1, death_every, goal: GOAL, max_samples: 500_000 };
        let report = train(setting, |_| ());
        assert!(report.reached(GOAL), "{report}");
    }

    #[test]
    fn four_workers_teach_it_to_balance_for_a_while() {
        learns(None);
    }

    #[test]
    fn it_learns_although_workers_keep_dying() {
        learns(Some(Duration::from_millis(200)));
    }
}
