//! The index against a plain model, with any sampler, remover and limiter, and a daemon that is replaced at any time.
//!
//! The model is a list of items in the order in which they came. What leaves nothing to chance it foretells; of what does it
//! says how likely it is, and the index must say the same and never choose what cannot be.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::replay::index::{Inserted, Pick};
use crate::replay::items::Cause;
use crate::replay::limiter::{Limiter, Reason, Totals};
use crate::replay::settings::Staleness;

const SLOTS: u32 = 16;

#[derive(Clone, Debug)]
struct Item {
    key: u64,
    slot: u32,
    priority: f64,
    version: Option<u64>,
    times: u32,
    inserted_at: Duration,
    turn: u64,
}

struct Model {
    spec: ReplaySpec,
    /// The oldest first.
    items: Vec<Item>,
    leases: BTreeMap<u32, (u64, u32)>,
    totals: Totals,
    removed: [u64; Cause::COUNT],
    version: Option<u64>,
    turn: u64,
    /// Slots that nobody has, and what was told to be freed.
    free: BTreeSet<u32>,
    freed: BTreeSet<(u32, u64)>,
}

impl Model {
    fn weight(&self, selector: Selector, decay: f64, item: &Item) -> f64 {
        let newest = self.items.iter().map(|item| item.version.unwrap_or(0)).max().unwrap_or(0);
        let lag = (newest - item.version.unwrap_or(0)) as f64;
        match selector {
            Selector::Prioritized { .. } if item.priority == 0.0 => 0.0,
            Selector::Prioritized { exponent } => item.priority.powf(exponent.0) * decay.powf(lag),
            _ => 1.0,
        }
    }

    /// How likely each item is to be chosen.
    fn chances(&self, selector: Selector, decay: f64) -> Vec<f64> {
        let by = |better: &dyn Fn(&Item, &Item) -> bool| {
            let mut best = 0;
            for i in 1..self.items.len() {
                if better(&self.items[i], &self.items[best]) {
                    best = i;
                }
            }
            (0..self.items.len()).map(|i| if i == best { 1.0 } else { 0.0 }).collect()
        };
        match selector {
            Selector::Fifo => by(&|_, _| false),
            Selector::Lifo => by(&|_, _| true),
            Selector::MinHeap => by(&|a, b| (a.priority, a.turn) < (b.priority, b.turn)),
            Selector::MaxHeap => by(&|a, b| (-a.priority, a.turn) < (-b.priority, b.turn)),
            Selector::Uniform | Selector::Prioritized { .. } => {
                let mut weights: Vec<f64> =
                    self.items.iter().map(|item| self.weight(selector, decay, item)).collect();
                if weights.iter().all(|&weight| weight == 0.0) {
                    weights.fill(1.0);
                }
                let total: f64 = weights.iter().sum();
                weights.into_iter().map(|weight| weight / total).collect()
            }
        }
    }

    fn sampling(&self) -> Vec<f64> {
        self.chances(self.spec.sampler, self.spec.staleness.decay.map_or(1.0, |decay| decay.0))
    }

    fn is_stale(&self, version: Option<u64>) -> bool {
        let lag = self.version.unwrap_or(0).saturating_sub(version.unwrap_or(0));
        self.spec.staleness.max.is_some_and(|max| lag > max)
    }

    fn remove(&mut self, at: usize, cause: Cause) {
        let item = self.items.remove(at);
        self.totals.deletes += 1;
        self.removed[cause as usize] += 1;
        if !self.leases.contains_key(&item.slot) {
            self.free(item.slot, item.key);
        }
    }

    fn free(&mut self, slot: u32, key: u64) {
        self.free.insert(slot);
        self.freed.insert((slot, key));
    }

