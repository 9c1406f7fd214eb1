//! How long the index alone takes, at a million items. Asserts nothing about it:
//!
//! ```sh
//! cargo test --release --package echo --lib replay::tests::speed -- --ignored --nocapture
//! ```

#![expect(clippy::print_stdout, reason = "a measurement is to be read")]

use std::time::{Duration, Instant};

use crate::replay::index::{Arrival, Index};
use crate::replay::items::Items;
use crate::replay::settings::{Real, ReplaySpec, Selector};
use crate::ring::words::Words;

const ITEMS: u32 = 1_000_000;
const SLOTS: u32 = ITEMS + 20_000;
const BATCH: usize = 256;
const ROUNDS: usize = 4000;
const NOW: Duration = Duration::ZERO;

/// Prints what the rounds took, in microseconds. On a machine with other work the lowest tenth says the most.
fn report(name: &str, mut rounds: Vec<f64>) {
    rounds.sort_by(f64::total_cmp);
    let at = |part: f64| rounds[(rounds.len() as f64 * part) as usize];
    println!("{name:40} p10 {:7.2}   p50 {:7.2}   p99 {:7.2} us", at(0.1), at(0.5), at(0.99));
}

fn timed(rounds: &mut Vec<f64>, work: impl FnOnce()) {
    let began = Instant::now();
    work();
    rounds.push(began.elapsed().as_secs_f64() * 1e6);
}

fn measure(sampler: Selector, remover: Selector) {
    let spec = ReplaySpec { sampler, remover, ..ReplaySpec::new(ITEMS, BATCH as u32) };
    let mut index = Index::create(&spec, SLOTS, Words::heap(Items::bytes(SLOTS))).unwrap();
    let mut source = fastrand::Rng::with_seed(3);
    let mut rng = {
        let mut source = source.fork();
        move || source.u64(..)
    };
    let mut free: Vec<u32> = (0..SLOTS).rev().collect();
    let mut key = 0;
    let mut insert = |index: &mut Index, n: usize, priorities: &mut fastrand::Rng| {
        for _ in 0..n {
            let arrival = Arrival { key, priority: Some(priorities.f64()), version: None };
            index.insert(free.pop().unwrap(), &arrival, NOW, &mut rng).unwrap();
            key += 1;
            free.extend(index.drain_freed().map(|freed| freed.slot));
        }
    };
    let began = Instant::now();
    insert(&mut index, ITEMS as usize, &mut source);
    let fill = began.elapsed().as_secs_f64();
    // Twice around, so that no column lies in the order of its slots.
    insert(&mut index, ITEMS as usize * 2, &mut source);

    let (mut inserts, mut draws, mut updates, mut releases) = (vec![], vec![], vec![], vec![]);
    let mut picks = Vec::new();
    let mut rng = {
        let mut source = source.fork();
        move || source.u64(..)
    };
    for _ in 0..ROUNDS {
        timed(&mut inserts, || insert(&mut index, BATCH, &mut source));
        picks.clear();
        timed(&mut draws, || assert!(index.sample(BATCH as u32, NOW, &mut rng, &mut picks).is_none()));
        let changed: Vec<(u64, f64)> = picks.iter().map(|pick| (pick.key, source.f64())).collect();
        timed(&mut updates, || assert_eq!(index.update_priorities(&changed).unwrap().applied, BATCH as u64));
        let slots: Vec<u32> = picks.iter().map(|pick| pick.slot).collect();
        timed(&mut releases, || index.release(&slots).unwrap());
    }
    println!(
        "sampler {sampler}, remover {remover}: {:.1} bytes an item",
        index.bytes() as f64 / f64::from(ITEMS)
    );
    println!("{:44} {:.0} ns each", "  filling", fill * 1e9 / f64::from(ITEMS));
    report("  insert 256 one by one, each evicting", inserts);
    report("  sample 256", draws);
    report("  update 256", updates);
    report("  release 256", releases);
}

#[test]
#[ignore = "a measurement, in a release build"]
fn a_million_items() {
    let exponent = Real(0.6);
    let prioritized = Selector::Prioritized { exponent };
    for (sampler, remover) in [
        (prioritized, Selector::Fifo),
        (Selector::Prioritized { exponent: Real(1.0) }, Selector::Fifo),
        (Selector::Uniform, Selector::Fifo),
        (Selector::Uniform, Selector::Uniform),
        (prioritized, Selector::MinHeap),
        (prioritized, Selector::Prioritized { exponent: Real(0.3) }),
        (Selector::MaxHeap, Selector::MinHeap),
    ] {
        measure(sampler, remover);
    }
}
