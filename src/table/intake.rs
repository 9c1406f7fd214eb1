//! How samples come into a table, whatever its kind: blocks are published, writers claim and commit, and what the dead
//! had claimed is offered again.
//!
//! It is the half that the kinds of tables share. What becomes of a complete block is the other half, and each kind's own
//! ([`queue`](super::queue)): that kind owns an intake, asks it to publish free blocks, and says which blocks are free.
//! How a writer's death is settled is in [`orphan`](super::orphan), how the table ends in [`ending`](super::ending).
//!
//! What always holds: a block of those that have memory is free, or it is in `live` under the sequence that the private
//! record gives it. A block is published again only when every slot was committed, so that no claim to it can be open.
//!
//! Nothing that a client can write is believed: what the shared words say is compared with the private record, and where
//! they cannot both be right the table is *poisoned* and says why.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::{BlockIndex, BlockSeq, Position};
use crate::ring::control::{CLOSED, Control, Geometry};
use crate::ring::fill_ring;
use crate::ring::ready::{BlockState, ReadyWord};
use crate::ring::record::ClientPage;
use crate::sync::Ordering;
use crate::table::action::Violation;
use crate::table::ending::Phase;
use crate::table::ledger::{BlockUse, Ledger, ORPHANS};
use crate::table::member::{MemberKey, Writer};
use crate::table::orphan::Orphan;
use crate::table::poison::{Poison, RebuildError};
use crate::wire::message::{BlockCounts, EndReason, SampleCounts};

/// The writing half of a table.
pub struct Intake {
    pub(super) control: Arc<Control>,
    pub(super) ledger: Ledger,
    pub(super) writers: BTreeMap<MemberKey, Writer>,
    pub(super) live: BTreeMap<BlockSeq, BlockIndex>,
    free: VecDeque<BlockIndex>,
    pub(super) orphans: VecDeque<Orphan>,
    pub(super) phase: Phase,
    pub(super) poison: Option<Poison>,
    /// Samples of the block that is being finished that have been moved.
    pub(super) moved: usize,
}

impl Intake {
    /// That of a new table over zeroed words, whose first `usable` blocks have memory. All of them are free.
    pub(super) fn create(control: Arc<Control>, ledger: Ledger, usable: u32) -> Self {
        ledger.set_usable(usable.min(control.geometry().max_blocks()));
        let mut intake = Self::empty(control, ledger);
        intake.free = intake.blocks().collect();
        intake
    }

    /// Takes it over from the private record and the shared words, as a daemon left them at whatever instruction. The
    /// writers come back with their old keys; until then what they hold stays theirs.
    pub(super) fn rebuild(control: Arc<Control>, ledger: Ledger) -> Result<Self, RebuildError> {
        let mut intake = Self::empty(control, ledger);
        intake.phase = Phase::decode(intake.ledger.phase());
        for block in intake.blocks().collect::<Vec<_>>() {
            if intake.ledger.block_use(block) == BlockUse::Free {
                intake.free.push_back(block);
                continue;
            }
            let seq = intake.ledger.seq(block);
            // The last daemon may have died between the two.
            intake.ledger.set_next_seq_at_least(BlockSeq(seq.0 + 1));
            let word = intake.control.ready(block).load(Ordering::Acquire);
            match ReadyWord::decode(word).filter(|ready| ready.seq == seq).map(|ready| ready.state) {
                Some(BlockState::Filling | BlockState::Complete) => {}
                // The last daemon was giving it up, and had not come to its record.
                Some(BlockState::Broken) if intake.phase != Phase::Open => {
                    intake.ledger.set_free(block);
                    intake.free.push_back(block);
                    continue;
                }
                _ => return Err(Poison::State { block: block.get(), seq: seq.0, got: word }.into()),
            }
            if let Some(first) = intake.live.insert(seq, block) {
                return Err(RebuildError::Twice { first: first.get(), second: block.get(), seq: seq.0 });
            }
        }
        intake.orphans = (0..ORPHANS)
            .filter_map(|index| Orphan::kept(index, intake.ledger.orphan(index), intake.control.geometry()))
            .collect();
        // The last daemon may have died between its record and the limit, or before it woke anybody.
        fill_ring::raise_limit(&intake.control, intake.ledger.next_seq());
        if intake.phase == Phase::Closed(EndReason::Poisoned) {
            intake.poison = Some(Poison::Before);
        }
        if matches!(intake.phase, Phase::Closed(_)) {
            // The last daemon may have died before it did.
            intake.forget_orphans();
        }
        Ok(intake)
    }

