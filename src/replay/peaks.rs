//! The largest of a number that every slot has, while the numbers change.
//!
//! A tree above a column that somebody else keeps: a number for each sixteen slots, one for each sixteen of those,
//! and so on. Half a byte a slot. A change that leaves the largest of its sixteen as it was goes no higher, so that
//! most changes cost one comparison; sixteen numbers are looked at only when the largest of them falls.

use crate::sync::expect_write;

const WIDTH: usize = 16;

/// The tree. A slot that has no number counts as [`Peaks::NONE`].
pub struct Peaks {
    slots: usize,
    levels: Vec<Vec<f64>>,
}

impl Peaks {
    /// Below every number.
    pub const NONE: f64 = f64::NEG_INFINITY;

    /// A tree over slots none of which has a number.
    pub fn new(slots: u32) -> Self {
        let slots = slots as usize;
        let mut levels = Vec::new();
        let mut count = slots;
        loop {
            count = count.div_ceil(WIDTH).max(1);
            levels.push(vec![Self::NONE; count]);
            if count == 1 {
                return Self { slots, levels };
            }
        }
    }

    /// The largest number, or [`Peaks::NONE`].
    pub fn highest(&self) -> f64 {
        self.levels[self.levels.len() - 1][0]
    }

    /// Says that a slot's number will be changed soon.
    #[inline]
    pub fn expect(&self, slot: u32) {
        expect_write(&self.levels[0][slot as usize / WIDTH]);
    }

    /// A slot's number was `old` and is `new`; `column` says what each slot has now.
    #[inline]
    pub fn change(&mut self, slot: u32, mut old: f64, mut new: f64, column: impl Fn(usize) -> f64) {
        let mut at = slot as usize;
        for level in 0..self.levels.len() {
            at /= WIDTH;
            let peak = self.levels[level][at];
            let now = if new >= peak {
                new
            } else if old < peak {
                return;
            } else {
                let children = at * WIDTH..(at + 1) * WIDTH;
                match level.checked_sub(1) {
                    None => {
                        (children.start..children.end.min(self.slots)).map(&column).fold(Self::NONE, f64::max)
                    }
                    Some(below) => {
                        let below = &self.levels[below];
                        below[children.start..children.end.min(below.len())]
                            .iter()
                            .copied()
                            .fold(Self::NONE, f64::max)
                    }
                }
            };
            if now == peak {
                return;
            }
            self.levels[level][at] = now;
            (old, new) = (peak, now);
        }
    }

    /// Makes all of it anew.
    pub fn rebuild(&mut self, column: impl Fn(usize) -> f64) {
        for level in 0..self.levels.len() {
            let (lower, upper) = self.levels.split_at_mut(level);
            upper[0].fill(Self::NONE);
            match lower.last() {
                None => {
                    (0..self.slots).for_each(|i| upper[0][i / WIDTH] = upper[0][i / WIDTH].max(column(i)))
                }
                Some(lower) => {
                    lower
                        .iter()
                        .enumerate()
                        .for_each(|(i, &n)| upper[0][i / WIDTH] = upper[0][i / WIDTH].max(n));
                }
            }
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(Vec::capacity).sum::<usize>() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(200))]

        #[test]
        fn the_peak_is_the_largest_of_the_column(
            slots in 1_u32..600,
            // Few different numbers, so that they are often equal.
            steps in proptest::collection::vec((any::<u32>(), prop_oneof![Just(Peaks::NONE), (0..9_i32).prop_map(f64::from)]), 100),
        ) {
            let mut column = vec![Peaks::NONE; slots as usize];
            let mut peaks = Peaks::new(slots);
            for (slot, new) in steps {
                let slot = slot % slots;
                let old = std::mem::replace(&mut column[slot as usize], new);
                peaks.change(slot, old, new, |i| column[i]);
                let largest = column.iter().copied().fold(Peaks::NONE, f64::max);
                prop_assert_eq!(peaks.highest(), largest);
            }
            let mut anew = Peaks::new(slots);
            anew.rebuild(|i| column[i]);
            prop_assert_eq!(anew.levels, peaks.levels);
        }
    }
}
