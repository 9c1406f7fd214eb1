//! Changing items that are there: their priorities, the trainer's version, and whether they stay.

use thiserror::Error;

use super::{Cause, Index, is_priority};

/// How many priorities ahead the cache is told, twice.
const AHEAD: usize = 16;

/// A priority that is none.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[error(
    "item {key}, number {number} of the list, has the priority {priority}: it must be finite and not negative"
)]
pub struct PriorityError {
    /// Of which item.
    pub key: u64,
    /// Where in the list, from 0.
    pub number: usize,
    /// What it was to be.
    pub priority: f64,
}

/// What became of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Updated {
    /// Items that were there.
    pub applied: u64,
    /// Items that were gone; their slots may hold newer ones.
    pub skipped: u64,
}

impl Index {
    /// Sets priorities, in the order of the list. Items that are gone are skipped and counted.
    ///
    /// # Errors
    /// If one is not finite or negative; nothing has changed then.
    pub fn update_priorities(&mut self, updates: &[(u64, f64)]) -> Result<Updated, PriorityError> {
        let wrong = updates.iter().position(|&(_, priority)| !is_priority(priority));
        if let Some(number) = wrong {
            let (key, priority) = updates[number];
            return Err(PriorityError { key, number, priority });
        }
        let mut updated = Updated::default();
        // Three steps of a pipeline: where the key is looked up, where its item is, and the item.
        for i in 0..updates.len() + 2 * AHEAD {
            if let Some(&(key, _)) = updates.get(i) {
                self.keys.expect(key);
            }
            if let Some(&(key, _)) = i.checked_sub(AHEAD).and_then(|i| updates.get(i)) {
                self.expect_change(key);
            }
            let Some(&(key, priority)) = i.checked_sub(2 * AHEAD).and_then(|i| updates.get(i)) else {
                continue;
            };
            match self.find(key) {
                Some(slot) => {
                    self.set_priority(slot, priority + 0.0);
                    updated.applied += 1;
                }
                None => updated.skipped += 1,
            }
        }
        self.skipped += updated.skipped;
        self.sampler.settle(&self.items, &self.live);
        self.remover.settle(&self.items, &self.live);
        Ok(updated)
    }

    /// Says that the priority of a key's item will be changed soon.
    fn expect_change(&self, key: u64) {
        if let Some(slot) = self.keys.guess(key) {
            self.items.expect(slot);
            self.sampler.expect(slot);
            self.remover.expect(slot);
            self.highest.expect(slot);
        }
    }

    fn set_priority(&mut self, slot: u32, priority: f64) {
        let Self { items, .. } = self;
        let old = items.priority(slot);
        items.set_priority(slot, priority, self.turns);
        self.sampler.update(slot, old, items);
        self.remover.update(slot, old, items);
        self.highest.change(slot, old, priority, |slot| items.priority(slot as u32));
    }

    /// Removes items. Those that are gone are skipped and counted.
    pub fn delete(&mut self, keys: &[u64]) -> Updated {
        let mut updated = Updated::default();
        for &key in keys {
            match self.find(key) {
                Some(slot) => {
                    self.remove(slot, Cause::Deleted);
                    updated.applied += 1;
                }
                None => updated.skipped += 1,
            }
        }
        updated
    }

    /// The trainer is at this version. Items that lag too far are removed, and how many is returned. A version before the
    /// last is a trainer that started again: what was removed does not come back.
    pub fn set_version(&mut self, version: u64) -> u64 {
        self.items.set_trainer_version(version);
        let mut removed = 0;
        while let Some(oldest) = self.by_version.as_ref().and_then(|by_version| by_version.first()) {
            if !self.is_stale(self.items.version(oldest)) {
                break;
            }
            self.remove(oldest, Cause::Stale);
            removed += 1;
        }
        removed
    }

    /// The version that the trainer stated last.
    pub fn version(&self) -> Option<u64> {
        self.items.trainer_version()
    }

    /// Removes all items and counts from zero.
    pub fn reset(&mut self) {
        self.limit_before = self.insert_limit();
        self.items.reset();
        while let Some(slot) = self.live.any() {
            self.remove(slot, Cause::Reset);
        }
    }
}