    fn empty(control: Arc<Control>, ledger: Ledger) -> Self {
        Self {
            control,
            ledger,
            writers: BTreeMap::new(),
            live: BTreeMap::new(),
            free: VecDeque::new(),
            orphans: VecDeque::new(),
            phase: Phase::Open,
            poison: None,
            moved: 0,
        }
    }

    fn blocks(&self) -> impl Iterator<Item = BlockIndex> + use<> {
        let max = self.geometry().max_blocks();
        (0..self.ledger.usable()).filter_map(move |block| BlockIndex::new(block, max))
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.control.geometry()
    }

    /// The shared words.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// What broke the table, if something did.
    pub fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    /// In which phase of its life the table is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What a member that attaches to an ended table must know.
    pub fn end_reason(&self) -> Option<EndReason> {
        match self.phase {
            Phase::Open => None,
            Phase::Closing(reason) | Phase::Closed(reason) => Some(reason),
        }
    }

    /// Its writers.
    pub fn writers(&self) -> &BTreeMap<MemberKey, Writer> {
        &self.writers
    }

    /// A process may write from now on.
    pub(super) fn attach_writer(&mut self, key: MemberKey, page: Arc<ClientPage>, record: u32) {
        self.writers.insert(key, Writer::new(page, record));
    }

    /// A writer commits no more samples.
    pub(super) fn finish_writer(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.writers.get_mut(&key).ok_or(Violation::NoMember(key))?.finished = true;
        self.ledger.set_writer_finished();
        Ok(())
    }

    /// A writer can no longer touch the table's memory: what it had claimed is orphaned. False if the list of orphans is
    /// full: then its records stay where they are, and the call is to be made again. Of one that is gone this says
    /// nothing.
    pub(super) fn detach_writer(&mut self, key: MemberKey) -> bool {
        let Some(writer) = self.writers.get_mut(&key) else { return true };
        // What it holds is nobody's from now on, kept as orphaned or not: a list that is full of claims that this
        // one covers would otherwise never be emptied.
        writer.gone = true;
        let claims = [writer.record().claim(), writer.record().moving()];
        let claims: Vec<u64> = claims.map(|word| word.load(Ordering::Acquire)).into();
        if !self.keep_orphans(&claims) {
            return false;
        }
        if let Some(writer) = self.writers.remove(&key) {
            writer.record().reset();
        }
        self.settle_orphans();
        true
    }

    /// A complete block has served: its samples are counted, and it can be published again.
    pub(super) fn retire_block(&mut self, block: BlockIndex) {
        let length = self.ledger.length(block);
        // The daemon set the bits of a short block's missing samples itself.
        let bits = self.control.count(block).min(length);
        self.ledger.add_delivered(length, bits);
        self.free_block(block);
    }

    /// A block is in nobody's hands, and can be published again.
    pub(super) fn free_block(&mut self, block: BlockIndex) {
        self.live.remove(&self.ledger.seq(block));
        self.ledger.set_free(block);
        self.free.push_back(block);
    }

    /// Publishes every free block under the next sequence, and says which.
    pub(super) fn publish(&mut self, published: impl FnMut(BlockSeq, BlockIndex)) {
        self.publish_below(u64::MAX, published);
    }

    /// Publishes free blocks of which no position is beyond the limit, and says which.
    pub(super) fn publish_below(&mut self, limit: u64, mut published: impl FnMut(BlockSeq, BlockIndex)) {
        if self.free.is_empty() || self.poison.is_some() {
            return;
        }
        let first = self.ledger.next_seq();
        loop {
            let seq = self.ledger.next_seq();
            if self.geometry().first(BlockSeq(seq.0 + 1)).0 > limit {
                break;
            }
            let Some(block) = self.free.pop_front() else { break };
            fill_ring::prepare(&self.control, block, seq);
            self.ledger.set_live(block, seq);
            self.live.insert(seq, block);
            published(seq, block);
        }
        if self.ledger.next_seq() != first {
            fill_ring::raise_limit(&self.control, self.ledger.next_seq());
        }
    }

