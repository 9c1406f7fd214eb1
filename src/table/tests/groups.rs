//! Groups held against a plain model, under random schedules: who still has to read what, and what may be written again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::ids::{BlockIndex, ClientId, LeaseToken, MemberId};
use crate::ring::claim::{Attempt, Claimer};
use crate::ring::commit::commit;
use crate::ring::control::{Control, Geometry};
use crate::ring::ready::{Readiness, look};
use crate::ring::record::{ClientPage, PAGE_BYTES};
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::table::action::Action;
use crate::table::ending::MoveSamples;
use crate::table::group::{DEFAULT_GROUP, GroupError};
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::queue::{Queue, Tokens};
use crate::wire::message::{Grant, GroupFrom};

const SLOTS: u32 = 3;
const NAMES: [&str; 4] = [DEFAULT_GROUP, "a", "b", "c"];
const PREFETCH: u16 = 2;

/// Nothing ends here, so nothing moves.
struct NoMoves;

impl MoveSamples for NoMoves {
    fn moves_a_turn(&self) -> usize {
        1
    }

    fn move_sample(&mut self, _: BlockIndex, _: u32, _: u32) -> std::io::Result<()> {
        unreachable!("the table does not end")
    }
}

/// The plain model of one group.
#[derive(Default)]
struct Plain {
    /// Batches that it has to read, begun or not.
    todo: BTreeSet<u64>,
    most_lag: Option<u32>,
    skipped: u64,
    batches: u64,
}

struct Side {
    group: &'static str,
    grants: Vec<Grant>,
}

struct Bench {
    queue: Option<Queue>,
    page: Arc<ClientPage>,
    claimer: Claimer,
    /// Which sample is in each slot.
    data: Vec<u64>,
    written: u64,
    groups: BTreeMap<&'static str, Plain>,
    readers: BTreeMap<MemberKey, Side>,
    /// Batches below it are published.
    published: u64,
    /// The daemon has looked since something was written: what nobody wants and became full is gone.
    is_settled: bool,
    next_client: u64,
}

fn tokens(seed: u64) -> Tokens {
    let mut last = u128::from(seed) << 64;
    Box::new(move || {
        last += 1;
        Ok(LeaseToken(last.to_le_bytes()))
    })
}

const WRITER: MemberKey = MemberKey { client: ClientId(1), member: MemberId(1) };

