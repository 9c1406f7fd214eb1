//! A table with workers and readers that keep to the protocol, on the daemon's own code, over words on the heap: an
//! access beside them is one that AddressSanitizer sees.
//!
//! It is the product's code throughout; only the arrays are stood in for by numbers, and the clients by the few
//! lines of theirs that decide what to do next. Whoever finds the table spoilt does what `echo-client` does.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use echo::ids::{BlockIndex, ClientId, LeaseToken, MemberId};
use echo::ring::claim::{Attempt, Claim, Claimer};
use echo::ring::commit::commit;
use echo::ring::control::{Control, Geometry};
use echo::ring::ready::{Readiness, look};
use echo::ring::record::{ClientPage, PAGE_BYTES, RecordedClaim};
use echo::ring::words::Words;
use echo::spec::TableKind;
use echo::sync::Ordering;
use echo::table::action::Action;
use echo::table::ending::{MoveSamples, Phase};
use echo::table::group::DEFAULT_GROUP;
use echo::table::ledger::Ledger;
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::table::poison::{Poison, RebuildError};
use echo::table::queue::{Queue, Tokens};
use echo::table::turn::Turn;
use echo::table::why::{self, Watch};
use echo::wire::message::{EndReason, Grant};

/// Most workers at a time.
const WORKERS: usize = 4;
/// Most readers at a time.
const READERS: usize = 3;
/// Turns of the daemon within which whatever can be settled must be. One settles all that can be, so that this is
/// generous; it is more than a few because one turn moves one sample.
const TURNS: usize = 1000;

/// Tokens that count on from one.
pub(crate) fn tokens(first: LeaseToken) -> Tokens {
    let mut next = u128::from_le_bytes(first.0);
    Box::new(move || {
        next = next.wrapping_add(1);
        Ok(LeaseToken(next.to_le_bytes()))
    })
}

/// A private record of that kind.
pub(crate) fn ledger(geometry: Geometry, kind: TableKind) -> Ledger {
    Ledger::create(Words::heap(Ledger::bytes(&geometry, kind)), geometry, kind)
}

/// The bytes of the only array: one number a slot.
pub(crate) struct Data {
    slots: Vec<Option<u64>>,
    block_slots: u32,
}

impl Data {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let slots = geometry.block_slots() * geometry.max_blocks();
        Self { slots: vec![None; slots as usize], block_slots: geometry.block_slots() }
    }

    /// A slot, which is inside of its block: the client copies samples to where this says.
    pub(crate) fn at(&mut self, block: BlockIndex, slot: u32) -> &mut Option<u64> {
        assert!(slot < self.block_slots, "slot {slot} lies beside its block");
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
    dropping: bool,
}

#[derive(Default)]
struct ReaderSide {
    grants: Vec<Grant>,
    prefetch: u16,
}

/// The table. `None` for its machine once no daemon could take it over.
pub(crate) struct Table {
    machine: Option<Machine>,
    data: Data,
    workers: Vec<Worker>,
    readers: BTreeMap<MemberKey, ReaderSide>,
    /// Writers that are gone, and that the daemon could not let go of yet.
    leaving: Vec<Worker>,
    watch: Watch,
    clock: u64,
    next_client: u64,
    delivered: u64,
}

