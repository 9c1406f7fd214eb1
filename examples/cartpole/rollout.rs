//! One rollout worker: plays episodes with the newest policy and appends a sample for each step.
//!
//! It plays a segment of steps first and appends them then, since the advantage of a step depends on what came
//! after it (generalised advantage estimation). A worker that dies takes its segment along, and nothing else.

use std::convert::Infallible;

use crate::env::{CartPole, Status};
use crate::policy::{Forward, Policy};
use crate::sample::Sample;

/// Steps in one segment; what lies beyond it is estimated by the value function.
const SEGMENT: usize = 64;
/// What a reward is worth one step later.
const DISCOUNT: f32 = 0.99;
/// How far the advantage trusts the rewards (1) over the value function (0).
const TRACE: f32 = 0.95;
/// A step's reward, scaled so that an episode without an end is worth 1.
const REWARD: f32 = 1.0 - DISCOUNT;

/// Plays and appends until `newest` (which updates the policy, if there is a newer one) or `append` fails.
pub fn run<E>(
    seed: u64,
    mut newest: impl FnMut(&mut Policy) -> Result<(), E>,
    mut append: impl FnMut(&Sample) -> Result<(), E>,
) -> Result<Infallible, E> {
    let mut rollout = Rollout::new(seed);
    loop {
        newest(&mut rollout.policy)?;
        rollout.play();
        for step in &rollout.segment {
            append(&step.sample)?;
        }
    }
}

/// A worker's episode and the segment that it has just played.
struct Rollout {
    rng: fastrand::Rng,
    policy: Policy,
    env: CartPole,
    segment: Vec<Step>,
}

/// A step, before and after its advantage is known.
struct Step {
    sample: Sample,
    /// Value of the state that the step started from.
    value: f32,
    /// Where the episode ended with this step: the value of the state that it ended in.
    last_value: Option<f32>,
}

impl Rollout {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self { policy: Policy::new(&mut rng), env: CartPole::new(&mut rng), rng, segment: Vec::new() }
    }

    /// Plays a segment, the advantages included.
    fn play(&mut self) {
        self.segment.clear();
        for _ in 0..SEGMENT {
            let step = self.step();
            self.segment.push(step);
        }
        let beyond = self.policy.forward(&self.env.observation()).value;
        credit(&mut self.segment, beyond);
    }

    fn step(&mut self) -> Step {
        let observation = self.env.observation();
        let forward: Forward = self.policy.forward(&observation);
        let action = forward.draw(&mut self.rng);
        let status = self.env.step(action);
        let last_value = match status {
            Status::Running => None,
            Status::Terminated => Some(0.0),
            Status::Truncated => Some(self.policy.forward(&self.env.observation()).value),
        };
        let mut episode_return = 0.0;
        if last_value.is_some() {
            episode_return = self.env.steps() as f32;
            self.env = CartPole::new(&mut self.rng);
        }
        let sample = Sample {
            observation,
            action: action as i32,
            log_prob: forward.log_probs[action],
            advantage: 0.0,
            value_target: 0.0,
            episode_return,
            policy_version: self.policy.version,
        };
        Step { sample, value: forward.value, last_value }
    }
}

/// Works out advantages and value targets, from the last step to the first. `beyond` is the value of the state
/// after the last one.
fn credit(segment: &mut [Step], beyond: f32) {
    let (mut next_value, mut advantage) = (beyond, 0.0);
    for step in segment.iter_mut().rev() {
        if let Some(last_value) = step.last_value {
            (next_value, advantage) = (last_value, 0.0);
        }
        let surprise = REWARD + DISCOUNT * next_value - step.value;
        advantage = surprise + DISCOUNT * TRACE * advantage;
        step.sample.advantage = advantage;
        step.sample.value_target = step.value + advantage;
        next_value = step.value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(last_values: &[Option<f32>]) -> Vec<Step> {
        let mut rollout = Rollout::new(1);
        let step = |&last_value| Step { value: 0.5, last_value, ..rollout.step() };
        last_values.iter().map(step).collect()
    }

    #[test]
    fn credit_does_not_cross_the_end_of_an_episode() {
        let mut steps = segment(&[None, Some(0.0), None]);
        credit(&mut steps, 0.8);
        let fall = REWARD - 0.5;
        let expected =
            [REWARD + DISCOUNT * 0.5 - 0.5 + DISCOUNT * TRACE * fall, fall, REWARD + DISCOUNT * 0.8 - 0.5];
        for (step, expected) in steps.iter().zip(expected) {
            assert!((step.sample.advantage - expected).abs() < 1e-6, "{}", step.sample.advantage);
            assert!((step.sample.value_target - (0.5 + expected)).abs() < 1e-6);
        }
    }

    #[test]
    fn a_truncated_episode_is_worth_what_it_could_have_gone_on_to() {
        let mut fallen = segment(&[Some(0.0)]);
        let mut cut_off = segment(&[Some(0.9)]);
        credit(&mut fallen, 0.0);
        credit(&mut cut_off, 0.0);
        assert!(fallen[0].sample.advantage < 0.0 && cut_off[0].sample.advantage > 0.0);
    }

    #[test]
    fn a_worker_takes_up_each_policy_and_stops_at_the_first_error() {
        let (mut version, mut appended) = (0, Vec::new());
        let newest = |policy: &mut Policy| {
            version += 1;
            policy.version = version;
            Ok(())
        };
        let append = |sample: &Sample| {
            appended.push(*sample);
            if appended.len() == 3 * SEGMENT { Err("full") } else { Ok(()) }
        };
        let Err(error) = run(7, newest, append);
        assert_eq!(error, "full");
        let versions: Vec<u32> = appended.chunks(SEGMENT).map(|segment| segment[0].policy_version).collect();
        assert_eq!(versions, [1, 2, 3]);
        assert!(appended.iter().any(|sample| sample.episode_return > 0.0), "no episode of 192 steps ended");
    }
}
