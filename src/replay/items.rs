//! What is kept of each item, so that a daemon can take a table over from another: columns over words.
//!
//! They lie in a region of the daemon's own, as the [ledger](crate::table::ledger) does. Everything else that an index
//! knows is derived from them. A daemon may die between any two stores; each change below has one store that makes it,
//! and what belongs to it is either stored before, or made good by [`Items::open`]:
//!
//! ```text
//! insert   the record's fields, then its state   (how many inserts there were: the highest ordinal says it again)
//! pick     an entry {slot, key, times}, then how many picks there were; after it the record's own count
//! remove   the record's state                    (deletes are inserts less what is stored)
//! update   the priority
//! reset    the sums from which is counted from now on, then which of the two they are; after it the states
//! ```
//!
//! How often an item is leased stands beside how often it was sampled, since both change together; it is forgotten when the
//! region is opened, by a daemon that knows from elsewhere what is leased.
//!
//! ```text
//!   0  magic, version, slots
//!  64  inserts, which sums, sums[2] {inserts, samples}, the trainer's version + 1
//! 128  picks[2] {slot and times, key, samples}
//! 192  removed[5], one for each cause
//! 256  priorities[slots]    0 where nothing is stored
//!      records[slots]       {key + 1, has a version (2), state (1..0)}, {version}, {inserted at}, {leases, times sampled}
//!      ordinals[slots]      which insert it was
//!      turns[slots]         when its priority was set, in the order in which priorities were
//! ```

use std::time::Duration;

use thiserror::Error;

use crate::replay::limiter::Totals;
use crate::ring::words::Words;
use crate::sync::{AtomicU64, Ordering, expect_write};

const MAGIC: u64 = u64::from_be_bytes(*b"echorpl\n");
const VERSION: u64 = 1;
const INSERTS: usize = 8;
const WHICH_SUMS: usize = 9;
const SUMS: usize = 10;
const TRAINER_VERSION: usize = 14;
const PICKS: usize = 16;
const PICK_WORDS: usize = 3;
const REMOVED: usize = 24;
const PRIORITIES: usize = 32;
const RECORD_WORDS: usize = 4;
const HAS_VERSION: u64 = 4;
const STATE_BITS: u32 = 3;

/// The largest key. Positions end long before.
pub const MAX_KEY: u64 = (1 << 60) - 1;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// Nothing since the region was made, or what was there was overwritten by an insert that was not finished.
    Empty,
    /// The item with this key.
    Stored(u64),
    /// The item with this key was there, and is sampled no more.
    Gone(u64),
}

/// Why an item left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The table was full.
    Evicted,
    /// It was sampled as often as it may be.
    Exhausted,
    /// Somebody asked for it.
    Deleted,
    /// It was too old for the trainer.
    Stale,
    /// The table was reset.
    Reset,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// What is stored with an item.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Record {
    /// Its position.
    pub key: u64,
    /// As it was given, or as it became.
    pub priority: f64,
    /// The policy's version that made it.
    pub version: Option<u64>,
    /// When, counted from the instant that the caller counts from.
    pub inserted_at: Duration,
    /// How often it was sampled.
    pub times_sampled: u32,
}

/// A region that holds no items of such a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the record of a replay table holds {got:#x} in word {word} where {expected:#x} belongs")]
pub struct ItemsError {
    word: usize,
    got: u64,
    expected: u64,
}

/// The columns.
pub struct Items {
    words: Words,
    slots: u32,
    inserts: u64,
    samples: u64,
    stored: u64,
    next_turn: u64,
    /// How many stores are left before this daemon dies.
    #[cfg(test)]
    pub(crate) fuse: Option<u64>,
}

/// What unwinds when the fuse has burnt down.
#[cfg(test)]
pub(crate) struct Death;

impl Items {
    /// Bytes that the region needs.
    pub fn bytes(slots: u32) -> usize {
        Self::turns_at(slots as usize) * 8 + slots as usize * 8
    }

    fn records_at(slots: usize) -> usize {
        // Records begin at half a cache line, so that none straddles two.
        (PRIORITIES + slots).next_multiple_of(8)
    }

    fn ordinals_at(slots: usize) -> usize {
        Self::records_at(slots) + slots * RECORD_WORDS
    }

    fn turns_at(slots: usize) -> usize {
        Self::ordinals_at(slots) + slots
    }

