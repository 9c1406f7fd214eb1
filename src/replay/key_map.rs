//! Where the item with a key is.
//!
//! Open addressing. An entry holds a slot and half of the key's hash, so that an entry of another item is known for what it
//! is without a look at the item, which would be a cache miss; the key itself is asked of whoever keeps it, to be sure.
//! Keys are positions, which follow each other; multiplying them by the golden ratio spreads such numbers more evenly
//! than chance would. At most three of four entries are in use, and removing closes the gap, so nothing but what is
//! there is ever looked at.

use crate::sync::expect_write;

const EMPTY: u64 = u64::MAX;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// How far behind a key that comes or leaves the next ones will.
const AHEAD: u64 = 16;

/// The map. A slot is less than `u32::MAX`.
pub struct KeyMap {
    /// Hash, then slot.
    entries: Vec<u64>,
    shift: u32,
}

#[inline]
fn hash_of(key: u64) -> u64 {
    key.wrapping_mul(GOLDEN) >> 32
}

#[inline]
fn slot_of(entry: u64) -> u32 {
    entry as u32
}

impl KeyMap {
    /// An empty map for at most so many items.
    pub fn new(items: u32) -> Self {
        let entries = (u64::from(items) * 4).div_ceil(3).next_power_of_two().max(2);
        Self {
            entries: vec![EMPTY; entries as usize],
            shift: 32_u32.saturating_sub(entries.trailing_zeros()),
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    /// Says that a key will be looked for soon.
    #[inline]
    pub fn expect(&self, key: u64) {
        expect_write(&self.entries[self.home(hash_of(key))]);
    }

    /// A slot with that key's hash, most likely the one of its item.
    #[inline]
    pub fn guess(&self, key: u64) -> Option<u32> {
        let entry = self.entries[self.home(hash_of(key))];
        (entry >> 32 == hash_of(key)).then(|| slot_of(entry))
    }

    /// The slot of the item with that key.
    #[inline]
    pub fn find(&self, key: u64, key_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = hash_of(key);
        let mut at = self.home(hash);
        loop {
            match self.entries[at] {
                EMPTY => return None,
                entry if entry >> 32 == hash && key_of(slot_of(entry)) == key => return Some(slot_of(entry)),
                _ => at = self.after(at),
            }
        }
    }

    /// Adds an item whose key is not there.
    pub fn insert(&mut self, key: u64, slot: u32) {
        self.expect(key.wrapping_add(AHEAD));
        let hash = hash_of(key);
        let mut at = self.home(hash);
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = hash << 32 | u64::from(slot);
    }

    /// Takes away an item that is there.
    pub fn remove(&mut self, key: u64, slot: u32) {
        self.expect(key.wrapping_add(AHEAD));
        let mut gap = self.home(hash_of(key));
        while slot_of(self.entries[gap]) != slot {
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
            let home = self.home(follower >> 32);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.entries[gap] = follower;
                gap = at;
            }
        }
        self.entries[gap] = EMPTY;
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(200))]

        #[test]
        fn it_is_a_map(
            items in 1_u32..20,
            // Keys that follow each other, and keys that all have the same hash.
            steps in proptest::collection::vec((any::<bool>(), prop_oneof![0..40_u64, (0..40_u64).prop_map(|i| i.wrapping_mul(GOLDEN_INVERSE))]), 200),
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
                        map.remove(key, slot);
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

    /// What makes one of the golden number.
    const GOLDEN_INVERSE: u64 = {
        // Newton's iteration, which doubles the bits that are right.
        let mut inverse = GOLDEN;
        let mut bits = 3;
        while bits < 64 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(GOLDEN.wrapping_mul(inverse)));
            bits *= 2;
        }
        inverse
    };

    #[test]
    fn keys_of_the_same_hash_are_told_apart() {
        let keys = [0, 1, 2].map(|i: u64| i.wrapping_mul(GOLDEN_INVERSE));
        assert_eq!(keys.map(hash_of), [0; 3]);
        let mut map = KeyMap::new(3);
        (0..3).for_each(|slot| map.insert(keys[slot as usize], slot));
        for slot in 0..3 {
            assert_eq!(map.find(keys[slot as usize], |slot| keys[slot as usize]), Some(slot));
        }
        assert_eq!(map.find(3_u64.wrapping_mul(GOLDEN_INVERSE), |slot| keys[slot as usize]), None);
    }
}