    fn remove_stale(&mut self) -> u64 {
        let mut removed = 0;
        while let Some(at) = self.items.iter().position(|item| self.is_stale(item.version)) {
            self.remove(at, Cause::Stale);
            removed += 1;
        }
        removed
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { priority: Option<f64>, version: Option<u64> },
    Sample { n: u32 },
    Release { which: usize },
    Update { whiches: Vec<(usize, f64)> },
    Delete { which: usize },
    Version { version: u64 },
    Reset,
    Replace,
}

fn any_priority() -> impl Strategy<Value = f64> {
    // Ties and zeros are likely.
    prop_oneof![Just(0.0), (1..4_i32).prop_map(f64::from), 0.001..100.0]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (proptest::option::of(any_priority()), proptest::option::weighted(0.8, 0..12_u64))
            .prop_map(|(priority, version)| Step::Insert { priority, version }),
        6 => (1..5_u32).prop_map(|n| Step::Sample { n }),
        6 => any::<usize>().prop_map(|which| Step::Release { which }),
        3 => proptest::collection::vec((any::<usize>(), any_priority()), 1..4)
            .prop_map(|whiches| Step::Update { whiches }),
        1 => any::<usize>().prop_map(|which| Step::Delete { which }),
        1 => (0..16_u64).prop_map(|version| Step::Version { version }),
        1 => prop_oneof![9 => Just(Step::Replace), 1 => Just(Step::Reset)],
    ]
}

fn any_selector() -> impl Strategy<Value = Selector> {
    prop_oneof![
        Just(Selector::Fifo),
        Just(Selector::Lifo),
        Just(Selector::Uniform),
        prop_oneof![Just(0.0), Just(1.0), 0.1..2.0_f64].prop_map(prioritized),
        Just(Selector::MinHeap),
        Just(Selector::MaxHeap),
    ]
}

fn any_spec() -> impl Strategy<Value = ReplaySpec> {
    let limiter = prop_oneof![
        Just("min-size:1"),
        Just("min-size:3"),
        Just("ratio:2:2:4"),
        Just("ratio:0.5:1:-1:3"),
        Just("queue:5"),
        Just("stack:4"),
    ];
    let staleness = (proptest::option::of(0..6_u64), proptest::option::of(0.3..1.0_f64));
    (any_selector(), any_selector(), 5..8_u32, 0..4_u32, limiter, staleness).prop_map(
        |(sampler, remover, max_size, max_times_sampled, limiter, (max, decay))| {
            let decay = decay.map(Real).filter(|_| matches!(sampler, Selector::Prioritized { .. }));
            let staleness = Staleness { max, decay, admission: None };
            let limiter = limiter.parse().unwrap();
            let spec = ReplaySpec { max_times_sampled, staleness, ..spec(sampler, remover, max_size) };
            match limiter {
                RateLimiter::Queue(_) => ReplaySpec {
                    sampler: Selector::Fifo,
                    remover: Selector::Fifo,
                    max_times_sampled: 1,
                    staleness: Staleness { max, ..Staleness::default() },
                    limiter,
                    ..spec
                },
                RateLimiter::Stack(_) => ReplaySpec {
                    sampler: Selector::Lifo,
                    remover: Selector::Lifo,
                    max_times_sampled: 1,
                    staleness: Staleness { max, ..Staleness::default() },
                    limiter,
                    ..spec
                },
                _ => ReplaySpec { limiter, ..spec },
            }
        },
    )
}

struct Bench {
    index: Option<Index>,
    model: Model,
    rng: fastrand::Rng,
    now: Duration,
    next_key: u64,
    /// The slots of the leases that are out.
    held: Vec<u32>,
    limit: u64,
    limit_before_reset: u64,
}

impl Bench {
    fn new(spec: ReplaySpec, seed: u64) -> Self {
        let index = index(&spec, SLOTS);
        let model = Model {
            spec,
            items: Vec::new(),
            leases: BTreeMap::new(),
            totals: Totals::default(),
            removed: [0; Cause::COUNT],
            version: None,
            turn: 0,
            free: (0..SLOTS).collect(),
            freed: BTreeSet::new(),
        };
        let rng = fastrand::Rng::with_seed(seed);
        Self {
            index: Some(index),
            model,
            rng,
            now: NOW,
            next_key: 0,
            held: Vec::new(),
            limit: 0,
            limit_before_reset: 0,
        }
    }

    fn index(&mut self) -> &mut Index {
        self.index.as_mut().unwrap()
    }

    fn step(&mut self, step: &Step) {
        self.now += Duration::from_millis(3);
        match step {
            Step::Insert { priority, version } => self.insert(*priority, *version),
            Step::Sample { n } => self.sample(*n),
            Step::Release { which } => self.release(*which),
            Step::Update { whiches } => self.update(whiches),
            Step::Delete { which } => {
                let key = self.any_key(*which);
                let at = self.model.items.iter().position(|item| item.key == key);
                let applied = self.index().delete(&[key]).applied;
                assert_eq!(applied, at.is_some().into());
                if let Some(at) = at {
                    self.model.remove(at, Cause::Deleted);
                }
            }
            Step::Version { version } => {
                let removed = self.index().set_version(*version);
                self.model.version = Some(*version);
                assert_eq!(removed, self.model.remove_stale());
            }
            Step::Reset => {
                self.limit_before_reset = self.index().insert_limit();
                self.index().reset();
                while !self.model.items.is_empty() {
                    self.model.remove(0, Cause::Reset);
                }
                self.model.totals = Totals::default();
            }
            Step::Replace => self.replace(),
        }
    }

