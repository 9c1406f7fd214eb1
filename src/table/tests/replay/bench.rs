//! The table, its members, and what the model knows of them.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::ids::{ClientId, MemberId};
use crate::replay::index::Pick;
use crate::replay::items::{Cause, Death as FuseBurnt, Items, SlotState};
use crate::replay::settings::{Real, ReplaySpec};
use crate::ring::claim::{Attempt, Claim, Claimer};
use crate::ring::commit::commit;
use crate::ring::control::{Control, Geometry};
use crate::ring::marks::{self, Mark};
use crate::ring::record::{ClientPage, PAGE_BYTES, RecordedClaim};
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::sync::Ordering;
use crate::table::action::Action;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::replay::Replay;

const MEMBERS: usize = 3;

pub(super) struct Worker {
    pub(super) key: MemberKey,
    page: Arc<ClientPage>,
    claimer: Claimer,
    pub(super) claim: Option<Claim>,
    /// It gave a claim up, and does nothing before the daemon has taken it over.
    dropping: bool,
}

#[derive(Default)]
pub(super) struct Reader {
    last_number: u64,
    asked: BTreeMap<u64, u32>,
    pub(super) held: BTreeMap<u64, Vec<Pick>>,
    is_gone_away: bool,
}

/// When a worker that has a claim is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Death {
    /// Before it commits.
    Claimed,
    /// Between its commit and its record.
    Committed,
}

pub(super) struct Bench {
    replay: Option<Replay>,
    settings: ReplaySpec,
    blocks: u32,
    /// The bytes: the key that was written last.
    data: Vec<u64>,
    pub(super) workers: Vec<Worker>,
    pub(super) readers: BTreeMap<MemberKey, Reader>,
    /// Readers of before the daemon was replaced that are not back, and what they may still read.
    away: BTreeMap<MemberKey, Reader>,
    committed: BTreeSet<u64>,
    /// A daemon has died: how many left by each cause it may have miscounted.
    died: bool,
    /// The highest that the limiter has allowed.
    allowed: u64,
    next_client: u64,
    answers: Vec<(MemberKey, usize, Option<String>)>,
}

impl Bench {
    /// A table with so many blocks beyond those that it could not do without.
    pub(super) fn new(settings: ReplaySpec, spare: u32) -> Self {
        settings.validate().unwrap();
        let blocks = settings.least_blocks() + spare;
        let geometry = Geometry::new(settings.block_slots(), blocks, 2, 32).unwrap().with_marks();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let bytes = Ledger::bytes(&geometry, TableKind::Replay);
        let ledger = Ledger::create(Words::heap(bytes), geometry, TableKind::Replay);
        let slots = blocks * geometry.block_slots();
        let items = Words::heap(Items::bytes(slots));
        let replay = Replay::create(&settings, Arc::new(control), ledger, items, blocks).unwrap();
        Self {
            replay: Some(replay),
            settings,
            blocks,
            data: vec![u64::MAX; slots as usize],
            workers: Vec::new(),
            readers: BTreeMap::new(),
            away: BTreeMap::new(),
            committed: BTreeSet::new(),
            died: false,
            allowed: 0,
            next_client: 1,
            answers: Vec::new(),
        }
    }

    pub(super) fn replay(&mut self) -> &mut Replay {
        self.replay.as_mut().unwrap()
    }

