//! Which items a replay table has, which are sampled next, and which have to go: a pure state machine.
//!
//! ```text
//!            insert                          evicted, exhausted, deleted, stale, reset
//!   empty ───────────▶ stored: it is sampled ─────────────────────────────────────────▶ gone
//!     ▲                  │    ▲                                                           │
//!     │          sample: │    │ release                                                   │
//!     │     a lease more ▼    │ a lease less                               no lease left: │
//!     │                  stored                                                     freed ▼
//!     └────── its block is published again, and the slot is filled under another key ─────┘
//! ```
//!
//! *Stored*: the bytes are final. *Leased*: somebody reads them, and they stay what they are. *Freed*: nobody does, and
//! the caller publishes the block again once all its slots are.
//!
//! - A key is a position: it never comes twice, so it is the generation of the slot, too.
//! - An item is removed whether it is leased or not, as in Reverb: selectors do not know of leases, and the table is
//!   never larger than `max_size`. Removing never touches what is leased: the item is sampled no more, and its slot
//!   is freed when the last lease comes back. Until then it takes a slot of those beyond `max_size`.
//! - When the table is full, the new item is stored first and the remover chooses among all, the new one included.
//! - Each single sample passes the limiter. What is picked counts as sampled whether or not the answer arrives.
//! - What is refused has changed nothing.
//!
//! No clock and no randomness of its own: `now` is counted from any fixed instant, the same for every daemon that has
//! the table. It knows nothing of blocks, of who leases what, or of shared memory that others write.

use std::time::Duration;

use thiserror::Error;

use crate::replay::items::{Cause, Items, ItemsError, MAX_KEY, Record, SlotState};
use crate::replay::key_map::KeyMap;
use crate::replay::limiter::{Limiter, Reason, Totals};
use crate::replay::live::Live;
use crate::replay::peaks::Peaks;
use crate::replay::rng::Rng;
use crate::replay::selector::Chooser;
use crate::replay::selector::heap::Heap;
use crate::replay::settings::{Real, ReplaySpec, Selector};
use crate::replay::staleness::LagHistogram;
use crate::ring::words::Words;

mod change;
mod rebuild;
mod sample;

pub use change::{PriorityError, Updated};
pub use sample::{MAX_LEASES, NotLeased, Pick};

/// What a new item has if nobody says, and there is no other to take it from.
pub const FIRST_PRIORITY: f64 = 1.0;

/// A sample that was committed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrival {
    /// Its position.
    pub key: u64,
    /// None is the highest of all that are there, or [`FIRST_PRIORITY`].
    pub priority: Option<f64>,
    /// The version of the policy that made it.
    pub version: Option<u64>,
}

/// What became of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// It is one of the items, unless the remover chose it at once.
    Stored,
    /// It lags too far behind the trainer. It counts as an item that came and left, and its slot is free.
    Stale,
    /// It was inserted before, and nothing was done.
    Known,
}

/// Why a sample cannot be inserted.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum InsertError {
    #[error("item {key} has the priority {priority}: it must be finite and not negative")]
    Priority { key: u64, priority: f64 },
    #[error("item {key} is to be in slot {slot}, and the table has {slots}")]
    Slot { key: u64, slot: u32, slots: u32 },
    #[error("item {key} has a key beyond {MAX_KEY}")]
    Key { key: u64 },
    #[error("item {key} is to be in slot {slot}, where item {other} is stored, or leased")]
    Occupied { key: u64, slot: u32, other: u64 },
    #[error("item {key} is to be in slot {slot}, and is in slot {other} already")]
    Twice { key: u64, slot: u32, other: u32 },
}

/// A table that cannot be made or taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum IndexError {
    #[error("{slots} slots are not enough for {max_size} items and the one that makes room, or too many")]
    Slots { slots: u32, max_size: u32 },
    #[error(transparent)]
    Items(#[from] ItemsError),
}

/// A slot that nobody reads any more, and what was in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freed {
    /// The slot.
    pub slot: u32,
    /// The key of the item that was there.
    pub key: u64,
}

