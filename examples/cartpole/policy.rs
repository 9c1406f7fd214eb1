//! The policy: a network of one hidden layer, its gradient by hand, and Adam.
//!
//! ```text
//! observation (4) -> tanh (HIDDEN) -> logits of the two actions, and the value of the state
//! ```
//!
//! All parameters lie in one flat array, so that the optimiser, the table of weights and the test of the gradient
//! need not know the layers.

use crate::env::{ACTIONS, Observation};

const INPUTS: usize = 4;
const HIDDEN: usize = 64;
/// The logits, then the value.
const OUTPUTS: usize = ACTIONS + 1;
/// Where the layers start in the flat array: weights (a row per input), biases, weights (a row per hidden unit), biases.
const HIDDEN_BIAS: usize = INPUTS * HIDDEN;
const OUTPUT_WEIGHTS: usize = HIDDEN_BIAS + HIDDEN;
const OUTPUT_BIAS: usize = OUTPUT_WEIGHTS + HIDDEN * OUTPUTS;
/// Parameters of the network.
pub const PARAMETERS: usize = OUTPUT_BIAS + OUTPUTS;

/// About how large each observation gets, so that the network sees numbers near 1.
const SCALE: Observation = [2.4, 2.0, 0.2, 2.0];

/// All weights and biases, or a gradient of the same shape.
pub type Parameters = [f32; PARAMETERS];

/// A policy and a value function in one network.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// Counts the updates; stamped on each sample, so that the trainer sees how stale it is.
    pub version: u32,
    pub parameters: Parameters,
}

/// What the network says about one observation, with what the way back needs.
pub struct Forward {
    inputs: [f32; INPUTS],
    hidden: [f32; HIDDEN],
    /// Logarithm of each action's probability.
    pub log_probs: [f32; ACTIONS],
    /// Estimate of the discounted, scaled return from here on.
    pub value: f32,
}

impl Policy {
    /// A policy that pushes either way with about the same probability.
    pub fn new(rng: &mut fastrand::Rng) -> Self {
        let mut parameters = [0.0; PARAMETERS];
        let mut spread = |range: &mut [f32], scale: f32| {
            range.iter_mut().for_each(|w| *w = (rng.f32() * 2.0 - 1.0) * scale);
        };
        spread(&mut parameters[..HIDDEN_BIAS], (3.0 / INPUTS as f32).sqrt());
        spread(&mut parameters[OUTPUT_WEIGHTS..OUTPUT_BIAS], 0.1 * (3.0 / HIDDEN as f32).sqrt());
        Self { version: 0, parameters }
    }

    pub fn forward(&self, observation: &Observation) -> Forward {
        let p = &self.parameters;
        let inputs = std::array::from_fn(|i| observation[i] / SCALE[i]);
        let mut hidden = [0.0; HIDDEN];
        hidden.copy_from_slice(&p[HIDDEN_BIAS..OUTPUT_WEIGHTS]);
        for (x, row) in inputs.iter().zip(p.chunks_exact(HIDDEN)) {
            hidden.iter_mut().zip(row).for_each(|(h, w)| *h += x * w);
        }
        hidden.iter_mut().for_each(|h| *h = h.tanh());
        let mut outputs = [0.0; OUTPUTS];
        outputs.copy_from_slice(&p[OUTPUT_BIAS..]);
        for (h, row) in hidden.iter().zip(p[OUTPUT_WEIGHTS..].chunks_exact(OUTPUTS)) {
            outputs.iter_mut().zip(row).for_each(|(o, w)| *o += h * w);
        }
        let [left, right, value] = outputs;
        let max = left.max(right);
        let log_sum = max + ((left - max).exp() + (right - max).exp()).ln();
        Forward { inputs, hidden, log_probs: [left - log_sum, right - log_sum], value }
    }

    /// Adds to `gradient` what a loss with these derivatives by the logits and by the value has.
    pub fn backward(&self, forward: &Forward, logits: [f32; ACTIONS], value: f32, gradient: &mut Parameters) {
        let outputs = [logits[0], logits[1], value];
        let (layer1, layer2) = gradient.split_at_mut(OUTPUT_WEIGHTS);
        let mut hidden = [0.0; HIDDEN];
        let rows =
            layer2.chunks_exact_mut(OUTPUTS).zip(self.parameters[OUTPUT_WEIGHTS..].chunks_exact(OUTPUTS));
        for ((d, h), (gradient, weights)) in hidden.iter_mut().zip(&forward.hidden).zip(rows) {
            let mut back = 0.0;
            for ((g, w), o) in gradient.iter_mut().zip(weights).zip(outputs) {
                *g += h * o;
                back += w * o;
            }
            *d = back * (1.0 - h * h);
        }
        layer2[HIDDEN * OUTPUTS..].iter_mut().zip(outputs).for_each(|(g, o)| *g += o);
        let (weights, biases) = layer1.split_at_mut(HIDDEN_BIAS);
        for (x, row) in forward.inputs.iter().zip(weights.chunks_exact_mut(HIDDEN)) {
            row.iter_mut().zip(&hidden).for_each(|(g, d)| *g += x * d);
        }
        biases.iter_mut().zip(&hidden).for_each(|(g, d)| *g += d);
    }
}

