//! The control region of a table: its geometry, and where each word is.
//!
//! ```text
//!      0  header: magic, layout version, geometry       compared by a client, never believed
//!    128  write_cursor                                  a line of its own: all workers CAS it
//!    256  write_limit, space                            the daemon's: one line, since a worker needs both
//!    384  newest                                        of a latest table: a line of its own, all readers look at it
//!    512  refill[refill_len]   {position + 1, block}    16 bytes an entry
//!         fill[fill_len]       u32
//!         gates[max_blocks]    {ready, length}          a line a block
//!         commits[max_blocks][words_per_block] u64      lines of their own a block
//!         marks[max_blocks * block_slots] {priority, version}   of a replay table: see `marks`
//! ```
//!
//! A replay table can have a million blocks of one sample: there gates and commits are packed.
//!
//! A client gets the geometry by message and derives every offset from it. The header is there so that two
//! parties that would disagree find out, and for whoever looks at a dump; workers can write it, so nobody
//! computes with it. `docs/layout.md` draws the bytes; the test below holds the two together.

use thiserror::Error;

use crate::ids::{BlockIndex, BlockSeq, Position};
use crate::ring::words::Words;
use crate::spec::{MAX_BATCH, MAX_BLOCKS, TableKind, TableSpec};
use crate::sync::{AtomicU32, AtomicU64, Ordering, expect_write};
use crate::wire::message::{Attachment, LAYOUT_VERSION};

/// First word of a control region.
pub const CONTROL_MAGIC: u64 = u64::from_be_bytes(*b"echoctl\n");
/// Set in the cursor: no claims.
pub const CLOSED: u64 = 1 << 63;
/// Set in a commit word by the daemon: commits there do not count any more.
pub const RETIRED: u64 = 1 << 63;
/// First position that no table reaches: at 20 million samples a second, after seven years.
pub const POSITION_END: u64 = (1 << 52) - 2;
/// Most commit bits in one word.
pub const MAX_BITS_PER_WORD: u32 = 32;
/// Most holes offered at a time.
pub const MAX_REFILL: u32 = 1024;

const CURSOR: usize = 128;
const LIMIT: usize = 256;
const SPACE: usize = 264;
const NEWEST: usize = 384;
const REFILL: usize = 512;
const REFILL_STRIDE: usize = 16;
const GATE_BYTES: usize = 16;
const MARK_STRIDE: usize = 16;
const LINE: usize = 64;

/// The numbers from which everything else about a ring follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    block_slots: u32,
    max_blocks: u32,
    fill_len: u32,
    refill_len: u32,
    bits_per_word: u32,
    has_marks: bool,
}

/// Numbers that no ring has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no ring has {name} = {value}: it must be {min} to {max}")]
pub struct GeometryError {
    name: &'static str,
    value: u64,
    min: u64,
    max: u64,
}

impl Geometry {
    /// Checks the numbers. `fill_len` is rounded up from `max_blocks` to a power of two.
    pub fn new(
        block_slots: u32,
        max_blocks: u32,
        refill_len: u32,
        bits_per_word: u32,
    ) -> Result<Self, GeometryError> {
        let within = |name, value: u32, min: u32, max: u32| {
            let error = GeometryError { name, value: value.into(), min: min.into(), max: max.into() };
            if (min..=max).contains(&value) { Ok(value) } else { Err(error) }
        };
        let max_blocks = within("max_blocks", max_blocks, 1, MAX_BLOCKS)?;
        Ok(Self {
            block_slots: within("block_slots", block_slots, 1, MAX_BATCH)?,
            max_blocks,
            fill_len: max_blocks.next_power_of_two(),
            refill_len: within("refill_len", refill_len, 1, MAX_REFILL)?,
            bits_per_word: within("bits_per_word", bits_per_word, 1, MAX_BITS_PER_WORD)?,
            has_marks: false,
        })
    }

    /// With marks beside the samples.
    pub const fn with_marks(self) -> Self {
        Self { has_marks: true, ..self }
    }

    fn marked_as(self, spec: &TableSpec) -> Self {
        if spec.kind == TableKind::Replay { self.with_marks() } else { self }
    }

    /// The ring of a valid spec.
    pub fn of(spec: &TableSpec) -> Result<Self, GeometryError> {
        let geometry = Self::new(spec.batch_size, spec.max_capacity, 64, MAX_BITS_PER_WORD)?;
        Ok(geometry.marked_as(spec))
    }