/// The index of one table.
pub struct Index {
    items: Items,
    max_size: u32,
    max_times: u32,
    limiter: Limiter,
    /// The limit on inserts before the last reset.
    limit_before: u64,
    max_staleness: Option<u64>,
    keys: KeyMap,
    /// Beyond all keys that were in the map.
    keys_end: u64,
    live: Live,
    sampler: Chooser,
    remover: Chooser,
    highest: Peaks,
    /// Whether it matters when a priority was set.
    turns: bool,
    /// The oldest version first; only where items can be too old.
    by_version: Option<Heap>,
    leased: u64,
    /// Slots that are gone and leased.
    lingering: u32,
    freed: Vec<Freed>,
    skipped: u64,
    lags: LagHistogram,
    drawn: Vec<u32>,
    again: Vec<u32>,
}

impl Index {
    /// An empty table over zeroed words. The spec is valid.
    ///
    /// # Errors
    /// If there are not more slots than `max_size`.
    ///
    /// # Panics
    /// If there are fewer words than [`Items::bytes`].
    pub fn create(spec: &ReplaySpec, slots: u32, words: Words) -> Result<Self, IndexError> {
        check_slots(spec, slots)?;
        Ok(Self::over(spec, Items::create(words, slots)))
    }

    fn over(spec: &ReplaySpec, items: Items) -> Self {
        let slots = items.slots();
        let decay = spec.staleness.decay.map_or(1.0, |Real(decay)| decay);
        Self {
            items,
            max_size: spec.max_size,
            max_times: spec.max_times_sampled,
            limiter: Limiter::new(&spec.limiter),
            limit_before: 0,
            max_staleness: spec.staleness.max,
            keys: KeyMap::new(spec.max_size + 1),
            keys_end: 0,
            live: Live::new(slots),
            sampler: Chooser::new(spec.sampler, slots, decay),
            remover: Chooser::new(spec.remover, slots, 1.0),
            highest: Peaks::new(slots),
            turns: [spec.sampler, spec.remover]
                .iter()
                .any(|selector| matches!(selector, Selector::MinHeap | Selector::MaxHeap)),
            by_version: spec.staleness.max.map(|_| Heap::new(slots)),
            leased: 0,
            lingering: 0,
            freed: Vec::new(),
            skipped: 0,
            lags: LagHistogram::default(),
            drawn: Vec::new(),
            again: Vec::new(),
        }
    }

    /// Takes in a sample that was committed to a slot, and makes room if the table is full.
    ///
    /// # Errors
    /// If it cannot be; nothing has changed then. A sample with a priority that is none can be given
    /// to [`Index::discard`].
    pub fn insert(
        &mut self,
        slot: u32,
        arrival: &Arrival,
        now: Duration,
        rng: &mut impl Rng,
    ) -> Result<Inserted, InsertError> {
        let &Arrival { key, priority, version } = arrival;
        if self.is_known(slot, key)? {
            return Ok(Inserted::Known);
        }
        if let Some(priority) = priority.filter(|&priority| !is_priority(priority)) {
            return Err(InsertError::Priority { key, priority });
        }
        // Not -0.0, which would come before 0 in an order of numbers.
        let priority = priority.unwrap_or_else(|| self.highest_priority()) + 0.0;
        let record = Record { key, priority, version, inserted_at: now, times_sampled: 0 };
        if self.is_stale(version) {
            self.insert_gone(slot, &record, Cause::Stale);
            return Ok(Inserted::Stale);
        }
        self.items.insert(slot, &record, None);
        self.take_in(slot);
        self.make_room(rng);
        Ok(Inserted::Stored)
    }

    /// Takes in a sample that is not to be sampled: it counts as an item that came and was deleted, and its slot is free.
    ///
    /// # Errors
    /// If it is not in that slot.
    pub fn discard(&mut self, slot: u32, key: u64, now: Duration) -> Result<(), InsertError> {
        if !self.is_known(slot, key)? {
            let record = Record { key, priority: 0.0, version: None, inserted_at: now, times_sampled: 0 };
            self.insert_gone(slot, &record, Cause::Deleted);
        }
        Ok(())
    }

