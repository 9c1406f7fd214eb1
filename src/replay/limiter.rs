//! Who has to wait: inserting for sampling, or sampling for inserting.
//!
//! With inserts `I`, samples `S` and deletes `D`, all counted since the table was made or reset:
//!
//! ```text
//! sampling n    I - D >= min_size   and   I * ratio - S - n >= min_diff
//! inserting n   I + n - D <= min_size   or   (I + n) * ratio - S <= max_diff
//! ```
//!
//! `I - D` is the table's size, so below `min_size` inserting is free and sampling waits; that can come again when
//! items are removed. Both conditions for inserting are bounds on `I + n` alone, and grow with `S` and `D`: the larger
//! of them is [`Limiter::insert_limit`], which never falls. Writers are given that limit, and one that is below it never
//! asks.
//!
//! In a queue or a stack every sample removes its item, so `S = D` and the limit is on the size. Where items also leave
//! in other ways (deleted, or too old), `D` is what counts: with `S` each of them would take up room for ever.
//!
//! The same floating-point expression decides everything here, and rounding keeps order, so the limit is exactly where
//! [`Limiter::can_insert`] changes.

use std::fmt;

use crate::replay::settings::{ErrorBuffer, RateLimiter, Real};

/// More inserts than a table has positions; up to here every count is exact as a floating-point number.
const NO_LIMIT: u64 = 1 << 53;

/// What has happened since the table was made or reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Items that came.
    pub inserts: u64,
    /// Times that an item was sampled.
    pub samples: u64,
    /// Items that left.
    pub deletes: u64,
}

impl Totals {
    /// Items that are there.
    pub fn size(&self) -> u64 {
        self.inserts - self.deletes
    }
}

/// A rate limiter, as numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limiter {
    ratio: f64,
    min_size: u64,
    min_diff: f64,
    max_diff: f64,
    /// Whether `D` counts in place of `S`.
    once: bool,
}

/// Why somebody has to wait: what does not hold, with its numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// Sampling waits for the table to fill.
    TooFew {
        /// Since the table was made or reset.
        totals: Totals,
        /// What the size must be.
        min_size: u64,
    },
    /// Sampling waits for inserts.
    SamplesAhead {
        /// Since the table was made or reset.
        totals: Totals,
        /// Samples that would be taken.
        n: u64,
        /// Samples per insert.
        ratio: f64,
        /// What must be left.
        min_diff: f64,
        /// Whether deletes count as samples.
        once: bool,
    },
    /// Inserting waits for samples.
    InsertsAhead {
        /// Since the table was made or reset.
        totals: Totals,
        /// Items that would be inserted.
        n: u64,
        /// Samples per insert.
        ratio: f64,
        /// Up to which size inserting is free.
        min_size: u64,
        /// What must not be exceeded.
        max_diff: f64,
        /// Whether deletes count as samples.
        once: bool,
    },
    /// Sampling waits for samples to be given back: the table counts no more leases than this.
    Leases(u64),
}

