//! A daemon that dies between any two stores: what is taken over is as it was before, or as it would have been after.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::*;
use crate::replay::items::{Death, SlotState};
use crate::replay::limiter::Totals;
use crate::replay::settings::Staleness;

const SLOTS: u32 = 7;

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(Option<f64>, Option<u64>),
    Sample,
    Release,
    Update(u64, f64),
    Delete(u64),
    Version(u64),
    Reset,
}

fn any_step() -> impl Strategy<Value = Step> {
    let priority = || (0..5_i32).prop_map(f64::from);
    prop_oneof![
        6 => (proptest::option::of(priority()), proptest::option::of(0..6_u64))
            .prop_map(|(priority, version)| Step::Insert(priority, version)),
        4 => Just(Step::Sample),
        2 => Just(Step::Release),
        3 => (0..20_u64, priority()).prop_map(|(key, priority)| Step::Update(key, priority)),
        2 => (0..20_u64).prop_map(Step::Delete),
        1 => (0..8_u64).prop_map(Step::Version),
        1 => Just(Step::Reset),
    ]
}

/// What a daemon that takes over finds.
#[derive(PartialEq, Debug)]
struct Found {
    /// Slot, key, priority, version, times.
    items: BTreeSet<(u32, u64, u64, Option<u64>, u32)>,
    totals: Totals,
    inserted: u64,
    version: Option<u64>,
    gone: BTreeSet<(u32, u64)>,
    /// Which item is sampled next, and which after it is gone.
    order: Vec<u64>,
    /// Of a prioritized table's, those that weigh nothing: they come last, each as likely as another.
    weightless: BTreeSet<u64>,
}

/// Beside an index, what its daemon knows.
struct Daemon {
    spec: ReplaySpec,
    index: Index,
    next_key: u64,
    held: Vec<(u32, u64)>,
}

impl Daemon {
    fn free_slot(&self) -> Option<u32> {
        (0..SLOTS).find(|&slot| match self.index.state(slot).unwrap() {
            SlotState::Stored(_) => false,
            SlotState::Gone(_) => !self.held.iter().any(|&(held, _)| held == slot),
            SlotState::Empty => true,
        })
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(priority, version) => {
                if let Some(slot) = self.free_slot() {
                    let arrival = Arrival { key: self.next_key, priority, version };
                    self.next_key += 1;
                    self.index.insert(slot, &arrival, NOW, &mut seeded(1)).unwrap();
                }
            }
            Step::Sample => {
                let mut picks = Vec::new();
                self.index.sample(1, NOW, &mut seeded(1), &mut picks);
                self.held.extend(picks.iter().map(|pick| (pick.slot, pick.key)));
            }
            Step::Release => {
                if let Some((slot, _)) = self.held.pop() {
                    self.index.release(&[slot]).unwrap();
                }
            }
            Step::Update(key, priority) => {
                self.index.update_priorities(&[(key, priority)]).unwrap();
            }
            Step::Delete(key) => {
                self.index.delete(&[key]);
            }
            Step::Version(version) => {
                self.index.set_version(version);
            }
            Step::Reset => self.index.reset(),
        }
    }

    /// A daemon that knows as much, over a copy of the words.
    fn copy(&self) -> Self {
        let index = rebuilt(&self.spec, self.index.copy_words(), &self.held);
        Self { spec: self.spec.clone(), index, next_key: self.next_key, held: self.held.clone() }
    }
}

fn rebuilt(spec: &ReplaySpec, words: Words, held: &[(u32, u64)]) -> Index {
    Index::rebuild(spec, SLOTS, words, held.iter().copied(), &mut seeded(1)).unwrap()
}

