//! What Reverb's documents and tests promise of a table, one behaviour a test, in our words.

use super::*;
use crate::replay::index::{FIRST_PRIORITY, Updated};
use crate::replay::items::Cause;
use crate::replay::limiter::{Reason, Totals};

fn keys(index: &mut Index, n: u32) -> Vec<u64> {
    sampled(index, n, &mut seeded(5))
}

fn picked(index: &mut Index) -> crate::replay::index::Pick {
    let mut picks = Vec::new();
    assert_eq!(index.sample(1, NOW, &mut seeded(5), &mut picks), None);
    picks[0]
}

/// Inserts into the slot of the key's number.
fn insert(index: &mut Index, key: u64, priority: f64) {
    index.insert(key as u32, &arrival(key, priority), NOW, &mut seeded(5)).unwrap();
}

fn totals(inserts: u64, samples: u64, deletes: u64) -> Totals {
    Totals { inserts, samples, deletes }
}

// Selectors.

#[test]
fn fifo_gives_the_first_that_came_until_it_is_removed() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 9), &[1.0, 9.0, 0.0]);
    assert_eq!(keys(&mut index, 3), [0, 0, 0]);
    index.delete(&[0]);
    assert_eq!(keys(&mut index, 2), [1, 1]);
    assert_eq!(picked(&mut index).probability, 1.0);
}

#[test]
fn lifo_gives_the_last_that_came_until_it_is_removed() {
    let mut index = filled(&spec(Selector::Lifo, Selector::Fifo, 9), &[1.0, 9.0, 0.0]);
    assert_eq!(keys(&mut index, 3), [2, 2, 2]);
    index.delete(&[2]);
    assert_eq!(keys(&mut index, 2), [1, 1]);
    assert_eq!(picked(&mut index).probability, 1.0);
}

#[test]
fn priorities_do_not_matter_to_fifo_lifo_and_uniform() {
    for selector in [Selector::Fifo, Selector::Lifo, Selector::Uniform] {
        let mut one = filled(&spec(selector, Selector::Fifo, 9), &[1.0, 9.0, 0.0]);
        let mut other = filled(&spec(selector, Selector::Fifo, 9), &[5.0, 0.0, 7.0]);
        other.update_priorities(&[(0, 80.0)]).unwrap();
        assert_eq!(keys(&mut one, 50), keys(&mut other, 50));
    }
}

#[test]
fn uniform_says_one_in_so_many() {
    let mut index = filled(&spec(Selector::Uniform, Selector::Fifo, 9), &[1.0, 9.0, 0.0]);
    assert_eq!(picked(&mut index).probability, 1.0 / 3.0);
    index.delete(&[1]);
    assert_eq!(picked(&mut index).probability, 1.0 / 2.0);
}

#[test]
fn prioritized_says_the_part_of_the_sum() {
    let mut index = filled(&spec(prioritized(2.0), Selector::Fifo, 9), &[0.0, 3.0, 4.0]);
    let pick = picked(&mut index);
    assert_eq!(pick.probability, pick.priority * pick.priority / 25.0);
}

#[test]
fn a_priority_of_zero_is_never_drawn_even_with_an_exponent_of_zero() {
    let mut index = filled(&spec(prioritized(0.0), Selector::Fifo, 9), &[0.0, 3.0, 0.0]);
    assert_eq!(keys(&mut index, 50), [1; 50]);
    assert_eq!(picked(&mut index).probability, 1.0);
}

#[test]
fn priorities_of_zero_only_are_drawn_uniformly() {
    let mut index = filled(&spec(prioritized(1.0), Selector::Fifo, 9), &[0.0; 4]);
    assert_eq!(picked(&mut index).probability, 1.0 / 4.0);
    index.update_priorities(&[(2, 1e-30)]).unwrap();
    assert_eq!(keys(&mut index, 20), [2; 20]);
}

#[test]
fn a_tiny_priority_is_still_there_when_many_large_ones_have_gone() {
    let mut index = filled(&spec(prioritized(1.0), Selector::Fifo, 10_001), &[1e-15]);
    (1..=10_000).for_each(|key| insert(&mut index, key, 0.3));
    index.delete(&(1..=10_000).collect::<Vec<_>>());
    assert_eq!(picked(&mut index).probability, 1.0);
    assert_eq!(picked(&mut index).key, 0);
}

