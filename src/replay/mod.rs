//! Replay tables: samples that are chosen, read, and put back, until they are removed.
//!
//! A replay table is a ring like any other: workers claim positions, write, and commit. What differs is how its slots
//! are read and when they are free again, and that is decided here, by pure code: no input or output, no clock, no
//! randomness of its own, no shared memory that anybody else writes.
//!
//! - [`settings`]: what a table is asked to be, and what is refused.
//! - [`index`]: which items there are, which are sampled, which have to go; the state machine.
//! - [`selector`]: fifo, lifo, uniform, prioritized and heaps, each as sampler and as remover.
//! - [`limiter`]: who has to wait for whom, and why.
//! - [`staleness`]: lags, and how much more may be made.
//! - [`weights`]: importance weights.
//! - [`items`]: what is kept of each item, from which a table can be taken over.
//! - [`sum_tree`], [`peaks`], [`live`], [`key_map`]: what the index looks things up in.
//! - [`rng`]: randomness from outside.

pub mod index;
pub mod items;
pub mod key_map;
pub mod limiter;
pub mod live;
pub mod peaks;
pub mod rng;
pub mod selector;
pub mod settings;
pub mod staleness;
pub mod sum_tree;
pub mod weights;

#[cfg(test)]
mod tests;
