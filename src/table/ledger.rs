//! The daemon's private record of one table: the only truth about its blocks.
//!
//! What workers can write is checked against it and never the other way round. It is made of words in a region
//! of its own, which no client maps, so that a daemon can take a table over from the region and the shared
//! words alone ([`Queue::rebuild`](super::queue::Queue::rebuild)). Each change of it stands in the same place
//! relative to the change of the shared word that it belongs to as in the protocol model; where the order
//! matters, the caller says so.
//!
//! ```text
//!   0  magic, version, geometry
//!  64  next_seq, seen_cursor, phase, a writer finished, usable blocks
//! 128  retired_bits, delivered, batches; of a latest table the newest value that was seen
//! 192  blocks[max_blocks]   {state, seq, length, counted[words_per_block]}
//!      refill[refill_len]   position + 1 that was last offered there
//!      orphans[ORPHANS]     claims of workers that are gone, as recorded
//!      roster[ROSTER]       {client, member}: of a latest and a replay table, see `roster`
//!      groups               of a queue table, see `group`
//! ```

use thiserror::Error;

use crate::ids::{BlockIndex, BlockSeq, GrantNumber, LeaseToken, Position};
use crate::ring::control::Geometry;
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::sync::{AtomicU64, Ordering};
use crate::table::member::MemberKey;
use crate::table::{group, roster};

/// Claims of dead workers that can wait to be settled. Beyond it, a dead worker's page is kept and asked again.
pub const ORPHANS: usize = 1024;

const MAGIC: u64 = u64::from_be_bytes(*b"echoldg\n");
const VERSION: u64 = 1;
const NEXT_SEQ: usize = 8;
const SEEN_CURSOR: usize = 9;
const PHASE: usize = 10;
const WRITER_FINISHED: usize = 11;
const USABLE: usize = 12;
const RETIRED_BITS: usize = 16;
const DELIVERED: usize = 17;
const BATCHES: usize = 18;
const NEWEST: usize = 19;
const BLOCKS: usize = 24;
const BLOCK_WORDS: usize = 3;

/// What the daemon does with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockUse {
    /// Nothing.
    Free = 0,
    /// It is published.
    Live = 1,
    /// Its samples are being moved together; `counted` says which they are.
    Finishing = 2,
    /// It is complete with fewer samples than slots.
    Short = 3,
}

/// To whom a block is granted in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantRecord {
    /// The reader.
    pub reader: MemberKey,
    /// Its number there.
    pub number: GrantNumber,
    /// What gives it back.
    pub token: LeaseToken,
}

/// A region that is no ledger of this table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the private record holds {got:#x} in word {word} where {expected:#x} belongs")]
pub struct LedgerError {
    word: usize,
    got: u64,
    expected: u64,
}

/// The record.
pub struct Ledger {
    words: Words,
    geometry: Geometry,
    kind: TableKind,
}

impl Ledger {
    /// Bytes that the region needs, of a table of that kind.
    pub fn bytes(geometry: &Geometry, kind: TableKind) -> usize {
        (Self::groups_at(geometry, kind) + group::words(kind, geometry)) * 8
    }

    /// Writes the header over zeroed words.
    ///
    /// # Panics
    /// If there are fewer than [`Ledger::bytes`].
    pub fn create(words: Words, geometry: Geometry, kind: TableKind) -> Self {
        let ledger = Self { words, geometry, kind };
        for (i, value) in Self::header(&geometry, kind).into_iter().enumerate() {
            ledger.set(i, value);
        }
        ledger
    }

    /// Words that were a ledger of such a table before.
    pub fn open(words: Words, geometry: Geometry, kind: TableKind) -> Result<Self, LedgerError> {
        let expected_len = Self::bytes(&geometry, kind) as u64;
        if (words.len() as u64) < expected_len {
            return Err(LedgerError { word: 0, got: words.len() as u64, expected: expected_len });
        }
        let ledger = Self { words, geometry, kind };
        for (word, expected) in Self::header(&geometry, kind).into_iter().enumerate() {
            let got = ledger.get(word);
            if got != expected {
                return Err(LedgerError { word, got, expected });
            }
        }
        Ok(ledger)
    }

    fn header(geometry: &Geometry, kind: TableKind) -> [u64; 7] {
        let numbers =
            [geometry.block_slots(), geometry.max_blocks(), geometry.refill_len(), geometry.bits_per_word()];
        let [slots, blocks, refill, bits] = numbers.map(u64::from);
        [MAGIC, VERSION, slots, blocks, refill, bits, kind as u64]
    }

