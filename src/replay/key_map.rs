//! Where the item with a key is.
//!
//! Open addressing over slots alone: the key of a slot is asked of whoever keeps it, so an entry takes four bytes and
//! at most half of them are in use. Keys are positions, which follow each other; multiplying them by the golden ratio
//! spreads such numbers more evenly than chance would. Removing closes the gap, so nothing but what is there is ever
//! looked at.

use crate::sync::expect_write;

const EMPTY: u32 = u32::MAX;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The map.
pub struct KeyMap {
    entries: Vec<u32>,
    shift: u32,
}

impl KeyMap {
    /// An empty map for at most so many items.
    pub fn new(items: u32) -> Self {
        let entries = (u64::from(items) * 2).next_power_of_two().max(2);
        Self { entries: vec![EMPTY; entries as usize], shift: 64 - entries.trailing_zeros() }
    }

    #[inline]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(GOLDEN) >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Says that a key will be looked for soon.
    #[inline]
    pub fn expect(&self, key: u64) {
        expect_write(&self.entries[self.home(key)]);
    }

    /// The slot that is looked at first for that key, if any.
    #[inline]
    pub fn guess(&self, key: u64) -> Option<u32> {
        let slot = self.entries[self.home(key)];
        (slot != EMPTY).then_some(slot)
    }

    /// The slot of the item with that key.
    pub fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let mut at = self.home(key);
        loop {
            match self.entries[at] {
                EMPTY => return None,
                slot if key_of(slot) == key => return Some(slot),
                _ => at = self.after(at),
            }
        }
    }

    /// Adds an item whose key is not there.
    pub fn insert(&mut self, key: u64, slot: u32) {
        let mut at = self.home(key);
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = slot;
    }

    /// Takes away the item that is in a slot.
    pub fn remove(&mut self, slot: u32, key_of: impl Fn(u32) -> u64) {
        let mut gap = self.home(key_of(slot));
        while self.entries[gap] != slot {
            assert_ne!(self.entries[gap], EMPTY, "slot {slot} is not in the map");
            gap = self.after(gap);
        }
        let mask = self.entries.len() - 1;
        let mut at = gap;
        loop {
            at = self.after(at);
            let follower = self.entries[at];
            if follower == EMPTY {
                break;
            }
            // It may move to the gap unless its home lies behind the gap, on the way to where it is.
            let home = self.home(key_of(follower));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.entries[gap] = follower;
                gap = at;
            }
        }
        self.entries[gap] = EMPTY;
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn it_is_a_map(
            items in 1_u32..20,
            // Keys that follow each other, and keys of which many have the same home.
            steps in proptest::collection::vec((any::<bool>(), prop_oneof![0..40_u64, (0..40_u64).prop_map(|i| i << 56)]), 200),
        ) {
            let mut map = KeyMap::new(items);
            let mut keys = vec![u64::MAX; items as usize];
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (insert, key) in steps {
                let free = (0..items).find(|&slot| keys[slot as usize] == u64::MAX);
                match (insert, model.get(&key).copied(), free) {
                    (true, None, Some(slot)) => {
                        keys[slot as usize] = key;
                        map.insert(key, slot);
                        model.insert(key, slot);
                    }
                    (false, Some(slot), _) => {
                        map.remove(slot, |slot| keys[slot as usize]);
                        keys[slot as usize] = u64::MAX;
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(map.find(key, |slot| keys[slot as usize]), model.get(&key).copied());
                for (&key, &slot) in &model {
                    prop_assert_eq!(map.find(key, |slot| keys[slot as usize]), Some(slot));
                }
            }
        }
    }
}
