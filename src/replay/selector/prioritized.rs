//! Slots by weight: priority to the power of an exponent, and, if asked for, less the older the policy.
//!
//! The power is taken once, when the priority is set. A priority of 0 weighs nothing whatever the exponent. Powers
//! beyond 2^400 or below 2^-400 are taken as these, so that no sum overflows and no positive priority becomes zero.
//!
//! **Age as a factor.** An item of version `v` weighs `decay^(V - v)` for a trainer at version `V`. For all items
//! `decay^V` is the same, and so is any other constant: what matters is `decay^-v`, which does not change when the trainer
//! goes on. Weights are therefore kept as `power * 2^(bits * v - shift)`, with `bits = -log2(decay)`, and a new version of the
//! trainer costs nothing. As versions grow, so do the numbers; when an item's exceeds 2^512, all are made anew with a
//! `shift` that makes the newest 1, which happens once in `512 / bits` versions. An item that weighs less than 2^-1000
//! of the newest then weighs nothing. If only such are left, the numbers are made anew once more.

use crate::replay::items::Items;
use crate::replay::live::Live;
use crate::replay::peaks::Peaks;
use crate::replay::sum_tree::SumTree;

/// 2^400 and 2^-400.
const MOST: f64 = f64::from_bits((1023 + 400) << 52);
const LEAST: f64 = f64::from_bits((1023 - 400) << 52);
const MOST_BITS: f64 = 512.0;

/// The weights.
pub struct Prioritized {
    exponent: f64,
    /// How many bits a version makes; 0 without age.
    bits: f64,
    shift: f64,
    tree: SumTree,
    /// Of the negated weights, so that the highest is the least weight that is not zero. From when it is first asked for.
    least: Option<Peaks>,
    slots: u32,
    /// Items whose priority is not zero.
    positive: u32,
}

impl Prioritized {
    /// No items yet.
    pub fn new(slots: u32, exponent: f64, decay: f64) -> Self {
        Self {
            exponent,
            bits: -decay.log2(),
            shift: 0.0,
            tree: SumTree::new(slots),
            least: None,
            slots,
            positive: 0,
        }
    }

    fn power(&self, priority: f64) -> f64 {
        let power = match self.exponent {
            _ if priority == 0.0 => return 0.0,
            0.0 => 1.0,
            1.0 => priority,
            exponent => priority.powf(exponent),
        };
        power.clamp(LEAST, MOST)
    }

    /// How many bits an item's version makes, before the shift.
    fn age_bits(&self, slot: u32, items: &Items) -> f64 {
        self.bits * items.version(slot).unwrap_or(0) as f64
    }

    fn weight(&self, slot: u32, items: &Items) -> f64 {
        let power = self.power(items.priority(slot));
        if self.bits == 0.0 { power } else { power * (self.age_bits(slot, items) - self.shift).exp2() }
    }

    /// Says that a slot's weight will be changed soon.
    pub fn expect(&self, slot: u32) {
        self.tree.expect(slot);
        if let Some(least) = &self.least {
            least.expect(slot);
        }
    }

    /// An item was stored in a slot.
    pub fn insert(&mut self, slot: u32, items: &Items, live: &Live) {
        self.positive += u32::from(items.priority(slot) > 0.0);
        let age = if self.bits == 0.0 { 0.0 } else { self.age_bits(slot, items) };
        if age - self.shift > MOST_BITS {
            self.make_anew(age, items, live);
        } else {
            self.set(slot, self.weight(slot, items));
        }
    }

    /// An item's priority was `old`.
    pub fn update(&mut self, slot: u32, old: f64, items: &Items) {
        let new = items.priority(slot);
        self.positive = self.positive - u32::from(old > 0.0) + u32::from(new > 0.0);
        self.set(slot, self.weight(slot, items));
    }

    /// An item leaves, whose priority is still there.
    pub fn remove(&mut self, slot: u32, items: &Items) {
        self.positive -= u32::from(items.priority(slot) > 0.0);
        self.set(slot, 0.0);
    }

    fn set(&mut self, slot: u32, weight: f64) {
        let old = self.tree.weight(slot);
        self.tree.set(slot, weight);
        if let Some(least) = &mut self.least {
            least.change(slot, negated(old), negated(weight), |slot| negated(self.tree.weight(slot as u32)));
        }
    }

    fn make_anew(&mut self, shift: f64, items: &Items, live: &Live) {
        self.shift = shift;
        live.iter().for_each(|slot| self.tree.set(slot, self.weight(slot, items)));
        if let Some(least) = &mut self.least {
            least.rebuild(|slot| negated(self.tree.weight(slot as u32)));
        }
    }

    /// Makes the sums; before the next draw. `live` are the items.
    pub fn settle(&mut self, items: &Items, live: &Live) {
        self.tree.settle();
        if self.bits > 0.0 && self.positive > 0 && self.tree.total() == 0.0 {
            let positive = live.iter().filter(|&slot| items.priority(slot) > 0.0);
            let newest = positive.map(|slot| self.age_bits(slot, items)).fold(0.0, f64::max);
            self.make_anew(newest, items, live);
            self.tree.settle();
        }
    }

    /// Whether all items weigh nothing, so that each is as likely as another.
    pub fn is_uniform(&self) -> bool {
        self.tree.total() == 0.0
    }

    /// Appends a draw for each fraction below 1. The weights are settled, and some item weighs something.
    pub fn draw(&mut self, fractions: impl Iterator<Item = f64>, drawn: &mut Vec<u32>) {
        self.tree.draw(fractions, drawn);
    }

    /// How likely a draw of this item is, as the weights were settled last.
    pub fn probability(&self, slot: u32) -> f64 {
        self.tree.weight(slot) / self.tree.total()
    }

    /// How likely a draw of the item is that weighs the least of those that weigh something. The first time it looks
    /// at all of them, and from then on keeps track.
    pub fn least_probability(&mut self) -> f64 {
        let least = self.least.get_or_insert_with(|| {
            let mut least = Peaks::new(self.slots);
            least.rebuild(|slot| negated(self.tree.weight(slot as u32)));
            least
        });
        -least.highest() / self.tree.total()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.least.as_ref().map_or(0, Peaks::bytes)
    }
}

fn negated(weight: f64) -> f64 {
    if weight > 0.0 { -weight } else { Peaks::NONE }
}