    /// The ring that a message speaks of.
    pub fn announced(attachment: &Attachment) -> Result<Self, GeometryError> {
        let spec = &attachment.spec;
        let geometry =
            Self::new(spec.batch_size, spec.max_capacity, attachment.refill_len, attachment.bits_per_word)?
                .marked_as(spec);
        if attachment.fill_len != geometry.fill_len {
            let (value, expected) = (attachment.fill_len.into(), geometry.fill_len.into());
            return Err(GeometryError { name: "fill_len", value, min: expected, max: expected });
        }
        Ok(geometry)
    }

    /// Samples in one block.
    #[inline]
    pub const fn block_slots(&self) -> u32 {
        self.block_slots
    }

    /// Blocks of the table at its largest.
    #[inline]
    pub const fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    /// Entries of the fill ring.
    #[inline]
    pub const fn fill_len(&self) -> u32 {
        self.fill_len
    }

    /// Entries of the refill list.
    #[inline]
    pub const fn refill_len(&self) -> u32 {
        self.refill_len
    }

    /// Commit bits in one word.
    #[inline]
    pub const fn bits_per_word(&self) -> u32 {
        self.bits_per_word
    }

    /// Commit words of one block.
    #[inline]
    pub const fn words_per_block(&self) -> u32 {
        self.block_slots.div_ceil(self.bits_per_word)
    }

    /// The commit word of a block whose every sample is there.
    #[inline]
    pub const fn full_word(&self, word: u32) -> u64 {
        let bits = if word + 1 < self.words_per_block() {
            self.bits_per_word
        } else {
            self.block_slots - (self.words_per_block() - 1) * self.bits_per_word
        };
        (1 << bits) - 1
    }

    /// The block sequence of a position.
    #[inline]
    pub const fn seq(&self, position: Position) -> BlockSeq {
        BlockSeq(position.0 / self.block_slots as u64)
    }

    /// The slot of a position within its block.
    #[inline]
    pub const fn slot(&self, position: Position) -> u32 {
        (position.0 % self.block_slots as u64) as u32
    }

    /// The first position of a block sequence.
    #[inline]
    pub const fn first(&self, seq: BlockSeq) -> Position {
        Position(seq.0 * self.block_slots as u64)
    }

    /// Bytes of the control region.
    pub const fn control_bytes(&self) -> usize {
        self.marks_at() + self.slots() * if self.has_marks { MARK_STRIDE } else { 0 }
    }

    /// Slots of all blocks.
    const fn slots(&self) -> usize {
        self.max_blocks as usize * self.block_slots as usize
    }

    /// Whether a line for each block would be most of the table.
    const fn is_packed(&self) -> bool {
        self.has_marks && self.block_slots == 1
    }

    const fn fill_at(&self) -> usize {
        (REFILL + self.refill_len as usize * REFILL_STRIDE).next_multiple_of(LINE)
    }

    const fn gates_at(&self) -> usize {
        (self.fill_at() + self.fill_len as usize * 4).next_multiple_of(LINE)
    }

    const fn commits_at(&self) -> usize {
        (self.gates_at() + self.max_blocks as usize * self.gate_stride()).next_multiple_of(LINE)
    }

    const fn marks_at(&self) -> usize {
        (self.commits_at() + self.max_blocks as usize * self.commits_stride()).next_multiple_of(LINE)
    }

    const fn gate_stride(&self) -> usize {
        if self.is_packed() { GATE_BYTES } else { LINE }
    }

    const fn commits_stride(&self) -> usize {
        let bytes = self.words_per_block() as usize * 8;
        if self.is_packed() { bytes } else { bytes.next_multiple_of(LINE) }
    }

    /// The header's half words from offset 8 on: the version, then the geometry.
    const fn header(&self) -> [u32; 7] {
        [
            LAYOUT_VERSION,
            self.block_slots,
            self.max_blocks,
            self.fill_len,
            self.refill_len,
            self.bits_per_word,
            self.has_marks as u32,
        ]
    }
}

/// A control region that disagrees with what was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum ControlError {
    #[error("the control region has {got} bytes where its geometry needs {needed}")]
    Size { got: usize, needed: usize },
    #[error("the control region's header holds {got:#x} at byte {at} where {expected:#x} was announced")]
    Header { at: usize, got: u64, expected: u64 },
}

/// The words of one table.
pub struct Control {
    words: Words,
    geometry: Geometry,
}

