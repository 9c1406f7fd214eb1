//! Slots in a heap: the first by some order of the items in them.
//!
//! The heap holds slots only and is told which of two comes first, so that it takes eight bytes a slot. Four children
//! a node: half as deep as two, and they lie in one cache line or two.

const NOWHERE: u32 = u32::MAX;
const CHILDREN: usize = 4;

/// The heap.
pub struct Heap {
    slots: Vec<u32>,
    /// Where each slot stands.
    places: Vec<u32>,
}

impl Heap {
    /// An empty heap of so many slots.
    pub fn new(slots: u32) -> Self {
        Self { slots: Vec::with_capacity(slots as usize), places: vec![NOWHERE; slots as usize] }
    }

    /// The slot that comes first.
    pub fn first(&self) -> Option<u32> {
        self.slots.first().copied()
    }

    /// Whether a slot is in it.
    pub fn contains(&self, slot: u32) -> bool {
        self.places[slot as usize] != NOWHERE
    }

    /// Adds a slot.
    pub fn insert(&mut self, slot: u32, before: impl Fn(u32, u32) -> bool) {
        debug_assert!(!self.contains(slot), "slot {slot} is in the heap");
        self.slots.push(slot);
        self.rise(self.slots.len() - 1, slot, before);
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: u32, before: impl Fn(u32, u32) -> bool) {
        let place = self.places[slot as usize] as usize;
        self.places[slot as usize] = NOWHERE;
        let last = self.slots.pop().expect("a slot in the heap");
        if last != slot {
            self.settle(place, last, before);
        }
    }

    /// A slot's item has changed.
    pub fn update(&mut self, slot: u32, before: impl Fn(u32, u32) -> bool) {
        self.settle(self.places[slot as usize] as usize, slot, before);
    }

    fn put(&mut self, place: usize, slot: u32) {
        self.slots[place] = slot;
        self.places[slot as usize] = place as u32;
    }

    fn settle(&mut self, place: usize, slot: u32, before: impl Fn(u32, u32) -> bool) {
        if place > 0 && before(slot, self.slots[(place - 1) / CHILDREN]) {
            self.rise(place, slot, before);
        } else {
            self.sink(place, slot, before);
        }
    }

    fn rise(&mut self, mut place: usize, slot: u32, before: impl Fn(u32, u32) -> bool) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if !before(slot, self.slots[parent]) {
                break;
            }
            self.put(place, self.slots[parent]);
            place = parent;
        }
        self.put(place, slot);
    }

    fn sink(&mut self, mut place: usize, slot: u32, before: impl Fn(u32, u32) -> bool) {
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.slots.len());
            let least = children.reduce(|a, b| if before(self.slots[b], self.slots[a]) { b } else { a });
            match least {
                Some(child) if before(self.slots[child], slot) => {
                    self.put(place, self.slots[child]);
                    place = child;
                }
                _ => break,
            }
        }
        self.put(place, slot);
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        (self.slots.capacity() + self.places.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(200))]

        #[test]
        fn the_first_is_the_least_of_all(
            steps in proptest::collection::vec((0..30_u32, 0..3_u8, 0..1000_u32), 200),
        ) {
            let mut heap = Heap::new(30);
            let mut model: Vec<Option<u32>> = vec![None; 30];
            for (slot, step, number) in steps {
                let at = slot as usize;
                match (step, model[at]) {
                    (0, Some(_)) => {
                        heap.remove(slot, |a, b| (model[a as usize], a) < (model[b as usize], b));
                        model[at] = None;
                    }
                    (_, Some(_)) => {
                        model[at] = Some(number);
                        heap.update(slot, |a, b| (model[a as usize], a) < (model[b as usize], b));
                    }
                    (_, None) => {
                        model[at] = Some(number);
                        heap.insert(slot, |a, b| (model[a as usize], a) < (model[b as usize], b));
                    }
                }
                let least = (0..30).filter(|&slot| model[slot as usize].is_some()).min_by_key(|&slot| (model[slot as usize], slot));
                prop_assert_eq!(heap.first(), least);
                prop_assert_eq!(heap.contains(slot), model[at].is_some());
            }
        }
    }
}