    /// Writes the header over zeroed words.
    ///
    /// # Panics
    /// If there are fewer than [`Items::bytes`].
    pub fn create(words: Words, slots: u32) -> Self {
        let mut items = Self::over(words, slots);
        for (i, value) in Self::header(slots).into_iter().enumerate() {
            items.set(i, value);
        }
        items
    }

    fn over(words: Words, slots: u32) -> Self {
        Self {
            words,
            slots,
            inserts: 0,
            samples: 0,
            stored: 0,
            next_turn: 0,
            #[cfg(test)]
            fuse: None,
        }
    }

    fn header(slots: u32) -> [u64; 3] {
        [MAGIC, VERSION, slots.into()]
    }

    /// Words that were the items of such a table before. Finishes what a daemon that died had begun.
    ///
    /// # Errors
    /// If they were not.
    pub fn open(words: Words, slots: u32) -> Result<Self, ItemsError> {
        let expected = Self::bytes(slots) as u64;
        if (words.len() as u64) < expected {
            return Err(ItemsError { word: 0, got: words.len() as u64, expected });
        }
        let mut items = Self::over(words, slots);
        for (word, expected) in Self::header(slots).into_iter().enumerate() {
            let got = items.get(word);
            if got != expected {
                return Err(ItemsError { word, got, expected });
            }
        }
        items.recover();
        Ok(items)
    }

    fn recover(&mut self) {
        self.inserts = self.get(INSERTS);
        for slot in 0..self.slots {
            if self.state(slot) == SlotState::Empty {
                continue;
            }
            self.inserts = self.inserts.max(self.ordinal(slot) + 1);
            self.next_turn = self.next_turn.max(self.turn(slot) + 1);
        }
        let first = self.sums().0;
        for slot in 0..self.slots {
            if matches!(self.state(slot), SlotState::Stored(_)) && self.ordinal(slot) < first {
                self.set_gone(slot);
            }
            if self.leases(slot) > 0 {
                self.set_uses(slot, 0, self.times(slot));
            }
            match self.state(slot) {
                SlotState::Stored(_) => self.stored += 1,
                _ if self.priority(slot) != 0.0 => self.set_priority_word(slot, 0.0),
                _ => {}
            }
        }
        let last = if self.get(PICKS + 2) > self.get(PICKS + PICK_WORDS + 2) { 0 } else { 1 };
        let [packed, key, samples] = [0, 1, 2].map(|word| self.get(PICKS + last * PICK_WORDS + word));
        self.samples = samples;
        let (slot, times) = ((packed >> 32) as u32, packed as u32);
        if samples > 0 && slot < self.slots && self.state(slot) == SlotState::Stored(key) {
            self.set_uses(slot, 0, times.max(self.times(slot)));
        }
    }