impl Table {
    pub(crate) fn new(block_slots: u32, blocks: u32, refill_len: u32, bits_per_word: u32) -> Self {
        let geometry =
            Geometry::new(block_slots, blocks, refill_len, bits_per_word).expect("numbers of a ring");
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).expect("room for it");
        let ledger = ledger(geometry, TableKind::Queue);
        let queue = Queue::create(Arc::new(control), ledger, blocks, tokens(LeaseToken([0; 16])));
        Self {
            machine: Some(Machine::Queue(queue)),
            data: Data::new(&geometry),
            workers: Vec::new(),
            readers: BTreeMap::new(),
            leaving: Vec::new(),
            watch: Watch::default(),
            clock: 0,
            next_client: 1,
            delivered: 0,
        }
    }

    /// Whether there still is a table.
    pub(crate) const fn is_there(&self) -> bool {
        self.machine.is_some()
    }

    fn queue(&mut self) -> &mut Queue {
        Self::queue_of(&mut self.machine)
    }

    fn queue_of(machine: &mut Option<Machine>) -> &mut Queue {
        match machine {
            Some(Machine::Queue(queue)) => queue,
            _ => panic!("programs end with the table"),
        }
    }

    /// The words that all of its workers can write.
    pub(crate) fn control(&mut self) -> Arc<Control> {
        self.queue().intake().control().clone()
    }

    /// What a worker can write beside them, and how it tells the daemon that it gave up its claim.
    pub(crate) fn page(&mut self, worker: u32) -> Option<(Arc<ClientPage>, impl FnMut() + '_)> {
        let worker = self.workers.get(worker as usize)?;
        let (page, key) = (worker.page.clone(), worker.key);
        Some((page, move || self.queue().drop_claim(key).expect("it is attached")))
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Grant { reader, grants } => {
                    let side = self.readers.get_mut(&reader).expect("grants go to readers that are there");
                    side.grants.extend(grants);
                }
                Action::Sampled { .. } => panic!("it is no replay table"),
                Action::End { member, .. } => {
                    let is_there =
                        self.workers.iter().chain(&self.leaving).any(|worker| worker.key == member)
                            || self.readers.contains_key(&member);
                    assert!(is_there, "the end is told to members that are there");
                }
            }
        }
    }

    pub(crate) fn attach_worker(&mut self) {
        if self.workers.len() == WORKERS {
            return;
        }
        let key = self.key();
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).expect("room for a page"));
        self.queue().attach_writer(key, page.clone(), 0);
        let claimer = Claimer::new(self.control().geometry().max_blocks());
        self.workers.push(Worker { key, page, claimer, claim: None, dropping: false });
    }

    pub(crate) fn attach_reader(&mut self, prefetch: u16) {
        if self.readers.len() == READERS {
            return;
        }
        let key = self.key();
        self.readers.insert(key, ReaderSide { grants: Vec::new(), prefetch });
        let mut actions = Vec::new();
        self.queue().attach_reader(key, 0, prefetch, DEFAULT_GROUP, &mut actions).unwrap();
        self.perform(actions);
    }

    /// An attempt to claim, as `echo_client::Writer` makes it.
    pub(crate) fn claim(&mut self, worker: u32, wanted: u32) {
        let control = self.control();
        let Some(side) = self.workers.get_mut(worker as usize) else { return };
        if side.claim.is_some() {
            return;
        }
        let record = side.page.record(0).expect("the first");
        let word = record.claim().load(Ordering::Acquire);
        if side.dropping {
            side.dropping = word != 0;
        } else if RecordedClaim::decode(word).is_some() {
            self.give_up(worker);
        } else {
            match side.claimer.try_claim(&control, record, wanted) {
                Ok(Attempt::Claimed(claim)) => {
                    assert!(
                        claim.slot + claim.length <= control.geometry().block_slots(),
                        "{claim:?} crosses its block"
                    );
                    side.claim = Some(claim);
                }
                Ok(Attempt::Full(_) | Attempt::Closed(_)) => {}
                // The table is spoilt, and its worker fails.
                Err(_) => self.kill_worker(worker),
            }
        }
    }

    /// Writes what was claimed and commits it. What cannot be committed is given up.
    pub(crate) fn commit(&mut self, worker: u32) {
        let control = self.control();
        let Some(side) = self.workers.get_mut(worker as usize) else { return };
        let Some(claim) = side.claim.take() else { return };
        for slot in claim.slot..claim.slot + claim.length {
            *self.data.at(claim.block, slot) = Some(claim.position.0);
        }
        if commit(&control, side.page.record(0).expect("the first"), &claim).is_err() {
            self.give_up(worker);
        }
    }

    /// Gives up the claim that the worker's record holds, if it holds one.
    pub(crate) fn give_up(&mut self, worker: u32) {
        let Some(side) = self.workers.get_mut(worker as usize) else { return };
        side.claim = None;
        let claim = side.page.record(0).expect("the first").claim();
        let Some(left) = RecordedClaim::decode(claim.load(Ordering::Relaxed)) else { return };
        claim.store(RecordedClaim { dropped: true, ..left }.encode(), Ordering::Release);
        side.dropping = true;
        let key = side.key;
        self.queue().drop_claim(key).expect("it is attached");
    }

    pub(crate) fn kill_worker(&mut self, worker: u32) {
        if (worker as usize) < self.workers.len() {
            let worker = self.workers.swap_remove(worker as usize);
            self.leaving.push(worker);
            self.let_go();
        }
    }

    /// As the daemon does it: who cannot be let go of now is asked about again.
    fn let_go(&mut self) {
        let mut actions = Vec::new();
        let queue = Self::queue_of(&mut self.machine);
        self.leaving.retain(|worker| !queue.detach(worker.key, &mut actions));
        self.perform(actions);
    }

    pub(crate) fn finish_worker(&mut self, worker: u32) {
        self.commit(worker);
        if let Some(side) = self.workers.get(worker as usize) {
            let key = side.key;
            self.queue().finish_writer(key).expect("it is attached");
            self.kill_worker(worker);
        }
    }

    fn reader(&self, index: u32) -> Option<MemberKey> {
        self.readers.keys().nth(index as usize).copied()
    }

    /// Reads the next batch if it is complete, and gives it back, as `echo_client::Reader` does.
    pub(crate) fn read(&mut self, reader: u32) -> bool {
        let control = self.control();
        let max_blocks = control.geometry().max_blocks();
        let Some(key) = self.reader(reader) else { return false };
        let Some(side) = self.readers.get_mut(&key) else { return false };
        let block = |grant: &Grant| BlockIndex::new(grant.block, max_blocks).expect("grants name blocks");
        side.grants.retain(|grant| look(&control, block(grant), grant.seq) != Readiness::Lost);
        let Some(&grant) = side.grants.first() else { return false };
        let Readiness::Complete(length) = look(&control, block(&grant), grant.seq) else { return false };
        for slot in 0..length {
            let _ = *self.data.at(block(&grant), slot);
        }
        side.grants.remove(0);
        self.release(key, grant.token);
        true
    }

    /// Gives back what may not be complete, or somebody else's, or nothing.
    pub(crate) fn release_anything(&mut self, reader: u32, whose: u32, index: u32) {
        let Some(key) = self.reader(reader) else { return };
        let of = self.reader(whose).and_then(|whose| self.readers.get(&whose)?.grants.get(index as usize));
        let token = of.map_or(LeaseToken([0xff; 16]), |grant| grant.token);
        self.release(key, token);
    }

    fn release(&mut self, key: MemberKey, token: LeaseToken) {
        let mut actions = Vec::new();
        self.queue().release(key, &[token], &mut actions).expect("it is attached");
        self.perform(actions);
    }

    pub(crate) fn kill_reader(&mut self, reader: u32) {
        if let Some(key) = self.reader(reader) {
            self.readers.remove(&key);
            let mut actions = Vec::new();
            assert!(self.queue().detach(key, &mut actions), "nothing holds up a reader's leaving");
            self.perform(actions);
        }
    }

    /// Takes no more, and keeps those of its grants whose bits are set, complete or not, and what is none of its own.
    pub(crate) fn leave_reader(&mut self, reader: u32, kept: u8) {
        let Some(key) = self.reader(reader) else { return };
        let others = self.readers.iter().filter(|&(&other, _)| other != key);
        let mut keeps: Vec<LeaseToken> =
            others.flat_map(|(_, side)| side.grants.iter().map(|grant| grant.token)).collect();
        let side = self.readers.get_mut(&key).expect("just found");
        let mut bits = (0..8).map(|bit| kept >> bit & 1 == 1).chain(std::iter::repeat(false));
        side.grants.retain(|_| bits.next() == Some(true));
        keeps.extend(side.grants.iter().map(|grant| grant.token));
        let mut actions = Vec::new();
        self.queue().leave_reader(key, &keeps, &mut actions).expect("it is attached");
        self.perform(actions);
    }

    pub(crate) fn disconnect_reader(&mut self, reader: u32) {
        if let Some(key) = self.reader(reader) {
            self.queue().disconnect(key);
        }
    }

    pub(crate) fn close(&mut self, reason: EndReason) {
        let mut actions = Vec::new();
        self.queue().close(reason, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn end_all(&mut self, reason: EndReason) {
        let mut actions = Vec::new();
        self.queue().end_all(reason, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn tick(&mut self) {
        let mut actions = Vec::new();
        let queue = Self::queue_of(&mut self.machine);
        queue.tick(&mut self.data, &mut actions);
        self.perform(actions);
        self.let_go();
    }

    /// Another daemon takes over. It may refuse, since the words do not fit the record; for no other reason.
    pub(crate) fn replace_daemon(&mut self) {
        let Some(queue) = self.machine.take() else { return };
        let control = queue.intake().control().clone();
        let geometry = *control.geometry();
        let ledger = Ledger::open(queue.into_ledger().into_words(), geometry, TableKind::Queue)
            .expect("nobody else writes it");
        let first = u128::from(self.next_client) << 64;
        self.next_client += 1;
        let mut queue = match Queue::rebuild(control, ledger, tokens(LeaseToken(first.to_le_bytes()))) {
            Ok(queue) => queue,
            Err(RebuildError::Poisoned(Poison::State { .. })) => return,
            Err(error) => panic!("{error}"),
        };
        let mut actions = Vec::new();
        for worker in self.workers.iter().chain(&self.leaving) {
            queue.attach_writer(worker.key, worker.page.clone(), 0);
        }
        for (&key, side) in &self.readers {
            queue.attach_reader(key, 0, side.prefetch, DEFAULT_GROUP, &mut actions).unwrap();
        }
        self.machine = Some(Machine::Queue(queue));
        self.perform(actions);
        self.let_go();
    }

    /// Whether more claims wait to be settled than a few workers' deaths leave.
    pub(crate) fn is_flooded(&mut self) -> bool {
        self.queue().intake().orphaned_claims() > 100
    }

    /// Asks what is being waited for, and for everything else that is shown of a table.
    pub(crate) fn show(&mut self) {
        self.clock += 1;
        let now = Duration::from_secs(self.clock);
        let machine = self.machine.as_ref().expect("programs end with the table");
        let intake = machine.intake();
        self.watch.observe(machine, now);
        for wait in why::waits(machine, &Turn::default(), &self.watch, now, &|client| {
            (client.0 as u32, client.to_string())
        }) {
            assert!(!wait.who.is_empty() && !wait.waits_for.is_empty());
        }
        let _ = (
            intake.holes_offered(),
            intake.orphaned_claims(),
            machine.is_unsettled(),
            intake.cursor_and_limit(),
        );
        let _: Vec<u64> = intake.writers().values().map(|writer| writer.committed()).collect();
    }

    /// What holds after each step, whatever the words say.
    pub(crate) fn check(&mut self) {
        let blocks = self.control().geometry().max_blocks();
        let last_delivered = self.delivered;
        let queue = self.queue();
        let samples = queue.intake().samples();
        assert_eq!(samples.committed, samples.delivered + samples.pending);
        assert!(samples.delivered >= last_delivered, "what was delivered stays so");
        let counts = queue.intake().block_counts();
        assert_eq!(counts.free + counts.filling + counts.complete, blocks, "a block is lost, or there twice");
        let held: u32 = queue.readers().values().map(|reader| reader.held).sum();
        let granted = queue.granted_blocks().count() as u32;
        assert_eq!((held, granted), (granted, counts.granted), "a grant is lost, or there twice");
        // One that came back may go beyond.
        assert!(queue.readers().values().all(|reader| reader.held <= u32::from(reader.prefetch) + 1));
        if let Some(poison) = queue.intake().poison() {
            assert!(!poison.to_string().is_empty());
            assert!(
                matches!(queue.intake().phase(), Phase::Closed(_)),
                "nothing more comes of a poisoned table"
            );
        }
        self.delivered = samples.delivered;
    }

    /// Everybody goes. However spoilt it is, the table can be ended, and lets go of them all.
    pub(crate) fn ends(&mut self) {
        while !self.workers.is_empty() {
            self.kill_worker(0);
        }
        while !self.readers.is_empty() {
            self.kill_reader(0);
        }
        self.close(EndReason::Dropped);
        let is_over = |table: &mut Self| table.leaving.is_empty() && table.queue().is_drained();
        for _ in 0..TURNS {
            if is_over(self) {
                break;
            }
            self.tick();
            self.check();
        }
        assert!(is_over(self), "it keeps {} writers that are gone", self.leaving.len());
        assert!(self.queue().intake().writers().is_empty() && self.queue().readers().is_empty());
    }
}
