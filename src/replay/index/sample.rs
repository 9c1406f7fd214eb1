//! Picking items, and giving them back.
//!
//! Random picks are drawn many at a time, so that their cache misses overlap, and taken one after another. If one of
//! them removes its item, the rest were drawn from items of which one is gone. Those of them that hit it are drawn again,
//! from what is there; the others are as likely, relative to each other, as if they had been drawn from that, too.

use std::time::Duration;

use thiserror::Error;

use super::{Cause, Freed, Index, Reason, Rng, SlotState};

/// Leases of one table that can be out at a time.
pub const MAX_LEASES: u64 = u32::MAX as u64;
/// Picks that are drawn together.
const DRAWN: u32 = 512;
/// How many picks ahead the cache is told.
const AHEAD: usize = 16;

/// One sample, as it was when it was picked.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pick {
    /// Where it is.
    pub slot: u32,
    /// How often it was sampled, this time included.
    pub times_sampled: u32,
    /// Its position.
    pub key: u64,
    /// How likely it was to be drawn; 1 from selectors that leave nothing to chance.
    pub probability: f64,
    /// As it was set.
    pub priority: f64,
    /// Items in the table, this one included.
    pub table_size: u32,
    /// The version of the policy that made it.
    pub version: Option<u64>,
    /// Since when it is in the table.
    pub age: Duration,
}

/// A slot that nobody leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("slot {slot} is not leased")]
pub struct NotLeased {
    /// The slot.
    pub slot: u32,
}

impl Index {
    /// Picks `n` items, each of them leased once more, and appends them; the same item can come more than once. Stops
    /// where the limiter says so, or nothing is left, and returns why.
    pub fn sample(
        &mut self,
        n: u32,
        now: Duration,
        rng: &mut impl Rng,
        picks: &mut Vec<Pick>,
    ) -> Option<Reason> {
        let mut left = n;
        while left > 0 {
            if let Some(reason) = self.why_not_sample(1) {
                return Some(reason);
            }
            let count = if self.sampler.is_random() { left.min(DRAWN) } else { 1 };
            self.sampler.settle(&self.items, &self.live);
            let mut drawn = std::mem::take(&mut self.drawn);
            drawn.clear();
            self.sampler.draw(count as usize, &self.live, rng, &mut drawn);
            drawn.iter().take(AHEAD).for_each(|&slot| self.items.expect(slot));
            for (i, &slot) in drawn.iter().enumerate() {
                if let Some(&later) = drawn.get(i + AHEAD) {
                    self.items.expect(later);
                }
                if self.why_not_sample(1).is_some() {
                    break;
                }
                let slot = self.slot_or_another(slot, rng);
                picks.push(self.pick(slot, now));
                left -= 1;
            }
            self.drawn = drawn;
        }
        None
    }

    /// The slot that was drawn, or if a pick has removed its item since, one that is drawn anew.
    fn slot_or_another(&mut self, slot: u32, rng: &mut impl Rng) -> u32 {
        if self.max_times == 0 || self.live.contains(slot) {
            return slot;
        }
        self.again.clear();
        self.sampler.draw(1, &self.live, rng, &mut self.again);
        self.again[0]
    }

    fn pick(&mut self, slot: u32, now: Duration) -> Pick {
        let probability = self.sampler.probability(slot, &self.live);
        let record = self.items.record(slot);
        let times_sampled = self.items.pick(slot);
        self.leased += 1;
        self.lags.add(record.version, self.items.trainer_version());
        let pick = Pick {
            slot,
            times_sampled,
            key: record.key,
            probability,
            priority: record.priority,
            table_size: self.live.len(),
            version: record.version,
            age: now.saturating_sub(record.inserted_at),
        };
        if self.max_times != 0 && times_sampled >= self.max_times {
            self.remove(slot, Cause::Exhausted);
            self.sampler.settle(&self.items, &self.live);
        }
        pick
    }

    /// Why `n` samples would have to wait, if so.
    pub fn why_not_sample(&self, n: u64) -> Option<Reason> {
        if self.leased.saturating_add(n) > MAX_LEASES {
            return Some(Reason::Leases(MAX_LEASES));
        }
        self.limiter.why_not_sample(&self.items.totals(), n)
    }

    /// Gives back a lease of each of these slots.
    ///
    /// # Errors
    /// If there is none; those before it were given back.
    pub fn release(&mut self, slots: &[u32]) -> Result<(), NotLeased> {
        slots.iter().filter(|&&slot| slot < self.items.slots()).for_each(|&slot| self.items.expect(slot));
        for &slot in slots {
            if slot >= self.items.slots() || self.items.leases(slot) == 0 {
                return Err(NotLeased { slot });
            }
            self.leased -= 1;
            if self.items.release(slot) == 0
                && let SlotState::Gone(key) = self.items.state(slot)
            {
                self.lingering -= 1;
                self.freed.push(Freed { slot, key });
            }
        }
        Ok(())
    }
}