    /// Blocks that are in nobody's hands.
    pub(super) fn free_blocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// The cursor without CLOSED, if it is where it can be.
    pub(super) fn cursor(&mut self) -> Result<u64, Poison> {
        // acquire: pairs with the claimers' CAS
        let cursor = self.control.cursor().load(Ordering::Acquire) & !CLOSED;
        let (seen, limit) = (self.ledger.seen_cursor(), self.geometry().first(self.ledger.next_seq()).0);
        if cursor < seen || cursor > limit {
            return Err(Poison::Cursor { cursor, seen, limit });
        }
        self.ledger.set_seen_cursor(cursor);
        Ok(cursor)
    }

    /// Compares the words that only a daemon writes, and that workers rely on, with what was written. Who finds one spoilt
    /// would otherwise wait for what cannot come.
    pub(super) fn check_words(&mut self) -> Result<(), Poison> {
        self.control.check_header().map_err(Poison::Header)?;
        let limit = self.geometry().first(self.ledger.next_seq()).0;
        // Relaxed here and below: the only stores that count are this thread's own.
        let got = self.control.limit().load(Ordering::Relaxed);
        if got != limit {
            return Err(Poison::Limit { got, limit });
        }
        let cursor = Position(self.cursor()?);
        let seq = self.geometry().seq(cursor);
        if let Some(&block) = self.live.get(&seq) {
            let got = self.control.fill(seq).load(Ordering::Relaxed);
            if got != block.get() {
                return Err(Poison::Fill { seq: seq.0, got, block: block.get() });
            }
        }
        self.check_refill()
    }

    /// Whether something waits to be settled soon.
    pub(super) fn is_unsettled(&self) -> bool {
        self.poison.is_none() && (!self.orphans.is_empty() || matches!(self.phase, Phase::Closing(_)))
    }

    /// Counts the samples by their bits.
    pub fn samples(&self) -> SampleCounts {
        let pending: u64 = self.live.values().map(|&block| self.pending_in(block)).sum();
        SampleCounts {
            committed: self.ledger.retired_bits() + pending,
            delivered: self.ledger.delivered(),
            pending,
        }
    }

    fn pending_in(&self, block: BlockIndex) -> u64 {
        let bits = match self.ledger.block_use(block) {
            BlockUse::Finishing => self.ledger.counted(block).iter().map(|bits| bits.count_ones()).sum(),
            // A block is large, and most of them are full or empty: that is known without its bits.
            _ if self.is_marked_complete(block) => self.ledger.length(block),
            _ if self.geometry().first(self.ledger.seq(block)).0 >= self.cursor_and_limit().0 => 0,
            _ => self.control.count(block).min(self.ledger.length(block)),
        };
        bits.into()
    }

    fn is_marked_complete(&self, block: BlockIndex) -> bool {
        let word = ReadyWord::decode(self.control.ready(block).load(Ordering::Relaxed));
        word.is_some_and(|ready| ready.state == BlockState::Complete)
    }

    /// Whether every sample of the block is committed, whether or not somebody marked it; for people.
    pub(super) fn is_full(&self, block: BlockIndex) -> bool {
        self.is_marked_complete(block) || self.control.is_full(block)
    }

    /// Batches that were delivered.
    pub fn batches_delivered(&self) -> u64 {
        self.ledger.batches()
    }

    /// Blocks by state.
    pub fn block_counts(&self) -> BlockCounts {
        let mut counts = BlockCounts { free: self.free.len() as u32, ..BlockCounts::default() };
        for &block in self.live.values() {
            match self.is_full(block) {
                true => counts.complete += 1,
                false => counts.filling += 1,
            }
            counts.granted += u32::from(self.ledger.is_granted(block));
        }
        counts
    }

    /// Next position to be claimed, and the first that may not be yet; for people.
    pub fn cursor_and_limit(&self) -> (u64, u64) {
        let cursor = self.control.cursor().load(Ordering::Relaxed) & !CLOSED;
        (cursor, self.geometry().first(self.ledger.next_seq()).0)
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }
}
