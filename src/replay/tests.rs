//! The replay core against plain models, and against what Reverb's documents promise.

use std::time::Duration;

use crate::replay::index::{Arrival, Index};
use crate::replay::items::Items;
use crate::replay::settings::{RateLimiter, Real, ReplaySpec, Selector};
use crate::ring::words::Words;

pub(crate) mod chi_squared;
mod deaths;
mod distribution;
mod memory;
mod model;
mod refusals;
mod reverb;
mod speed;
mod staleness;

/// Nobody looks at the clock.
const NOW: Duration = Duration::ZERO;

fn index(spec: &ReplaySpec, slots: u32) -> Index {
    spec.validate().unwrap();
    Index::create(spec, slots, Words::heap(Items::bytes(slots))).unwrap()
}

fn spec(sampler: Selector, remover: Selector, max_size: u32) -> ReplaySpec {
    ReplaySpec { sampler, remover, ..ReplaySpec::new(max_size, 1) }
}

fn with_limiter(limiter: &str) -> ReplaySpec {
    ReplaySpec { limiter: limiter.parse::<RateLimiter>().unwrap(), ..ReplaySpec::new(1000, 1) }
}

fn prioritized(exponent: f64) -> Selector {
    Selector::Prioritized { exponent: Real(exponent) }
}

fn arrival(key: u64, priority: f64) -> Arrival {
    Arrival { key, priority: Some(priority), version: None }
}

/// A source of randomness that is always the same.
fn seeded(seed: u64) -> impl FnMut() -> u64 {
    let mut source = fastrand::Rng::with_seed(seed);
    move || source.u64(..)
}

/// An index whose slots are filled in their order, with keys that are the slots' numbers.
fn filled(spec: &ReplaySpec, priorities: &[f64]) -> Index {
    let mut index = index(spec, spec.max_size.max(priorities.len() as u32) + 8);
    for (slot, &priority) in priorities.iter().enumerate() {
        index.insert(slot as u32, &arrival(slot as u64, priority), NOW, &mut seeded(0)).unwrap();
    }
    index
}

/// The keys of `n` samples.
fn sampled(index: &mut Index, n: u32, rng: &mut impl FnMut() -> u64) -> Vec<u64> {
    let mut picks = Vec::new();
    index.sample(n, NOW, rng, &mut picks);
    picks.iter().map(|pick| pick.key).collect()
}