    pub(super) fn control(&self) -> Arc<Control> {
        self.replay.as_ref().unwrap().intake().control().clone()
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    /// Does something, and has the readers told of what follows.
    pub(super) fn act<T>(&mut self, act: impl FnOnce(&mut Replay, &mut Vec<Action>) -> T) -> T {
        let mut actions = Vec::new();
        let result = act(self.replay.as_mut().unwrap(), &mut actions);
        let index = self.replay.as_ref().unwrap().index();
        self.allowed = self.allowed.max(index.insert_limit());
        let (trainer, max) = (index.version().unwrap_or(0), self.settings.staleness.max);
        for action in actions {
            let Action::Sampled { reader: key, number, picks, short, .. } = action else {
                panic!("{action:?}")
            };
            let reader = self.readers.get_mut(&key).expect("one that is back");
            assert!(!reader.is_gone_away, "nobody reads it");
            let asked = reader.asked.remove(&number).expect("it was asked for, and not answered");
            assert_eq!(picks.len() < asked as usize, short.is_some());
            self.answers.push((key, picks.len(), short));
            for pick in &picks {
                assert!(self.committed.contains(&pick.key), "{pick:?} was never committed");
                assert_eq!(self.data[pick.slot as usize], pick.key, "another sample is there");
                let lag = trainer.saturating_sub(pick.version.unwrap_or(0));
                assert!(max.is_none_or(|max| lag <= max), "{pick:?} is too old");
            }
            if !picks.is_empty() {
                reader.held.insert(number, picks);
            }
        }
        result
    }

    /// The answers since this was last asked: whose, how many samples, and why no more.
    pub(super) fn answers(&mut self) -> Vec<(MemberKey, usize, Option<String>)> {
        std::mem::take(&mut self.answers)
    }

    pub(super) fn attach_worker(&mut self) {
        if self.workers.len() < MEMBERS {
            let (key, page) = (self.key(), Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap()));
            self.replay().attach_writer(key, page.clone(), 0);
            let claimer = Claimer::new(self.blocks);
            self.workers.push(Worker { key, page, claimer, claim: None, dropping: false });
        }
    }

    /// Claims, if there is room: of slots that nobody reads and nothing is stored in.
    pub(super) fn claim(&mut self, worker: usize, n: u32) -> Option<Claim> {
        let control = self.control();
        let at = self.workers.get_mut(worker)?;
        if at.claim.is_some() {
            return at.claim;
        }
        let record = at.page.record(0).unwrap();
        if at.dropping && record.claim().load(Ordering::Acquire) != 0 {
            return None;
        }
        at.dropping = false;
        let Attempt::Claimed(claim) = at.claimer.try_claim(&control, record, n).unwrap() else { return None };
        at.claim = Some(claim);
        let leased = self.leased();
        for i in 0..claim.length {
            let slot = claim.first_slot(&control) as u32 + i;
            assert!(!leased.contains_key(&slot), "slot {slot} is leased");
            let state = self.replay().index().state(slot).unwrap();
            assert!(!matches!(state, SlotState::Stored(_)), "slot {slot} is claimed, and holds {state:?}");
            assert!(!self.committed.contains(&(claim.position.0 + u64::from(i))), "claimed twice");
        }
        Some(claim)
    }

    /// Every slot that somebody may read, and how often.
    fn leased(&self) -> BTreeMap<u32, u32> {
        let mut leased = BTreeMap::new();
        let readers = self.readers.values().chain(self.away.values());
        let held = readers.flat_map(|reader| reader.held.values().flatten());
        let waiting = self.replay.as_ref().unwrap().waiting().iter().flat_map(|asked| &asked.picks);
        held.chain(waiting).for_each(|pick| *leased.entry(pick.slot).or_insert(0) += 1);
        leased
    }

    /// Writes what is claimed.
    fn write(&mut self, worker: usize, priority: Option<f64>, lag: u64) -> Option<Claim> {
        let claim = self.workers.get(worker)?.claim?;
        let control = self.control();
        let version = self.replay().index().version().unwrap_or(0).saturating_sub(lag);
        for i in 0..claim.length {
            let slot = claim.first_slot(&control) + u64::from(i);
            self.data[slot as usize] = claim.position.0 + u64::from(i);
            let version = (lag < 3).then_some(version);
            marks::write(&control, claim.block, claim.slot + i, &Mark { priority, version });
        }
        Some(claim)
    }

