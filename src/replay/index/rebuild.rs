//! An index from the region alone, and from what is leased.

use super::{Cause, Freed, Index, IndexError, Items, ReplaySpec, Rng, SlotState, Words, check_slots};

impl Index {
    /// Takes a table over from the daemon that had it, as it was before or after whatever that daemon did last. `leased`
    /// names a slot and its item for each lease that is out. The spec is valid, and the one that the table was made with.
    ///
    /// Slots without a lease whose items are gone are told of as freed, whether they were before or not: a caller whose
    /// block holds another sequence by now has nothing to do. Slots of items that were never inserted are empty, or hold
    /// an older key ([`Index::state`]).
    ///
    /// # Errors
    /// If the words were no such table.
    pub fn rebuild(
        spec: &ReplaySpec,
        slots: u32,
        words: Words,
        leased: impl IntoIterator<Item = (u32, u64)>,
        rng: &mut impl Rng,
    ) -> Result<Self, IndexError> {
        check_slots(spec, slots)?;
        let mut index = Self::over(spec, Items::open(words, slots)?);
        let stored = |slot: &u32| matches!(index.items.state(*slot), SlotState::Stored(_));
        let mut in_order: Vec<u32> = (0..slots).filter(stored).collect();
        in_order.sort_unstable_by_key(|&slot| index.items.ordinal(slot));
        in_order.into_iter().for_each(|slot| index.take_in(slot));
        for (slot, key) in leased {
            match index.state(slot) {
                Some(SlotState::Stored(found)) if found == key => {}
                Some(SlotState::Gone(found)) if found == key => {
                    index.lingering += u32::from(index.items.leases(slot) == 0);
                }
                _ => continue,
            }
            index.items.lease(slot);
            index.leased += 1;
        }
        for slot in 0..slots {
            if let SlotState::Gone(key) = index.items.state(slot)
                && index.items.leases(slot) == 0
            {
                index.freed.push(Freed { slot, key });
            }
        }
        index.finish(rng);
        Ok(index)
    }

    /// What the daemon before had begun: the item that was picked for the last time, those that were too old, the one
    /// that had to make room.
    fn finish(&mut self, rng: &mut impl Rng) {
        if self.max_times != 0 {
            let exhausted = |&slot: &u32| self.items.times(slot) >= self.max_times;
            let exhausted: Vec<u32> = self.live.iter().filter(exhausted).collect();
            exhausted.into_iter().for_each(|slot| self.remove(slot, Cause::Exhausted));
        }
        if let Some(version) = self.version() {
            self.set_version(version);
        }
        self.make_room(rng);
    }
}
