//! Tables: who may write and read what, decided by pure state machines.
//!
//! - [`queue`]: grants, tokens, releases; the state machine of a queue table.
//! - [`orphan`]: claims whose worker is gone.
//! - [`ending`]: finishing and draining.
//! - [`ledger`]: the private record, from which a table can be taken over.
//! - [`member`]: writers and readers.
//! - `quota`: how many blocks one user's readers may hold.
//! - [`store`]: a queue and the memory of its arrays.
//! - [`turn`]: who may register a table's memory with CUDA now.
//! - [`why`]: what is being waited for, and since when.

pub mod ending;
pub mod ledger;
pub mod member;
pub mod orphan;
pub mod queue;
mod quota;
#[cfg(not(echo_loom))]
pub mod store;
pub mod turn;
pub mod why;

#[cfg(all(test, not(echo_loom)))]
mod tests;