    pub(super) fn commit(&mut self, worker: usize, priority: Option<f64>, lag: u64) -> bool {
        let Some(claim) = self.write(worker, priority, lag) else { return false };
        let control = self.control();
        let at = &mut self.workers[worker];
        commit(&control, at.page.record(0).unwrap(), &claim).unwrap();
        at.claim = None;
        self.committed.extend(claim.position.0..claim.position.0 + u64::from(claim.length));
        true
    }

    pub(super) fn give_up(&mut self, worker: usize) {
        let Some(at) = self.workers.get_mut(worker) else { return };
        if let Some(Claim { position, length, .. }) = at.claim.take() {
            let dropped = RecordedClaim { position, length, dropped: true };
            at.page.record(0).unwrap().claim().store(dropped.encode(), Ordering::Release);
            at.dropping = true;
            let key = at.key;
            self.act(|replay, _| replay.drop_claim(key)).unwrap();
        }
    }

    pub(super) fn kill_worker(&mut self, worker: usize, death: Death) {
        if worker >= self.workers.len() {
            return;
        }
        if death == Death::Committed
            && let Some(claim) = self.write(worker, None, 0)
        {
            let control = self.control();
            for slot in claim.slot..claim.slot + claim.length {
                control.commits(claim.block, slot / 32).fetch_or(1 << (slot % 32), Ordering::AcqRel);
            }
            self.committed.extend(claim.position.0..claim.position.0 + u64::from(claim.length));
        }
        let key = self.workers.remove(worker).key;
        assert!(self.act(|replay, actions| replay.detach(key, actions)));
    }

    pub(super) fn need_space(&mut self, worker: usize) {
        if let Some(key) = self.workers.get(worker).map(|worker| worker.key) {
            self.act(|replay, actions| replay.need_space(key, actions)).unwrap();
        }
    }

    pub(super) fn attach_reader(&mut self) -> MemberKey {
        let key = self.key();
        if self.readers.len() + self.away.len() < MEMBERS {
            self.act(|replay, actions| replay.attach_reader(key, actions)).unwrap();
            self.readers.insert(key, Reader::default());
        }
        key
    }

    fn reader(&self, i: usize) -> Option<MemberKey> {
        self.readers.keys().nth(i).copied()
    }

    pub(super) fn ask(&mut self, i: usize, n: u32) {
        let Some(key) = self.reader(i) else { return };
        let reader = self.readers.get_mut(&key).unwrap();
        if !reader.is_gone_away {
            reader.last_number += 1;
            let number = reader.last_number;
            reader.asked.insert(number, n);
            self.act(|replay, actions| replay.sample(key, number, n, actions)).unwrap();
        }
    }

    pub(super) fn cut(&mut self, i: usize) {
        let Some(key) = self.reader(i) else { return };
        let reader = &self.readers[&key];
        if let Some(&number) = reader.asked.keys().next() {
            self.act(|replay, actions| replay.cut(key, number, actions)).unwrap();
            assert!(!self.readers[&key].asked.contains_key(&number), "it was cut, and is answered");
        }
    }

    pub(super) fn give_back(&mut self, i: usize) {
        let Some(key) = self.reader(i) else { return };
        let reader = self.readers.get_mut(&key).unwrap();
        if !reader.is_gone_away
            && let Some((number, _)) = reader.held.pop_first()
        {
            // One that is given back twice is given back once.
            self.act(|replay, actions| replay.give_back(key, &[number, number], actions)).unwrap();
        }
    }

    pub(super) fn disconnect(&mut self, i: usize) {
        if let Some(key) = self.reader(i) {
            let reader = self.readers.get_mut(&key).unwrap();
            reader.is_gone_away = true;
            reader.asked.clear();
            self.act(|replay, _| replay.disconnect(key));
        }
    }