impl Control {
    /// Lays the geometry over zeroed words and writes the header, its version last.
    pub fn create(words: Words, geometry: Geometry) -> Result<Self, ControlError> {
        let control = Self::sized(words, geometry)?;
        let header = geometry.header();
        control.words.u64(0).store(CONTROL_MAGIC, Ordering::Relaxed);
        for (i, &half) in header.iter().enumerate().skip(1) {
            control.words.u32(8 + 4 * i).store(half, Ordering::Relaxed);
        }
        // pairs with `check_header` of whoever maps the region
        control.words.u32(8).store(header[0], Ordering::Release);
        Ok(control)
    }

    /// Lays the geometry over words that another process made, and compares its header.
    pub fn attach(words: Words, geometry: Geometry) -> Result<Self, ControlError> {
        let control = Self::sized(words, geometry)?;
        control.check_header()?;
        Ok(control)
    }

    fn sized(words: Words, geometry: Geometry) -> Result<Self, ControlError> {
        if words.len() < geometry.control_bytes() {
            return Err(ControlError::Size { got: words.len(), needed: geometry.control_bytes() });
        }
        Ok(Self { words, geometry })
    }

    /// Compares the header with the geometry.
    pub fn check_header(&self) -> Result<(), ControlError> {
        let differs = |at, got: u64, expected: u64| {
            if got == expected { Ok(()) } else { Err(ControlError::Header { at, got, expected }) }
        };
        for (i, &half) in self.geometry.header().iter().enumerate() {
            let at = 8 + 4 * i;
            // acquire: pairs with the version's release in `create`
            differs(at, self.words.u32(at).load(Ordering::Acquire).into(), half.into())?;
        }
        differs(0, self.words.u64(0).load(Ordering::Relaxed), CONTROL_MAGIC)
    }

    /// The geometry.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Next position not yet claimed, and [`CLOSED`].
    #[inline]
    pub fn cursor(&self) -> &AtomicU64 {
        self.words.u64(CURSOR)
    }

    /// First position that may not be claimed yet. Never falls.
    #[inline]
    pub fn limit(&self) -> &AtomicU64 {
        self.words.u64(LIMIT)
    }

    /// Bumped when the limit moves or a hole is offered.
    #[inline]
    pub fn space(&self) -> &AtomicU32 {
        self.words.u32(SPACE)
    }

    /// Of a latest table: its newest value; see `newest`.
    #[inline]
    pub fn newest(&self) -> &AtomicU64 {
        self.words.u64(NEWEST)
    }

    /// A hole offered again: position + 1, or 0.
    #[inline]
    pub fn refill(&self, entry: u32) -> &AtomicU64 {
        assert!(entry < self.geometry.refill_len);
        self.words.u64(REFILL + entry as usize * REFILL_STRIDE)
    }

    /// The block of that hole.
    #[inline]
    pub fn refill_block(&self, entry: u32) -> &AtomicU32 {
        assert!(entry < self.geometry.refill_len);
        self.words.u32(REFILL + entry as usize * REFILL_STRIDE + 8)
    }

    /// The physical block that holds a block sequence which is not wholly claimed yet.
    #[inline]
    pub fn fill(&self, seq: BlockSeq) -> &AtomicU32 {
        let entry = seq.0 as usize & (self.geometry.fill_len as usize - 1);
        self.words.u32(self.geometry.fill_at() + entry * 4)
    }

    /// The state of a block: see `ready`.
    #[inline]
    pub fn ready(&self, block: BlockIndex) -> &AtomicU64 {
        self.words.u64(self.geometry.gates_at() + block.index() * self.geometry.gate_stride())
    }

    /// Samples in a complete block: `block_slots`, but for the last ones of a finished table.
    #[inline]
    pub fn length(&self, block: BlockIndex) -> &AtomicU32 {
        self.words.u32(self.geometry.gates_at() + block.index() * self.geometry.gate_stride() + 8)
    }

    /// A commit word.
    #[inline]
    pub fn commits(&self, block: BlockIndex, word: u32) -> &AtomicU64 {
        assert!(word < self.geometry.words_per_block());
        let block_at = self.geometry.commits_at() + block.index() * self.geometry.commits_stride();
        self.words.u64(block_at + word as usize * 8)
    }

    /// Of a replay table: the priority of the sample in a slot, and the version of the policy that made it; see `marks`.
    ///
    /// # Panics
    /// If the table has no marks, or the block no such slot.
    #[inline]
    pub fn mark(&self, block: BlockIndex, slot: u32) -> [&AtomicU64; 2] {
        let geometry = &self.geometry;
        assert!(geometry.has_marks && slot < geometry.block_slots);
        let at = block.index() * geometry.block_slots as usize + slot as usize;
        let at = geometry.marks_at() + at * MARK_STRIDE;
        [self.words.u64(at), self.words.u64(at + 8)]
    }

