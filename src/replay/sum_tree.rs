//! Weights of slots, and their sums: what draws a slot with a probability in proportion to its weight.
//!
//! A tree of nodes of eight numbers, a cache line each. A number of the lowest level is a slot's weight; one above
//! is the sum of the node below it. A million slots have seven levels, the upper four of which fit into 20 KiB.
//!
//! **The error stays bounded.** A sum is always made anew from the eight numbers it stands for, and never by adding
//! what has changed, so no error outlives the update after it. Each of the seven additions of nonnegative numbers
//! rounds by at most `u = 2^-53` of its result, so a sum of `L` levels is within `(1 + u)^(7 L) - 1`, less than 10^-14
//! for as many slots as there can be, of the exact sum of the weights as they are now, however many updates came
//! before. And where all weights are zero the sums are exactly zero.
//!
//! **What weighs nothing is never drawn.** A draw descends with a rest that is below the sum of the node it is at. The
//! running sums of the node end with that very sum, by the same additions in the same order, so one of them exceeds
//! the rest, and the first that does belongs to a number that is not zero.
//!
//! Weights are changed lazily: [`SumTree::set`] notes the node, and [`SumTree::settle`] makes the sums above all such
//! nodes, level by level. Draws come in lockstep, all of them at the same level at a time, so that their cache misses
//! overlap; independent ones, as a sampler of Reverb's draws them, and not one of each stratum.

use crate::sync::expect_write;

const WIDTH: usize = 8;
/// Nodes that are noted before their sums are made without being asked for.
const NOTED: usize = 1024;
/// How many nodes ahead the cache is told.
const AHEAD: usize = 12;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Node([f64; WIDTH]);

impl Node {
    /// The running sums: before each number, and after the last.
    #[inline]
    fn sums(&self) -> [f64; WIDTH + 1] {
        let mut sums = [0.0; WIDTH + 1];
        for (i, number) in self.0.iter().enumerate() {
            sums[i + 1] = sums[i] + number;
        }
        sums
    }

    #[inline]
    fn sum(&self) -> f64 {
        self.sums()[WIDTH]
    }
}

/// One draw on its way down.
#[derive(Clone, Copy, Default, Debug)]
struct Descent {
    /// At which node of the level; at the end, at which slot.
    at: u32,
    /// Below that node's sum.
    rest: f64,
}

/// The tree.
pub struct SumTree {
    /// The weights first, the root last.
    levels: Vec<Vec<Node>>,
    /// Nodes of the lowest level whose sums above them are old.
    noted: Vec<u32>,
    total: f64,
    descents: Vec<Descent>,
}

impl SumTree {
    /// A tree in which every slot weighs nothing.
    pub fn new(slots: u32) -> Self {
        let mut levels = Vec::new();
        let mut count = (slots as usize).div_ceil(WIDTH).max(1);
        loop {
            levels.push(vec![Node::default(); count]);
            if count == 1 {
                break;
            }
            count = count.div_ceil(WIDTH);
        }
        Self { levels, noted: Vec::with_capacity(NOTED), total: 0.0, descents: Vec::new() }
    }

    /// The sum of all weights, as it was when the tree was last settled.
    pub fn total(&self) -> f64 {
        self.total
    }

    /// What a slot weighs.
    #[inline]
    pub fn weight(&self, slot: u32) -> f64 {
        self.levels[0][slot as usize / WIDTH].0[slot as usize % WIDTH]
    }

    /// Says that a slot's weight will be changed soon.
    #[inline]
    pub fn expect(&self, slot: u32) {
        expect_write(&self.levels[0][slot as usize / WIDTH]);
    }

    /// Changes what a slot weighs: a finite number, not negative, so small that the sum of all is finite.
    pub fn set(&mut self, slot: u32, weight: f64) {
        debug_assert!(weight >= 0.0 && weight.is_finite(), "weight {weight}");
        let node = slot as usize / WIDTH;
        self.levels[0][node].0[slot as usize % WIDTH] = weight;
        if self.noted.last() != Some(&(node as u32)) {
            self.noted.push(node as u32);
            if self.noted.len() == NOTED {
                self.settle();
            }
        }
    }

    /// Makes the sums above all that was changed.
    pub fn settle(&mut self) {
        if self.noted.is_empty() {
            return;
        }
        for level in 1..self.levels.len() {
            let (lower, upper) = self.levels.split_at_mut(level);
            let (lower, upper) = (&lower[level - 1], &mut upper[0]);
            if self.noted.len() >= lower.len() {
                for (i, node) in lower.iter().enumerate() {
                    upper[i / WIDTH].0[i % WIDTH] = node.sum();
                }
                continue; // and so are all levels above, which have fewer nodes
            }
            for (i, &node) in self.noted.iter().enumerate() {
                if let Some(&later) = self.noted.get(i + AHEAD) {
                    expect_write(&upper[later as usize / WIDTH]);
                }
                let node = node as usize;
                upper[node / WIDTH].0[node % WIDTH] = lower[node].sum();
            }
            self.noted.iter_mut().for_each(|node| *node /= WIDTH as u32);
            self.noted.dedup();
        }
        self.noted.clear();
        self.total = self.levels[self.levels.len() - 1][0].sum();
    }

    /// Draws a slot for each fraction below 1, and appends it. The tree is settled and its total not zero.
    ///
    /// # Panics
    /// If it is not.
    pub fn draw(&mut self, fractions: impl Iterator<Item = f64>, slots: &mut Vec<u32>) {
        assert!(self.noted.is_empty() && self.total > 0.0, "nothing to draw from");
        let total = self.total;
        self.descents.clear();
        self.descents
            .extend(fractions.map(|fraction| Descent { at: 0, rest: below(fraction * total, total) }));
        for level in (0..self.levels.len()).rev() {
            let nodes = &self.levels[level];
            let next = level.checked_sub(1).map(|level| &self.levels[level]);
            for descent in &mut self.descents {
                let node = &nodes[descent.at as usize];
                let sums = node.sums();
                let chosen: usize = sums[1..WIDTH].iter().map(|&sum| usize::from(sum <= descent.rest)).sum();
                *descent = Descent {
                    at: descent.at * WIDTH as u32 + chosen as u32,
                    rest: below(descent.rest - sums[chosen], node.0[chosen]),
                };
                if let Some(next) = next {
                    expect_write(&next[descent.at as usize]);
                }
            }
        }
        slots.extend(self.descents.iter().map(|descent| descent.at));
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let nodes: usize = self.levels.iter().map(Vec::capacity).sum();
        nodes * size_of::<Node>()
            + self.noted.capacity() * size_of::<u32>()
            + self.descents.capacity() * size_of::<Descent>()
    }
}

/// A point of an interval that rounding may have moved to its end.
#[inline]
fn below(point: f64, end: f64) -> f64 {
    if point < end { point } else { end.next_down() }
}

#[cfg(test)]
mod tests;
