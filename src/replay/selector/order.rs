//! Slots in the order in which they were filled: what fifo and lifo choose from.
//!
//! A list with both ends, so that an item in the middle can leave at any time.

const NONE: u32 = u32::MAX;

/// The list.
pub struct Order {
    /// Each slot's neighbours, the older and the newer; the oldest and the newest of all stand behind the last slot,
    /// which makes the list a ring.
    links: Vec<[u32; 2]>,
    end: u32,
}

impl Order {
    /// An empty list of so many slots.
    pub fn new(slots: u32) -> Self {
        let mut links = vec![[NONE; 2]; slots as usize + 1];
        links[slots as usize] = [slots; 2];
        Self { links, end: slots }
    }

    /// Adds a slot as the newest.
    pub fn push(&mut self, slot: u32) {
        let [newest, _] = self.links[self.end as usize];
        self.links[slot as usize] = [newest, self.end];
        self.links[newest as usize][1] = slot;
        self.links[self.end as usize][0] = slot;
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: u32) {
        let [older, newer] = std::mem::replace(&mut self.links[slot as usize], [NONE; 2]);
        debug_assert_ne!(older, NONE, "slot {slot} is not in the list");
        self.links[older as usize][1] = newer;
        self.links[newer as usize][0] = older;
    }

    /// The oldest.
    pub fn oldest(&self) -> Option<u32> {
        let [_, oldest] = self.links[self.end as usize];
        (oldest != self.end).then_some(oldest)
    }

    /// The newest.
    pub fn newest(&self) -> Option<u32> {
        let [newest, _] = self.links[self.end as usize];
        (newest != self.end).then_some(newest)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.links.capacity() * size_of::<[u32; 2]>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(200))]

        #[test]
        fn it_is_a_list(steps in proptest::collection::vec(0..20_u32, 100)) {
            let (mut order, mut model) = (Order::new(20), Vec::new());
            for slot in steps {
                match model.iter().position(|&other| other == slot) {
                    Some(at) => {
                        model.remove(at);
                        order.remove(slot);
                    }
                    None => {
                        model.push(slot);
                        order.push(slot);
                    }
                }
                prop_assert_eq!(order.oldest(), model.first().copied());
                prop_assert_eq!(order.newest(), model.last().copied());
            }
        }
    }
}
