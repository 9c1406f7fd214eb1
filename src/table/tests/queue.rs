//! The queue table against a plain model, under random schedules, with real claims and commits over heap words.
//!
//! A sample is its number. The model is three sets: committed, delivered, and those that a reader died
//! holding (which may come again). Workers and readers stop for good between any two of their steps; the
//! daemon is replaced by one that knows only the private record and the shared words.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use proptest::prelude::*;

use crate::ids::{BlockIndex, BlockSeq, ClientId, GrantNumber, LeaseToken, MemberId, Position};
use crate::ring::claim::{Attempt, Claim, Claimer};
use crate::ring::commit::commit;
use crate::ring::control::{Control, Geometry};
use crate::ring::ready::{Readiness, look};
use crate::ring::record::{ClientPage, PAGE_BYTES, RecordedClaim};
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::sync::Ordering;
use crate::table::action::{Action, Violation};
use crate::table::ending::{MoveSamples, Phase};
use crate::table::group::DEFAULT_GROUP;
use crate::table::ledger::{Ledger, ORPHANS};
use crate::table::member::MemberKey;
use crate::table::poison::Poison;
use crate::table::queue::{Queue, Tokens};
use crate::wire::message::{EndReason, Grant};

fn tokens() -> Tokens {
    let mut next = 0u128;
    Box::new(move || {
        next += 1;
        Ok(LeaseToken(next.to_le_bytes()))
    })
}

/// The bytes of the only array: one number a slot.
struct Data {
    slots: Vec<Option<u64>>,
    block_slots: u32,
}

impl Data {
    fn at(&mut self, block: BlockIndex, slot: u32) -> &mut Option<u64> {
        &mut self.slots[block.index() * self.block_slots as usize + slot as usize]
    }
}

impl MoveSamples for Data {
    fn moves_a_turn(&self) -> usize {
        1
    }

    fn move_sample(&mut self, block: BlockIndex, from: u32, to: u32) -> io::Result<()> {
        *self.at(block, to) = *self.at(block, from);
        Ok(())
    }
}

struct Worker {
    key: MemberKey,
    page: Arc<ClientPage>,
    claimer: Claimer,
    claim: Option<Claim>,
}

#[derive(Default)]
struct ReaderSide {
    grants: Vec<Grant>,
    ended: Option<EndReason>,
}

struct Bench {
    queue: Option<Queue>,
    data: Data,
    workers: Vec<Worker>,
    readers: BTreeMap<MemberKey, ReaderSide>,
    committed: BTreeSet<u64>,
    delivered: BTreeSet<u64>,
    next_sample: u64,
    next_client: u64,
}

impl Bench {
    fn new(block_slots: u32, blocks: u32, refill_len: u32, bits_per_word: u32) -> Self {
        let geometry = Geometry::new(block_slots, blocks, refill_len, bits_per_word).unwrap();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let ledger = Ledger::create(
            Words::heap(Ledger::bytes(&geometry, TableKind::Queue)),
            geometry,
            TableKind::Queue,
        );
        Self {
            queue: Some(Queue::create(Arc::new(control), ledger, blocks, tokens())),
            data: Data { slots: vec![None; (block_slots * blocks) as usize], block_slots },
            workers: Vec::new(),
            readers: BTreeMap::new(),
            committed: BTreeSet::new(),
            delivered: BTreeSet::new(),
            next_sample: 0,
            next_client: 1,
        }
    }

