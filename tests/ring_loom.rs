//! The ring's own code under loom: every order of its atomics that the memory model allows, within a bound of
//! preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg echo_loom" cargo test --release --test ring_loom
//! ```
//!
//! The state-space check (`tests/protocol_model`) explores far longer schedules of the protocol, but with
//! sequentially consistent words. This explores the code, with the orderings that it names: a sample's bytes
//! are relaxed words here, so a missing release or acquire shows as a zero. Sleeping has no time-out in loom, so
//! a lost wake is a deadlock that it reports.
//!
//! A worker dies by doing the first steps of a claim and a commit and no more. The daemon learns of it by
//! joining the thread, which orders its looks behind the worker's steps as the exit of a process does.
#![cfg(echo_loom)]

use std::sync::Arc;

use echo::ids::{BlockIndex, BlockSeq, ClientId, LeaseToken, MemberId, Position};
use echo::ring::claim::{Attempt, Claim, Claimer};
use echo::ring::commit::{commit, commit_newest};
use echo::ring::control::{Control, Geometry};
use echo::ring::hold::{let_go, take};
use echo::ring::newest::{self, ValueWord};
use echo::ring::ready::{self, Readiness};
use echo::ring::record::{ClientPage, PAGE_BYTES, RecordedClaim};
use echo::ring::space;
use echo::ring::words::Words;
use echo::spec::TableKind;
use echo::sync::{AtomicU64, Ordering};
use echo::table::action::Action;
use echo::table::group::DEFAULT_GROUP;
use echo::table::latest::Latest;
use echo::table::ledger::Ledger;
use echo::table::member::MemberKey;
use echo::table::queue::Queue;
use echo::wire::message::Grant;
use loom::thread;
use std::time::Duration;

/// Ignored by loom's futex.
const FOREVER: Duration = Duration::MAX;

/// A table of two-slot blocks, a commit word a slot, and the bytes of its slots.
struct Table {
    control: Arc<Control>,
    bytes: Vec<AtomicU64>,
}

impl Table {
    fn create(blocks: u32) -> (Arc<Self>, Queue) {
        let geometry = Geometry::new(2, blocks, 1, 1).unwrap();
        let control = Arc::new(Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap());
        let ledger = Ledger::create(
            Words::heap(Ledger::bytes(&geometry, TableKind::Queue)),
            geometry,
            TableKind::Queue,
        );
        let mut token = 0u8;
        let tokens = Box::new(move || {
            token += 1;
            Ok(LeaseToken([token; 16]))
        });
        let queue = Queue::create(control.clone(), ledger, blocks, tokens);
        let bytes = (0..2 * blocks).map(|_| AtomicU64::new(0)).collect();
        (Arc::new(Self { control, bytes }), queue)
    }

    fn write(&self, claim: &Claim, sample: u64) {
        self.bytes[claim.first_slot(&self.control) as usize].store(sample, Ordering::Relaxed);
    }

    /// Sleeps until the granted block is complete, and reads it.
    fn read(&self, grant: Grant) -> Vec<u64> {
        let block = BlockIndex::new(grant.block, self.control.geometry().max_blocks()).unwrap();
        loop {
            match ready::look(&self.control, block, grant.seq) {
                Readiness::Complete(length) => {
                    let first = block.index() * 2;
                    let slots = &self.bytes[first..first + length as usize];
                    return slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
                }
                Readiness::Filling(seen) => ready::sleep(&self.control, block, seen, FOREVER),
                Readiness::Lost => panic!("nobody takes the block back"),
            }
        }
    }

    /// Claims one position, sleeping while there is none.
    fn claim(&self, claimer: &mut Claimer, page: &ClientPage) -> Claim {
        loop {
            match claimer.try_claim(&self.control, page.record(0).unwrap(), 1).unwrap() {
                Attempt::Claimed(claim) => return claim,
                Attempt::Full(seen) | Attempt::Closed(seen) => space::sleep(&self.control, seen, FOREVER),
            }
        }
    }

    fn append(&self, claimer: &mut Claimer, page: &ClientPage, sample: u64) {
        let claim = self.claim(claimer, page);
        self.write(&claim, sample);
        commit(&self.control, page.record(0).unwrap(), &claim).unwrap();
    }
}

fn key(client: u64) -> MemberKey {
    MemberKey { client: ClientId(client), member: MemberId(1) }
}

fn page() -> Arc<ClientPage> {
    Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap())
}

fn attach_reader(queue: &mut Queue, prefetch: u16) -> Vec<Grant> {
    let mut actions = Vec::new();
    queue.attach_reader(key(9), 0, prefetch, DEFAULT_GROUP, &mut actions).unwrap();
    match actions.pop() {
        Some(Action::Grant { grants, .. }) => grants,
        other => panic!("no grant but {other:?}"),
    }
}

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(test);
}