    pub(super) fn kill_reader(&mut self, i: usize) {
        let key = self.readers.keys().chain(self.away.keys()).nth(i).copied();
        if let Some(key) = key {
            self.readers.remove(&key);
            self.away.remove(&key);
            assert!(self.act(|replay, actions| replay.detach(key, actions)));
        }
    }

    /// A reader is back: what it was given before it has forgotten.
    pub(super) fn come_back(&mut self, i: usize) {
        if let Some(key) = self.away.keys().nth(i).copied() {
            self.away.remove(&key);
            self.readers.insert(key, Reader::default());
            self.act(|replay, actions| replay.attach_reader(key, actions)).unwrap();
        }
    }

    /// A key of so many samples ago.
    fn key_back(&self, back: u64) -> u64 {
        self.committed.iter().nth_back(back as usize).copied().unwrap_or(back)
    }

    pub(super) fn update(&mut self, back: u64, priority: f64) {
        let key = self.key_back(back);
        let done = self.act(|replay, actions| replay.update_priorities(&[(key, Real(priority))], actions));
        let done = done.unwrap();
        assert_eq!(done.applied + done.skipped, 1);
    }

    pub(super) fn delete(&mut self, back: u64) {
        let key = self.key_back(back);
        self.act(|replay, actions| replay.delete(&[key, key], actions));
        assert_eq!(self.replay().index().item(key), None);
    }

    pub(super) fn state_version(&mut self, more: u64) {
        // A step back now and then: a trainer that starts again.
        let version = self.replay().index().version().unwrap_or(0);
        let version = if more == 0 { version.saturating_sub(1) } else { version + more - 1 };
        self.act(|replay, actions| replay.set_version(version, actions));
    }

    pub(super) fn reset(&mut self) {
        self.act(|replay, actions| replay.reset(actions));
        assert_eq!(self.replay().index().size(), 0);
    }

    pub(super) fn tick(&mut self) {
        self.act(|replay, actions| replay.tick(actions));
    }

    /// Another daemon takes over. Workers come back at once, readers when they like.
    pub(super) fn replace_daemon(&mut self) {
        let replay = self.replay.take().unwrap();
        let control = replay.intake().control().clone();
        let geometry = *control.geometry();
        let (ledger, items) = replay.into_parts();
        let ledger = Ledger::open(ledger.into_words(), geometry, TableKind::Replay).unwrap();
        let mut replay = Replay::rebuild(&self.settings, control, ledger, items).unwrap();
        for worker in &self.workers {
            replay.attach_writer(worker.key, worker.page.clone(), 0);
        }
        self.replay = Some(replay);
        self.away.append(&mut self.readers);
        self.away.values_mut().for_each(|reader| reader.asked.clear());
    }