#[test]
fn a_min_heap_gives_the_smallest_and_a_max_heap_the_largest() {
    let mut smallest = filled(&spec(Selector::MinHeap, Selector::Fifo, 9), &[2.0, 1.0, 3.0]);
    let mut largest = filled(&spec(Selector::MaxHeap, Selector::Fifo, 9), &[2.0, 1.0, 3.0]);
    assert_eq!((keys(&mut smallest, 2), keys(&mut largest, 2)), (vec![1, 1], vec![2, 2]));
    assert_eq!((picked(&mut smallest).probability, picked(&mut largest).probability), (1.0, 1.0));
    smallest.delete(&[1]);
    largest.delete(&[2]);
    assert_eq!((keys(&mut smallest, 1), keys(&mut largest, 1)), (vec![0], vec![0]));
}

#[test]
fn a_heap_follows_updates() {
    let mut index = filled(&spec(Selector::MinHeap, Selector::Fifo, 9), &[2.0, 1.0, 3.0]);
    index.update_priorities(&[(1, 5.0)]).unwrap();
    assert_eq!(keys(&mut index, 1), [0]);
    index.update_priorities(&[(2, 0.5)]).unwrap();
    assert_eq!(keys(&mut index, 1), [2]);
}

/// The order in which a heap gives its items when each is removed.
fn drained(mut index: Index) -> Vec<u64> {
    let mut order = Vec::new();
    while index.size() > 0 {
        let key = picked(&mut index).key;
        index.delete(&[key]);
        order.push(key);
    }
    order
}

#[test]
fn a_heap_breaks_ties_by_who_came_first() {
    let priorities = [300.0, 1.0, 20.0, 1.0, 20.0, 1.0];
    let smallest = filled(&spec(Selector::MinHeap, Selector::Fifo, 9), &priorities);
    assert_eq!(drained(smallest), [1, 3, 5, 2, 4, 0]);
    let largest = filled(&spec(Selector::MaxHeap, Selector::Fifo, 9), &priorities);
    assert_eq!(drained(largest), [0, 2, 4, 1, 3, 5]);
}

#[test]
fn an_update_to_the_same_priority_makes_an_item_the_last_of_a_tie() {
    for selector in [Selector::MinHeap, Selector::MaxHeap] {
        let mut index = filled(&spec(selector, Selector::Fifo, 9), &[1.0, 1.0, 1.0]);
        index.update_priorities(&[(0, 1.0)]).unwrap();
        assert_eq!(drained(index), [1, 2, 0]);
    }
}

// What a sample says of itself.

#[test]
fn a_sample_knows_how_often_it_was_sampled_this_time_included() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 9), &[0.5, 9.0]);
    let mut picks = Vec::new();
    index.sample(3, Duration::from_secs(7), &mut seeded(1), &mut picks);
    assert_eq!(picks.iter().map(|pick| pick.times_sampled).collect::<Vec<_>>(), [1, 2, 3]);
    let pick = picks[0];
    assert_eq!((pick.key, pick.slot, pick.priority, pick.table_size), (0, 0, 0.5, 2));
    assert_eq!(pick.age, Duration::from_secs(7));
}

#[test]
fn a_batch_may_hold_an_item_more_than_once() {
    let mut index = filled(&spec(Selector::Uniform, Selector::Fifo, 9), &[1.0, 1.0]);
    assert_eq!(keys(&mut index, 100).len(), 100);
}

// What removes items.

#[test]
fn an_item_that_was_sampled_as_often_as_it_may_be_is_deleted() {
    let spec = ReplaySpec { max_times_sampled: 2, ..spec(Selector::Fifo, Selector::Fifo, 9) };
    let mut index = filled(&spec, &[1.0, 1.0]);
    assert_eq!(keys(&mut index, 3), [0, 0, 1]);
    assert_eq!((index.size(), index.totals()), (1, totals(2, 3, 1)));
    assert_eq!(index.removed(Cause::Exhausted), 1);
    assert_eq!(index.item(0), None);
}

