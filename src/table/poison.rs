//! What can be wrong with the words of a table, by name. Only its own workers can have caused it.

use thiserror::Error;

use crate::replay::index::{IndexError, InsertError};
use crate::ring::control::ControlError;
use crate::table::ledger::LedgerError;

/// A broken invariant, which only the table's own workers can have caused.
#[derive(Clone, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Poison {
    #[error("the cursor is {cursor}, outside of {seen} (what was seen) to {limit} (the limit)")]
    Cursor { cursor: u64, seen: u64, limit: u64 },
    #[error("refill entry {entry} holds {got}, where {offered} was offered")]
    Refill { entry: u32, got: u64, offered: u64 },
    #[error("refill entry {entry} names block {got}, where the hole that was offered is in block {block}")]
    RefillBlock { entry: u32, got: u32, block: u32 },
    #[error("the header does not say what table this is: {0}")]
    Header(ControlError),
    #[error("the limit is {got}, and {limit} was set")]
    Limit { got: u64, limit: u64 },
    #[error("the fill ring says that batch {seq} is in block {got}, and it is in {block}")]
    Fill { seq: u64, got: u32, block: u32 },
    #[error("a sample of block {block} could not be moved from slot {from} to {to}: {why}")]
    Move { block: u32, from: u32, to: u32, why: String },
    #[error("the state of block {block} is {got:#x}, which is none of batch {seq}")]
    State { block: u32, seq: u64, got: u64 },
    #[error("batch {seq} was given back before block {block} was complete: its reader or a worker spoilt it")]
    Incomplete { block: u32, seq: u64 },
    #[error(
        "the newest value is said to be {got:#x}, which is no value that is committed and newer than {seen:#x}"
    )]
    Newest { got: u64, seen: u64 },
    #[error("the private record does not fit what was committed: {0}")]
    Item(InsertError),
    #[error("no lease token could be made: {0}")]
    Tokens(String),
    #[error("it was so before this daemon took it over")]
    Before,
}

/// Why a table cannot be taken over.
#[derive(Clone, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum RebuildError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Items(#[from] IndexError),
    #[error("the table is a replay table, and its items are not there")]
    NoItems,
    #[error("blocks {first} and {second} both hold seq {seq}")]
    Twice { first: u32, second: u32, seq: u64 },
    #[error(transparent)]
    Poisoned(#[from] Poison),
}
