//! CartPole-v1: a pole on a cart, to be kept upright by pushing the cart left or right.
//!
//! The dynamics are those that Barto, Sutton and Anderson published in 1983, with the bounds and the 500 steps
//! of version 1. Every step is worth a reward of 1, so an episode's return is its length.

use std::f32::consts::PI;

/// Steps after which an episode is cut off, however well it goes.
pub const MAX_STEPS: u32 = 500;
/// Actions: push left, push right.
pub const ACTIONS: usize = 2;

/// What the policy sees: cart position (m), cart velocity (m/s), pole angle (rad), angular velocity (rad/s).
pub type Observation = [f32; 4];

const GRAVITY: f32 = 9.8;
const CART_MASS: f32 = 1.0;
const POLE_MASS: f32 = 0.1;
const TOTAL_MASS: f32 = CART_MASS + POLE_MASS;
/// Half of the pole, which is what the equations ask for.
const POLE_LENGTH: f32 = 0.5;
const FORCE: f32 = 10.0;
/// Seconds in one step.
const TAU: f32 = 0.02;
const POSITION_BOUND: f32 = 2.4;
const ANGLE_BOUND: f32 = 12.0 * PI / 180.0;

/// How an episode goes on after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Running,
    /// The pole fell or the cart left the track: nothing of value follows.
    Terminated,
    /// The time was up. The future would still have been worth something, so its value is estimated.
    Truncated,
}

/// One cart and its pole.
pub struct CartPole {
    state: Observation,
    steps: u32,
}

impl CartPole {
    /// A new episode, from a state drawn close to upright and at rest.
    pub fn new(rng: &mut fastrand::Rng) -> Self {
        Self { state: std::array::from_fn(|_| rng.f32() * 0.1 - 0.05), steps: 0 }
    }

    pub fn observation(&self) -> Observation {
        self.state
    }

    /// Steps of this episode so far, which is also its return so far.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Pushes the cart left (0) or right (1) for one step.
    pub fn step(&mut self, action: usize) -> Status {
        let [position, velocity, angle, angular_velocity] = self.state;
        let force = if action == 1 { FORCE } else { -FORCE };
        let (sin, cos) = angle.sin_cos();
        let moment = POLE_MASS * POLE_LENGTH;
        let push = (force + moment * angular_velocity * angular_velocity * sin) / TOTAL_MASS;
        let angular_acceleration =
            (GRAVITY * sin - cos * push) / (POLE_LENGTH * (4.0 / 3.0 - POLE_MASS * cos * cos / TOTAL_MASS));
        let acceleration = push - moment * angular_acceleration * cos / TOTAL_MASS;
        // Euler: the positions move with the old velocities.
        self.state = [
            position + TAU * velocity,
            velocity + TAU * acceleration,
            angle + TAU * angular_velocity,
            angular_velocity + TAU * angular_acceleration,
        ];
        self.steps += 1;
        if self.state[0].abs() > POSITION_BOUND || self.state[2].abs() > ANGLE_BOUND {
            Status::Terminated
        } else if self.steps == MAX_STEPS {
            Status::Truncated
        } else {
            Status::Running
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starting_at(state: Observation) -> CartPole {
        CartPole { state, steps: 0 }
    }

    #[test]
    fn an_episode_starts_close_to_upright_and_at_rest() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            assert!(CartPole::new(&mut rng).observation().iter().all(|x| x.abs() <= 0.05));
        }
    }

    #[test]
    fn the_pole_falls_as_the_published_equations_say() {
        // The reference values come from another implementation, in 64 bits.
        let mut env = starting_at([0.03, -0.02, 0.01, 0.04]);
        let actions = [1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        for action in actions {
            assert_eq!(env.step(action), Status::Running);
        }
        let expected = [0.164_520_67, 1.547_717, -0.198_197_37, -2.487_925_3];
        for (x, y) in env.observation().iter().zip(expected) {
            assert!((x - y).abs() < 1e-4, "{:?} is not {expected:?}", env.observation());
        }
        assert_eq!(env.step(1), Status::Terminated);
        assert_eq!(env.steps(), 17);
    }

    #[test]
    fn leaving_the_track_on_either_side_ends_the_episode() {
        assert_eq!(starting_at([2.39, 1.0, 0.0, 0.0]).step(1), Status::Terminated);
        assert_eq!(starting_at([-2.39, -1.0, 0.0, 0.0]).step(0), Status::Terminated);
        assert_eq!(starting_at([2.39, -1.0, 0.0, 0.0]).step(1), Status::Running);
    }

    #[test]
    fn an_episode_is_truncated_at_its_last_step_unless_it_ends_there() {
        let last = MAX_STEPS - 1;
        assert_eq!(CartPole { state: [0.0; 4], steps: last - 1 }.step(0), Status::Running);
        assert_eq!(CartPole { state: [0.0; 4], steps: last }.step(0), Status::Truncated);
        assert_eq!(CartPole { state: [2.39, 1.0, 0.0, 0.0], steps: last }.step(0), Status::Terminated);
    }
}
