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

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::{fill_ring, finish, ready};
use crate::table::ledger::BlockUse;
use crate::table::member::{MemberKey, Writer};
use crate::table::queue::{Action, MoveSamples, Poison, Queue};
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

impl Queue {
    fn set_phase(&mut self, phase: Phase) {
        self.ledger.set_phase(phase.encode());
        self.phase = phase;
    }

    /// Stops claims for good; what was committed will still be delivered.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        if self.phase != Phase::Open {
            return;
        }
        // The phase first: a daemon that takes over finds a table that is closing, and closes the cursor.
        self.set_phase(Phase::Closing(reason));
        fill_ring::close(&self.control);
        let end = self.ledger.next_seq();
        actions.extend(self.writers.keys().map(|&member| Action::End { member, reason, end }));
    }

    /// Ends the table for all who are attached, delivered or not.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        // The phase first, as in `close`.
        self.set_phase(Phase::Closed(reason));
        fill_ring::close(&self.control);
        self.forget_orphans();
        for reader in self.readers.values_mut() {
            reader.ended = true;
        }
        let members = self.writers.keys().chain(self.readers.keys());
        actions.extend(members.map(|&member| Action::End { member, reason, end: BlockSeq(0) }));
    }

    /// Whether the table has ended and readers have given back all that they could get.
    pub fn is_drained(&self) -> bool {
        match self.phase {
            _ if self.poison.is_some() => true,
            Phase::Open | Phase::Closing(_) => false,
            Phase::Closed(_) => self.live.is_empty() || self.readers.values().all(|reader| !reader.connected),
        }
    }

    /// Goes on with the end, as far as it can go now.
    pub(super) fn advance_ending(
        &mut self,
        mover: &mut dyn MoveSamples,
        actions: &mut Vec<Action>,
    ) -> Result<(), Poison> {
        let all_finished = self.ledger.writer_finished() && self.writers.values().all(|w| w.finished);
        if self.phase == Phase::Open && all_finished {
            self.close(EndReason::Finished, actions);
        }
        let Phase::Closing(reason) = self.phase else { return Ok(()) };
        // A daemon that took over may have died before this.
        fill_ring::close(&self.control);
        self.withdraw_offers();
        if !self.writers.values().all(Writer::is_idle) {
            return Ok(());
        }
        if !self.deliver_what_is_left(mover)? {
            return Ok(());
        }
        self.forget_orphans();
        self.set_phase(Phase::Closed(reason));
        self.grant(actions);
        Ok(())
    }

    /// Completes every block that has samples, and frees the others. Nobody writes any more. False if there is more
    /// to be moved than in one turn.
    fn deliver_what_is_left(&mut self, mover: &mut dyn MoveSamples) -> Result<bool, Poison> {
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
                    if !self.finish_block(block, seq, mover, &mut moves)? {
                        return Ok(false);
                    }
                }
                // In a turn before, or by a daemon that died on the way: the moves do no harm a second time.
                BlockUse::Finishing => {
                    if !self.finish_block(block, seq, mover, &mut moves)? {
                        return Ok(false);
                    }
                }
                BlockUse::Live => self.give_up(block, seq),
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
    ) -> Result<bool, Poison> {
        let counted = self.ledger.counted(block);
        let length: u32 = counted.iter().map(|bits| bits.count_ones()).sum();
        if length == 0 {
            self.give_up(block, seq);
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
    fn give_up(&mut self, block: BlockIndex, seq: BlockSeq) {
        ready::give_up(&self.control, block, seq);
        self.void_grant(block);
        self.free_block(block);
    }

    /// Tells readers that nothing more comes, once all there is has been granted. Should a reader die later,
    /// what it held is granted to those who still listen, or waits for one who attaches.
    pub(super) fn end_readers(&mut self, actions: &mut Vec<Action>) {
        let Phase::Closed(reason) = self.phase else { return };
        if !self.ungranted.is_empty() {
            return;
        }
        let end = self.ledger.next_seq();
        for (&member, reader) in &mut self.readers {
            if !reader.ended && reader.connected {
                reader.ended = true;
                actions.push(Action::End { member, reason, end });
            }
        }
    }

    /// What a member that attaches to an ended table must know.
    pub fn end_reason(&self) -> Option<EndReason> {
        match self.phase {
            Phase::Open => None,
            Phase::Closing(reason) | Phase::Closed(reason) => Some(reason),
        }
    }

    /// Whether the member is attached.
    pub fn has(&self, key: MemberKey) -> bool {
        self.writers.contains_key(&key) || self.readers.contains_key(&key)
    }
}