    fn refill_at(geometry: &Geometry) -> usize {
        let block = BLOCK_WORDS + geometry.words_per_block() as usize;
        BLOCKS + geometry.max_blocks() as usize * block
    }

    fn orphans_at(geometry: &Geometry) -> usize {
        Self::refill_at(geometry) + geometry.refill_len() as usize
    }

    pub(super) fn roster_at(geometry: &Geometry) -> usize {
        Self::orphans_at(geometry) + ORPHANS
    }

    pub(super) fn groups_at(geometry: &Geometry, kind: TableKind) -> usize {
        Self::roster_at(geometry) + roster::words(kind)
    }

    pub(super) fn all_blocks(&self) -> impl Iterator<Item = BlockIndex> + use<> {
        let max = self.geometry.max_blocks();
        (0..max).filter_map(move |block| BlockIndex::new(block, max))
    }

    pub(super) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(super) const fn kind(&self) -> TableKind {
        self.kind
    }

    // One process uses the region at a time, and its successor starts behind its end: loads are relaxed. Stores are
    // releases, so that the compiler keeps them in the order in which they stand: a daemon may die between any two.
    fn word(&self, index: usize) -> &AtomicU64 {
        self.words.u64(index * 8)
    }

    pub(super) fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    fn add(&self, index: usize, value: u64) {
        self.set(index, self.get(index) + value);
    }

    fn block_at(&self, block: BlockIndex) -> usize {
        BLOCKS + block.index() * (BLOCK_WORDS + self.geometry.words_per_block() as usize)
    }

    /// Lets go of the region, for the next who opens it.
    pub fn into_words(self) -> Words {
        self.words
    }

    /// A block with the sequence before this one lives.
    pub fn set_next_seq_at_least(&self, seq: BlockSeq) {
        self.set(NEXT_SEQ, self.get(NEXT_SEQ).max(seq.0));
    }

    /// The next sequence to be published.
    pub fn next_seq(&self) -> BlockSeq {
        BlockSeq(self.get(NEXT_SEQ))
    }

    /// The highest cursor that was seen.
    pub fn seen_cursor(&self) -> u64 {
        self.get(SEEN_CURSOR)
    }

    /// Notes a cursor.
    pub fn set_seen_cursor(&self, cursor: u64) {
        self.set(SEEN_CURSOR, cursor);
    }

    /// In which phase of its life the table is, as the queue encodes it.
    pub fn phase(&self) -> u64 {
        self.get(PHASE)
    }

    /// Notes the phase.
    pub fn set_phase(&self, phase: u64) {
        self.set(PHASE, phase);
    }

    /// Whether some writer has finished.
    pub fn writer_finished(&self) -> bool {
        self.get(WRITER_FINISHED) != 0
    }

    /// Notes that one has.
    pub fn set_writer_finished(&self) {
        self.set(WRITER_FINISHED, 1);
    }

    /// Blocks whose memory is committed.
    pub fn usable(&self) -> u32 {
        self.get(USABLE).min(u64::from(self.geometry.max_blocks())) as u32
    }

    /// Notes how many.
    pub fn set_usable(&self, blocks: u32) {
        self.set(USABLE, blocks.into());
    }

    /// Commit bits of all blocks that were given back.
    pub fn retired_bits(&self) -> u64 {
        self.get(RETIRED_BITS)
    }

    /// Samples of the batches that readers gave back.
    pub fn delivered(&self) -> u64 {
        self.get(DELIVERED)
    }

    /// Batches that readers gave back.
    pub fn batches(&self) -> u64 {
        self.get(BATCHES)
    }

    /// A batch of `length` samples came back; the block held `bits` commits.
    pub fn add_delivered(&self, length: u32, bits: u32) {
        self.add(RETIRED_BITS, bits.into());
        self.add(DELIVERED, length.into());
        self.add(BATCHES, 1);
    }

    /// The word of the newest value that was seen, or 0.
    pub fn newest(&self) -> u64 {
        self.get(NEWEST)
    }

    /// Notes the newest value.
    pub fn set_newest(&self, word: u64) {
        self.set(NEWEST, word);
    }

    /// What a block is used for.
    pub fn block_use(&self, block: BlockIndex) -> BlockUse {
        match self.get(self.block_at(block)) {
            1 => BlockUse::Live,
            2 => BlockUse::Finishing,
            3 => BlockUse::Short,
            _ => BlockUse::Free,
        }
    }

    /// The sequence that a block in use holds.
    pub fn seq(&self, block: BlockIndex) -> BlockSeq {
        BlockSeq(self.get(self.block_at(block) + 1))
    }