impl Limiter {
    /// The numbers of these settings.
    pub fn new(settings: &RateLimiter) -> Self {
        match *settings {
            RateLimiter::MinSize(min_size) => Self {
                ratio: 1.0,
                min_size: min_size.into(),
                min_diff: -f64::MAX,
                max_diff: f64::MAX,
                once: false,
            },
            RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, error_buffer } => {
                let aim = ratio * f64::from(min_size);
                let (min_diff, max_diff) = match error_buffer {
                    ErrorBuffer::Around(Real(buffer)) => (aim - buffer, aim + buffer),
                    ErrorBuffer::Between(Real(min_diff), Real(max_diff)) => (min_diff, max_diff),
                };
                Self { ratio, min_size: min_size.into(), min_diff, max_diff, once: false }
            }
            RateLimiter::Queue(size) | RateLimiter::Stack(size) => {
                Self { ratio: 1.0, min_size: 1, min_diff: 0.0, max_diff: size.into(), once: true }
            }
        }
    }

    /// `min_diff` and `max_diff`.
    pub fn interval(&self) -> (f64, f64) {
        (self.min_diff, self.max_diff)
    }

    fn consumed(&self, totals: &Totals) -> u64 {
        if self.once { totals.deletes } else { totals.samples }
    }

    /// Why `n` samples may not be taken now, if so.
    pub fn why_not_sample(&self, totals: &Totals, n: u64) -> Option<Reason> {
        let Self { ratio, min_size, min_diff, once, .. } = *self;
        if totals.size() < min_size {
            return Some(Reason::TooFew { totals: *totals, min_size });
        }
        let left = totals.inserts as f64 * ratio - self.consumed(totals) as f64 - n as f64;
        (left < min_diff).then_some(Reason::SamplesAhead { totals: *totals, n, ratio, min_diff, once })
    }

    /// Whether `n` samples may be taken now.
    pub fn can_sample(&self, totals: &Totals, n: u64) -> bool {
        self.why_not_sample(totals, n).is_none()
    }

    /// Why `n` items may not be inserted now, if so.
    pub fn why_not_insert(&self, totals: &Totals, n: u64) -> Option<Reason> {
        let Self { ratio, min_size, max_diff, once, .. } = *self;
        (!self.allows_inserts(totals, totals.inserts.saturating_add(n))).then_some(Reason::InsertsAhead {
            totals: *totals,
            n,
            ratio,
            min_size,
            max_diff,
            once,
        })
    }

    /// Whether `n` items may be inserted now.
    pub fn can_insert(&self, totals: &Totals, n: u64) -> bool {
        self.why_not_insert(totals, n).is_none()
    }

    /// Whether there may be so many inserts in all.
    fn allows_inserts(&self, totals: &Totals, inserts: u64) -> bool {
        inserts <= totals.deletes.saturating_add(self.min_size)
            || inserts as f64 * self.ratio - self.consumed(totals) as f64 <= self.max_diff
    }

    /// How many inserts there may be in all. It never falls while samples and deletes grow.
    pub fn insert_limit(&self, totals: &Totals) -> u64 {
        if self.allows_inserts(totals, NO_LIMIT) {
            return u64::MAX;
        }
        // By halves and not by division, which would be a rounding or two away from the condition itself.
        let (mut allowed, mut refused) = (totals.deletes.saturating_add(self.min_size), NO_LIMIT);
        while refused - allowed > 1 {
            let middle = allowed + (refused - allowed) / 2;
            *(if self.allows_inserts(totals, middle) { &mut allowed } else { &mut refused }) = middle;
        }
        allowed
    }
}

impl fmt::Display for Reason {
    /// The inequality that does not hold, and what it comes to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consumed = |totals: &Totals, once: bool| match once {
            true => ("deletes", totals.deletes),
            false => ("samples", totals.samples),
        };
        match self {
            Self::TooFew { totals, min_size } => {
                let Totals { inserts, deletes, .. } = totals;
                let size = totals.size();
                write!(f, "inserts {inserts} - deletes {deletes} = {size} is less than min_size {min_size}")
            }
            Self::SamplesAhead { totals, n, ratio, min_diff, once } => {
                let (name, consumed) = consumed(totals, *once);
                let left = totals.inserts as f64 * ratio - consumed as f64 - *n as f64;
                let inserts = totals.inserts;
                write!(
                    f,
                    "inserts {inserts} * ratio {ratio} - {name} {consumed} - {n} = {left} is less than min_diff {min_diff}"
                )
            }
            Self::InsertsAhead { totals, n, ratio, min_size, max_diff, once } => {
                let (name, consumed) = consumed(totals, *once);
                let Totals { inserts, deletes, .. } = *totals;
                let size = u128::from(totals.size()) + u128::from(*n);
                let ahead = inserts.saturating_add(*n) as f64 * ratio - consumed as f64;
                write!(
                    f,
                    "inserts {inserts} + {n} - deletes {deletes} = {size} is more than min_size {min_size}, and \
                     (inserts {inserts} + {n}) * ratio {ratio} - {name} {consumed} = {ahead} is more than max_diff \
                     {max_diff}"
                )
            }
            Self::Leases(most) => {
                write!(f, "{most} samples are leased, as many as can be: some must be given back")
            }
        }
    }
}

#[cfg(test)]
mod tests;
