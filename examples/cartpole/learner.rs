//! The trainer's half of the learning: proximal policy optimisation with a clipped ratio.
//!
//! It learns from one batch at a time, as it comes, and keeps none. The samples in a batch were made by policies a
//! few versions old. Each carries the probability that its own policy gave the action, and pulls no further once
//! the ratio to that is clipped: all the correction that a short ring needs.

use crate::env::ACTIONS;
use crate::policy::{Adam, Forward, PARAMETERS, Policy};
use crate::sample::Batch;

/// Passes over each batch.
const EPOCHS: usize = 4;
/// Samples in one step of the optimiser.
const MINIBATCH: usize = 128;
const LEARNING_RATE: f32 = 2e-3;
/// The ratio of new to old probability beyond which a sample pulls no further.
const CLIP: f32 = 0.2;
/// Weight of the value function's error beside the policy's loss.
const VALUE_WEIGHT: f32 = 0.5;

/// A policy that gets better, batch by batch.
pub struct Learner {
    policy: Policy,
    adam: Adam,
    rng: fastrand::Rng,
}

/// What one batch was like.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    /// Mean age of the samples, in versions of the policy.
    pub lag: f32,
    /// Mean entropy of the policy over the batch, from 0 (certain) to ln 2.
    pub entropy: f32,
}

impl Learner {
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self { policy: Policy::new(&mut rng), adam: Adam::new(), rng }
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Learns from a batch, which makes the policy's next version.
    pub fn learn(&mut self, batch: &Batch<'_>) -> Learned {
        let (mean, spread) = mean_and_spread(batch.advantage);
        let mut order: Vec<usize> = (0..batch.len()).collect();
        let mut entropy = 0.0;
        for _ in 0..EPOCHS {
            self.rng.shuffle(&mut order);
            for minibatch in order.chunks(MINIBATCH) {
                let mut gradient = [0.0; PARAMETERS];
                for &i in minibatch {
                    let forward = self.policy.forward(&batch.observation[i]);
                    let advantage = (batch.advantage[i] - mean) / spread;
                    let logits = logits_gradient(&forward, batch.action[i], batch.log_prob[i], advantage);
                    let value = VALUE_WEIGHT * (forward.value - batch.value_target[i]);
                    self.policy.backward(&forward, logits, value, &mut gradient);
                    entropy += forward.entropy();
                }
                gradient.iter_mut().for_each(|g| *g /= minibatch.len() as f32);
                self.adam.step(&mut self.policy.parameters, &gradient, LEARNING_RATE);
            }
        }
        let samples = batch.len() as f32;
        let age = |&version: &u32| self.policy.version.saturating_sub(version) as f32;
        let lag = batch.policy_version.iter().map(age).sum::<f32>() / samples;
        self.policy.version += 1;
        Learned { lag, entropy: entropy / (samples * EPOCHS as f32) }
    }
}

/// Derivative by the logits of `-min(ratio * advantage, clip(ratio) * advantage)`, where the ratio is that of the
/// action's probability now to the one it was chosen with.
fn logits_gradient(forward: &Forward, action: i32, old_log_prob: f32, advantage: f32) -> [f32; ACTIONS] {
    let action = usize::from(action == 1);
    let ratio = (forward.log_probs[action] - old_log_prob).exp();
    let clipped = if advantage > 0.0 { ratio > 1.0 + CLIP } else { ratio < 1.0 - CLIP };
    if clipped {
        return [0.0; ACTIONS];
    }
    std::array::from_fn(|i| {
        let chosen = if i == action { 1.0 } else { 0.0 };
        -advantage * ratio * (chosen - forward.log_probs[i].exp())
    })
}

/// Mean and standard deviation, the latter never 0, so that it can be divided by.
fn mean_and_spread(values: &[f32]) -> (f32, f32) {
    let n = values.len() as f32;
    let mean = values.iter().sum::<f32>() / n;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    (mean, variance.sqrt().max(1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Observation;

    const HERE: Observation = [0.1, 0.2, 0.05, -0.1];

    /// A batch of one observation over and over, where pushing right turned out well and pushing left badly.
    fn right_is_better(learner: &mut Learner, samples: usize) -> Learned {
        let log_probs = learner.policy.forward(&HERE).log_probs;
        let action: Vec<i32> = (0..samples as i32).map(|i| i % 2).collect();
        let log_prob: Vec<f32> = action.iter().map(|&action| log_probs[action as usize]).collect();
        let advantage: Vec<f32> = action.iter().map(|&action| action as f32).collect();
        learner.learn(&Batch {
            observation: &vec![HERE; samples],
            action: &action,
            log_prob: &log_prob,
            advantage: &advantage,
            value_target: &vec![0.75; samples],
            episode_return: &vec![0.0; samples],
            policy_version: &vec![learner.policy.version.saturating_sub(2); samples],
        })
    }

    #[test]
    fn an_action_that_turned_out_well_becomes_likelier_and_the_value_goes_to_its_target() {
        let mut learner = Learner::new(1);
        let before = learner.policy.forward(&HERE);
        let batches = 30;
        let learned = (0..batches).map(|_| right_is_better(&mut learner, 300)).last().unwrap();
        let after = learner.policy.forward(&HERE);
        assert!(after.log_probs[1] > before.log_probs[1], "{:?}", after.log_probs);
        assert!((after.value - 0.75).abs() < 0.05, "{}", after.value);
        assert_eq!(learner.policy.version, batches);
        assert!((learned.lag - 2.0).abs() < 1e-6, "{}", learned.lag);
    }

    #[test]
    fn a_batch_without_spread_in_its_advantages_is_no_division_by_zero() {
        let mut learner = Learner::new(1);
        right_is_better(&mut learner, 1);
        assert!(learner.policy.parameters.iter().all(|p| p.is_finite()));
    }

    #[test]
    fn the_gradient_of_the_clipped_loss_is_what_finite_differences_say() {
        let policy = Policy::new(&mut fastrand::Rng::with_seed(1));
        for (old_prob, advantage) in
            [(0.5, 1.0), (0.5, -1.0), (0.3, 1.0), (0.3, -1.0), (0.9, 1.0), (0.9, -1.0)]
        {
            let old_log_prob = f32::ln(old_prob);
            let loss = |logits: [f32; ACTIONS]| {
                let log_sum = logits.iter().map(|x| x.exp()).sum::<f32>().ln();
                let ratio = (logits[1] - log_sum - old_log_prob).exp();
                -(ratio * advantage).min(ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * advantage)
            };
            // Logarithms of probabilities serve as logits: they add up to the same probabilities.
            let forward = policy.forward(&HERE);
            let analytic = logits_gradient(&forward, 1, old_log_prob, advantage);
            for i in 0..ACTIONS {
                let at = |shift: f32| {
                    let mut logits = forward.log_probs;
                    logits[i] += shift;
                    loss(logits)
                };
                let numeric = (at(1e-3) - at(-1e-3)) / 2e-3;
                assert!(
                    (numeric - analytic[i]).abs() < 1e-2,
                    "{old_prob} {advantage}: {numeric} {}",
                    analytic[i]
                );
            }
        }
    }
}