    fn queue(&mut self) -> &mut Queue {
        self.queue.as_mut().unwrap()
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    fn apply(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Grant { reader, grants } => {
                    self.readers.get_mut(&reader).expect("a reader that is there").grants.extend(grants);
                }
                Action::Sampled { .. } => panic!("it is a queue table"),
                Action::End { member, reason, .. } => {
                    if let Some(reader) = self.readers.get_mut(&member) {
                        reader.ended = Some(reason);
                    }
                }
            }
        }
    }

    fn attach_worker(&mut self) {
        let key = self.key();
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap());
        self.queue().attach_writer(key, page.clone(), 0);
        let max = self.queue().intake().geometry().max_blocks();
        self.workers.push(Worker { key, page, claimer: Claimer::new(max), claim: None });
    }

    fn attach_reader(&mut self, prefetch: u16) -> MemberKey {
        let key = self.key();
        self.readers.insert(key, ReaderSide::default());
        let mut actions = Vec::new();
        self.queue().attach_reader(key, 0, prefetch, DEFAULT_GROUP, &mut actions).unwrap();
        self.apply(actions);
        key
    }

    fn claim(&mut self, worker: usize, wanted: u32) -> bool {
        let control = self.queue().intake().control().clone();
        let worker = &mut self.workers[worker];
        if worker.claim.is_some() {
            return false;
        }
        let record = worker.page.record(0).unwrap();
        match worker.claimer.try_claim(&control, record, wanted).unwrap() {
            Attempt::Claimed(claim) => worker.claim = Some(claim),
            Attempt::Full(_) | Attempt::Closed(_) => return false,
        }
        true
    }

    fn commit(&mut self, worker: usize) {
        let control = self.queue().intake().control().clone();
        let Some(claim) = self.workers[worker].claim.take() else { return };
        for slot in claim.slot..claim.slot + claim.length {
            *self.data.at(claim.block, slot) = Some(self.next_sample);
            self.committed.insert(self.next_sample);
            self.next_sample += 1;
        }
        commit(&control, self.workers[worker].page.record(0).unwrap(), &claim).unwrap();
    }

    fn drop_claim(&mut self, worker: usize) {
        let Some(claim) = self.workers[worker].claim.take() else { return };
        let Worker { key, page, .. } = &self.workers[worker];
        let dropped = RecordedClaim { position: claim.position, length: claim.length, dropped: true };
        page.record(0).unwrap().claim().store(dropped.encode(), Ordering::Release);
        let key = *key;
        self.queue().drop_claim(key).unwrap();
        assert_eq!(self.workers[worker].page.record(0).unwrap().claim().load(Ordering::Relaxed), 0);
    }

    fn kill_worker(&mut self, worker: usize) {
        let worker = self.workers.swap_remove(worker);
        let mut actions = Vec::new();
        assert!(self.queue().detach(worker.key, &mut actions));
        self.apply(actions);
    }

    fn finish_worker(&mut self, worker: usize) {
        self.commit(worker);
        let key = self.workers[worker].key;
        self.queue().finish_writer(key).unwrap();
        self.kill_worker(worker);
    }

    /// Reads the reader's first batch, and gives it back unless the reader dies with it.
    fn read(&mut self, key: MemberKey, dies: bool) -> bool {
        let control = self.queue().intake().control().clone();
        let reader = self.readers.get_mut(&key).unwrap();
        let block = |grant: &Grant| BlockIndex::new(grant.block, control.geometry().max_blocks()).unwrap();
        reader.grants.retain(|grant| look(&control, block(grant), grant.seq) != Readiness::Lost);
        let Some(&grant) = reader.grants.first() else { return false };
        let Readiness::Complete(length) = look(&control, block(&grant), grant.seq) else { return false };
        let samples: Vec<u64> = (0..length)
            .map(|slot| self.data.at(block(&grant), slot).expect("a sample was committed here"))
            .collect();
        for sample in samples {
            assert!(self.committed.contains(&sample), "sample {sample} was never committed");
            if dies {
                assert!(!self.delivered.contains(&sample), "sample {sample} came again");
            } else {
                assert!(self.delivered.insert(sample), "sample {sample} came twice");
            }
        }
        if !dies {
            self.readers.get_mut(&key).unwrap().grants.remove(0);
            self.release(key, &[grant.token]).unwrap();
        }
        true
    }

    fn release(&mut self, key: MemberKey, tokens: &[LeaseToken]) -> Result<(), Violation> {
        let mut actions = Vec::new();
        let result = self.queue().release(key, tokens, &mut actions);
        self.apply(actions);
        result
    }

    fn kill_reader(&mut self, key: MemberKey) {
        self.readers.remove(&key);
        let mut actions = Vec::new();
        assert!(self.queue().detach(key, &mut actions));
        self.apply(actions);
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        let queue = self.queue.as_mut().unwrap();
        queue.tick(&mut self.data, &mut actions);
        assert_eq!(queue.intake().poison(), None);
        self.apply(actions);
    }

    /// Another daemon takes over; the clients attach again by their keys.
    fn replace_daemon(&mut self) {
        let queue = self.queue.take().unwrap();
        let control = queue.intake().control().clone();
        let geometry = *control.geometry();
        let words = queue.into_ledger().into_words();
        let ledger = Ledger::open(words, geometry, TableKind::Queue).unwrap();
        let mut seed = u128::from(self.next_client) << 64;
        let fresh: Tokens = Box::new(move || {
            seed += 1;
            Ok(LeaseToken(seed.to_le_bytes()))
        });
        self.queue = Some(Queue::rebuild(control, ledger, fresh).unwrap());
        self.next_client += 1;
        let mut actions = Vec::new();
        for worker in &self.workers {
            self.queue.as_mut().unwrap().attach_writer(worker.key, worker.page.clone(), 0);
        }
        for &key in self.readers.keys() {
            self.queue.as_mut().unwrap().attach_reader(key, 0, 2, DEFAULT_GROUP, &mut actions).unwrap();
        }
        self.apply(actions);
    }

    fn check(&mut self) {
        let samples = self.queue().intake().samples();
        assert_eq!(samples.committed, self.committed.len() as u64);
        assert_eq!(samples.delivered, self.delivered.len() as u64);
        assert_eq!(samples.committed, samples.delivered + samples.pending);
        for reader in self.queue().readers().values() {
            assert!(reader.held <= u32::from(reader.prefetch));
        }
    }

    /// Everybody finishes; everything committed must come out.
    fn drain(&mut self) {
        if self.workers.is_empty() {
            self.attach_worker();
        }
        while !self.workers.is_empty() {
            self.finish_worker(0);
        }
        if self.readers.is_empty() {
            self.attach_reader(1);
        }
        for _ in 0..1000 {
            self.tick();
            for key in self.readers.keys().copied().collect::<Vec<_>>() {
                while self.read(key, false) {}
            }
            if self.queue().is_drained() && self.committed == self.delivered {
                break;
            }
        }
        assert_eq!(self.committed, self.delivered);
        assert_eq!(self.queue().intake().phase(), Phase::Closed(EndReason::Finished));
        assert!(self.readers.values().all(|reader| reader.ended == Some(EndReason::Finished)));
        let samples = self.queue().intake().samples();
        assert_eq!((samples.pending, samples.delivered), (0, self.committed.len() as u64));
        assert_eq!(self.queue().intake().orphaned_claims(), 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Attach,
    Claim(usize, u32),
    Commit(usize),
    DropClaim(usize),
    Kill(usize),
    AttachReader,
    Read(usize),
    DieReading(usize),
    Tick,
    ReplaceDaemon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Attach),
        8 => (0..4usize, 1..6u32).prop_map(|(worker, n)| Step::Claim(worker, n)),
        8 => (0..4usize).prop_map(Step::Commit),
        1 => (0..4usize).prop_map(Step::DropClaim),
        1 => (0..4usize).prop_map(Step::Kill),
        1 => Just(Step::AttachReader),
        8 => (0..3usize).prop_map(Step::Read),
        1 => (0..3usize).prop_map(Step::DieReading),
        2 => Just(Step::Tick),
        1 => Just(Step::ReplaceDaemon),
    ];
    proptest::collection::vec(step, 0..120)
}