impl Bench {
    fn new(blocks: u32) -> Self {
        let geometry = Geometry::new(SLOTS, blocks, 2, 2).unwrap();
        let control = Arc::new(Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap());
        let words = Words::heap(Ledger::bytes(&geometry, TableKind::Queue));
        let ledger = Ledger::create(words, geometry, TableKind::Queue);
        let mut queue = Queue::create(control, ledger, blocks, tokens(1));
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap());
        queue.attach_writer(WRITER, page.clone(), 0);
        let mut bench = Self {
            queue: Some(queue),
            page,
            claimer: Claimer::new(blocks),
            data: vec![u64::MAX; (SLOTS * blocks) as usize],
            written: 0,
            groups: [(DEFAULT_GROUP, Plain::default())].into(),
            readers: BTreeMap::new(),
            published: 0,
            is_settled: true,
            next_client: 2,
        };
        bench.check();
        bench
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Queue, &mut Vec<Action>) -> T) -> T {
        let mut actions = Vec::new();
        let result = act(self.queue.as_mut().unwrap(), &mut actions);
        for action in actions {
            match action {
                Action::Grant { reader, grants } => {
                    self.readers.get_mut(&reader).unwrap().grants.extend(grants);
                }
                other => panic!("nothing ends: {other:?}"),
            }
        }
        result
    }

    /// Writes one sample, if there is room.
    fn write(&mut self) {
        let control = self.queue.as_ref().unwrap().intake().control().clone();
        let record = self.page.record(0).unwrap();
        let Attempt::Claimed(claim) = self.claimer.try_claim(&control, record, 1).unwrap() else { return };
        assert_eq!(claim.position.0, self.written);
        let at = claim.block.index() * SLOTS as usize + claim.slot as usize;
        // What is there was read by everybody who had to.
        let seq = self.data[at] / u64::from(SLOTS);
        assert!(self.groups.values().all(|group| !group.todo.contains(&seq)), "batch {seq} is written over");
        self.data[at] = self.written;
        commit(&control, record, &claim).unwrap();
        self.written += 1;
        self.is_settled = false;
    }

    fn attach_reader(&mut self, group: &'static str) {
        let key = MemberKey { client: ClientId(self.next_client), member: MemberId(1) };
        self.next_client += 1;
        let there = self.groups.contains_key(group);
        self.readers.insert(key, Side { group, grants: Vec::new() });
        let attached = self.with(|queue, actions| queue.attach_reader(key, 0, PREFETCH, group, actions));
        assert_eq!(attached.is_ok(), there);
        if !there {
            self.readers.remove(&key);
        }
    }

    /// The reader's first batch, if it is complete; it is given back, or the reader dies with it.
    fn read(&mut self, reader: usize, dies: bool) {
        let Some((&key, side)) = self.readers.iter_mut().nth(reader) else { return };
        let Some(&grant) = side.grants.first() else { return };
        let group = side.group;
        let control = self.queue.as_ref().unwrap().intake().control().clone();
        let block = BlockIndex::new(grant.block, control.geometry().max_blocks()).unwrap();
        if look(&control, block, grant.seq) != Readiness::Complete(SLOTS) {
            return;
        }
        let first = block.index() * SLOTS as usize;
        let expected: Vec<u64> =
            (0..u64::from(SLOTS)).map(|slot| grant.seq.0 * u64::from(SLOTS) + slot).collect();
        assert_eq!(self.data[first..first + SLOTS as usize], expected);
        assert!(self.groups[group].todo.contains(&grant.seq.0), "it has read batch {} before", grant.seq);
        if dies {
            self.readers.remove(&key);
            assert!(self.with(|queue, actions| queue.detach(key, actions)));
            return;
        }
        side.grants.remove(0);
        let plain = self.groups.get_mut(group).unwrap();
        plain.todo.remove(&grant.seq.0);
        plain.batches += 1;
        self.with(|queue, actions| queue.release(key, &[grant.token], actions)).unwrap();
    }

    fn add_group(&mut self, name: &'static str, from: GroupFrom, most_lag: Option<u32>) {
        let (before, there) = (self.published, self.live());
        let added = self.with(|queue, actions| queue.add_group(name, from, most_lag, actions));
        if self.groups.contains_key(name) {
            assert_eq!(added, Err(GroupError::Exists(name.into())));
            return;
        }
        assert_eq!(added, Ok(()));
        // All that is still there: `check` says what that is.
        let begun = self.written.div_ceil(u64::from(SLOTS));
        let oldest = there.into_iter().chain(begun..before);
        let todo = oldest.filter(|&seq| from == GroupFrom::Oldest || seq >= begun).collect();
        self.groups.insert(name, Plain { todo, most_lag, ..Plain::default() });
    }

    fn remove_group(&mut self, name: &'static str) {
        let readers = self.readers.values().filter(|side| side.group == name).count();
        let may = self.groups.contains_key(name) && readers == 0 && self.groups.len() > 1;
        let removed = self.with(|queue, actions| queue.remove_group(name, actions));
        assert_eq!(removed.is_ok(), may, "{removed:?}");
        if may {
            self.groups.remove(name);
        }
    }

    fn rewind(&mut self, name: &'static str) {
        let there: BTreeSet<u64> = self.live();
        let again = self.with(|queue, actions| queue.rewind_group(name, actions));
        let Some(plain) = self.groups.get_mut(name) else {
            assert!(again.is_err());
            return;
        };
        let more: Vec<u64> = there.difference(&plain.todo).copied().collect();
        match plain.most_lag {
            None => assert_eq!(again, Ok(more.len() as u64)),
            // Some may be skipped at once.
            Some(_) => assert!(again.unwrap() <= more.len() as u64),
        }
        plain.todo.extend(more);
    }

    fn live(&self) -> BTreeSet<u64> {
        self.queue.as_ref().unwrap().intake().live.keys().map(|seq| seq.0).collect()
    }

    fn tick(&mut self) {
        self.with(|queue, actions| queue.tick(&mut NoMoves, actions));
        self.is_settled = true;
    }

    /// Another daemon takes over; the clients attach again by their keys.
    fn replace_daemon(&mut self) {
        let queue = self.queue.take().unwrap();
        let control = queue.intake().control().clone();
        let geometry = *control.geometry();
        let ledger = Ledger::open(queue.into_ledger().into_words(), geometry, TableKind::Queue).unwrap();
        self.queue = Some(Queue::rebuild(control, ledger, tokens(self.next_client)).unwrap());
        self.next_client += 1;
        self.queue.as_mut().unwrap().attach_writer(WRITER, self.page.clone(), 0);
        let readers: Vec<_> = self.readers.iter().map(|(&key, side)| (key, side.group)).collect();
        for (key, group) in readers {
            self.with(|queue, actions| queue.attach_reader(key, 0, PREFETCH, group, actions)).unwrap();
        }
    }

    /// The machine and the model say the same.
    fn check(&mut self) {
        let queue = self.queue.as_ref().unwrap();
        assert_eq!(queue.intake().poison(), None);
        let limit = queue.intake().cursor_and_limit().1 / u64::from(SLOTS);
        for seq in self.published..limit {
            self.groups.values_mut().for_each(|group| _ = group.todo.insert(seq));
        }
        self.published = limit;
        let (begun, complete) = (self.written.div_ceil(u64::from(SLOTS)), self.written / u64::from(SLOTS));
        let mut wanted: BTreeSet<u64> = (complete..limit).collect();
        assert_eq!(queue.groups().len(), self.groups.len());
        for (&id, group) in queue.groups() {
            let name = NAMES.into_iter().find(|name| *name == group.name).unwrap();
            let granted: BTreeSet<u64> = self
                .readers
                .values()
                .filter(|side| side.group == name)
                .flat_map(|side| side.grants.iter().map(|grant| grant.seq.0))
                .collect();
            let plain = self.groups.get_mut(name).unwrap();
            let live = queue.intake().live.iter();
            let todo: BTreeSet<u64> = live
                .filter(|(_, block)| !queue.intake().ledger.is_done(**block, id))
                .map(|(seq, _)| seq.0)
                .collect();
            assert!(todo.is_subset(&plain.todo), "{name} has to read again what it has read");
            let skipped: Vec<u64> = plain.todo.difference(&todo).copied().collect();
            if let Some(last) = skipped.last() {
                assert!(plain.most_lag.is_some(), "{name} lost {skipped:?}");
                let older = todo.range(..last).filter(|seq| !granted.contains(seq));
                assert_eq!(older.count(), 0, "the oldest are skipped first");
                assert!(skipped.iter().all(|seq| *seq < complete && !granted.contains(seq)));
            }
            plain.skipped += skipped.len() as u64;
            assert_eq!(queue.group_counts(id), (plain.skipped, plain.batches), "{name}");
            assert_eq!(u64::from(queue.lag(id)), todo.range(..begun).count() as u64, "{name}");
            wanted.extend(&todo);
            plain.todo = todo;
        }
        let live = self.live();
        assert!(live.is_superset(&wanted), "{live:?} lacks some of {wanted:?}");
        if self.is_settled {
            assert_eq!(live, wanted, "what is there is what somebody has to read, and what is not full");
        }
    }

    /// Groups that may lag by so much do not lag by more, once the daemon has looked, but for what is granted or fills.
    fn check_lags(&mut self) {
        let queue = self.queue.as_ref().unwrap();
        let complete = self.written / u64::from(SLOTS);
        for (&id, group) in queue.groups() {
            let Some(most) = group.most_lag else { continue };
            let ungranted = group.ungranted.range(..crate::ids::BlockSeq(complete)).count();
            assert!(queue.lag(id) <= most || ungranted == 0, "{} lags by {}", group.name, queue.lag(id));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u32),
    AttachReader(usize),
    Read(usize),
    DieReading(usize),
    Add(usize, bool, Option<u32>),
    Remove(usize),
    Rewind(usize),
    Tick,
    ReplaceDaemon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let step = prop_oneof![
        8 => (1..8u32).prop_map(Step::Write),
        2 => name.clone().prop_map(Step::AttachReader),
        8 => (0..5usize).prop_map(Step::Read),
        1 => (0..5usize).prop_map(Step::DieReading),
        1 => (name.clone(), any::<bool>(), proptest::option::of(0..4u32)).prop_map(|(n, o, l)| Step::Add(n, o, l)),
        1 => name.clone().prop_map(Step::Remove),
        1 => name.prop_map(Step::Rewind),
        2 => Just(Step::Tick),
        1 => Just(Step::ReplaceDaemon),
    ];
    proptest::collection::vec(step, 0..150)
}

