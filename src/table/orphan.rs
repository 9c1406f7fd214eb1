//! Claims whose worker is gone, until each of their positions is settled.
//!
//! One function serves every way of losing a worker: a killed process, a goodbye, a dropped claim. An orphan
//! is in the private record before the worker's own record is cleared, so that there is no instant in which
//! nobody answers for its positions; and it is forgotten only when each position is committed, offered to
//! others, or was never claimed.

use crate::ids::{BlockIndex, BlockSeq, Position};
use crate::ring::control::Geometry;
use crate::ring::reclaim::{self, Finding};
use crate::ring::record::RecordedClaim;
use crate::ring::{ready, space};
use crate::sync::{Ordering, fence};
use crate::table::action::Violation;
use crate::table::ending::Phase;
use crate::table::intake::Intake;
use crate::table::ledger::ORPHANS;
use crate::table::member::{MemberKey, Writer};
use crate::table::poison::Poison;

/// Words that are looked at in one turn: some ten microseconds. A position takes one for each refill entry and two for
/// each writer.
const LOOKS_A_TURN: usize = 16 * 1024;

/// An orphaned claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Orphan {
    /// Where the private record keeps it.
    index: usize,
    claim: RecordedClaim,
    /// Positions settled so far. Not kept: settling again does no harm.
    settled: u32,
}

impl Orphan {
    /// What the private record keeps there, if anything.
    pub fn kept(index: usize, word: u64, geometry: &Geometry) -> Option<Self> {
        let mut claim = RecordedClaim::decode(word)?;
        // No claim crosses a block's end. One that says so is believed up to there.
        claim.length = claim.length.min(geometry.block_slots() - geometry.slot(claim.position));
        Some(Self { index, claim, settled: 0 })
    }
}

/// What became of a position.
enum Settled {
    /// It must be looked at again.
    Later,
    /// It is in its batch.
    Committed,
    /// It is offered, or nobody had it.
    Otherwise,
}

impl Intake {
    /// Claims of workers that are gone, not settled yet.
    pub fn orphaned_claims(&self) -> u32 {
        self.orphans.len() as u32
    }

    /// Holes that are offered to workers.
    pub fn holes_offered(&self) -> u32 {
        (0..self.geometry().refill_len())
            .filter(|&entry| self.control.refill(entry).load(Ordering::Relaxed) != 0)
            .count() as u32
    }

    /// Keeps claims as orphaned, all or none. Once a table is closed there is nobody left to fill a hole, and nothing to
    /// be kept.
    pub(super) fn keep_orphans(&mut self, words: &[u64]) -> bool {
        if matches!(self.phase, Phase::Closed(_)) {
            return true;
        }
        let mut claims: Vec<u64> =
            words.iter().copied().filter(|&word| RecordedClaim::decode(word).is_some()).collect();
        claims.sort_unstable();
        claims.dedup();
        // One that is kept already is not kept twice, so that one who says the same again and again fills nothing. It
        // is settled from its beginning: what nobody had claimed then may have been claimed by this one.
        claims.retain(|&word| {
            let kept = self.orphans.iter_mut().find(|orphan| self.ledger.orphan(orphan.index) == word);
            kept.map(|orphan| orphan.settled = 0).is_none()
        });
        let free: Vec<usize> =
            (0..ORPHANS).filter(|&index| self.ledger.orphan(index) == 0).take(claims.len()).collect();
        if free.len() < claims.len() {
            return false;
        }
        for (index, word) in free.into_iter().zip(claims) {
            self.ledger.set_orphan(index, word);
            // First in the line: a writer that gave its claim up waits for it.
            if let Some(orphan) = Orphan::kept(index, word, self.control.geometry()) {
                self.orphans.push_front(orphan);
            }
        }
        true
    }

    /// A writer gave up its claim: it marked its record, and says so.
    pub(super) fn drop_claim(&mut self, key: MemberKey) -> Result<(), Violation> {
        let writer = self.writers.get(&key).ok_or(Violation::NoMember(key))?;
        let word = writer.record().claim().load(Ordering::Acquire);
        // Otherwise a tick came first, and the writer may have claimed again.
        if RecordedClaim::decode(word).is_some_and(|claim| claim.dropped) {
            self.take_over(key, word);
        }
        self.settle_orphans();
        // The writer sleeps until its record is clear. It is woken when the hole is offered, so that it is what it
        // finds; or at any rate now, if it could not be offered yet.
        space::announce(&self.control);
        Ok(())
    }

    /// Settles what could not be at once, and what was given up without a word.
    pub(super) fn settle(&mut self) {
        let took_over = self.take_over_dropped();
        self.settle_orphans();
        if took_over {
            // As in `drop_claim`.
            space::announce(&self.control);
        }
    }

    /// Takes over claims that were given up by clients that died, or that keep silent. Whether there were any.
    fn take_over_dropped(&mut self) -> bool {
        let dropped: Vec<(MemberKey, u64)> = self
            .writers
            .iter()
            .map(|(&key, writer)| (key, writer.record().claim().load(Ordering::Acquire)))
            .filter(|&(_, word)| RecordedClaim::decode(word).is_some_and(|claim| claim.dropped))
            .collect();
        for &(key, word) in &dropped {
            self.take_over(key, word);
        }
        !dropped.is_empty()
    }