    /// A key that is there, was there, or will be.
    fn any_key(&self, which: usize) -> u64 {
        (which as u64) % (self.next_key + 1)
    }

    fn insert(&mut self, priority: Option<f64>, version: Option<u64>) {
        let limiter = Limiter::new(&self.model.spec.limiter);
        if !limiter.can_insert(&self.model.totals, 1) {
            return; // a worker would wait
        }
        let Some(&slot) = self.model.free.first() else { return };
        self.model.free.remove(&slot);
        // Not in the order of the slots, as holes are filled later than they are claimed.
        let key = self.next_key;
        self.next_key += 1;
        let (now, mut rng) = (self.now, self.rng.fork());
        let arrival = Arrival { key, priority, version };
        let inserted = self.index().insert(slot, &arrival, now, &mut || rng.u64(..)).unwrap();
        let again = self.index().insert(slot, &arrival, now, &mut || 0);
        assert_eq!(again, Ok(Inserted::Known));

        let model = &mut self.model;
        let highest = model.items.iter().map(|item| item.priority).fold(0.0, f64::max);
        let highest = if model.items.is_empty() { 1.0 } else { highest };
        model.totals.inserts += 1;
        // Whatever is set, a turn is taken, and one that is stale takes it in vain.
        model.turn += 1;
        let turn = model.turn;
        if model.is_stale(version) {
            assert_eq!(inserted, Inserted::Stale);
            model.totals.deletes += 1;
            model.removed[Cause::Stale as usize] += 1;
            model.free(slot, key);
            return;
        }
        assert_eq!(inserted, Inserted::Stored);
        let priority = priority.unwrap_or(highest);
        model.items.push(Item { key, slot, priority, version, times: 0, inserted_at: now, turn });
        if model.items.len() as u32 > model.spec.max_size {
            let chances = model.chances(model.spec.remover, 1.0);
            let index = self.index.as_mut().unwrap();
            let gone: Vec<usize> = (0..self.model.items.len())
                .filter(|&at| index.item(self.model.items[at].key).is_none())
                .collect();
            assert_eq!(gone.len(), 1, "one makes room");
            assert!(chances[gone[0]] > 0.0, "the remover never chooses it");
            self.model.remove(gone[0], Cause::Evicted);
        }
    }

    fn sample(&mut self, n: u32) {
        let (now, mut rng) = (self.now, self.rng.fork());
        let mut picks = Vec::new();
        let reason = self.index().sample(n, now, &mut || rng.u64(..), &mut picks);
        let limiter = Limiter::new(&self.model.spec.limiter);
        for pick in &picks {
            assert!(limiter.can_sample(&self.model.totals, 1));
            self.check_pick(pick);
        }
        assert_eq!(reason.is_none(), picks.len() == n as usize);
        if let Some(reason) = reason {
            assert!(!limiter.can_sample(&self.model.totals, 1));
            assert!(!matches!(reason, Reason::Leases(_)));
        }
    }

    fn check_pick(&mut self, pick: &Pick) {
        let now = self.now;
        let chances = self.model.sampling();
        let model = &mut self.model;
        let size = model.items.len() as u32;
        let at = model.items.iter().position(|item| item.key == pick.key).expect("an item that is there");
        assert!((pick.probability / chances[at] - 1.0).abs() < 1e-9, "{} {}", pick.probability, chances[at]);
        let item = &mut model.items[at];
        item.times += 1;
        let expected = Pick {
            slot: item.slot,
            times_sampled: item.times,
            key: item.key,
            probability: pick.probability,
            priority: item.priority,
            table_size: size,
            version: item.version,
            age: now - item.inserted_at,
        };
        assert_eq!(*pick, expected);
        assert!(!self.model.is_stale(pick.version));
        self.model.leases.entry(pick.slot).or_insert((pick.key, 0)).1 += 1;
        self.held.push(pick.slot);
        self.model.totals.samples += 1;
        if self.model.spec.max_times_sampled != 0 && pick.times_sampled == self.model.spec.max_times_sampled {
            self.model.remove(at, Cause::Exhausted);
        }
    }

