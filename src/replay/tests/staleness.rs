//! Items of old policies: removed by the gate, weighed by age.

use super::*;
use crate::replay::index::{Freed, Inserted};
use crate::replay::items::Cause;
use crate::replay::limiter::Totals;
use crate::replay::settings::Staleness;

fn gate(max: u64) -> ReplaySpec {
    let staleness = Staleness { max: Some(max), ..Staleness::default() };
    ReplaySpec { staleness, ..spec(Selector::Uniform, Selector::Fifo, 100) }
}

fn of_version(key: u64, version: Option<u64>) -> Arrival {
    Arrival { key, priority: Some(1.0), version }
}

fn insert(index: &mut Index, key: u64, version: Option<u64>) -> Inserted {
    index.insert(key as u32, &of_version(key, version), NOW, &mut seeded(1)).unwrap()
}

#[test]
fn what_lags_too_far_is_never_sampled_and_its_slot_is_free() {
    let mut index = index(&gate(2), 110);
    for (key, version) in [5, 3, 4, 9].into_iter().enumerate() {
        assert_eq!(insert(&mut index, key as u64, Some(version)), Inserted::Stored);
    }
    assert_eq!(index.set_version(5), 0, "lags of 0, 2, 1, and one that is ahead");
    assert_eq!(index.set_version(6), 1);
    assert_eq!(index.drain_freed().collect::<Vec<_>>(), [Freed { slot: 1, key: 1 }]);
    assert_eq!(index.set_version(8), 2);
    assert_eq!(sampled(&mut index, 20, &mut seeded(2)), [3; 20]);
    assert_eq!(index.removed(Cause::Stale), 3);
    assert_eq!(index.totals(), Totals { inserts: 4, samples: 20, deletes: 3 });
    assert_eq!(index.lags().buckets[0], 20);
}

#[test]
fn what_comes_too_late_counts_as_come_and_gone() {
    let mut index = index(&gate(2), 110);
    index.set_version(10);
    assert_eq!(insert(&mut index, 0, Some(7)), Inserted::Stale);
    assert_eq!(insert(&mut index, 1, Some(8)), Inserted::Stored);
    assert_eq!(insert(&mut index, 2, None), Inserted::Stale, "no version is version 0");
    assert_eq!(insert(&mut index, 0, Some(7)), Inserted::Known);
    assert_eq!(index.totals(), Totals { inserts: 3, samples: 0, deletes: 2 });
    assert_eq!(index.drain_freed().count(), 2);
    assert_eq!(index.removed(Cause::Stale), 2);
}

#[test]
fn a_leased_item_that_becomes_stale_stays_with_its_reader() {
    let mut index = index(&gate(0), 110);
    insert(&mut index, 0, Some(1));
    index.set_version(1);
    assert_eq!(sampled(&mut index, 1, &mut seeded(2)), [0]);
    assert_eq!(index.set_version(2), 1);
    assert_eq!((index.size(), index.lingering(), index.drain_freed().count()), (0, 1, 0));
    index.release(&[0]).unwrap();
    assert_eq!(index.drain_freed().count(), 1);
}

#[test]
fn a_trainer_that_starts_again_is_given_what_is_left() {
    let mut index = index(&gate(1), 110);
    insert(&mut index, 0, Some(10));
    insert(&mut index, 1, Some(11));
    assert_eq!(index.set_version(12), 1);
    assert_eq!(index.set_version(3), 0);
    assert_eq!(insert(&mut index, 2, Some(2)), Inserted::Stored);
    assert_eq!((index.version(), index.size()), (Some(3), 2));
}

fn aged(decay: f64) -> ReplaySpec {
    let staleness = Staleness { decay: Some(Real(decay)), ..Staleness::default() };
    ReplaySpec { staleness, ..spec(prioritized(1.0), Selector::Fifo, 100) }
}

fn probability(index: &mut Index, key: u64) -> f64 {
    let mut picks = Vec::new();
    let mut rng = seeded(9);
    for _ in 0..1000 {
        index.sample(1, NOW, &mut rng, &mut picks);
        let pick = picks.pop().unwrap();
        index.release(&[pick.slot]).unwrap();
        if pick.key == key {
            return pick.probability;
        }
    }
    panic!("item {key} does not come");
}

#[test]
fn an_item_weighs_less_by_the_factor_for_each_version() {
    let mut index = index(&aged(0.5), 110);
    insert(&mut index, 0, Some(4));
    insert(&mut index, 1, Some(6));
    // 1/4 to 1, whatever version the trainer is at.
    for version in [6, 1000] {
        index.set_version(version);
        assert!((probability(&mut index, 0) - 0.2).abs() < 1e-12);
    }
    index.update_priorities(&[(0, 16.0)]).unwrap();
    assert!((probability(&mut index, 0) - 0.8).abs() < 1e-12);
    assert!((index.least_probability().unwrap() - 0.2).abs() < 1e-12);
}

#[test]
fn weights_are_right_over_any_number_of_versions() {
    let mut index = index(&aged(0.9), 110);
    let mut rng = seeded(3);
    for version in 0..20_000_u64 {
        let slot = (version % 110) as u32;
        index.insert(slot, &of_version(version, Some(version)), NOW, &mut rng).unwrap();
        index.drain_freed();
        if version % 997 == 500 {
            // A hundred versions: 0.9^0 and so on.
            let all: f64 = (0..100).map(|lag| 0.9_f64.powi(lag)).sum();
            let least = index.least_probability().unwrap();
            assert!((least * all / 0.9_f64.powi(99) - 1.0).abs() < 1e-9, "version {version}: {least}");
        }
    }
}

#[test]
fn a_version_far_ahead_leaves_the_others_when_it_goes() {
    let mut index = index(&aged(0.5), 110);
    insert(&mut index, 0, Some(3));
    insert(&mut index, 1, Some(u64::MAX));
    insert(&mut index, 2, Some(4));
    insert(&mut index, 3, None);
    assert_eq!(sampled(&mut index, 5, &mut seeded(1)), [1; 5]);
    index.delete(&[1]);
    // 1/2, 1 and 1/16.
    assert!((probability(&mut index, 0) - 8.0 / 25.0).abs() < 1e-12);
    assert!((probability(&mut index, 3) - 1.0 / 25.0).abs() < 1e-12);
    index.update_priorities(&[(0, 0.0), (2, 0.0), (3, 0.0)]).unwrap();
    assert_eq!(probability(&mut index, 3), 1.0 / 3.0, "all zero");
}
