//! Tables: who may write and read what, decided by pure state machines.
//!
//! What all kinds of tables share:
//!
//! - [`intake`]: how samples come in: blocks, writers, claims.
//! - [`orphan`]: claims whose worker is gone.
//! - [`ending`]: finishing and draining.
//! - [`ledger`]: the private record, from which a table can be taken over.
//! - [`member`]: writers and readers.
//! - [`action`], [`poison`]: what is said to clients, and what can be wrong.
//!
//! What becomes of the samples, by kind:
//!
//! - [`queue`]: each batch to one reader of every group: grants, tokens, releases; [`group`]: each with its own place; `quota`: how
//!   many blocks one user's readers may hold.
//! - [`latest`]: the newest value to every reader; [`roster`]: who they are.
//! - [`replay`]: samples that are chosen, read and put back.
//! - [`machine`]: a table of whichever kind.
//!
//! And around them:
//!
//! - [`store`]: a state machine and the memory of its arrays.
//! - [`turn`]: who may register a table's memory with CUDA now.
//! - [`why`]: what is being waited for, and since when.

pub mod action;
pub mod ending;
pub mod group;
pub mod intake;
pub mod latest;
pub mod ledger;
pub mod machine;
pub mod member;
pub mod orphan;
pub mod poison;
pub mod queue;
mod quota;
pub mod replay;
pub mod roster;
#[cfg(not(echo_loom))]
pub mod store;
pub mod turn;
pub mod why;

#[cfg(all(test, not(echo_loom)))]
mod tests;
