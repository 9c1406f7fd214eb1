//! What chooses an item: one thing, used as sampler and as remover.
//!
//! A [`Chooser`] is told of every item that comes, changes and leaves, and draws one of those that are there. What it
//! needs to know of an item it reads from the [`Items`]; which are there it reads from [`Live`]. It keeps nothing that
//! cannot be made anew from these two. Any chooser goes with any other in one table.

use crate::replay::items::Items;
use crate::replay::live::Live;
use crate::replay::rng::Rng;
use crate::replay::settings::{Real, Selector};

pub mod heap;
pub mod order;
pub mod prioritized;

use heap::Heap;
use order::Order;
use prioritized::Prioritized;

/// A selector at work.
pub enum Chooser {
    /// Fifo.
    Oldest(Order),
    /// Lifo.
    Newest(Order),
    /// Uniform.
    Uniform,
    /// Prioritized.
    Weighted(Box<Prioritized>),
    /// The smallest priority.
    Smallest(Heap),
    /// The largest priority.
    Largest(Heap),
}

/// Of two items the one with the smaller priority, or of the same priority, set before.
fn smaller(items: &Items) -> impl Fn(u32, u32) -> bool {
    |a, b| match items.priority(a).total_cmp(&items.priority(b)) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => items.turn(a) < items.turn(b),
        std::cmp::Ordering::Greater => false,
    }
}

/// Of two items the one with the larger priority, or of the same priority, set before.
fn larger(items: &Items) -> impl Fn(u32, u32) -> bool {
    |a, b| match items.priority(a).total_cmp(&items.priority(b)) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => items.turn(a) < items.turn(b),
        std::cmp::Ordering::Less => false,
    }
}

impl Chooser {
    /// Such a selector over no items; `decay` is what a weight is multiplied by for each version.
    pub fn new(selector: Selector, slots: u32, decay: f64) -> Self {
        match selector {
            Selector::Fifo => Self::Oldest(Order::new(slots)),
            Selector::Lifo => Self::Newest(Order::new(slots)),
            Selector::Uniform => Self::Uniform,
            Selector::Prioritized { exponent: Real(exponent) } => {
                Self::Weighted(Box::new(Prioritized::new(slots, exponent, decay)))
            }
            Selector::MinHeap => Self::Smallest(Heap::new(slots)),
            Selector::MaxHeap => Self::Largest(Heap::new(slots)),
        }
    }

    /// An item was stored in a slot; it is in `live` already. Items are told of in the order in which they came.
    pub fn insert(&mut self, slot: u32, items: &Items, live: &Live) {
        match self {
            Self::Oldest(order) | Self::Newest(order) => order.push(slot),
            Self::Uniform => {}
            Self::Weighted(weights) => weights.insert(slot, items, live),
            Self::Smallest(heap) => heap.insert(slot, smaller(items)),
            Self::Largest(heap) => heap.insert(slot, larger(items)),
        }
    }

    /// An item's priority was `old`.
    pub fn update(&mut self, slot: u32, old: f64, items: &Items) {
        match self {
            Self::Oldest(_) | Self::Newest(_) | Self::Uniform => {}
            Self::Weighted(weights) => weights.update(slot, old, items),
            Self::Smallest(heap) => heap.update(slot, smaller(items)),
            Self::Largest(heap) => heap.update(slot, larger(items)),
        }
    }

    /// An item leaves; what is stored with it is still there.
    pub fn remove(&mut self, slot: u32, items: &Items) {
        match self {
            Self::Oldest(order) | Self::Newest(order) => order.remove(slot),
            Self::Uniform => {}
            Self::Weighted(weights) => weights.remove(slot, items),
            Self::Smallest(heap) => heap.remove(slot, smaller(items)),
            Self::Largest(heap) => heap.remove(slot, larger(items)),
        }
    }

    /// Says that an item will change soon.
    #[inline]
    pub fn expect(&self, slot: u32) {
        if let Self::Weighted(weights) = self {
            weights.expect(slot);
        }
    }

    /// Takes in what has changed. Before [`Chooser::draw`] and [`Chooser::probability`].
    pub fn settle(&mut self, items: &Items, live: &Live) {
        if let Self::Weighted(weights) = self {
            weights.settle(items, live);
        }
    }

    /// Whether several draws from the same items are independent of each other.
    pub fn is_random(&self) -> bool {
        matches!(self, Self::Uniform | Self::Weighted(_))
    }

    /// Appends `n` draws from the same items; there is one, and all that changed is settled.
    pub fn draw(&mut self, n: usize, live: &Live, rng: &mut impl Rng, drawn: &mut Vec<u32>) {
        let one = match self {
            Self::Oldest(order) => order.oldest(),
            Self::Newest(order) => order.newest(),
            Self::Weighted(weights) if !weights.is_uniform() => {
                return weights.draw((0..n).map(|_| rng.unit()), drawn);
            }
            Self::Uniform | Self::Weighted(_) => return live.draw_many(n, rng, drawn),
            Self::Smallest(heap) | Self::Largest(heap) => heap.first(),
        };
        drawn.extend(std::iter::repeat_n(one.expect("an item to draw"), n));
    }

    /// How likely a draw of an item is: for those that leave nothing to chance, 1 for the one that they choose.
    #[inline]
    pub fn probability(&self, slot: u32, live: &Live) -> f64 {
        match self {
            Self::Weighted(weights) if !weights.is_uniform() => weights.probability(slot),
            Self::Uniform | Self::Weighted(_) => 1.0 / f64::from(live.len()),
            Self::Oldest(_) | Self::Newest(_) | Self::Smallest(_) | Self::Largest(_) => 1.0,
        }
    }

    /// How likely a draw of the least likely item is that can be drawn. There is an item.
    pub fn least_probability(&mut self, live: &Live) -> f64 {
        match self {
            Self::Weighted(weights) if !weights.is_uniform() => weights.least_probability(),
            Self::Uniform | Self::Weighted(_) => 1.0 / f64::from(live.len()),
            Self::Oldest(_) | Self::Newest(_) | Self::Smallest(_) | Self::Largest(_) => 1.0,
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Oldest(order) | Self::Newest(order) => order.bytes(),
            Self::Uniform => 0,
            Self::Weighted(weights) => weights.bytes(),
            Self::Smallest(heap) | Self::Largest(heap) => heap.bytes(),
        }
    }
}
