//! The protocol in shared memory, state by state.
//!
//! Workers, readers and the daemon are small state machines over a copy of the shared words; each step is one access
//! of memory. The explorer takes every step of everybody from every state that it finds, crashes before any step
//! included, and asks two things: does an invariant break (a sample lost, doubled or torn, a block reused under
//! somebody), and is there, from every state, a way to a good end (each sample that was committed has been read, and
//! nobody waits).
//!
//! Read `state.rs` (what there is), `worker.rs`, `reader.rs` and `daemon/` (who does what, a file a job),
//! `invariants.rs` (what must hold). [`rules`] are the rules of the protocol that somebody could leave out:
//! `rules_on.rs` keeps all of them and must find nothing, `rules_off.rs` leaves out one at a time and must find what
//! that one prevents.
//!
//! A latest table is a model of its own, by the same explorer: `latest/`.
//!
//! A violation is printed as the shortest way to it, a step a line, with the last state below. One configuration:
//!
//! ```text
//! cargo test --release --test protocol_model a_commit_that_is_no_cas -- --nocapture
//! ```
//!
//! Its memory is sequentially consistent: orderings are `tests/ring_loom.rs`'s to explore. The private record that says
//! `Finishing` here is the ledger's `Short`; its `Finishing`, noted before anything is moved, changes nothing that
//! anybody sees.

#![expect(unreachable_pub, reason = "a test binary has no public side: pub is for the other modules")]

mod arena;
mod configuration;
mod daemon;
mod explorer;
mod invariants;
mod latest;
mod ledger;
mod packing;
mod queue;
mod reader;
mod record;
mod rules;
mod rules_off;
mod rules_on;
mod shared;
mod state;
mod successors;
mod worker;