#[test]
fn a_full_table_removes_one_item_for_each_that_comes() {
    let mut index = filled(&spec(Selector::Uniform, Selector::Fifo, 3), &[1.0; 5]);
    assert_eq!((index.size(), index.totals()), (3, totals(5, 0, 2)));
    assert_eq!(index.drain_freed().map(|freed| freed.key).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(index.removed(Cause::Evicted), 2);
}

#[test]
fn the_remover_chooses_among_all_items_the_new_one_included() {
    for (remover, priorities, gone) in [
        (Selector::Lifo, [1.0, 2.0, 3.0], 2),
        (Selector::MinHeap, [2.0, 3.0, 1.0], 2),
        (Selector::MinHeap, [3.0, 1.0, 2.0], 1),
        (Selector::MaxHeap, [1.0, 2.0, 3.0], 2),
        (Selector::MaxHeap, [3.0, 2.0, 1.0], 0),
    ] {
        let mut index = filled(&spec(Selector::Fifo, remover, 2), &priorities);
        let freed: Vec<u64> = index.drain_freed().map(|freed| freed.key).collect();
        assert_eq!(freed, [gone], "{remover} {priorities:?}");
    }
}

#[test]
fn what_was_sampled_stays_readable_when_its_item_is_removed() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 2), &[1.0, 1.0]);
    assert_eq!(keys(&mut index, 2), [0, 0]);
    insert(&mut index, 2, 1.0);
    // The remover did choose the leased item, and the table is no larger than it may be.
    assert_eq!((index.item(0), index.size()), (None, 2));
    assert_eq!(index.drain_freed().count(), 0);
    index.release(&[0]).unwrap();
    assert_eq!(index.drain_freed().count(), 0);
    index.release(&[0]).unwrap();
    assert_eq!(index.drain_freed().map(|freed| freed.key).collect::<Vec<_>>(), [0]);
}

#[test]
fn updates_and_deletes_of_keys_that_are_not_there_do_nothing() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 3), &[1.0]);
    assert_eq!(index.update_priorities(&[(7, 1.0)]), Ok(Updated { applied: 0, skipped: 1 }));
    assert_eq!(index.delete(&[7]), Updated { applied: 0, skipped: 1 });
    assert_eq!(index.totals(), totals(1, 0, 0));
}

#[test]
fn a_reset_empties_the_table_and_counts_from_zero() {
    let limited = ReplaySpec { max_size: 9, ..with_limiter("ratio:1:2:-5:5") };
    let mut index = filled(&limited, &[1.0; 6]);
    sampled(&mut index, 3, &mut seeded(1));
    index.reset();
    assert_eq!((index.size(), index.totals()), (0, totals(0, 0, 0)));
    assert_eq!(index.removed(Cause::Reset), 6);
    assert_eq!(index.inserted(), 6);
    assert!(matches!(index.why_not_sample(1), Some(Reason::TooFew { .. })));
    insert(&mut index, 10, 1.0);
    assert_eq!((index.size(), index.totals()), (1, totals(1, 0, 0)));
}

// The rate limiter.

#[test]
fn sampling_waits_for_the_minimal_size() {
    let mut index = filled(&with_limiter("min-size:3"), &[1.0, 1.0]);
    assert!(matches!(index.why_not_sample(1), Some(Reason::TooFew { min_size: 3, .. })));
    assert!(keys(&mut index, 1).is_empty());
    insert(&mut index, 2, 1.0);
    assert_eq!(keys(&mut index, 40).len(), 40);
    assert_eq!(index.insert_limit(), u64::MAX);
}

#[test]
fn a_delete_below_the_minimal_size_stops_sampling_and_lets_inserts_through() {
    let mut index = filled(&with_limiter("ratio:5:2:0:10"), &[1.0, 1.0]);
    assert!(index.why_not_insert(1).is_some(), "the next would make 15");
    assert_eq!(keys(&mut index, 1).len(), 1);
    assert!(index.why_not_insert(1).is_some(), "and now 14");
    index.delete(&[0]);
    assert!(matches!(index.why_not_sample(1), Some(Reason::TooFew { .. })));
    assert_eq!((index.why_not_insert(1), index.insert_limit()), (None, 3));
    insert(&mut index, 2, 1.0);
    assert_eq!(index.why_not_sample(1), None);
}

#[test]
fn operations_within_the_error_buffer_do_not_wait() {
    let limited = with_limiter("ratio:1.5:1:-3:3.1");
    let mut index = index(&limited, 1010);
    assert_eq!(index.insert_limit(), 2);
    insert(&mut index, 0, 1.0);
    insert(&mut index, 1, 1.0);
    assert!(index.why_not_insert(1).is_some());
    // 3 to -3.
    assert_eq!(keys(&mut index, 40).len(), 6);
    assert!(matches!(index.why_not_sample(1), Some(Reason::SamplesAhead { .. })));
}

#[test]
fn several_samples_at_once_are_asked_of_the_limiter_together() {
    let index = filled(&with_limiter("ratio:1:1:-1:1"), &[1.0]);
    assert_eq!((index.why_not_sample(1), index.why_not_sample(2)), (None, None));
    assert!(index.why_not_sample(3).is_some());
}