    /// Does something; its daemon dies after so many stores, if it makes as many.
    pub(super) fn dies_within(&mut self, stores: u64, what: impl FnOnce(&mut Self)) {
        let readers: Vec<MemberKey> = self.readers.keys().chain(self.away.keys()).copied().collect();
        let workers: Vec<MemberKey> = self.workers.iter().map(|worker| worker.key).collect();
        self.replay().index_mut().dies_after(stores);
        match catch_unwind(AssertUnwindSafe(|| what(self))) {
            Ok(()) => self.replay().index_mut().dies_after(u64::MAX),
            Err(payload) if payload.is::<FuseBurnt>() => {
                self.died = true;
                self.replace_daemon();
                self.catch_up_with_deaths(&readers, &workers);
            }
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Who left or came while the daemon died is gone or there, and its successor is told.
    fn catch_up_with_deaths(&mut self, readers: &[MemberKey], workers: &[MemberKey]) {
        let is_there = |bench: &Self, key: &MemberKey| {
            bench.away.contains_key(key) || bench.workers.iter().any(|worker| worker.key == *key)
        };
        let gone: Vec<_> =
            readers.iter().chain(workers).filter(|key| !is_there(self, key)).copied().collect();
        for key in gone {
            assert!(self.act(|replay, actions| replay.detach(key, actions)));
        }
        // One that was being attached when the daemon died.
        let enrolled = self.next_client - 1;
        let newest = MemberKey { client: ClientId(enrolled), member: MemberId(1) };
        if !is_there(self, &newest) {
            assert!(self.act(|replay, actions| replay.detach(newest, actions)));
        }
    }

    /// What holds after each step.
    pub(super) fn check(&mut self) {
        for reader in self.readers.values().chain(self.away.values()) {
            for pick in reader.held.values().flatten() {
                assert_eq!(self.data[pick.slot as usize], pick.key, "a sample changed while it was leased");
            }
        }
        let leased = self.leased();
        let of_the_away: u32 =
            self.away.values().flat_map(|reader| reader.held.values()).map(|picks| picks.len() as u32).sum();
        let (allowed, blocks, died) = (self.allowed, self.blocks, self.died);
        let replay = self.replay.as_ref().unwrap();
        assert_eq!(replay.intake().poison(), None);
        let (index, counts) = (replay.index(), replay.block_counts());
        assert_eq!(
            index.leased() + u64::from(of_the_away),
            leased.values().map(|&n| u64::from(n)).sum::<u64>()
        );
        assert!(index.inserted() <= self.committed.len() as u64);
        assert_eq!(counts.free + counts.filling + counts.complete, blocks);
        let limit = replay.intake().cursor_and_limit().1;
        assert!(limit <= allowed.max(index.insert_limit()), "workers may go further than the limiter says");
        let causes = [Cause::Evicted, Cause::Exhausted, Cause::Deleted, Cause::Stale, Cause::Reset];
        let removed: u64 = causes.into_iter().map(|cause| index.removed(cause)).sum();
        assert!(died || removed + u64::from(index.size()) == index.inserted());
        if self.away.is_empty() {
            let is_stored = |slot: u32| matches!(index.state(slot), Some(SlotState::Stored(_)));
            let lingering = leased.keys().filter(|&&slot| !is_stored(slot)).count();
            assert_eq!(index.lingering() as usize, lingering);
        }
        for (key, reader) in &self.readers {
            let held = replay.readers()[key].held().map(|(number, slots)| (number, slots.len()));
            let expected = reader.held.iter().map(|(&number, picks)| (number, picks.len()));
            assert!(held.eq(expected));
        }
    }

    /// All that is committed is taken in, each once; and one worker and one trainer, who do what they should, both get on.
    pub(super) fn settles(&mut self) {
        while !self.readers.is_empty() || !self.away.is_empty() {
            self.kill_reader(0);
        }
        for worker in 0..self.workers.len() {
            self.commit(worker, None, 0);
        }
        self.tick();
        self.check();
        assert_eq!(self.replay().index().inserted(), self.committed.len() as u64, "each is an item, once");
        assert_eq!(self.replay().index().leased(), 0);
        self.attach_worker();
        let key = self.attach_reader();
        let (mut wrote, mut read, mut had) = (0, 0, 0);
        for _ in 0..400 {
            for _ in 0..2 {
                self.claim(0, 1);
                wrote += u32::from(self.commit(0, None, 0));
            }
            self.need_space(0);
            if self.readers[&key].asked.is_empty() {
                self.ask(0, 1);
            }
            self.tick();
            let got = self.answers().into_iter().filter(|(_, picks, _)| *picks > 0).count() as u32;
            (read, had) = (read + got, had + got);
            self.give_back(0);
            let admission = self.settings.staleness.admission;
            while let Some(used) = admission.map(|admission| admission.samples_per_version)
                && had >= used
            {
                had -= used;
                self.state_version(2);
            }
            self.check();
            if wrote >= 30 && read >= 30 {
                return;
            }
        }
        let waits = (self.replay().why_not_sample(), self.replay().why_not_insert());
        panic!("{wrote} were written, {read} were read, and everybody waits: {waits:?}");
    }
}