    // As in the ledger: one process uses the region at a time, so loads are relaxed. Stores are releases, so that the
    // compiler keeps them in the order in which they stand: a daemon may die between any two.
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        self.words.u64(index * 8)
    }

    #[inline]
    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&mut self, index: usize, value: u64) {
        #[cfg(test)]
        if let Some(left) = self.fuse.as_mut() {
            match left.checked_sub(1) {
                Some(less) => *left = less,
                None => std::panic::resume_unwind(Box::new(Death)),
            }
        }
        self.word(index).store(value, Ordering::Release);
    }

    #[inline]
    fn record_at(&self, slot: u32) -> usize {
        debug_assert!(slot < self.slots, "slot {slot}");
        Self::records_at(self.slots as usize) + slot as usize * RECORD_WORDS
    }

    /// Lets go of the region, for the next who opens it.
    pub fn into_words(self) -> Words {
        self.words
    }

    /// The words as they are now.
    #[cfg(test)]
    pub(crate) fn copy_words(&self) -> Words {
        let copy = Words::heap(self.words.len());
        for offset in (0..self.words.len()).step_by(8) {
            copy.u64(offset).store(self.words.u64(offset).load(Ordering::Relaxed), Ordering::Relaxed);
        }
        copy
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Says that an item will be sampled or changed soon.
    #[inline]
    pub fn expect(&self, slot: u32) {
        expect_write(self.word(self.record_at(slot)));
        expect_write(self.word(PRIORITIES + slot as usize));
    }

    /// What a slot holds.
    #[inline]
    pub fn state(&self, slot: u32) -> SlotState {
        let word = self.get(self.record_at(slot));
        let key = (word >> STATE_BITS).wrapping_sub(1);
        match word & 3 {
            1 => SlotState::Stored(key),
            2 => SlotState::Gone(key),
            _ => SlotState::Empty,
        }
    }

    /// The key of the item that is, or was, in a slot that is not empty.
    #[inline]
    pub fn key(&self, slot: u32) -> u64 {
        (self.get(self.record_at(slot)) >> STATE_BITS).wrapping_sub(1)
    }

    /// An item's priority, 0 where none is stored.
    #[inline]
    pub fn priority(&self, slot: u32) -> f64 {
        f64::from_bits(self.get(PRIORITIES + slot as usize))
    }

    /// Of which version an item is.
    #[inline]
    pub fn version(&self, slot: u32) -> Option<u64> {
        let at = self.record_at(slot);
        (self.get(at) & HAS_VERSION != 0).then(|| self.get(at + 1))
    }

    /// How often an item was sampled.
    #[inline]
    pub fn times(&self, slot: u32) -> u32 {
        self.get(self.record_at(slot) + 3) as u32
    }

    /// How often a slot is leased.
    #[inline]
    pub fn leases(&self, slot: u32) -> u32 {
        (self.get(self.record_at(slot) + 3) >> 32) as u32
    }

    /// Which insert an item was.
    #[inline]
    pub fn ordinal(&self, slot: u32) -> u64 {
        self.get(Self::ordinals_at(self.slots as usize) + slot as usize)
    }

    /// When its priority was set: grows from one to the next.
    #[inline]
    pub fn turn(&self, slot: u32) -> u64 {
        self.get(Self::turns_at(self.slots as usize) + slot as usize)
    }

    /// All that is stored with an item.
    #[inline]
    pub fn record(&self, slot: u32) -> Record {
        Record {
            key: self.key(slot),
            priority: self.priority(slot),
            version: self.version(slot),
            inserted_at: Duration::from_nanos(self.get(self.record_at(slot) + 2)),
            times_sampled: self.times(slot),
        }
    }

    /// Stores an item, or, if there is a cause for which it is gone already, only that it was there.
    pub fn insert(&mut self, slot: u32, record: &Record, gone: Option<Cause>) {
        let at = self.record_at(slot);
        let nanos = u64::try_from(record.inserted_at.as_nanos()).unwrap_or(u64::MAX);
        self.set(at, 0);
        self.set(at + 1, record.version.unwrap_or(0));
        self.set(at + 2, nanos);
        self.set(at + 3, record.times_sampled.into());
        self.set(Self::ordinals_at(self.slots as usize) + slot as usize, self.inserts);
        self.take_turn(slot);
        self.set_priority_word(slot, if gone.is_some() { 0.0 } else { record.priority });
        let version = if record.version.is_some() { HAS_VERSION } else { 0 };
        let state = if gone.is_some() { 2 } else { 1 };
        self.set(at, (record.key + 1) << STATE_BITS | version | state);
        self.inserts += 1;
        self.set(INSERTS, self.inserts);
        match gone {
            Some(cause) => self.count_removed(cause),
            None => self.stored += 1,
        }
    }

    /// Counts that an item was sampled and is leased once more, and returns how often it was sampled.
    #[inline]
    pub fn pick(&mut self, slot: u32) -> u32 {
        let times = self.times(slot).saturating_add(1);
        self.samples += 1;
        let entry = PICKS + (self.samples % 2) as usize * PICK_WORDS;
        self.set(entry, u64::from(slot) << 32 | u64::from(times));
        self.set(entry + 1, self.key(slot));
        self.set(entry + 2, self.samples);
        self.set_uses(slot, self.leases(slot) + 1, times);
        times
    }

    /// A slot is leased once more.
    pub fn lease(&mut self, slot: u32) {
        self.set_uses(slot, self.leases(slot) + 1, self.times(slot));
    }

    /// A slot that is leased is so once less, and is still so often.
    #[inline]
    pub fn release(&mut self, slot: u32) -> u32 {
        let left = self.leases(slot) - 1;
        self.set_uses(slot, left, self.times(slot));
        left
    }

    #[inline]
    fn set_uses(&mut self, slot: u32, leases: u32, times: u32) {
        let at = self.record_at(slot);
        self.set(at + 3, u64::from(leases) << 32 | u64::from(times));
    }

    /// A stored item is sampled no more.
    pub fn remove(&mut self, slot: u32, cause: Cause) {
        self.set_gone(slot);
        self.stored -= 1;
        self.count_removed(cause);
        self.set_priority_word(slot, 0.0);
    }

    fn count_removed(&mut self, cause: Cause) {
        let removed = REMOVED + cause as usize;
        self.set(removed, self.get(removed) + 1);
    }

    fn set_gone(&mut self, slot: u32) {
        let at = self.record_at(slot);
        self.set(at, self.get(at) ^ 3); // 1, stored, becomes 2
    }

    /// Changes an item's priority, and when that was, if somebody needs to know.
    pub fn set_priority(&mut self, slot: u32, priority: f64, turn: bool) {
        if turn {
            self.take_turn(slot);
        }
        self.set_priority_word(slot, priority);
    }

    fn set_priority_word(&mut self, slot: u32, priority: f64) {
        self.set(PRIORITIES + slot as usize, priority.to_bits());
    }

    fn take_turn(&mut self, slot: u32) {
        self.set(Self::turns_at(self.slots as usize) + slot as usize, self.next_turn);
        self.next_turn += 1;
    }

    /// Inserts and samples before the last reset.
    fn sums(&self) -> (u64, u64) {
        let at = SUMS + (self.get(WHICH_SUMS) % 2) as usize * 2;
        (self.get(at), self.get(at + 1))
    }

    /// Counts from zero, and nothing that was there counts. The caller removes what is stored.
    pub fn reset(&mut self) {
        let which = (self.get(WHICH_SUMS) + 1) % 2;
        self.set(SUMS + which as usize * 2, self.inserts);
        self.set(SUMS + which as usize * 2 + 1, self.samples);
        self.set(WHICH_SUMS, which);
    }

    /// What happened since the last reset.
    #[inline]
    pub fn totals(&self) -> Totals {
        let (inserts, samples) = self.sums();
        let inserts = self.inserts - inserts;
        Totals { inserts, samples: self.samples - samples, deletes: inserts - self.stored }
    }

    /// Inserts before the last reset.
    pub fn inserts_before(&self) -> u64 {
        self.sums().0
    }

    /// How many items left by each cause, in the order of [`Cause`], since the table was made. A daemon that dies may
    /// forget one; nothing is decided by it.
    pub fn removed(&self) -> [u64; Cause::COUNT] {
        std::array::from_fn(|cause| self.get(REMOVED + cause))
    }

    /// The version that the trainer stated last.
    pub fn trainer_version(&self) -> Option<u64> {
        self.get(TRAINER_VERSION).checked_sub(1)
    }

    /// Notes it.
    pub fn set_trainer_version(&mut self, version: u64) {
        self.set(TRAINER_VERSION, version.saturating_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_from_the_region_alone() {
        let mut items = Items::create(Words::heap(Items::bytes(3)), 3);
        let record = |key, version| Record {
            key,
            priority: 0.25,
            version,
            inserted_at: Duration::from_millis(5),
            times_sampled: 0,
        };
        items.insert(0, &record(7, Some(u64::MAX)), None);
        items.insert(2, &record(MAX_KEY, None), None);
        items.insert(1, &record(0, None), Some(Cause::Stale));
        items.pick(2);
        items.set_priority(2, 3.0, true);
        items.remove(0, Cause::Deleted);
        items.set_trainer_version(4);

        let items = Items::open(items.into_words(), 3).unwrap();
        assert_eq!(items.state(0), SlotState::Gone(7));
        assert_eq!(items.state(1), SlotState::Gone(0));
        assert_eq!(items.state(2), SlotState::Stored(MAX_KEY));
        assert_eq!(items.version(0), Some(u64::MAX));
        let expected = Record { priority: 3.0, times_sampled: 1, ..record(MAX_KEY, None) };
        assert_eq!(items.record(2), expected);
        assert_eq!(items.totals(), Totals { inserts: 3, samples: 1, deletes: 2 });
        assert_eq!(items.removed(), [0, 0, 1, 1, 0]);
        assert_eq!(items.trainer_version(), Some(4));
    }

    #[test]
    fn a_region_of_another_size_is_refused() {
        let words = Items::create(Words::heap(Items::bytes(4)), 4).into_words();
        let error = Items::open(words, 3).map(|_| ()).unwrap_err();
        assert_eq!(error, ItemsError { word: 2, got: 4, expected: 3 });
    }

    #[test]
    fn no_record_straddles_two_cache_lines() {
        for slots in [1, 7, 8, 1000] {
            assert_eq!(Items::records_at(slots) * 8 % 64, 0);
        }
        assert_eq!(64 % (RECORD_WORDS * 8), 0);
    }
}