fn run(bench: &mut Bench, step: Step) {
    match step {
        Step::Write(n) => (0..n).for_each(|_| bench.write()),
        Step::AttachReader(name) if bench.readers.len() < 5 => bench.attach_reader(NAMES[name]),
        Step::AttachReader(_) => {}
        Step::Read(reader) => bench.read(reader, false),
        Step::DieReading(reader) => bench.read(reader, true),
        Step::Add(name, oldest, lag) => {
            let from = if oldest { GroupFrom::Oldest } else { GroupFrom::Newest };
            bench.add_group(NAMES[name], from, lag);
        }
        Step::Remove(name) => bench.remove_group(NAMES[name]),
        Step::Rewind(name) => bench.rewind(NAMES[name]),
        Step::Tick => {
            bench.tick();
            bench.check_lags();
        }
        Step::ReplaceDaemon => bench.replace_daemon(),
    }
}

#[test]
fn a_batch_that_came_back_before_it_was_complete_is_read_once_it_is() {
    let mut bench = Bench::new(4);
    bench.attach_reader(DEFAULT_GROUP);
    bench.attach_reader(DEFAULT_GROUP);
    // Each was granted two that fill; the first to be filled are those of the one that dies.
    let seqs = |side: &Side| side.grants.iter().map(|grant| grant.seq.0).collect::<Vec<_>>();
    let dies = *bench.readers.iter().find(|(_, side)| seqs(side).contains(&0)).unwrap().0;
    assert_eq!(bench.readers[&dies].grants.len(), usize::from(PREFETCH));
    bench.readers.remove(&dies);
    assert!(bench.with(|queue, actions| queue.detach(dies, actions)));
    (0..SLOTS).for_each(|_| bench.write());
    bench.tick();
    let side = bench.readers.values_mut().next().unwrap();
    side.grants.sort_by_key(|grant| grant.seq);
    assert_eq!(side.grants[0].seq.0, 0, "the other one waits for blocks that fill");
    bench.read(0, false);
    bench.check();
}