#[test]
fn several_inserts_at_once_are_asked_of_the_limiter_together() {
    let mut index = index(&with_limiter("ratio:1.5:2:0:5"), 1010);
    assert_eq!([1, 2, 3].map(|n| index.why_not_insert(n)), [None, None, None]);
    assert!(index.why_not_insert(4).is_some());
    (0..3).for_each(|key| insert(&mut index, key, 1.0));
    assert!(index.why_not_insert(1).is_some());
    assert_eq!(keys(&mut index, 2).len(), 2);
    assert_eq!(index.why_not_insert(1), None);
    assert!(index.why_not_insert(2).is_some());
}

#[test]
fn a_request_that_has_to_stop_gives_what_it_has() {
    let mut index = filled(&with_limiter("ratio:1:1:0:9"), &[1.0; 3]);
    let mut picks = Vec::new();
    let reason = index.sample(8, NOW, &mut seeded(1), &mut picks);
    assert_eq!(picks.len(), 3);
    assert_eq!(
        reason.unwrap().to_string(),
        "inserts 3 * ratio 1 - samples 3 - 1 = -1 is less than min_diff 0"
    );
    // And goes on when there is more.
    insert(&mut index, 3, 1.0);
    index.sample(5, NOW, &mut seeded(1), &mut picks);
    assert_eq!(picks.len(), 4);
}

#[test]
fn a_queue_gives_each_item_once_in_its_order_and_lets_in_what_fits() {
    let queue = ReplaySpec {
        limiter: RateLimiter::Queue(3),
        max_times_sampled: 1,
        ..spec(Selector::Fifo, Selector::Fifo, 3)
    };
    let mut index = filled(&queue, &[1.0; 3]);
    assert!(index.why_not_insert(1).is_some());
    assert_eq!(keys(&mut index, 2), [0, 1]);
    assert_eq!(index.insert_limit(), 5);
    insert(&mut index, 3, 1.0);
    insert(&mut index, 4, 1.0);
    assert!(index.why_not_insert(1).is_some());
    assert_eq!(keys(&mut index, 9), [2, 3, 4]);
    assert_eq!(index.removed(Cause::Evicted), 0);
}

#[test]
fn a_stack_gives_each_item_once_the_last_first() {
    let stack = ReplaySpec {
        limiter: RateLimiter::Stack(3),
        max_times_sampled: 1,
        ..spec(Selector::Lifo, Selector::Lifo, 3)
    };
    let mut index = filled(&stack, &[1.0; 3]);
    assert_eq!(keys(&mut index, 1), [2]);
    insert(&mut index, 3, 1.0);
    assert!(index.why_not_insert(1).is_some());
    assert_eq!(keys(&mut index, 9), [3, 1, 0]);
}

#[test]
fn a_table_that_is_taken_over_goes_on_with_its_counts() {
    let limited = with_limiter("ratio:1.5:2:0:5");
    let mut index = filled(&limited, &[1.0; 3]);
    keys(&mut index, 2);
    index.delete(&[0]);
    let words = index.into_words();
    let index = Index::rebuild(&limited, limited.max_size + 8, words, [], &mut seeded(1)).unwrap();
    assert_eq!((index.size(), index.totals()), (2, totals(3, 2, 1)));
    assert_eq!((index.why_not_insert(1), index.insert_limit()), (None, 4));
}

// Where Reverb leaves it open.

#[test]
fn an_item_without_a_priority_has_the_highest_that_is_there() {
    let mut index = index(&spec(Selector::MaxHeap, Selector::Fifo, 9), 10);
    let insert = |index: &mut Index, key: u64| {
        let arrival = Arrival { key, priority: None, version: None };
        index.insert(key as u32, &arrival, NOW, &mut seeded(1)).unwrap();
        index.item(key).unwrap().priority
    };
    assert_eq!(insert(&mut index, 0), FIRST_PRIORITY);
    index.update_priorities(&[(0, 7.0)]).unwrap();
    assert_eq!(insert(&mut index, 1), 7.0);
    index.update_priorities(&[(0, 3.0), (1, 2.0)]).unwrap();
    assert_eq!(insert(&mut index, 2), 3.0, "now, and not ever");
    index.delete(&[0, 2]);
    assert_eq!(insert(&mut index, 3), 2.0);
    index.delete(&[1, 3]);
    assert_eq!(insert(&mut index, 4), FIRST_PRIORITY);
}
