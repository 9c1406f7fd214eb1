//! What is refused has changed nothing.

use super::*;
use crate::replay::index::{Freed, IndexError, InsertError, Inserted, NotLeased, PriorityError, Updated};
use crate::replay::items::{Cause, MAX_KEY, SlotState};
use crate::replay::limiter::Totals;

const NONE_PRIORITIES: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -f64::MIN_POSITIVE];

#[test]
fn a_priority_that_is_none_is_refused_by_name_before_anything_changes() {
    let mut index = filled(&spec(prioritized(1.0), Selector::Fifo, 3), &[1.0, 2.0, 3.0]);
    for number in NONE_PRIORITIES {
        let error = index.insert(3, &arrival(77, number), NOW, &mut seeded(1)).unwrap_err();
        assert!(matches!(error, InsertError::Priority { key: 77, .. }), "{error}");
        let error = index.update_priorities(&[(0, 9.0), (1, number), (2, 9.0)]).unwrap_err();
        assert!(matches!(error, PriorityError { key: 1, number: 1, .. }), "{error}");
    }
    assert_eq!(index.totals(), Totals { inserts: 3, samples: 0, deletes: 0 });
    assert_eq!([0, 1, 2].map(|key| index.item(key).unwrap().priority), [1.0, 2.0, 3.0]);
    assert_eq!(index.state(3), Some(SlotState::Empty));
    // It can be put aside, which counts it and frees its slot.
    index.discard(3, 77, NOW).unwrap();
    assert_eq!(index.totals(), Totals { inserts: 4, samples: 0, deletes: 1 });
    assert_eq!(index.drain_freed().collect::<Vec<_>>(), [Freed { slot: 3, key: 77 }]);
    assert_eq!(index.removed(Cause::Deleted), 1);
}

#[test]
fn a_negative_zero_is_a_zero() {
    let mut index = filled(&spec(Selector::MinHeap, Selector::Fifo, 3), &[0.0, -0.0]);
    index.update_priorities(&[(0, -0.0)]).unwrap();
    assert_eq!(sampled(&mut index, 1, &mut seeded(1)), [1], "item 0 was set last");
    assert!(index.item(0).unwrap().priority.is_sign_positive());
}

#[test]
fn a_slot_that_is_taken_or_none_is_refused() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 3), &[1.0]);
    let insert = |index: &mut Index, slot, key| index.insert(slot, &arrival(key, 1.0), NOW, &mut seeded(1));
    assert_eq!(insert(&mut index, 0, 0), Ok(Inserted::Known));
    assert_eq!(insert(&mut index, 0, 5), Err(InsertError::Occupied { key: 5, slot: 0, other: 0 }));
    assert_eq!(insert(&mut index, 1, 0), Err(InsertError::Twice { key: 0, slot: 1, other: 0 }));
    assert_eq!(insert(&mut index, 11, 5), Err(InsertError::Slot { key: 5, slot: 11, slots: 11 }));
    assert_eq!(insert(&mut index, 1, MAX_KEY + 1), Err(InsertError::Key { key: MAX_KEY + 1 }));
    // Gone, but leased.
    let mut picks = Vec::new();
    index.sample(1, NOW, &mut seeded(1), &mut picks);
    index.delete(&[0]);
    assert_eq!(insert(&mut index, 0, 5), Err(InsertError::Occupied { key: 5, slot: 0, other: 0 }));
    assert_eq!(insert(&mut index, 0, 0), Ok(Inserted::Known), "also when it is gone");
    assert_eq!(index.discard(0, 5, NOW), Err(InsertError::Occupied { key: 5, slot: 0, other: 0 }));
    assert_eq!((index.lingering(), index.drain_freed().count()), (1, 0));
    index.release(&[0]).unwrap();
    assert_eq!((index.lingering(), index.drain_freed().count()), (0, 1));
    assert_eq!(insert(&mut index, 0, 5), Ok(Inserted::Stored));
    assert_eq!(index.totals(), Totals { inserts: 2, samples: 1, deletes: 1 });
}

#[test]
fn a_lease_that_is_not_there_cannot_be_given_back() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 3), &[1.0]);
    assert_eq!(sampled(&mut index, 2, &mut seeded(1)), [0, 0]);
    assert_eq!(index.release(&[0, 0, 0]), Err(NotLeased { slot: 0 }));
    assert_eq!(index.leased(), 0);
    assert_eq!(index.release(&[u32::MAX]), Err(NotLeased { slot: u32::MAX }));
}

#[test]
fn keys_that_are_gone_are_skipped_and_counted() {
    let mut index = filled(&spec(Selector::Fifo, Selector::Fifo, 2), &[1.0, 2.0, 3.0]);
    // Item 0 was evicted, and its slot holds another by now.
    index.drain_freed();
    index.insert(0, &arrival(9, 4.0), NOW, &mut seeded(1)).unwrap();
    let updated = index.update_priorities(&[(0, 50.0), (9, 60.0), (1, 70.0), (u64::MAX, 80.0)]).unwrap();
    assert_eq!(updated, Updated { applied: 1, skipped: 3 });
    assert_eq!(index.item(9).unwrap().priority, 60.0);
    assert_eq!(index.delete(&[0, 2, 2, u64::MAX]), Updated { applied: 1, skipped: 3 });
    assert_eq!(index.skipped(), 3);
}

#[test]
fn a_table_needs_more_slots_than_items() {
    let spec = spec(Selector::Fifo, Selector::Fifo, 3);
    for slots in [0, 3, u32::MAX] {
        let error = Index::create(&spec, slots, Words::heap(4096)).map(|_| ()).unwrap_err();
        assert_eq!(error, IndexError::Slots { slots, max_size: 3 });
    }
}
