//! What becomes of the claims of a worker that is gone.
//!
//! A worker leaves its two records. For each position that they cover, the daemon decides between: never
//! claimed, offered again already, owned by somebody who lives, committed, or a *hole*, which it offers to the
//! others. The order of the looks is the proof, and is not to be changed: cursor, refill list, live records,
//! bit. A position can only move from "claimed by the dead" through "offered" to "covered by a live record" to
//! "committed"; looking in that direction, and acquiring at each step what the step before released, the
//! daemon cannot miss it on its way. (Look at the bit before the records, and a worker that commits in between
//! and clears its record makes a committed position look like a hole.)
//!
//! Everything is decided about *positions*, looked up in the daemon's private block table. The functions are
//! idempotent: a second call finds what the first one left.

use crate::ids::{BlockIndex, Position};
use crate::ring::control::{CLOSED, Control};
use crate::ring::record::RecordedClaim;
use crate::ring::space;
use crate::sync::Ordering;

/// Where an orphaned position is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The dead worker never got it.
    NotClaimed,
    /// It is offered to all.
    Offered,
    /// A living worker owns it, or is about to take it or to give it up: look again later.
    Covered,
    /// It is in its batch.
    Committed,
    /// Nobody owns it.
    Hole,
}

/// Looks for a position whose block lives, as the private table says.
///
/// `records` yields the records of every worker of the table that may still write; it is called once, after
/// the looks that must come before.
pub fn find<R>(
    control: &Control,
    position: Position,
    block: BlockIndex,
    records: impl FnOnce() -> R,
) -> Finding
where
    R: Iterator<Item = RecordedClaim>,
{
    // acquire: pairs with the claimers' CAS; their records were stored before it
    let cursor = control.cursor().load(Ordering::Acquire) & !CLOSED;
    if cursor <= position.0 {
        return Finding::NotClaimed;
    }
    for entry in 0..control.geometry().refill_len() {
        // acquire: pairs with the CAS that takes a hole; the taker's record was stored before it
        if control.refill(entry).load(Ordering::Acquire) == position.0 + 1 {
            return Finding::Offered;
        }
    }
    // The records are loaded with acquire: a record that is cleared by now was cleared behind its commit.
    if records().any(|record| record.covers(position)) {
        return Finding::Covered;
    }
    if control.is_committed(block, control.geometry().slot(position)) {
        return Finding::Committed;
    }
    Finding::Hole
}

/// Offers a hole in an entry that is free, as the private record and the word itself say.
pub fn offer(control: &Control, entry: u32, position: Position, block: BlockIndex) {
    control.refill_block(entry).store(block.get(), Ordering::Relaxed);
    // release: pairs with the acquire in `claim`; makes the block visible
    control.refill(entry).store(position.0 + 1, Ordering::Release);
    space::announce(control);
}

/// Takes an offer back. Whether it was still there: otherwise a worker has it.
pub fn withdraw(control: &Control, entry: u32, position: Position) -> bool {
    let word = control.refill(entry);
    // acq-rel: as the claimers, against whom this is a race; one attempt, no loop
    word.compare_exchange(position.0 + 1, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
}