    /// The orphan is kept first, the record cleared after: clearing it is what lets the writer claim again.
    fn take_over(&mut self, key: MemberKey, word: u64) {
        if self.keep_orphans(&[word])
            && let Some(writer) = self.writers.get(&key)
        {
            // release: pairs with the writer's look before its next claim
            writer.record().claim().store(0, Ordering::Release);
        }
    }

    /// Settles what can be settled now, as far as one turn allows; part of each tick. What must be looked at again
    /// comes behind the others, so that no claim keeps them from being settled, whoever says what.
    pub(super) fn settle_orphans(&mut self) {
        let looks = self.geometry().refill_len() as usize + 2 * self.writers.len();
        let mut positions = (LOOKS_A_TURN / looks.max(1)).max(1);
        for _ in 0..self.orphans.len() {
            let Some(mut orphan) = self.orphans.pop_front() else { break };
            if !self.settle_orphan(&mut orphan, &mut positions) {
                self.orphans.push_back(orphan);
            }
            if positions == 0 {
                break;
            }
        }
    }

    /// Looks at so many positions of a claim at most. Whether all of them are settled.
    fn settle_orphan(&mut self, orphan: &mut Orphan, positions: &mut usize) -> bool {
        let mut committed = false;
        while orphan.settled < orphan.claim.length && *positions > 0 {
            *positions -= 1;
            let position = Position(orphan.claim.position.0 + u64::from(orphan.settled));
            match self.settle_position(position) {
                Settled::Later => break,
                Settled::Committed => committed = true,
                Settled::Otherwise => {}
            }
            orphan.settled += 1;
        }
        if committed {
            self.complete_for_the_dead(self.geometry().seq(orphan.claim.position));
        }
        let is_settled = orphan.settled == orphan.claim.length;
        if is_settled {
            self.ledger.set_orphan(orphan.index, 0);
        }
        is_settled
    }

    fn settle_position(&mut self, position: Position) -> Settled {
        // Positions are looked up here and never through `fill`, which may be another lap's by now.
        let Some(&block) = self.live.get(&self.geometry().seq(position)) else {
            return Settled::Otherwise;
        };
        let held = || self.writers.values().flat_map(Writer::held);
        match reclaim::find(&self.control, position, block, held) {
            Finding::NotClaimed | Finding::Offered => Settled::Otherwise,
            Finding::Covered => Settled::Later,
            Finding::Committed => Settled::Committed,
            Finding::Hole if self.offer(position, block) => Settled::Otherwise,
            Finding::Hole => Settled::Later,
        }
    }

    /// The dead worker may have been the one to complete the block, or to wake its reader.
    fn complete_for_the_dead(&self, seq: BlockSeq) {
        let Some(&block) = self.live.get(&seq) else { return };
        // The fence stands in for the one that it did not come to, between its commit, which we have seen, and its
        // look at the other words: pairs with the fence in `commit`.
        fence(Ordering::SeqCst);
        if self.control.is_full(block) {
            ready::complete(&self.control, block, seq);
            ready::wake(&self.control, block);
        }
    }

    fn offer(&mut self, position: Position, block: BlockIndex) -> bool {
        let free = |&entry: &u32| self.control.refill(entry).load(Ordering::Acquire) == 0;
        let Some(entry) = (0..self.geometry().refill_len()).find(free) else {
            return false;
        };
        self.ledger.set_offered(entry, Some(position));
        reclaim::offer(&self.control, entry, position, block);
        true
    }

    /// A refill entry is 0, or what was offered there, in the block where it is.
    pub(super) fn check_refill(&self) -> Result<(), Poison> {
        for entry in 0..self.geometry().refill_len() {
            let got = self.control.refill(entry).load(Ordering::Acquire);
            let offered = self.ledger.offered(entry).map_or(0, |position| position.0 + 1);
            if got != 0 && got != offered {
                return Err(Poison::Refill { entry, got, offered });
            }
            let Some(position) = self.ledger.offered(entry).filter(|_| got != 0) else { continue };
            if let Some(&block) = self.live.get(&self.geometry().seq(position)) {
                let got = self.control.refill_block(entry).load(Ordering::Relaxed);
                if got != block.get() {
                    return Err(Poison::RefillBlock { entry, got, block: block.get() });
                }
            }
        }
        Ok(())
    }

    /// Takes all offers back, when nobody is left to fill the holes.
    pub(super) fn withdraw_offers(&mut self) {
        for entry in 0..self.geometry().refill_len() {
            if let Some(position) = self.ledger.offered(entry) {
                reclaim::withdraw(&self.control, entry, position);
                self.ledger.set_offered(entry, None);
            }
        }
        space::wake(&self.control);
    }

    /// Forgets all orphans, when their blocks' samples have been counted or will not be.
    pub(super) fn forget_orphans(&mut self) {
        for orphan in self.orphans.drain(..) {
            self.ledger.set_orphan(orphan.index, 0);
        }
    }
}
