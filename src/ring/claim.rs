//! How a worker comes to own positions.
//!
//! The record in the client page is written *before* the claim is taken, and cleared if the claim is lost, so
//! that the daemon can account for every position whenever the worker vanishes. Positions are taken when the
//! samples are ready: batches are in arrival order, and a slow worker holds up nobody. A claim never crosses
//! a block's end. Holes that dead workers left are filled first, one at a time.

use thiserror::Error;

use crate::ids::{BlockIndex, BlockSeq, Position};
use crate::ring::control::{CLOSED, Control, POSITION_END};
use crate::ring::ready::ReadyWord;
use crate::ring::record::{MAX_CLAIM, Record, RecordedClaim};
use crate::ring::space;
use crate::sync::Ordering;

/// Positions that this worker owns: it alone may write their slots, until it commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The first position.
    pub position: Position,
    /// How many, all in one block.
    pub length: u32,
    /// The physical block.
    pub block: BlockIndex,
    /// The block's sequence.
    pub seq: BlockSeq,
    /// The first slot within the block.
    pub slot: u32,
}

impl Claim {
    #[inline]
    fn new(control: &Control, position: Position, length: u32, block: BlockIndex) -> Self {
        let geometry = control.geometry();
        Self { position, length, block, seq: geometry.seq(position), slot: geometry.slot(position) }
    }

    /// The first slot, counted over all blocks.
    #[inline]
    pub fn first_slot(&self, control: &Control) -> u64 {
        u64::from(self.block.get()) * u64::from(control.geometry().block_slots()) + u64::from(self.slot)
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// These are ours.
    Claimed(Claim),
    /// No room: wait while `space` is this.
    Full(u32),
    /// Nobody may claim, for now or for good: wait while `space` is this.
    Closed(u32),
}

/// Why there will be no claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum ClaimError {
    #[error("the table's last position has been written: create another table")]
    PositionsExhausted,
    #[error("the table names block {block}, of which {mapped} are mapped: another worker spoilt its memory")]
    NoSuchBlock { block: u32, mapped: u32 },
}

/// A worker's side of a table: its record, and what it remembers between claims.
pub struct Claimer {
    mapped_blocks: u32,
    /// `space` when the refill list was last found empty. While it is the same, no hole was offered since,
    /// so the list need not be read.
    no_holes_at: Option<u32>,
}

impl Claimer {
    /// A worker that has that many blocks mapped.
    #[inline]
    pub const fn new(mapped_blocks: u32) -> Self {
        Self { mapped_blocks, no_holes_at: None }
    }

    /// Tries to claim up to `wanted` positions (at least 1 is meant), without waiting.
    ///
    /// The record must hold no claim. It holds the one that is returned.
    #[inline]
    pub fn try_claim(
        &mut self,
        control: &Control,
        record: Record<'_>,
        wanted: u32,
    ) -> Result<Attempt, ClaimError> {
        loop {
            let seen = space::observe(control);
            if self.no_holes_at != Some(seen) {
                match self.try_hole(control, record)? {
                    Hole::Claimed(claim) => return Ok(Attempt::Claimed(claim)),
                    Hole::Lost => continue,
                    Hole::None => self.no_holes_at = Some(seen),
                }
            }
            let cursor = control.cursor().load(Ordering::Relaxed);
            if cursor & CLOSED != 0 {
                return Ok(Attempt::Closed(seen));
            }
            // acquire: pairs with the release in `raise_limit`; makes `fill` and the block's words ours to use
            let limit = control.limit().load(Ordering::Acquire);
            if cursor >= limit {
                return Ok(Attempt::Full(seen));
            }
            let geometry = control.geometry();
            let position = Position(cursor);
            let room = geometry.block_slots() - geometry.slot(position);
            let length = wanted.clamp(1, MAX_CLAIM).min(room);
            let length = u64::from(length).min(limit - cursor) as u32;
            let end = cursor + u64::from(length);
            if end >= POSITION_END {
                return Err(ClaimError::PositionsExhausted);
            }
            // Read before the CAS: behind it, the entry may already be another lap's. That it was this one's
            // is proved by the CAS: the cursor had not passed this block, so its entry was not reused.
            let block = self.checked(control.fill(geometry.seq(position)).load(Ordering::Relaxed))?;
            if length == room {
                control.expect_completion(block);
            }
            let recorded = RecordedClaim { position, length, dropped: false };
            // release: pairs with reclaim, which acquires the cursor and then the records
            record.claim().store(recorded.encode(), Ordering::Release);
            // acq-rel: releases the record with the claim; the release also keeps the load of `fill` before it
            let taken = control.cursor().compare_exchange(cursor, end, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return Ok(Attempt::Claimed(Claim::new(control, position, length, block)));
            }
            // A record that stays would cover positions that another worker owns, and hide their loss.
            record.claim().store(0, Ordering::Release);
        }
    }

    /// Tries to claim a hole that is offered.
    fn try_hole(&self, control: &Control, record: Record<'_>) -> Result<Hole, ClaimError> {
        for entry in 0..control.geometry().refill_len() {
            // acquire: pairs with the release in `reclaim::offer`
            let offered = control.refill(entry).load(Ordering::Acquire);
            if offered == 0 {
                continue;
            }
            let block = self.checked(control.refill_block(entry).load(Ordering::Relaxed))?;
            // A worker can write anything here, and so harm its own table; the arithmetic must hold all the same.
            let position = Position(offered.min(POSITION_END) - 1);
            // The entry may have been taken by now, and another hole offered in it: the block would be that one's,
            // and the CAS below would still succeed if ours is offered there a second time. A sequence has one block
            // for all its life, so the block whose word carries it is the right one.
            // Relaxed: a stale word is of an earlier life of that block, and no block has a sequence twice.
            let ready = control.ready(block).load(Ordering::Relaxed);
            if ReadyWord::decode(ready).is_none_or(|ready| ready.seq != control.geometry().seq(position)) {
                // What was offered meanwhile bumps `space` after it, and is looked at then.
                continue;
            }
            let recorded = RecordedClaim { position, length: 1, dropped: false };
            // release, and acq-rel: as for the cursor
            record.claim().store(recorded.encode(), Ordering::Release);
            let taken =
                control.refill(entry).compare_exchange(offered, 0, Ordering::AcqRel, Ordering::Relaxed);
            if taken.is_ok() {
                return Ok(Hole::Claimed(Claim::new(control, position, 1, block)));
            }
            record.claim().store(0, Ordering::Release);
            return Ok(Hole::Lost);
        }
        Ok(Hole::None)
    }

    #[inline]
    fn checked(&self, block: u32) -> Result<BlockIndex, ClaimError> {
        BlockIndex::new(block, self.mapped_blocks)
            .ok_or(ClaimError::NoSuchBlock { block, mapped: self.mapped_blocks })
    }
}

enum Hole {
    Claimed(Claim),
    Lost,
    None,
}