    fn release(&mut self, which: usize) {
        if self.held.is_empty() {
            return;
        }
        let slot = self.held.swap_remove(which % self.held.len());
        self.index().release(&[slot]).unwrap();
        let (key, leases) = self.model.leases.get_mut(&slot).unwrap();
        *leases -= 1;
        if *leases == 0 {
            let key = *key;
            self.model.leases.remove(&slot);
            if !self.model.items.iter().any(|item| item.slot == slot) {
                self.model.free(slot, key);
            }
        }
    }

    fn update(&mut self, whiches: &[(usize, f64)]) {
        let updates: Vec<(u64, f64)> =
            whiches.iter().map(|&(which, priority)| (self.any_key(which), priority)).collect();
        let updated = self.index().update_priorities(&updates).unwrap();
        let mut applied = 0;
        for (key, priority) in updates {
            if let Some(item) = self.model.items.iter_mut().find(|item| item.key == key) {
                self.model.turn += 1;
                (item.priority, item.turn) = (priority, self.model.turn);
                applied += 1;
            }
        }
        assert_eq!((updated.applied, updated.skipped), (applied, whiches.len() as u64 - applied));
    }

    /// Another daemon takes over.
    fn replace(&mut self) {
        let words = self.index.take().unwrap().into_words();
        let leased: Vec<(u32, u64)> =
            self.held.iter().map(|slot| (*slot, self.model.leases[slot].0)).collect();
        let mut rng = self.rng.fork();
        let index = Index::rebuild(&self.model.spec, SLOTS, words, leased, &mut || rng.u64(..));
        let mut index = index.unwrap();
        // It tells again of everything that is free, and was filled before.
        for freed in index.drain_freed() {
            assert!(self.model.free.contains(&freed.slot));
        }
        self.index = Some(index);
        // What it knows only of itself, the ring knows from its limit.
        (self.limit, self.limit_before_reset) = (0, 0);
    }

    fn check(&mut self) {
        let freed: BTreeSet<(u32, u64)> =
            self.index().drain_freed().map(|freed| (freed.slot, freed.key)).collect();
        assert_eq!(freed, std::mem::take(&mut self.model.freed));
        let (limit, before) = (self.index().insert_limit(), self.limit);
        assert!(limit >= before, "a limit that falls");
        self.limit = limit;
        let limiter = Limiter::new(&self.model.spec.limiter);
        let index = self.index.as_mut().unwrap();
        let model = &self.model;
        assert_eq!((index.totals(), index.size() as usize), (model.totals, model.items.len()));
        let before_reset = index.inserted() - model.totals.inserts;
        let expected = before_reset.saturating_add(limiter.insert_limit(&model.totals));
        assert_eq!(limit, expected.max(self.limit_before_reset));
        let causes = [Cause::Evicted, Cause::Exhausted, Cause::Deleted, Cause::Stale, Cause::Reset];
        assert_eq!(causes.map(|cause| index.removed(cause)), model.removed);
        assert_eq!(index.leased(), self.held.len() as u64);
        let stored: BTreeSet<u32> = model.items.iter().map(|item| item.slot).collect();
        let lingering = model.leases.keys().filter(|slot| !stored.contains(slot)).count();
        assert_eq!(index.lingering() as usize, lingering);
        for item in &model.items {
            let record = index.item(item.key).expect("an item that is there");
            assert_eq!(record.priority.to_bits(), item.priority.to_bits());
            assert_eq!((record.version, record.times_sampled), (item.version, item.times));
        }
        let least = model.sampling().into_iter().filter(|&chance| chance > 0.0).reduce(f64::min);
        match (index.least_probability(), least) {
            (Some(least), Some(expected)) => assert!((least / expected - 1.0).abs() < 1e-9),
            (least, expected) => assert_eq!(least, expected),
        }
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(1_500))]

    /// 120,000 steps in all.
    #[test]
    fn the_index_is_a_list_of_items(
        spec in any_spec(),
        seed in any::<u64>(),
        steps in proptest::collection::vec(any_step(), 1..160),
    ) {
        let mut bench = Bench::new(spec, seed);
        for step in &steps {
            bench.step(step);
            bench.check();
        }
    }
}