#[test]
fn two_workers_fill_two_blocks_and_the_reader_sees_every_byte() {
    explore(2, || {
        let (table, mut queue) = Table::create(2);
        let grants = attach_reader(&mut queue, 2);
        let workers = [1, 2].map(|worker| {
            let (table, page) = (table.clone(), page());
            queue.attach_writer(key(worker), page.clone(), 0);
            thread::spawn(move || {
                let mut claimer = Claimer::new(2);
                table.append(&mut claimer, &page, worker);
                table.append(&mut claimer, &page, worker + 10);
            })
        });
        let mut seen: Vec<u64> = grants.into_iter().flat_map(|grant| table.read(grant)).collect();
        workers.map(|worker| worker.join().unwrap());
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 11, 12]);
    });
}

#[test]
fn one_of_two_completers_completes_and_wakes() {
    explore(4, || {
        let (table, mut queue) = Table::create(1);
        let grants = attach_reader(&mut queue, 1);
        let worker = {
            let table = table.clone();
            thread::spawn(move || table.append(&mut Claimer::new(1), &page(), 1))
        };
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.read(grants[0]))
        };
        table.append(&mut Claimer::new(1), &page(), 2);
        worker.join().unwrap();
        let mut seen = reader.join().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

/// After which step a worker vanishes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Death {
    Recorded,
    Claimed,
    Written,
    Committed,
    Completed,
}

impl Death {
    fn has_committed(self) -> bool {
        matches!(self, Self::Committed | Self::Completed)
    }
}

fn live_until(death: Death, table: &Table, page: &ClientPage) {
    let record = page.record(0).unwrap();
    if death == Death::Recorded {
        let claim = RecordedClaim { position: Position(0), length: 1, dropped: false };
        record.claim().store(claim.encode(), Ordering::Release);
        return;
    }
    // The living worker may have taken both slots by now.
    let Attempt::Claimed(claim) = Claimer::new(1).try_claim(&table.control, record, 1).unwrap() else {
        return;
    };
    if death == Death::Claimed {
        return;
    }
    table.write(&claim, 1);
    if death == Death::Written {
        return;
    }
    let word = table.control.commits(claim.block, claim.slot);
    word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).unwrap();
    if death == Death::Completed {
        loom::sync::atomic::fence(Ordering::SeqCst);
        if table.control.is_full(claim.block) {
            ready::complete(&table.control, claim.block, claim.seq);
        }
    }
}

fn a_worker_that_dies(death: Death) {
    explore(2, move || {
        let (table, mut queue) = Table::create(1);
        let grants = attach_reader(&mut queue, 1);
        let dying = {
            let (table, page) = (table.clone(), page());
            queue.attach_writer(key(1), page.clone(), 0);
            thread::spawn(move || live_until(death, &table, &page))
        };
        let living = {
            let (table, page) = (table.clone(), page());
            queue.attach_writer(key(2), page.clone(), 0);
            thread::spawn(move || {
                let mut claimer = Claimer::new(1);
                table.append(&mut claimer, &page, 2);
                if !death.has_committed() {
                    table.append(&mut claimer, &page, 3);
                }
            })
        };
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.read(grants[0]))
        };
        dying.join().unwrap();
        // Reclaim runs beside the living worker and the reader.
        assert!(queue.detach(key(1), &mut Vec::new()));
        while queue.intake().orphaned_claims() > 0 {
            thread::yield_now();
            queue.settle_orphans();
        }
        living.join().unwrap();
        let mut seen = reader.join().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, if death.has_committed() { [1, 2] } else { [2, 3] });
        let block = BlockIndex::new(0, 1).unwrap();
        assert_eq!(queue.granted_blocks().next().map(|(seq, at, _)| (seq, at)), Some((BlockSeq(0), block)));
        assert_eq!(queue.intake().samples().pending, 2);
    });
}

#[test]
fn a_worker_dies_with_its_record_stored() {
    a_worker_that_dies(Death::Recorded);
}

#[test]
fn a_worker_dies_with_its_claim_taken() {
    a_worker_that_dies(Death::Claimed);
}

#[test]
fn a_worker_dies_with_its_bytes_written() {
    a_worker_that_dies(Death::Written);
}

#[test]
fn a_worker_dies_between_its_commit_and_the_completion() {
    a_worker_that_dies(Death::Committed);
}

#[test]
fn a_worker_dies_with_its_record_left() {
    a_worker_that_dies(Death::Completed);
}

/// A latest table of two blocks, and the bytes of its slots.
struct LatestTable {
    control: Arc<Control>,
    bytes: Vec<AtomicU64>,
}

impl LatestTable {
    const BLOCKS: u32 = 2;

    fn create() -> (Arc<Self>, Latest) {
        let geometry = Geometry::new(1, Self::BLOCKS, 1, 1).unwrap();
        let control = Arc::new(Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap());
        let kind = TableKind::Latest;
        let ledger = Ledger::create(Words::heap(Ledger::bytes(&geometry, kind)), geometry, kind);
        let latest = Latest::create(control.clone(), ledger, Self::BLOCKS);
        let bytes = (0..Self::BLOCKS).map(|_| AtomicU64::new(0)).collect();
        (Arc::new(Self { control, bytes }), latest)
    }