    /// Whether that item was inserted before; if not, it can be.
    fn is_known(&self, slot: u32, key: u64) -> Result<bool, InsertError> {
        let slots = self.items.slots();
        if slot >= slots {
            return Err(InsertError::Slot { key, slot, slots });
        }
        if key > MAX_KEY {
            return Err(InsertError::Key { key });
        }
        match self.items.state(slot) {
            SlotState::Stored(other) | SlotState::Gone(other) if other == key => return Ok(true),
            SlotState::Stored(other) => return Err(InsertError::Occupied { key, slot, other }),
            SlotState::Gone(other) if self.items.leases(slot) > 0 => {
                return Err(InsertError::Occupied { key, slot, other });
            }
            SlotState::Gone(_) | SlotState::Empty => {}
        }
        // Positions are mostly committed in their order, and a key beyond all others is no other's.
        match self.keys_end <= key {
            true => Ok(false),
            false => match self.find(key) {
                Some(other) => Err(InsertError::Twice { key, slot, other }),
                None => Ok(false),
            },
        }
    }

    fn insert_gone(&mut self, slot: u32, record: &Record, cause: Cause) {
        self.items.insert(slot, record, Some(cause));
        self.freed.push(Freed { slot, key: record.key });
    }

    /// All that is derived learns of an item that was stored.
    fn take_in(&mut self, slot: u32) {
        let Self { items, live, .. } = self;
        live.insert(slot);
        let key = items.key(slot);
        self.keys.insert(key, slot);
        self.keys_end = self.keys_end.max(key + 1);
        self.sampler.insert(slot, items, live);
        self.remover.insert(slot, items, live);
        self.highest.change(slot, 0.0, items.priority(slot), |slot| items.priority(slot as u32));
        if let Some(by_version) = &mut self.by_version {
            by_version.insert(slot, older(items));
        }
    }

    fn make_room(&mut self, rng: &mut impl Rng) {
        while self.live.len() > self.max_size {
            self.evict(rng);
        }
    }

    /// Removes the item that the remover chooses, if there is one.
    pub fn evict(&mut self, rng: &mut impl Rng) {
        if self.live.is_empty() {
            return;
        }
        self.remover.settle(&self.items, &self.live);
        self.again.clear();
        self.remover.draw(1, &self.live, rng, &mut self.again);
        self.remove(self.again[0], Cause::Evicted);
    }

    fn remove(&mut self, slot: u32, cause: Cause) {
        let Self { items, live, .. } = self;
        live.remove(slot);
        self.sampler.remove(slot, items);
        self.remover.remove(slot, items);
        if let Some(by_version) = &mut self.by_version {
            by_version.remove(slot, older(items));
        }
        self.keys.remove(items.key(slot), slot);
        let priority = items.priority(slot);
        items.remove(slot, cause);
        self.highest.change(slot, priority, 0.0, |slot| items.priority(slot as u32));
        match self.items.leases(slot) {
            0 => self.freed.push(Freed { slot, key: self.items.key(slot) }),
            _ => self.lingering += 1,
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.keys.find(key, |slot| self.items.key(slot))
    }

    /// Whether a sample of that version lags too far behind the trainer.
    pub fn is_stale(&self, version: Option<u64>) -> bool {
        let trainer = self.items.trainer_version().unwrap_or(0);
        self.max_staleness.is_some_and(|max| trainer.saturating_sub(version.unwrap_or(0)) > max)
    }

    fn highest_priority(&self) -> f64 {
        if self.live.is_empty() { FIRST_PRIORITY } else { self.highest.highest() }
    }

    /// The slots that became free since this was last asked. One can be told of again by an index that was rebuilt.
    pub fn drain_freed(&mut self) -> std::vec::Drain<'_, Freed> {
        self.freed.drain(..)
    }

    /// Items that can be sampled.
    pub fn size(&self) -> u32 {
        self.live.len()
    }

