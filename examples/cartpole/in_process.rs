//! The whole run in one process: threads for the workers, a channel for the ring.
//!
//! It shows how the learning half takes what the ring does to samples, without the ring: the steps of several
//! workers interleave, batches are cut anywhere, what waits in the channel was made by older policies, and a worker
//! that dies takes its segment and its episode along.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::env::Observation;
use crate::learner::Learner;
use crate::policy::Policy;
use crate::report::Report;
use crate::rollout;
use crate::sample::{BATCH_SIZE, Batch, CAPACITY, Sample, table_spec};
use crate::weights::{WeightsError, WeightsFile};

const WORKERS: u64 = 4;

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
    Weights(WeightsError),
}

/// Trains until the goal is reached or the samples are used up. `progress` is called when a line is due.
pub fn train(
    setting: Setting,
    weights: &WeightsFile,
    mut progress: impl FnMut(&Report),
) -> Result<Report, WeightsError> {
    let mut learner = Learner::new(setting.seed);
    weights.publish(learner.policy())?;
    let (sender, receiver) = sync_channel((CAPACITY * BATCH_SIZE) as usize);
    thread::scope(|scope| {
        // The receiver ends with this closure, also on an error, and the workers end with the receiver.
        let receiver = receiver;
        let mut workers = Vec::new();
        for worker in 0..WORKERS {
            let sender = sender.clone();
            workers.push(scope.spawn(move || work(setting, worker, weights, &sender)));
        }
        drop(sender);
        let mut rng = fastrand::Rng::with_seed(setting.seed);
        let mut report = Report::new(table_spec().sample_bytes(), Instant::now());
        while !report.reached(setting.goal) && report.samples() < setting.max_samples {
            let asked = Instant::now();
            let columns = Columns::receive(&receiver, rng.u32(BATCH_SIZE / 2..BATCH_SIZE * 3 / 2));
            if columns.action.is_empty() {
                break; // no worker is left; the reason is below
            }
            let waited = asked.elapsed();
            let learned = learner.learn(&columns.batch());
            weights.publish(learner.policy())?;
            if report.add(&columns.batch(), learned, waited, Instant::now()) {
                progress(&report);
            }
        }
        drop(receiver);
        for worker in workers {
            worker.join().expect("a worker does not panic")?;
        }
        Ok(report)
    })
}

/// One worker and, when it dies, its successors.
fn work(
    setting: Setting,
    worker: u64,
    weights: &WeightsFile,
    sender: &SyncSender<Sample>,
) -> Result<(), WeightsError> {
    let mut rng = fastrand::Rng::with_seed(setting.seed * WORKERS + worker);
    loop {
        let born = Instant::now();
        // Deaths are independent of one another: lifetimes are exponentially distributed.
        let lifetime = setting.death_every.map(|mean| mean.mul_f32(-(1.0 - rng.f32()).ln() * WORKERS as f32));
        let newest =
            |policy: &mut Policy| weights.load().map(|newest| *policy = newest).map_err(Stop::Weights);
        let append = |sample: &Sample| match lifetime {
            Some(lifetime) if born.elapsed() > lifetime => Err(Stop::Died),
            _ => sender.send(*sample).map_err(|_| Stop::Closed),
        };
        let Err(stop) = rollout::run(rng.u64(..), newest, append);
        match stop {
            Stop::Died => {}
            Stop::Closed => return Ok(()),
            Stop::Weights(error) => return Err(error),
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
    use crate::private_dir::PrivateDir;

    /// A goal that a build without optimisation reaches soon, and that no policy reaches by chance (about 22).
    const GOAL: f32 = 100.0;

    fn learns(death_every: Option<Duration>) {
        let directory = PrivateDir::new().unwrap();
        let weights = WeightsFile::new(directory.path());
        let setting = Setting { seed: 1, death_every, goal: GOAL, max_samples: 500_000 };
        let report = train(setting, &weights, |_| ()).unwrap();
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

    #[test]
    fn a_worker_without_weights_ends_the_run_with_its_reason() {
        let directory = PrivateDir::new().unwrap();
        let weights = WeightsFile::new(directory.path());
        let (sender, _receiver) = sync_channel(1);
        let setting = Setting { seed: 1, death_every: None, goal: GOAL, max_samples: 1 };
        assert!(matches!(work(setting, 0, &weights, &sender), Err(WeightsError::Load { .. })));
    }
}