    /// Asks for the lines that the completer of a block will write, while it still has other things to do: each is
    /// some other core's by then, the daemon's or the reader's.
    #[inline]
    pub fn expect_completion(&self, block: BlockIndex) {
        expect_write(self.ready(block));
        expect_write(self.commits(block, self.geometry.words_per_block() - 1));
    }

    /// Whether every sample of the block is committed. Acquire: pairs with the commit CAS.
    #[inline]
    pub fn is_full(&self, block: BlockIndex) -> bool {
        (0..self.geometry.words_per_block())
            .all(|word| self.commits(block, word).load(Ordering::Acquire) == self.geometry.full_word(word))
    }

    /// Whether the sample in that slot is committed. Acquire: pairs with the commit CAS.
    pub fn is_committed(&self, block: BlockIndex, slot: u32) -> bool {
        let (word, bit) = (slot / self.geometry.bits_per_word, slot % self.geometry.bits_per_word);
        self.commits(block, word).load(Ordering::Acquire) & (1 << bit) != 0
    }

    /// How many samples of the block are committed.
    pub fn count(&self, block: BlockIndex) -> u32 {
        (0..self.geometry.words_per_block())
            .map(|word| {
                let bits = self.commits(block, word).load(Ordering::Acquire);
                (bits & self.geometry.full_word(word)).count_ones()
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_do_not_overlap_and_stay_inside() {
        let geometry = Geometry::new(100, 5, 3, 32).unwrap();
        assert_eq!((geometry.words_per_block(), geometry.fill_len()), (4, 8));
        do_not_overlap(geometry, false);
        do_not_overlap(geometry.with_marks(), true);
        do_not_overlap(Geometry::new(1, 5, 3, 32).unwrap().with_marks(), true);
    }

    fn do_not_overlap(geometry: Geometry, has_marks: bool) {
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let mut marks = 0;
        let mut mark64 = |word: &AtomicU64| {
            marks += 1;
            assert_eq!(word.swap(u64::MAX, Ordering::Relaxed), 0, "word {marks} was taken");
        };
        mark64(control.cursor());
        mark64(control.limit());
        mark64(control.newest());
        for entry in 0..3 {
            mark64(control.refill(entry));
        }
        for block in (0..5).map(|block| BlockIndex::new(block, 5).unwrap()) {
            mark64(control.ready(block));
            for word in 0..geometry.words_per_block() {
                mark64(control.commits(block, word));
            }
            for slot in 0..if has_marks { geometry.block_slots() } else { 0 } {
                control.mark(block, slot).into_iter().for_each(&mut mark64);
            }
        }
        let mark32 = |word: &AtomicU32| assert_eq!(word.swap(u32::MAX, Ordering::Relaxed), 0);
        mark32(control.space());
        for entry in 0..3 {
            mark32(control.refill_block(entry));
        }
        for seq in 0..8 {
            mark32(control.fill(BlockSeq(seq)));
        }
        for block in 0..5 {
            mark32(control.length(BlockIndex::new(block, 5).unwrap()));
        }
        assert_eq!(control.check_header(), Ok(()));
    }

    #[test]
    fn the_last_word_has_the_bits_that_are_left() {
        let geometry = Geometry::new(70, 1, 1, 32).unwrap();
        let full: Vec<u64> = (0..3).map(|word| geometry.full_word(word)).collect();
        assert_eq!(full, [0xffff_ffff, 0xffff_ffff, 0b11_1111]);
        assert_eq!(Geometry::new(64, 1, 1, 32).unwrap().full_word(1), 0xffff_ffff);
    }

    #[test]
    fn a_header_of_another_geometry_is_told_by_its_byte() {
        let made = Geometry::new(4, 2, 1, 2).unwrap();
        let believed = Geometry::new(4, 2, 1, 3).unwrap();
        let control = Control::create(Words::heap(4096), made).unwrap();
        let error = Control::attach(control.words, believed).map(|_| ()).unwrap_err();
        assert_eq!(error, ControlError::Header { at: 28, got: 2, expected: 3 });
    }

    #[test]
    fn numbers_that_no_ring_has_are_refused_by_name() {
        let error = Geometry::new(0, 1, 1, 1).unwrap_err().to_string();
        assert_eq!(error, format!("no ring has block_slots = 0: it must be 1 to {MAX_BATCH}"));
        assert!(Geometry::new(1, MAX_BLOCKS + 1, 1, 1).is_err());
        assert!(Geometry::new(1, 1, 1, 33).is_err());
    }
}