#[test]
fn readers_of_a_group_that_may_lag_leave_workers_a_block() {
    for most_lag in [1, 2, 100] {
        let mut bench = Bench::new(2);
        bench.add_group("b", GroupFrom::Oldest, Some(most_lag));
        bench.attach_reader(DEFAULT_GROUP);
        // They read nothing, and hold what they can.
        bench.attach_reader("b");
        bench.attach_reader("b");
        let reader = bench.readers.values().position(|side| side.group == DEFAULT_GROUP).unwrap();
        for batch in 1..10 {
            (0..SLOTS).for_each(|_| bench.write());
            assert_eq!(bench.written, batch * u64::from(SLOTS), "the workers wait for a lag of {most_lag}");
            bench.read(reader, false);
            bench.tick();
            bench.check();
        }
    }
}

#[test]
fn room_that_a_group_never_wanted_is_granted_when_it_is_there() {
    let mut bench = Bench::new(1);
    bench.write();
    bench.add_group("b", GroupFrom::Newest, None);
    bench.remove_group(DEFAULT_GROUP);
    bench.attach_reader("b");
    (1..SLOTS).for_each(|_| bench.write());
    bench.tick();
    bench.check();
    (0..SLOTS).for_each(|_| bench.write());
    assert_eq!(bench.readers.values().next().unwrap().grants.len(), 1);
    bench.read(0, false);
    assert_eq!(bench.groups["b"].batches, 1);
}

#[test]
fn a_group_that_is_rewound_need_not_wait_for_blocks_that_fill() {
    let mut bench = Bench::new(4);
    bench.attach_reader(DEFAULT_GROUP);
    bench.add_group("b", GroupFrom::Oldest, None);
    let read = |bench: &mut Bench, seqs: [u64; 2]| {
        for seq in seqs {
            let first = bench.readers.values().next().unwrap().grants.iter().map(|grant| grant.seq.0).min();
            assert_eq!(first, Some(seq));
            bench.readers.values_mut().next().unwrap().grants.sort_by_key(|grant| grant.seq);
            bench.read(0, false);
        }
    };
    (0..2 * SLOTS).for_each(|_| bench.write());
    read(&mut bench, [0, 1]);
    // It was granted the two that fill, as many as it may have.
    assert_eq!(bench.readers.values().next().unwrap().grants.len(), usize::from(PREFETCH));
    bench.rewind(DEFAULT_GROUP);
    read(&mut bench, [0, 1]);
    bench.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_group_reads_every_batch_once_and_nothing_that_somebody_has_to_read_is_written_over(
        blocks in 1..6u32,
        steps in steps(),
    ) {
        let mut bench = Bench::new(blocks);
        for step in steps {
            run(&mut bench, step);
            bench.check();
        }
        // Everybody reads: then there is room.
        for name in NAMES {
            if bench.groups.contains_key(name) {
                bench.attach_reader(name);
            }
        }
        for _ in 0..4 * blocks {
            (0..bench.readers.len()).for_each(|reader| bench.read(reader, false));
            bench.tick();
            bench.check();
        }
        let before = bench.written;
        bench.write();
        prop_assert_eq!(bench.written, before + 1);
    }
}