impl Forward {
    /// An action, drawn with its probability.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        usize::from(rng.f32() >= self.log_probs[0].exp())
    }

    /// How undecided the policy is: from 0 (certain) to ln 2.
    pub fn entropy(&self) -> f32 {
        -self.log_probs.iter().map(|p| p.exp() * p).sum::<f32>()
    }
}

/// The Adam optimiser.
pub struct Adam {
    steps: i32,
    mean: Parameters,
    square: Parameters,
}

impl Adam {
    const MEAN_DECAY: f32 = 0.9;
    const SQUARE_DECAY: f32 = 0.999;

    pub fn new() -> Self {
        Self { steps: 0, mean: [0.0; PARAMETERS], square: [0.0; PARAMETERS] }
    }

    /// One step of at most about `rate` a parameter, downhill.
    pub fn step(&mut self, parameters: &mut Parameters, gradient: &Parameters, rate: f32) {
        self.steps = self.steps.saturating_add(1);
        // Both averages start at zero; this takes the bias of that out.
        let mean_scale = 1.0 / (1.0 - Self::MEAN_DECAY.powi(self.steps));
        let square_scale = 1.0 / (1.0 - Self::SQUARE_DECAY.powi(self.steps));
        let averages = self.mean.iter_mut().zip(&mut self.square);
        for ((p, g), (mean, square)) in parameters.iter_mut().zip(gradient).zip(averages) {
            *mean += (1.0 - Self::MEAN_DECAY) * (g - *mean);
            *square += (1.0 - Self::SQUARE_DECAY) * (g * g - *square);
            *p -= rate * *mean * mean_scale / ((*square * square_scale).sqrt() + 1e-5);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_policy_is_undecided_and_its_probabilities_add_up() {
        let mut rng = fastrand::Rng::with_seed(1);
        let forward = Policy::new(&mut rng).forward(&[0.1, -0.2, 0.05, 0.3]);
        let sum: f32 = forward.log_probs.iter().map(|p| p.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        assert!(forward.entropy() > 0.6, "{}", forward.entropy());
        let drawn = (0..10_000).filter(|_| forward.draw(&mut rng) == 1).count() as f32 / 10_000.0;
        assert!((drawn - forward.log_probs[1].exp()).abs() < 0.03, "{drawn}");
    }

    #[test]
    fn the_gradient_is_what_finite_differences_say() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut policy = Policy::new(&mut rng);
        // A fresh policy's last layer is so small that the first one would have hardly any gradient to compare.
        policy.parameters[OUTPUT_WEIGHTS..].iter_mut().for_each(|w| *w = rng.f32() - 0.5);
        let observation = [0.5, -1.0, 0.1, 1.5];
        // Any smooth function of all outputs will do as a loss.
        let loss = |policy: &Policy| {
            let out = policy.forward(&observation);
            0.7 * out.log_probs[1] + (out.value - 0.3) * (out.value - 0.3)
        };
        let forward = policy.forward(&observation);
        let [left, right] = forward.log_probs.map(f32::exp);
        let mut gradient = [0.0; PARAMETERS];
        let logits = [-0.7 * left, 0.7 * (1.0 - right)];
        policy.backward(&forward, logits, 2.0 * (forward.value - 0.3), &mut gradient);
        for (i, &analytic) in gradient.iter().enumerate() {
            let at = |shift: f32| {
                let mut shifted = policy.clone();
                shifted.parameters[i] += shift;
                loss(&shifted)
            };
            let numeric = (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((numeric - analytic).abs() < 1e-3, "parameter {i}: {numeric} is not {analytic}");
        }
    }

    #[test]
    fn adam_finds_the_bottom_of_a_bowl() {
        let mut parameters = [1.0; PARAMETERS];
        let mut adam = Adam::new();
        for _ in 0..500 {
            let gradient = parameters.map(|p| 2.0 * (p - 0.25));
            adam.step(&mut parameters, &gradient, 0.01);
        }
        assert!(parameters.iter().all(|p| (p - 0.25).abs() < 1e-2));
    }
}