fn run(bench: &mut Bench, step: Step) {
    let worker = |bench: &Bench, i: usize| (i < bench.workers.len()).then_some(i);
    let reader = |bench: &Bench, i: usize| bench.readers.keys().nth(i).copied();
    match step {
        Step::Attach if bench.workers.len() < 4 => bench.attach_worker(),
        Step::AttachReader if bench.readers.len() < 3 => drop(bench.attach_reader(2)),
        Step::Attach | Step::AttachReader => {}
        Step::Claim(i, n) => drop(worker(bench, i).map(|i| bench.claim(i, n))),
        Step::Commit(i) => drop(worker(bench, i).map(|i| bench.commit(i))),
        Step::DropClaim(i) => drop(worker(bench, i).map(|i| bench.drop_claim(i))),
        Step::Kill(i) => drop(worker(bench, i).map(|i| bench.kill_worker(i))),
        Step::Read(i) => drop(reader(bench, i).map(|key| bench.read(key, false))),
        Step::DieReading(i) => drop(reader(bench, i).map(|key| {
            bench.read(key, true);
            bench.kill_reader(key);
        })),
        Step::Tick => bench.tick(),
        Step::ReplaceDaemon => bench.replace_daemon(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_committed_sample_is_delivered_once_whatever_the_schedule(
        (slots, blocks, refill, bits) in (1..6u32, 1..5u32, 1..3u32, 1..5u32),
        steps in steps(),
    ) {
        let mut bench = Bench::new(slots, blocks, refill, bits);
        bench.attach_worker();
        bench.attach_reader(2);
        for step in steps {
            run(&mut bench, step);
            bench.check();
        }
        bench.drain();
    }
}

#[test]
fn a_batch_given_back_before_it_is_complete_poisons_the_table() {
    let mut bench = Bench::new(2, 1, 1, 1);
    bench.attach_worker();
    let reader = bench.attach_reader(1);
    bench.claim(0, 1);
    bench.commit(0);
    let token = bench.readers[&reader].grants[0].token;
    assert_eq!(bench.release(reader, &[token]), Ok(()));
    assert_eq!(bench.queue().intake().poison(), Some(&Poison::Incomplete { block: 0, seq: 0 }));
    assert_eq!(bench.readers[&reader].ended, Some(EndReason::Poisoned));
}

#[test]
fn a_token_of_another_reader_gives_nothing_back() {
    let mut bench = Bench::new(1, 2, 1, 1);
    bench.attach_worker();
    let (one, other) = (bench.attach_reader(1), bench.attach_reader(1));
    bench.claim(0, 1);
    bench.commit(0);
    let token = bench.readers[&one].grants[0].token;
    assert_eq!(bench.release(other, &[token]), Ok(()));
    assert_eq!(bench.queue().intake().samples().delivered, 0);
    assert_eq!(bench.release(one, &[token, token]), Ok(()), "repeating does no harm");
    assert_eq!(bench.queue().intake().samples().delivered, 1);
}

#[test]
fn a_cursor_that_went_back_poisons_the_table() {
    let mut bench = Bench::new(2, 2, 1, 1);
    bench.attach_worker();
    let reader = bench.attach_reader(1);
    bench.claim(0, 2);
    bench.commit(0);
    bench.tick();
    bench.queue().intake().control().cursor().store(1, Ordering::Relaxed);
    let mut actions = Vec::new();
    let queue = bench.queue.as_mut().unwrap();
    queue.tick(&mut bench.data, &mut actions);
    assert_eq!(queue.intake().poison(), Some(&Poison::Cursor { cursor: 1, seen: 2, limit: 4 }));
    let ended = |action: &Action| matches!(action, Action::End { member, reason: EndReason::Poisoned, .. } if *member == reader);
    assert!(actions.iter().any(ended));
}

#[test]
fn a_forged_hole_poisons_the_table() {
    let mut bench = Bench::new(2, 2, 1, 1);
    bench.queue().intake().control().refill(0).store(9, Ordering::Relaxed);
    let queue = bench.queue.as_mut().unwrap();
    queue.tick(&mut bench.data, &mut Vec::new());
    assert_eq!(queue.intake().poison(), Some(&Poison::Refill { entry: 0, got: 9, offered: 0 }));
}

#[test]
fn grants_go_to_the_reader_that_holds_least() {
    let mut bench = Bench::new(1, 5, 1, 1);
    let one = bench.attach_reader(3);
    assert_eq!(bench.readers[&one].grants.len(), 3);
    let other = bench.attach_reader(3);
    assert_eq!(bench.readers[&other].grants.len(), 2);
    let numbers: Vec<_> = bench.readers[&one].grants.iter().map(|grant| grant.number).collect();
    assert_eq!(numbers, [GrantNumber(1), GrantNumber(2), GrantNumber(3)]);
    assert_eq!(bench.readers[&other].grants[0].seq, BlockSeq(3));
}

#[test]
fn a_short_block_is_completed_by_the_next_daemon() {
    let mut bench = Bench::new(2, 1, 1, 1);
    bench.attach_worker();
    let reader = bench.attach_reader(1);
    bench.claim(0, 1);
    bench.finish_worker(0);
    // The daemon died after its record said how short the block is, and before the words did.
    let block = BlockIndex::new(0, 1).unwrap();
    bench.queue().intake().ledger.set_finishing(block, &[1, 0]);
    bench.queue().intake().ledger.set_short(block, 1);
    bench.replace_daemon();
    bench.tick();
    assert!(bench.read(reader, false));
    assert_eq!(bench.readers[&reader].ended, Some(EndReason::Finished));
}

/// A table whose list of orphans is full of claims to a position that the first worker's record covers, and two
/// workers who have a claim in their records.
fn full_of_orphans() -> Bench {
    let mut bench = Bench::new(40, 1, 1, 32);
    for worker in 0..2 {
        bench.attach_worker();
        assert!(bench.claim(worker, 1));
    }
    let (key, page) = (bench.workers[1].key, bench.workers[1].page.clone());
    for length in 1..=ORPHANS as u32 + 1 {
        let dropped = RecordedClaim { position: Position(0), length, dropped: true };
        page.record(0).unwrap().claim().store(dropped.encode(), Ordering::Release);
        bench.queue().drop_claim(key).unwrap();
    }
    assert_eq!(bench.queue().intake().orphaned_claims(), ORPHANS as u32);
    bench
}

/// It waited for ever: its claim found no room in the list, which was full of claims that waited for it.
#[test]
fn a_writer_that_is_gone_is_let_go_of_however_full_the_list_of_orphans_is() {
    let mut bench = full_of_orphans();
    let keys: Vec<_> = bench.workers.drain(..).map(|worker| worker.key).collect();
    let mut left = keys.len();
    for _ in 0..10 {
        left = keys.iter().filter(|&&key| !bench.queue().detach(key, &mut Vec::new())).count();
        bench.tick();
    }
    assert_eq!(left, 0);
    assert!(bench.queue().intake().writers().is_empty());
}

/// The holes could not be offered, for want of somebody who fills them, and so the list stayed full.
#[test]
fn a_table_that_was_dropped_lets_go_of_its_writers_at_once() {
    let mut bench = full_of_orphans();
    bench.queue().end_all(EndReason::Dropped, &mut Vec::new());
    assert_eq!(bench.queue().intake().orphaned_claims(), 0);
    while !bench.workers.is_empty() {
        bench.kill_worker(0);
    }
    bench.replace_daemon();
    assert!(bench.queue().intake().writers().is_empty() && !bench.queue().is_unsettled());
}

/// The next daemon took the state of the block for a spoilt one, and gave complete batches up with it.
#[test]
fn a_daemon_that_dies_while_it_gives_a_block_up_leaves_the_table_whole() {
    let mut bench = Bench::new(2, 2, 1, 1);
    bench.attach_worker();
    let reader = bench.attach_reader(2);
    assert!(bench.claim(0, 2));
    bench.commit(0);
    bench.queue().close(EndReason::Draining, &mut Vec::new());
    let block = BlockIndex::new(1, 2).unwrap();
    crate::ring::ready::give_up(bench.queue().intake().control(), block, BlockSeq(1));
    bench.replace_daemon();
    bench.tick();
    assert_eq!(bench.queue().intake().poison(), None);
    assert_eq!(bench.queue().intake().samples().pending, 2);
    let _ = reader;
}

#[test]
fn a_table_ends_only_when_somebody_finished() {
    let mut bench = Bench::new(2, 2, 1, 1);
    bench.attach_worker();
    bench.kill_worker(0);
    bench.tick();
    assert_eq!(bench.queue().intake().phase(), Phase::Open);
    bench.attach_worker();
    bench.attach_worker();
    bench.finish_worker(0);
    bench.tick();
    assert_eq!(bench.queue().intake().phase(), Phase::Open, "one is left");
    bench.kill_worker(0);
    bench.tick();
    assert_eq!(bench.queue().intake().phase(), Phase::Closed(EndReason::Finished));
}