    /// Samples of a short block.
    pub fn length(&self, block: BlockIndex) -> u32 {
        match self.block_use(block) {
            BlockUse::Short => self.get(self.block_at(block) + 2) as u32,
            _ => self.geometry.block_slots(),
        }
    }

    /// A block is published under the next sequence. Before the limit is raised.
    pub fn set_live(&self, block: BlockIndex, seq: BlockSeq) {
        let at = self.block_at(block);
        self.clear_groups(block);
        self.set(at + 1, seq.0);
        self.set(at, BlockUse::Live as u64);
        self.set(NEXT_SEQ, seq.0 + 1);
    }

    /// A block is in nobody's hands.
    pub fn set_free(&self, block: BlockIndex) {
        // In this order: a block that is free has no grant, whatever stands there.
        self.set(self.block_at(block), BlockUse::Free as u64);
        self.clear_groups(block);
    }

    /// These are a block's samples. Before any of them moves.
    pub fn set_finishing(&self, block: BlockIndex, counted: &[u64]) {
        let at = self.block_at(block);
        for (i, &bits) in counted.iter().enumerate() {
            self.set(at + BLOCK_WORDS + i, bits);
        }
        self.set(at, BlockUse::Finishing as u64);
    }

    /// A finishing block's samples.
    pub fn counted(&self, block: BlockIndex) -> Vec<u64> {
        let at = self.block_at(block) + BLOCK_WORDS;
        (0..self.geometry.words_per_block() as usize).map(|i| self.get(at + i)).collect()
    }

    /// A finishing block is complete with that many samples.
    pub fn set_short(&self, block: BlockIndex, length: u32) {
        let at = self.block_at(block);
        self.set(at + 2, length.into());
        self.set(at, BlockUse::Short as u64);
    }

    /// The position that was last offered in an entry.
    pub fn offered(&self, entry: u32) -> Option<Position> {
        let word = self.get(Self::refill_at(&self.geometry) + entry as usize);
        (word != 0).then(|| Position(word - 1))
    }

    /// A position is offered in an entry, or none is. Before the shared word says so.
    pub fn set_offered(&self, entry: u32, position: Option<Position>) {
        let word = position.map_or(0, |position| position.0 + 1);
        self.set(Self::refill_at(&self.geometry) + entry as usize, word);
    }

    /// An orphaned claim's word, or 0.
    pub fn orphan(&self, index: usize) -> u64 {
        self.get(Self::orphans_at(&self.geometry) + index)
    }

    /// Keeps an orphaned claim's word, or with 0 forgets it.
    pub fn set_orphan(&self, index: usize, claim: u64) {
        self.set(Self::orphans_at(&self.geometry) + index, claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let geometry = Geometry::new(40, 3, 2, 32).unwrap();
        Ledger::create(Words::heap(Ledger::bytes(&geometry, TableKind::Queue)), geometry, TableKind::Queue)
    }

    #[test]
    fn what_is_written_is_read_back_from_the_region_alone() {
        let ledger = ledger();
        let block = |i| BlockIndex::new(i, 3).unwrap();
        for (i, seq) in [(0, 5), (1, 6), (2, 7)] {
            ledger.set_live(block(i), BlockSeq(seq));
        }
        ledger.set_finishing(block(2), &[0xf0, 1]);
        ledger.set_offered(1, Some(Position(0)));
        ledger.set_orphan(ORPHANS - 1, 77);
        ledger.add_delivered(40, 40);

        let geometry = ledger.geometry;
        let reopened = Ledger::open(ledger.into_words(), geometry, TableKind::Queue).unwrap();
        assert_eq!(reopened.next_seq(), BlockSeq(8));
        assert_eq!(reopened.block_use(block(2)), BlockUse::Finishing);
        assert_eq!(reopened.counted(block(2)), [0xf0, 1]);
        assert_eq!((reopened.offered(0), reopened.offered(1)), (None, Some(Position(0))));
        assert_eq!(reopened.orphan(ORPHANS - 1), 77);
        assert_eq!((reopened.delivered(), reopened.batches()), (40, 1));
    }

    #[test]
    fn a_region_of_another_geometry_is_refused() {
        let words = ledger().into_words();
        let other = Geometry::new(39, 3, 2, 32).unwrap();
        let error = Ledger::open(words, other, TableKind::Queue).map(|_| ()).unwrap_err();
        assert_eq!(error, LedgerError { word: 2, got: 40, expected: 39 });
    }
}