/// `beside` is a slot that an insert was under way to: what was there before may be forgotten.
fn found(spec: &ReplaySpec, mut index: Index, beside: Option<u32>) -> Found {
    let mut items = BTreeSet::new();
    let mut gone = BTreeSet::new();
    for slot in 0..SLOTS {
        match index.state(slot).unwrap() {
            SlotState::Stored(key) => {
                let record = index.item(key).unwrap();
                items.insert((slot, key, record.priority.to_bits(), record.version, record.times_sampled));
            }
            SlotState::Gone(key) if Some(slot) != beside => {
                gone.insert((slot, key));
            }
            SlotState::Gone(_) | SlotState::Empty => {}
        }
    }
    let (totals, inserted, version) = (index.totals(), index.inserted(), index.version());
    let mut order = Vec::new();
    while let Some(&key) = sampled(&mut index, 1, &mut seeded(1)).first() {
        order.push(key);
        index.delete(&[key]);
    }
    let is_weightless = |key: &u64| items.iter().any(|item| item.1 == *key && f64::from_bits(item.2) == 0.0);
    let first = match spec.sampler {
        Selector::Prioritized { .. } => order.iter().position(is_weightless).unwrap_or(order.len()),
        _ => order.len(),
    };
    let weightless = order.split_off(first).into_iter().collect();
    Found { items, totals, inserted, version, gone, order, weightless }
}

proptest! {
    #![proptest_config(crate::cases::cases(400))]

    #[test]
    fn a_change_is_made_or_not_made(
        sampler in prop_oneof![Just(Selector::Fifo), Just(Selector::Lifo), Just(prioritized(1.0))],
        remover in prop_oneof![Just(Selector::Fifo), Just(Selector::MinHeap)],
        (max_times_sampled, max) in (0..3_u32, proptest::option::of(0..4_u64)),
        history in proptest::collection::vec(any_step(), 0..25),
        last in any_step(),
    ) {
        let staleness = Staleness { max, ..Staleness::default() };
        let spec = ReplaySpec { max_times_sampled, staleness, ..spec(sampler, remover, 4) };
        let mut daemon = Daemon { index: index(&spec, SLOTS), spec, next_key: 0, held: Vec::new() };
        history.into_iter().for_each(|step| daemon.step(step));

        let slot = daemon.free_slot().filter(|_| matches!(last, Step::Insert(..)));
        let before = found(&daemon.spec, rebuilt(&daemon.spec, daemon.index.copy_words(), &daemon.held), slot);
        let mut survivor = daemon.copy();
        survivor.step(last);
        let after = found(&daemon.spec, rebuilt(&daemon.spec, survivor.index.copy_words(), &daemon.held), slot);
        for stores in 0.. {
            let mut victim = daemon.copy();
            victim.index.dies_after(stores);
            let outcome = catch_unwind(AssertUnwindSafe(|| victim.step(last)));
            let survived = match outcome {
                Ok(()) => true,
                Err(payload) if payload.is::<Death>() => false,
                Err(payload) => std::panic::resume_unwind(payload),
            };
            let taken_over = found(&daemon.spec, rebuilt(&daemon.spec, victim.index.into_words(), &daemon.held), slot);
            prop_assert!(
                taken_over == before || taken_over == after,
                "after {stores} stores of {last:?}:\n{taken_over:?}\nbefore {before:?}\nafter {after:?}"
            );
            if survived {
                prop_assert_eq!(taken_over, after);
                break;
            }
        }
    }
}

#[test]
fn leases_of_what_is_not_there_are_no_leases() {
    let spec = spec(Selector::Fifo, Selector::Fifo, 4);
    let mut index = index(&spec, SLOTS);
    index.insert(0, &arrival(10, 1.0), NOW, &mut seeded(1)).unwrap();
    index.insert(1, &arrival(11, 1.0), NOW, &mut seeded(1)).unwrap();
    index.delete(&[11]);
    let leased = [(0, 10), (0, 10), (0, 3), (1, 11), (2, 0), (99, 10)];
    let mut index = Index::rebuild(&spec, SLOTS, index.into_words(), leased, &mut seeded(1)).unwrap();
    assert_eq!((index.leased(), index.lingering()), (3, 1));
    assert_eq!(index.drain_freed().count(), 0);
    index.release(&[1]).unwrap();
    assert_eq!(index.drain_freed().map(|freed| freed.key).collect::<Vec<_>>(), [11]);
    index.release(&[0, 0]).unwrap();
    assert!(index.release(&[0]).is_err());
}
