//! The ring: how a sample gets from a worker's hands into a batch, by atomics alone.
//!
//! Read in the order of a sample's life:
//!
//! 1. [`control`]: which words there are, and where.
//! 2. [`fill_ring`]: the daemon publishes a free block as the next sequence.
//! 3. [`claim`]: a worker takes positions, its [`record`] written first.
//! 4. [`buf`]: it writes the arrays of its slots.
//! 5. [`commit`]: it sets the slots' bits; the one who fills the block completes it.
//! 6. [`ready`]: the reader that was granted the block sleeps on its state, and reads.
//! 7. [`reclaim`]: if the worker died on the way, its positions are offered again.
//! 8. [`finish`]: when the last writer is gone, what is left is delivered as it is.
//!
//! In a latest table the way is shorter: its writer says which value is the [`newest`], and readers [`hold`] it while they
//! read.
//!
//! What always holds, after any step of anybody, and whoever dies there: each position below the cursor is
//! committed, or offered, or covered by the record of a writer that lives, or by a claim that the daemon keeps
//! as orphaned. A committed slot does not change until its reader has given the block back. A block is
//! published again only when nobody can write it.
//!
//! There are no locks between processes and no leases that end by the clock, because a process may stop at
//! any instruction and go on an hour later: what it may then still do must be harmless, not merely late.
//!
//! The protocol was explored state by state (`tests/protocol_model`), and this code by loom
//! (`tests/ring_loom.rs`). Change the model first.

#[cfg(not(echo_loom))]
pub mod buf;
pub mod claim;
pub mod commit;
pub mod control;
pub mod fill_ring;
pub mod finish;
pub mod hold;
pub mod marks;
pub mod newest;
pub mod ready;
pub mod reclaim;
pub mod record;
pub mod space;
pub mod words;
