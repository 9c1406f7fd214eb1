//! The client page: what one client leaves behind if it dies.
//!
//! Each writer of the client has a line: the claim that it holds, a second record for a sample on the move,
//! and counters. So has each reader of a latest table, for what it holds ([`hold`](super::hold)). A record is stored *before* the claim is taken, so that at every instant each claimed position
//! is committed, offered as a hole, or covered by a record; reclaim is built on that. Only the client and the
//! daemon map the page, and the daemon treats what it reads there as an allegation about the client's own
//! table.

use crate::ids::Position;
use crate::ring::control::POSITION_END;
use crate::ring::hold::HoldLine;
use crate::ring::words::Words;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wire::message::LAYOUT_VERSION;

/// First word of a client page.
pub const PAGE_MAGIC: u64 = u64::from_be_bytes(*b"echocli\n");
/// Bytes of a client page.
pub const PAGE_BYTES: usize = 4096;
/// Writers, and readers of latest tables, that one client may have.
pub const RECORDS: u32 = (PAGE_BYTES / RECORD_STRIDE - 1) as u32;
/// Longest claim.
pub const MAX_CLAIM: u32 = 1 << 11;

const RECORD_STRIDE: usize = 64;
const DROPPED: u64 = 1 << 63;
const LENGTH_AT: u32 = 52;
const POSITION_MASK: u64 = (1 << LENGTH_AT) - 1;

/// What a record says: some positions are, or are about to be, its writer's.
///
/// One word: 52 bits of position + 1, 11 bits of length - 1, DROPPED. Zero is no claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedClaim {
    /// The first position.
    pub position: Position,
    /// How many, 1 to [`MAX_CLAIM`].
    pub length: u32,
    /// The writer gives the claim up: the daemon clears the record and offers the positions to others.
    pub dropped: bool,
}

impl RecordedClaim {
    /// The word.
    #[inline]
    pub const fn encode(self) -> u64 {
        let dropped = if self.dropped { DROPPED } else { 0 };
        (self.position.0 + 1) | ((self.length - 1) as u64) << LENGTH_AT | dropped
    }

    /// What a word says, if anything: an allegation.
    #[inline]
    pub const fn decode(word: u64) -> Option<Self> {
        let position = word & POSITION_MASK;
        if position == 0 {
            return None;
        }
        Some(Self {
            position: Position(position - 1),
            length: ((word >> LENGTH_AT) & (MAX_CLAIM as u64 - 1)) as u32 + 1,
            dropped: word & DROPPED != 0,
        })
    }

    /// Whether the position is one of these.
    pub const fn covers(&self, position: Position) -> bool {
        position.0 >= self.position.0 && position.0 - self.position.0 < self.length as u64
    }
}

const _: () = assert!(POSITION_END < POSITION_MASK, "position + 1 fits");

/// The page.
pub struct ClientPage {
    words: Words,
}

impl ClientPage {
    /// Writes the header over zeroed words.
    pub fn create(words: Words) -> Option<Self> {
        if words.len() < PAGE_BYTES {
            return None;
        }
        words.u64(0).store(PAGE_MAGIC, Ordering::Relaxed);
        // pairs with `attach`
        words.u32(8).store(LAYOUT_VERSION, Ordering::Release);
        Some(Self { words })
    }

    /// A page that the daemon made; `None` if it is none.
    pub fn attach(words: Words) -> Option<Self> {
        // acquire: pairs with `create`
        let known = words.len() >= PAGE_BYTES
            && words.u32(8).load(Ordering::Acquire) == LAYOUT_VERSION
            && words.u64(0).load(Ordering::Relaxed) == PAGE_MAGIC;
        known.then_some(Self { words })
    }

    /// One writer's line, if the page has so many.
    #[inline]
    pub fn record(&self, index: u32) -> Option<Record<'_>> {
        let at = (index as usize + 1) * RECORD_STRIDE;
        (index < RECORDS).then_some(Record { words: &self.words, at })
    }

    /// One line as that of a reader of a latest table, if the page has so many.
    pub fn holds(&self, index: u32) -> Option<HoldLine<'_>> {
        let at = (index as usize + 1) * RECORD_STRIDE;
        (index < RECORDS).then_some(HoldLine::new(&self.words, at))
    }
}

/// One writer's line in the client page.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    words: &'a Words,
    at: usize,
}

impl<'a> Record<'a> {
    /// The claim that is held.
    #[inline]
    pub fn claim(&self) -> &'a AtomicU64 {
        self.words.u64(self.at)
    }

    /// The claim to which a sample moves whose block was retired.
    #[inline]
    pub fn moving(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + 8)
    }

    /// Samples committed, by the writer's own account.
    #[inline]
    pub fn committed(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + 16)
    }

    /// Wakes sent to readers.
    #[inline]
    pub fn wakes(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + 24)
    }

    /// Times that it had to wait for space.
    pub fn waits(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + 32)
    }

    /// 1 while it waits for space.
    pub fn waiting(&self) -> &'a AtomicU32 {
        self.words.u32(self.at + 40)
    }

    /// Both claims, as alleged. Acquire: pairs with the writer's release in `claim` and `commit`.
    pub fn alleged(&self) -> [Option<RecordedClaim>; 2] {
        [self.claim(), self.moving()].map(|word| RecordedClaim::decode(word.load(Ordering::Acquire)))
    }

    /// Zeroes the line for its next writer. The last one can no longer write: its process is gone, or it said
    /// that it unmapped.
    pub fn reset(&self) {
        for offset in (0..RECORD_STRIDE).step_by(8).filter(|&offset| offset != 40) {
            self.words.u64(self.at + offset).store(0, Ordering::Release);
        }
        self.waiting().store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_survives_its_word() {
        for (position, length) in [(0, 1), (7, 2), (POSITION_END - 1, MAX_CLAIM), (1 << 40, 1 << 10)] {
            for dropped in [false, true] {
                let claim = RecordedClaim { position: Position(position), length, dropped };
                assert_eq!(RecordedClaim::decode(claim.encode()), Some(claim));
            }
        }
        assert_eq!(RecordedClaim::decode(0), None);
        assert_eq!(RecordedClaim::decode(DROPPED), None, "a word without a position is no claim");
    }

    #[test]
    fn a_claim_covers_its_positions_alone() {
        let claim = RecordedClaim { position: Position(10), length: 3, dropped: false };
        let covered: Vec<u64> = (0..20).filter(|&p| claim.covers(Position(p))).collect();
        assert_eq!(covered, [10, 11, 12]);
    }

    #[test]
    fn records_have_lines_of_their_own() {
        let page = ClientPage::create(Words::heap(PAGE_BYTES)).unwrap();
        for index in 0..RECORDS {
            let record = page.record(index).unwrap();
            for word in [record.claim(), record.moving(), record.committed(), record.wakes(), record.waits()]
            {
                assert_eq!(word.swap(u64::from(index) + 1, Ordering::Relaxed), 0);
            }
            assert_eq!(record.waiting().swap(index + 1, Ordering::Relaxed), 0);
        }
        assert!(page.record(RECORDS).is_none());
        page.record(3).unwrap().reset();
        assert_eq!(page.record(3).unwrap().alleged(), [None, None]);
        assert_eq!(page.record(4).unwrap().claim().load(Ordering::Relaxed), 5);
    }
}
