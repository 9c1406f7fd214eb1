//! The slots that are sampled from, as a list without gaps: what a uniform draw picks from.
//!
//! Removing moves the last to the gap, so the order means nothing.

use crate::replay::rng::Rng;
use crate::sync::expect_write;

const NOWHERE: u32 = u32::MAX;

/// A set of slots.
pub struct Live {
    slots: Vec<u32>,
    /// Where each slot stands in the list.
    places: Vec<u32>,
}

impl Live {
    /// None of so many.
    pub fn new(slots: u32) -> Self {
        Self { slots: Vec::with_capacity(slots as usize), places: vec![NOWHERE; slots as usize] }
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether a slot is one of them.
    pub fn contains(&self, slot: u32) -> bool {
        self.places[slot as usize] != NOWHERE
    }

    /// One of them, whichever is the easiest to remove.
    pub fn any(&self) -> Option<u32> {
        self.slots.last().copied()
    }

    /// Adds a slot that is not one of them.
    pub fn insert(&mut self, slot: u32) {
        debug_assert!(!self.contains(slot), "slot {slot} is there");
        self.places[slot as usize] = self.slots.len() as u32;
        self.slots.push(slot);
    }

    /// Takes away a slot that is one of them.
    pub fn remove(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.places[slot as usize], NOWHERE);
        debug_assert_ne!(place, NOWHERE, "slot {slot} is not there");
        self.slots.swap_remove(place as usize);
        if let Some(&moved) = self.slots.get(place as usize) {
            self.places[moved as usize] = place;
        }
    }

    /// One of them, each as likely as another. There is one.
    pub fn draw(&self, rng: &mut impl Rng) -> u32 {
        self.slots[rng.below(self.len()) as usize]
    }

    /// Appends `n` draws. There is a slot.
    pub fn draw_many(&self, n: usize, rng: &mut impl Rng, drawn: &mut Vec<u32>) {
        let first = drawn.len();
        drawn.extend((0..n).map(|_| rng.below(self.len())));
        drawn[first..].iter().for_each(|&place| expect_write(&self.slots[place as usize]));
        drawn[first..].iter_mut().for_each(|place| *place = self.slots[*place as usize]);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().copied()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        (self.slots.capacity() + self.places.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(100))]

        #[test]
        fn it_is_a_set(steps in proptest::collection::vec(0..40_u32, 200)) {
            let (mut live, mut model) = (Live::new(40), BTreeSet::new());
            for slot in steps {
                if model.remove(&slot) {
                    live.remove(slot);
                } else {
                    model.insert(slot);
                    live.insert(slot);
                }
                prop_assert_eq!(live.contains(slot), model.contains(&slot));
                prop_assert_eq!(live.iter().collect::<BTreeSet<_>>(), model.clone());
                prop_assert_eq!(live.len() as usize, model.len());
            }
        }
    }
}