    /// Claims room for the next value, sleeping while there is none, and writes the value: its version.
    fn write(&self, claimer: &mut Claimer, page: &ClientPage) -> Claim {
        loop {
            match claimer.try_claim(&self.control, page.record(0).unwrap(), 1).unwrap() {
                Attempt::Claimed(claim) => {
                    self.bytes[claim.block.index()].store(claim.seq.0 + 1, Ordering::Relaxed);
                    return claim;
                }
                Attempt::Full(seen) | Attempt::Closed(seen) => space::sleep(&self.control, seen, FOREVER),
            }
        }
    }

    fn publish(&self, claimer: &mut Claimer, page: &ClientPage) {
        let claim = self.write(claimer, page);
        commit_newest(&self.control, page.record(0).unwrap(), &claim).unwrap();
    }

    /// Takes a value that is newer, reads it, and lets it go.
    fn read(&self, page: &ClientPage, than: u64) -> Option<u64> {
        let line = page.holds(0).unwrap();
        let value = take(&self.control, Self::BLOCKS, line, 0, than).unwrap()?;
        let read = self.bytes[value.block.index()].load(Ordering::Relaxed);
        assert_eq!(read, value.version(), "the value changed while it was held");
        let_go(line, 0);
        Some(value.version())
    }
}

/// The block of a value that a reader holds does not go round. Without either fence of `hold` this finds a value that
/// changed: the reader's hold and the writer's next value can both be missed.
#[test]
fn a_value_does_not_change_while_it_is_held() {
    explore(3, || {
        let (table, mut latest) = LatestTable::create();
        let (writes, reads) = (page(), page());
        latest.attach_writer(key(1), writes.clone(), 0).unwrap();
        latest.attach_reader(key(2), reads.clone(), 0, &mut Vec::new()).unwrap();
        let mut claimer = Claimer::new(LatestTable::BLOCKS);
        table.publish(&mut claimer, &writes);
        let reader = {
            let table = table.clone();
            thread::spawn(move || table.read(&reads, 0))
        };
        // The writer and the daemon in turn: what they say to each other is explored above.
        table.publish(&mut claimer, &writes);
        latest.need_space(key(1), &mut Vec::new()).unwrap();
        let (cursor, limit) = latest.intake().cursor_and_limit();
        if cursor < limit {
            // Over the first value, unless that is held.
            table.publish(&mut claimer, &writes);
        }
        assert!(reader.join().unwrap().is_some());
        assert_eq!(latest.intake().poison(), None);
    });
}

/// What a publisher still does before it vanishes.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Publishing {
    Commits,
    Completes,
    SaysSo,
    Wakes,
}

fn a_publisher_that_dies(last: Publishing) {
    explore(3, move || {
        let (table, mut latest) = LatestTable::create();
        let (writes, reads) = (page(), page());
        latest.attach_writer(key(1), writes.clone(), 0).unwrap();
        latest.attach_reader(key(2), reads.clone(), 0, &mut Vec::new()).unwrap();
        let dying = {
            let table = table.clone();
            thread::spawn(move || {
                let claim = table.write(&mut Claimer::new(LatestTable::BLOCKS), &writes);
                let control = &table.control;
                let word = control.commits(claim.block, 0);
                word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).unwrap();
                if last >= Publishing::Completes {
                    ready::complete(control, claim.block, claim.seq);
                }
                let value = ValueWord { seq: claim.seq, block: claim.block };
                match last {
                    Publishing::Wakes => newest::publish(control, value),
                    Publishing::SaysSo => {
                        let said = control.newest().compare_exchange(
                            0,
                            value.encode(),
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        );
                        said.unwrap();
                    }
                    Publishing::Commits | Publishing::Completes => {}
                }
            })
        };
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                loop {
                    let seen = newest::load(&table.control);
                    match table.read(&reads, 0) {
                        Some(version) => return version,
                        None => newest::sleep(&table.control, seen, FOREVER),
                    }
                }
            })
        };
        dying.join().unwrap();
        assert!(latest.detach(key(1)));
        assert_eq!(reader.join().unwrap(), 1);
    });
}

#[test]
fn a_publisher_dies_between_its_commit_and_the_completion() {
    a_publisher_that_dies(Publishing::Commits);
}

#[test]
fn a_publisher_dies_before_it_says_that_its_value_is_the_newest() {
    a_publisher_that_dies(Publishing::Completes);
}

#[test]
fn a_publisher_dies_before_it_wakes() {
    a_publisher_that_dies(Publishing::SaysSo);
}

#[test]
fn a_publisher_dies_with_its_record_left() {
    a_publisher_that_dies(Publishing::Wakes);
}
