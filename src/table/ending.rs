//! How a table ends.
//!
//! ```text
//!         the last writer finished, or the daemon drains       no claim is open          all given back
//!   open ───────────────────────────────────────▶ closing ───────────────────▶ closed ───────────────▶ empty
//! ```
//!
//! - *open*: workers claim, blocks go round.
//! - *closing*: the cursor is closed for good; claims that were open are being committed or given up.
//! - *closed*: every sample that was committed is in a complete block, some of them short; blocks no longer go
//!   round. Readers get them, and then hear that there is nothing more.
//!
//! A writer that dies without having finished does not end its table: somebody may start another one. The
//! table ends when at least one writer has finished and no other is left.

use std::io;

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::{fill_ring, finish, ready};
use crate::table::action::Action;
use crate::table::intake::Intake;
use crate::table::ledger::{BlockUse, Ledger};
use crate::table::member::Writer;
use crate::table::poison::Poison;
use crate::wire::message::EndReason;

/// A phase of a table's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Samples come and go.
    Open,
    /// No more claims.
    Closing(EndReason),
    /// No more samples.
    Closed(EndReason),
}

impl Phase {
    /// As the private record has it.
    pub(super) const fn encode(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Closing(reason) => (reason as u64) << 1,
            Self::Closed(reason) => (reason as u64) << 1 | 1,
        }
    }

    /// What the private record says.
    pub(super) const fn decode(word: u64) -> Self {
        let reason = match word >> 1 {
            1 => EndReason::Finished,
            2 => EndReason::Dropped,
            3 => EndReason::Draining,
            4 => EndReason::Poisoned,
            _ => return Self::Open,
        };
        if word & 1 == 0 { Self::Closing(reason) } else { Self::Closed(reason) }
    }
}

/// How a table's samples are moved within a block, when it ends.
pub trait MoveSamples {
    /// How many may be copied in one turn, at least one: others wait meanwhile.
    fn moves_a_turn(&self) -> usize;

    /// Copies one sample of every array from one slot of the block to another.
    fn move_sample(&mut self, block: BlockIndex, from: u32, to: u32) -> io::Result<()>;
}

/// Hears of a block that is given up, and had this sequence; its grants are still in the record.
pub(super) type GivenUp<'a> = dyn FnMut(BlockSeq, BlockIndex, &Ledger) + 'a;

impl Intake {
    fn set_phase(&mut self, phase: Phase) {
        self.ledger.set_phase(phase.encode());
        self.phase = phase;
    }

    /// Stops claims for good; what was committed will still be delivered.
    pub(super) fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        if self.phase != Phase::Open {
            return;
        }
        // The phase first: a daemon that takes over finds a table that is closing, and closes the cursor.
        self.set_phase(Phase::Closing(reason));
        fill_ring::close(&self.control);
        self.end_writers(reason, self.ledger.next_seq(), actions);
    }

    /// Ends the table for its writers, delivered or not. Its kind tells the readers.
    pub(super) fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        // The phase first, as in `close`.
        self.set_phase(Phase::Closed(reason));
        fill_ring::close(&self.control);
        self.forget_orphans();
        self.end_writers(reason, BlockSeq(0), actions);
    }

    fn end_writers(&self, reason: EndReason, end: BlockSeq, actions: &mut Vec<Action>) {
        actions.extend(self.writers.keys().map(|&member| Action::End { member, reason, end }));
    }

    /// Whether at least one writer has finished, and no other is left.
    pub(super) fn is_finished(&self) -> bool {
        self.ledger.writer_finished() && self.writers.values().all(|writer| writer.finished)
    }

    /// Goes on with the end of a table that is closing, as far as it can go now. Whether it is closed by that.
    pub(super) fn advance_ending(
        &mut self,
        mover: &mut dyn MoveSamples,
        given_up: &mut GivenUp<'_>,
    ) -> Result<bool, Poison> {
        let Phase::Closing(reason) = self.phase else { return Ok(false) };
        // A daemon that took over may have died before this.
        fill_ring::close(&self.control);
        self.withdraw_offers();
        if !self.writers.values().all(Writer::is_idle) {
            return Ok(false);
        }
        if !self.deliver_what_is_left(mover, given_up)? {
            return Ok(false);
        }
        self.forget_orphans();
        self.set_phase(Phase::Closed(reason));
        Ok(true)
    }

    /// Completes every block that has samples, and frees the others. Nobody writes any more. False if there is more
    /// to be moved than in one turn.
    fn deliver_what_is_left(
        &mut self,
        mover: &mut dyn MoveSamples,
        given_up: &mut GivenUp<'_>,
    ) -> Result<bool, Poison> {
        let cursor = self.cursor()?;
        let mut moves = mover.moves_a_turn();
        for (seq, block) in self.live.clone() {
            let claimed = self.geometry().first(seq).0 < cursor;
            match self.ledger.block_use(block) {
                BlockUse::Live if claimed && self.control.is_full(block) => {
                    // Its completer may have died.
                    ready::complete(&self.control, block, seq);
                    ready::wake(&self.control, block);
                }
                BlockUse::Live if claimed => {
                    self.ledger.set_finishing(block, &finish::counted(&self.control, block));
                    if !self.finish_block(block, seq, mover, &mut moves, given_up)? {
                        return Ok(false);
                    }
                }
                // In a turn before, or by a daemon that died on the way: the moves do no harm a second time.
                BlockUse::Finishing => {
                    if !self.finish_block(block, seq, mover, &mut moves, given_up)? {
                        return Ok(false);
                    }
                }
                BlockUse::Live => self.give_up(block, seq, given_up),
                // A daemon may have died between the record and the words.
                BlockUse::Short => {
                    finish::complete(&self.control, block, seq, self.ledger.length(block));
                }
                BlockUse::Free => {}
            }
        }
        Ok(true)
    }

    fn finish_block(
        &mut self,
        block: BlockIndex,
        seq: BlockSeq,
        mover: &mut dyn MoveSamples,
        moves: &mut usize,
        given_up: &mut GivenUp<'_>,
    ) -> Result<bool, Poison> {
        let counted = self.ledger.counted(block);
        let length: u32 = counted.iter().map(|bits| bits.count_ones()).sum();
        if length == 0 {
            self.give_up(block, seq, given_up);
            return Ok(true);
        }
        for (from, to) in
            finish::moves(&counted, self.geometry().bits_per_word()).into_iter().skip(self.moved)
        {
            if *moves == 0 {
                return Ok(false);
            }
            mover.move_sample(block, from, to).map_err(|error| Poison::Move {
                block: block.get(),
                from,
                to,
                why: error.to_string(),
            })?;
            self.moved += 1;
            *moves -= 1;
        }
        self.moved = 0;
        // The record first: once the words are full, the bits no longer say how many samples there are.
        self.ledger.set_short(block, length);
        finish::complete(&self.control, block, seq, length);
        Ok(true)
    }

    /// A block without a sample: its reader hears that nothing will come of it.
    fn give_up(&mut self, block: BlockIndex, seq: BlockSeq, given_up: &mut GivenUp<'_>) {
        ready::give_up(&self.control, block, seq);
        given_up(seq, block, &self.ledger);
        self.free_block(block);
    }
}