    /// Slots that are taken by items that were removed and are still leased.
    pub fn lingering(&self) -> u32 {
        self.lingering
    }

    /// Leases that were not given back.
    pub fn leased(&self) -> u64 {
        self.leased
    }

    /// Inserts, samples and deletes since the table was made or reset.
    pub fn totals(&self) -> Totals {
        self.items.totals()
    }

    /// How many inserts there may be in all, counted since the table was made, resets or not. It never falls.
    pub fn insert_limit(&self) -> u64 {
        let limit = self.limiter.insert_limit(&self.items.totals());
        self.items.inserts_before().saturating_add(limit).max(self.limit_before)
    }

    /// How many inserts there were in all, counted likewise.
    pub fn inserted(&self) -> u64 {
        self.items.inserts_before() + self.items.totals().inserts
    }

    /// Why `n` more items would have to wait, if so.
    pub fn why_not_insert(&self, n: u64) -> Option<Reason> {
        self.limiter.why_not_insert(&self.items.totals(), n)
    }

    /// How many items left by each cause since the table was made.
    pub fn removed(&self, cause: Cause) -> u64 {
        self.items.removed()[cause as usize]
    }

    /// Priorities that were set for items which were gone.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How far the samples lagged that were picked.
    pub fn lags(&self) -> &LagHistogram {
        &self.lags
    }

    /// What is stored of the item with that key.
    pub fn item(&self, key: u64) -> Option<Record> {
        self.find(key).map(|slot| self.items.record(slot))
    }

    /// What a slot holds.
    pub fn state(&self, slot: u32) -> Option<SlotState> {
        (slot < self.items.slots()).then(|| self.items.state(slot))
    }

    /// How often a slot of those that there are is leased.
    pub fn leases(&self, slot: u32) -> u32 {
        self.items.leases(slot)
    }

    /// How likely a draw of the item is that is the least likely of those that can be drawn, if there is one: what
    /// importance weights can be divided by.
    pub fn least_probability(&mut self) -> Option<f64> {
        self.sampler.settle(&self.items, &self.live);
        (!self.live.is_empty()).then(|| self.sampler.least_probability(&self.live))
    }

    /// Bytes that all of it takes: for each item at most 128, where there are few more slots than items.
    pub fn bytes(&self) -> usize {
        let Self { keys, live, sampler, remover, highest, by_version, .. } = self;
        let derived = [keys.bytes(), live.bytes(), sampler.bytes(), remover.bytes(), highest.bytes()];
        let lists = self.drawn.capacity() + self.again.capacity();
        Items::bytes(self.items.slots())
            + derived.into_iter().sum::<usize>()
            + by_version.as_ref().map_or(0, Heap::bytes)
            + lists * size_of::<u32>()
            + self.freed.capacity() * size_of::<Freed>()
    }

    /// The words as they are now.
    #[cfg(test)]
    pub(crate) fn copy_words(&self) -> Words {
        self.items.copy_words()
    }

    /// This daemon dies after so many stores.
    #[cfg(test)]
    pub(crate) fn dies_after(&mut self, stores: u64) {
        self.items.fuse = Some(stores);
    }

    /// Lets go of the region, for the next who opens it.
    pub fn into_words(self) -> Words {
        self.items.into_words()
    }
}

fn check_slots(spec: &ReplaySpec, slots: u32) -> Result<(), IndexError> {
    match slots {
        u32::MAX => Err(IndexError::Slots { slots, max_size: spec.max_size }),
        _ if slots <= spec.max_size => Err(IndexError::Slots { slots, max_size: spec.max_size }),
        _ => Ok(()),
    }
}

/// Whether a number can be a priority.
fn is_priority(number: f64) -> bool {
    number.is_finite() && number >= 0.0
}

/// Of two items the one of the older version, or of the same version, the one that came before.
fn older(items: &Items) -> impl Fn(u32, u32) -> bool {
    |a, b| {
        let age = |slot| (items.version(slot).unwrap_or(0), items.ordinal(slot));
        age(a) < age(b)
    }
}
