//! What travels through the ring: one step of one worker.
//!
//! A sample stands for itself. The worker has already worked out what the trainer has to know about the future of
//! the step (its advantage and its value), so nothing is lost where a batch begins or ends in the middle of an
//! episode, where the steps of several workers interleave, or where a worker dies.

use echo::spec::{ArraySpec, DType, TableSpec};

use crate::env::Observation;

/// Name of the table.
pub const TABLE: &str = "cartpole";
/// Samples in one batch.
pub const BATCH_SIZE: u32 = 512;
/// Batches in the ring. Few, since what waits in it was made by an older policy.
pub const CAPACITY: u32 = 4;

/// One step. Each field is an array of the table, under the path of the same name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub observation: Observation,
    pub action: i32,
    /// Logarithm of the probability with which the worker chose the action.
    pub log_prob: f32,
    /// How much better the action turned out than the worker's value function had foretold.
    pub advantage: f32,
    /// What the value function should have said.
    pub value_target: f32,
    /// Return of the episode that ended with this step; 0 where none did.
    pub episode_return: f32,
    /// Version of the policy that acted.
    pub policy_version: u32,
}

/// A batch as the ring holds it: each array by itself, the samples in a row.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub observation: &'a [Observation],
    pub action: &'a [i32],
    pub log_prob: &'a [f32],
    pub advantage: &'a [f32],
    pub value_target: &'a [f32],
    pub episode_return: &'a [f32],
    pub policy_version: &'a [u32],
}

impl Batch<'_> {
    /// Samples in the batch.
    pub fn len(&self) -> usize {
        self.action.len()
    }
}

/// The table: the arrays of one sample, and its size.
pub fn table_spec() -> TableSpec {
    let arrays = vec![
        ArraySpec::new("observation", DType::F32, [4]),
        ArraySpec::new("action", DType::I32, []),
        ArraySpec::new("log_prob", DType::F32, []),
        ArraySpec::new("advantage", DType::F32, []),
        ArraySpec::new("value_target", DType::F32, []),
        ArraySpec::new("episode_return", DType::F32, []),
        ArraySpec::new("policy_version", DType::U32, []),
    ];
    TableSpec::new(TABLE, arrays, BATCH_SIZE, CAPACITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spec_is_valid_and_has_room_for_every_field() {
        let spec = table_spec();
        assert_eq!(spec.validate(), Ok(()));
        assert_eq!(spec.sample_bytes(), size_of::<Sample>() as u64);
    }
}
