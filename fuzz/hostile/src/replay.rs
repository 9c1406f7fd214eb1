//! A replay table: the words that its workers can write, marks among them, and whatever its readers ask for.
//!
//! An input is a program, as in `shared_words`: workers and readers come, write, ask, give back, die; the daemon looks, and is
//! replaced; anybody asks for any number of samples under any number, and for any priorities and keys; and at any point
//! somebody writes anything over a word. The daemon does not panic, keeps account of its blocks and of what is leased,
//! delivers no sample that is not a slot of the table, and gets rid of everybody in the end; and the table beside it does not
//! notice.
//!
//! In a program that writes over nothing, what a reader holds does not change: that is held by the core's own tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use echo::ids::{BlockIndex, ClientId, MemberId};
use echo::replay::items::Items;
use echo::replay::settings::{Admission, RateLimiter, Real, ReplaySpec, Selector, Staleness};
use echo::ring::claim::{Attempt, Claim, Claimer};
use echo::ring::commit::commit;
use echo::ring::control::{Control, Geometry};
use echo::ring::marks::{self, Mark};
use echo::ring::record::{ClientPage, PAGE_BYTES, RecordedClaim};
use echo::ring::words::Words;
use echo::spec::TableKind;
use echo::sync::Ordering;
use echo::table::action::Action;
use echo::table::ending::Phase;
use echo::table::ledger::Ledger;
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::table::poison::{Poison, RebuildError};
use echo::table::replay::Replay;
use echo::table::turn::Turn;
use echo::table::why::{self, Watch};
use echo::wire::message::EndReason;

use crate::input::Input;
use crate::neighbour::Neighbour;
use crate::spoiling;
use crate::table::ledger;

/// Steps of one program.
const STEPS: usize = 400;
/// Most workers, and most readers, at a time.
const MEMBERS: usize = 3;
/// Turns of the daemon within which whatever can be settled must be.
const TURNS: usize = 1000;

/// One step; its number is its byte in an input. The numbers are those of committed inputs: add at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the table's functions say it")]
pub enum Step {
    AttachWorker,
    Claim,
    Commit,
    GiveUp,
    KillWorker,
    FinishWorker,
    NeedSpace,
    AttachReader,
    Sample,
    Ask,
    Cut,
    GiveBack,
    KillReader,
    DisconnectReader,
    ComeBack,
    Update,
    Delete,
    StateVersion,
    Reset,
    Tick,
    ReplaceDaemon,
    Close,
    EndAll,
    Show,
    SpoilControl,
    SpoilMark,
    SpoilRecord,
}

impl Step {
    const ALL: [Self; 27] = [
        Self::AttachWorker,
        Self::Claim,
        Self::Commit,
        Self::GiveUp,
        Self::KillWorker,
        Self::FinishWorker,
        Self::NeedSpace,
        Self::AttachReader,
        Self::Sample,
        Self::Ask,
        Self::Cut,
        Self::GiveBack,
        Self::KillReader,
        Self::DisconnectReader,
        Self::ComeBack,
        Self::Update,
        Self::Delete,
        Self::StateVersion,
        Self::Reset,
        Self::Tick,
        Self::ReplaceDaemon,
        Self::Close,
        Self::EndAll,
        Self::Show,
        Self::SpoilControl,
        Self::SpoilMark,
        Self::SpoilRecord,
    ];
}

/// Settings of which an input names one.
fn settings(input: &mut Input<'_>) -> ReplaySpec {
    let mut spec = ReplaySpec::new([3, 130][input.below(2) as usize], 2);
    let selectors = [
        Selector::Fifo,
        Selector::Lifo,
        Selector::Uniform,
        Selector::Prioritized { exponent: Real(0.5) },
        Selector::MinHeap,
        Selector::MaxHeap,
    ];
    (spec.sampler, spec.remover) = (selectors[input.below(6) as usize], selectors[input.below(6) as usize]);
    spec.max_times_sampled = input.below(3);
    match input.below(5) {
        0 => {
            (spec.sampler, spec.remover) = (Selector::Fifo, Selector::Fifo);
            (spec.max_times_sampled, spec.limiter) = (1, RateLimiter::Queue(3));
        }
        1 => spec.limiter = "ratio:2:1:4".parse().expect("a limiter"),
        2 => {
            let admission = Some(Admission { samples_per_version: 2, max_running: 3 });
            spec.staleness = Staleness { max: Some(1), decay: None, admission };
        }
        3 => spec.staleness.max = Some(2),
        _ => {}
    }
    spec
}

/// Any bytes, as a program whose members ask for anything, and write over words of their table and of their pages.
///
/// # Panics
/// If something does not hold.
pub fn holds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let settings = settings(&mut input);
    if settings.validate().is_err() {
        return;
    }
    let (spare, refill) = (input.below(4), 1 + input.below(4));
    let mut table = Table::new(settings, spare, refill);
    let mut neighbour = Neighbour::new();
    for n in 0..STEPS {
        if input.is_empty() || table.machine.is_none() {
            break;
        }
        table.step(&mut input);
        if n % 8 == 0 {
            neighbour.goes_on();
        }
        if table.machine.is_some() {
            table.check();
        }
    }
    if table.machine.is_some() {
        table.ends();
    }
    neighbour.goes_on();
}

struct Worker {
    key: MemberKey,
    page: Arc<ClientPage>,
    claimer: Claimer,
    claim: Option<Claim>,
    dropping: bool,
}

#[derive(Default)]
struct Reader {
    last_number: u64,
    asked: BTreeSet<u64>,
    /// What it was told to have, and has not given back: how many samples of each request.
    held: BTreeMap<u64, usize>,
}

/// The table. `None` for its machine once no daemon could take it over.
struct Table {
    machine: Option<Machine>,
    settings: ReplaySpec,
    blocks: u32,
    workers: Vec<Worker>,
    readers: BTreeMap<MemberKey, Reader>,
    /// Those of before the daemon was replaced, that are not back.
    away: BTreeSet<MemberKey>,
    /// Workers that are gone, and that the daemon could not let go of yet.
    leaving: Vec<Worker>,
    watch: Watch,
    clock: u64,
    next_client: u64,
}

impl Table {
    fn new(settings: ReplaySpec, spare: u32, refill: u32) -> Self {
        let blocks = settings.least_blocks() + spare;
        let geometry = Geometry::new(settings.block_slots(), blocks, refill, 32)
            .expect("numbers of a ring")
            .with_marks();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).expect("room for it");
        let items = Words::heap(Items::bytes(blocks * geometry.block_slots()));
        let ledger = ledger(geometry, TableKind::Replay);
        let replay =
            Replay::create(&settings, Arc::new(control), ledger, items, blocks).expect("enough blocks");
        Self {
            machine: Some(Machine::Replay(Box::new(replay))),
            settings,
            blocks,
            workers: Vec::new(),
            readers: BTreeMap::new(),
            away: BTreeSet::new(),
            leaving: Vec::new(),
            watch: Watch::default(),
            clock: 0,
            next_client: 1,
        }
    }

    fn replay(&mut self) -> &mut Replay {
        match &mut self.machine {
            Some(Machine::Replay(replay)) => replay,
            _ => panic!("programs end with the table"),
        }
    }

    fn control(&mut self) -> Arc<Control> {
        self.replay().intake().control().clone()
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    /// Does something with the table, and has its readers told of what follows.
    fn act<T>(&mut self, act: impl FnOnce(&mut Replay, &mut Vec<Action>) -> T) -> T {
        let mut actions = Vec::new();
        let done = act(self.replay(), &mut actions);
        let slots = self.blocks * self.settings.block_slots();
        for action in actions {
            match action {
                Action::Sampled { reader, number, picks, short, .. } => {
                    let reader = self.readers.get_mut(&reader).expect("it is there");
                    assert!(reader.asked.remove(&number), "an answer to nothing");
                    assert!(picks.iter().all(|pick| pick.slot < slots && pick.probability.is_finite()));
                    assert!(!picks.is_empty() || short.is_some());
                    if !picks.is_empty() {
                        reader.held.insert(number, picks.len());
                    }
                }
                Action::Grant { .. } => panic!("it is no queue"),
                Action::End { .. } => {}
            }
        }
        if self.replay().intake().phase() != Phase::Open {
            self.readers.values_mut().for_each(|reader| reader.asked.clear());
        }
        done
    }

    fn step(&mut self, input: &mut Input<'_>) {
        const REASONS: [EndReason; 3] = [EndReason::Finished, EndReason::Dropped, EndReason::Draining];
        match Step::ALL[input.below(Step::ALL.len() as u32) as usize] {
            Step::AttachWorker => self.attach_worker(),
            Step::Claim => self.claim(input.below(MEMBERS as u32), 1 + input.below(64)),
            Step::Commit => self.commit(input),
            Step::GiveUp => self.give_up(input.below(MEMBERS as u32) as usize),
            Step::KillWorker => self.kill_worker(input.below(MEMBERS as u32) as usize),
            Step::FinishWorker => {
                let worker = input.below(MEMBERS as u32) as usize;
                if let Some(key) = self.worker(worker) {
                    self.act(|replay, _| replay.finish_writer(key)).expect("it is attached");
                    self.kill_worker(worker);
                }
            }
            Step::NeedSpace => {
                if let Some(key) = self.worker(input.below(MEMBERS as u32) as usize) {
                    self.act(|replay, actions| replay.need_space(key, actions)).expect("it is attached");
                }
            }
            Step::AttachReader if self.readers.len() + self.away.len() < MEMBERS => {
                let key = self.key();
                self.readers.insert(key, Reader::default());
                self.act(|replay, actions| replay.attach_reader(key, actions)).expect("there is room");
            }
            Step::AttachReader => {}
            Step::Sample => {
                if let Some(key) = self.reader(input) {
                    let number = self.readers[&key].last_number + 1;
                    self.ask(key, number, 1 + input.below(16));
                }
            }
            Step::Ask => {
                if let Some(key) = self.reader(input) {
                    let (number, count) = (input.u64(), u32::from(input.u16()));
                    self.ask(key, number, count);
                }
            }
            Step::Cut => {
                if let Some(key) = self.reader(input) {
                    let number = input.u8().into();
                    self.act(|replay, actions| replay.cut(key, number, actions)).expect("it is attached");
                }
            }
            Step::GiveBack => self.give_back(input),
            Step::KillReader => {
                let all: Vec<MemberKey> = self.readers.keys().chain(&self.away).copied().collect();
                if let Some(&key) = all.get(input.below(MEMBERS as u32) as usize) {
                    self.kill_reader(key);
                }
            }
            Step::DisconnectReader => {
                if let Some(key) = self.reader(input) {
                    self.readers.entry(key).or_default().asked.clear();
                    self.act(|replay, _| replay.disconnect(key));
                }
            }
            Step::ComeBack => {
                if let Some(key) = self.away.pop_first() {
                    self.readers.insert(key, Reader::default());
                    self.act(|replay, actions| replay.attach_reader(key, actions)).expect("it was there");
                }
            }
            Step::Update => self.update(input),
            Step::Delete => {
                let keys: Vec<u64> = (0..input.below(4)).map(|_| any_key(input)).collect();
                let done = self.act(|replay, actions| replay.delete(&keys, actions));
                assert_eq!(done.applied + done.skipped, keys.len() as u64);
            }
            Step::StateVersion => {
                let version = if input.below(4) == 0 { input.u64() } else { u64::from(input.u8()) };
                self.act(|replay, actions| replay.set_version(version, actions));
            }
            Step::Reset => self.act(|replay, actions| replay.reset(actions)),
            Step::Tick => self.tick(),
            Step::ReplaceDaemon => self.replace_daemon(),
            Step::Close => {
                let reason = REASONS[input.below(3) as usize];
                self.act(|replay, actions| replay.close(reason, actions));
            }
            Step::EndAll => {
                let reason = REASONS[input.below(3) as usize];
                self.act(|replay, actions| replay.end_all(reason, actions));
            }
            Step::Show => self.show(),
            Step::SpoilControl => spoiling::control(input, &self.control()),
            Step::SpoilMark => {
                let control = self.control();
                let geometry = *control.geometry();
                let block = BlockIndex::new(input.below(geometry.max_blocks()), geometry.max_blocks());
                let slot = input.below(geometry.block_slots());
                spoiling::mark(input, control.mark(block.expect("below it"), slot));
            }
            Step::SpoilRecord => {
                if let Some(worker) = self.workers.get(input.below(MEMBERS as u32) as usize) {
                    spoiling::record(input, worker.page.record(0).expect("the first"));
                }
            }
        }
    }

    fn worker(&self, worker: usize) -> Option<MemberKey> {
        self.workers.get(worker).map(|worker| worker.key)
    }

    fn reader(&self, input: &mut Input<'_>) -> Option<MemberKey> {
        self.readers.keys().nth(input.below(MEMBERS as u32) as usize).copied()
    }

    fn attach_worker(&mut self) {
        if self.workers.len() < MEMBERS {
            let key = self.key();
            let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).expect("room for a page"));
            self.replay().attach_writer(key, page.clone(), 0);
            let claimer = Claimer::new(self.blocks);
            self.workers.push(Worker { key, page, claimer, claim: None, dropping: false });
        }
    }

    /// An attempt to claim, as `echo_client::ReplayWriter` makes it.
    fn claim(&mut self, worker: u32, wanted: u32) {
        let (control, worker) = (self.control(), worker as usize);
        let Some(side) = self.workers.get_mut(worker) else { return };
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
                Ok(Attempt::Claimed(claim)) => side.claim = Some(claim),
                Ok(Attempt::Full(_) | Attempt::Closed(_)) => {}
                // The table is spoilt, and its worker fails.
                Err(_) => self.kill_worker(worker),
            }
        }
    }

    /// Says anything of what was claimed, and commits it. What cannot be committed is given up.
    fn commit(&mut self, input: &mut Input<'_>) {
        let (control, worker) = (self.control(), input.below(MEMBERS as u32) as usize);
        let Some(side) = self.workers.get_mut(worker) else { return };
        let Some(claim) = side.claim.take() else { return };
        let priority = [None, Some(0.0), Some(2.0), Some(f64::NAN)][input.below(4) as usize];
        let version = (input.below(2) == 0).then(|| u64::from(input.u8()));
        for slot in claim.slot..claim.slot + claim.length {
            marks::write(&control, claim.block, slot, &Mark { priority, version });
        }
        if commit(&control, side.page.record(0).expect("the first"), &claim).is_err() {
            self.give_up(worker);
        }
    }

    fn give_up(&mut self, worker: usize) {
        let Some(side) = self.workers.get_mut(worker) else { return };
        side.claim = None;
        let claim = side.page.record(0).expect("the first").claim();
        let Some(left) = RecordedClaim::decode(claim.load(Ordering::Relaxed)) else { return };
        claim.store(RecordedClaim { dropped: true, ..left }.encode(), Ordering::Release);
        side.dropping = true;
        let key = side.key;
        self.act(|replay, _| replay.drop_claim(key)).expect("it is attached");
    }

    fn kill_worker(&mut self, worker: usize) {
        if worker < self.workers.len() {
            let worker = self.workers.swap_remove(worker);
            self.leaving.push(worker);
            self.let_go();
        }
    }

    /// As the daemon does it: who cannot be let go of now is asked about again.
    fn let_go(&mut self) {
        for worker in std::mem::take(&mut self.leaving) {
            if !self.act(|replay, actions| replay.detach(worker.key, actions)) {
                self.leaving.push(worker);
            }
        }
    }

    /// One that asks for what it may not have is shown out.
    fn ask(&mut self, key: MemberKey, number: u64, count: u32) {
        let reader = self.readers.entry(key).or_default();
        let is_new = reader.asked.insert(number);
        let asked = self.act(|replay, actions| replay.sample(key, number, count, actions));
        let is_open = self.replay().intake().phase() == Phase::Open;
        let reader = self.readers.entry(key).or_default();
        match asked {
            Ok(()) => reader.last_number = number,
            Err(_) => {
                let is_unanswered = reader.asked.remove(&number);
                assert!(is_unanswered || !is_new || !is_open, "it was refused, and answered");
                self.kill_reader(key);
            }
        }
    }

    fn give_back(&mut self, input: &mut Input<'_>) {
        let Some(key) = self.reader(input) else { return };
        let reader = self.readers.entry(key).or_default();
        let numbers = match reader.held.keys().next() {
            Some(&oldest) if input.below(4) > 0 => vec![oldest],
            _ => (0..input.below(4)).map(|_| input.u8().into()).collect(),
        };
        reader.held.retain(|number, _| !numbers.contains(number));
        self.act(|replay, actions| replay.give_back(key, &numbers, actions)).expect("it is attached");
    }

    fn kill_reader(&mut self, key: MemberKey) {
        self.readers.remove(&key);
        self.away.remove(&key);
        assert!(
            self.act(|replay, actions| replay.detach(key, actions)),
            "nothing holds up a reader's leaving"
        );
    }

    fn update(&mut self, input: &mut Input<'_>) {
        let items: Vec<(u64, Real)> = (0..input.below(4))
            .map(|_| {
                let priority =
                    if input.below(4) == 0 { f64::from_bits(input.u64()) } else { input.u8().into() };
                (any_key(input), Real(priority))
            })
            .collect();
        let can_be = items.iter().all(|&(_, Real(priority))| priority.is_finite() && priority >= 0.0);
        let done = self.act(|replay, actions| replay.update_priorities(&items, actions));
        match done {
            Ok(done) => assert!(can_be && done.applied + done.skipped == items.len() as u64),
            Err(_) => assert!(!can_be),
        }
    }

    fn tick(&mut self) {
        self.act(|replay, actions| replay.tick(actions));
        self.let_go();
    }

    /// Another daemon takes over. It may refuse, since the words do not fit the record; for no other reason.
    fn replace_daemon(&mut self) {
        let Some(Machine::Replay(replay)) = self.machine.take() else { return };
        let control = replay.intake().control().clone();
        let geometry = *control.geometry();
        let (ledger, items) = replay.into_parts();
        let ledger =
            Ledger::open(ledger.into_words(), geometry, TableKind::Replay).expect("nobody else writes it");
        let mut replay = match Replay::rebuild(&self.settings, control, ledger, items) {
            Ok(replay) => replay,
            Err(RebuildError::Poisoned(Poison::State { .. })) => return,
            Err(error) => panic!("{error}"),
        };
        for worker in self.workers.iter().chain(&self.leaving) {
            replay.attach_writer(worker.key, worker.page.clone(), 0);
        }
        self.away.extend(std::mem::take(&mut self.readers).into_keys());
        self.machine = Some(Machine::Replay(Box::new(replay)));
        self.let_go();
    }

    fn show(&mut self) {
        self.clock += 1;
        let now = Duration::from_secs(self.clock);
        let machine = self.machine.as_ref().expect("programs end with the table");
        self.watch.observe(machine, now);
        let who = |client: ClientId| (client.0 as u32, client.to_string());
        for wait in why::waits(machine, &Turn::default(), &self.watch, now, &who) {
            assert!(!wait.who.is_empty() && !wait.waits_for.is_empty());
        }
        let (samples, is_unsettled) = (machine.samples(), machine.is_unsettled());
        assert!(samples.pending <= samples.committed, "{is_unsettled}");
        assert!(self.replay().bytes_per_item() > 0.0);
    }

    /// What holds after each step, whatever the words say.
    fn check(&mut self) {
        let (blocks, max_size) = (self.blocks, self.settings.max_size);
        let held: usize = self.readers.values().flat_map(|reader| reader.held.values()).sum();
        let asked: usize = self.readers.values().map(|reader| reader.asked.len()).sum();
        let replay = self.replay();
        let waiting: usize = replay.waiting().iter().map(|asked| asked.picks.len()).sum();
        assert_eq!(replay.index().leased(), (held + waiting) as u64, "a lease is lost, or there twice");
        assert_eq!(replay.waiting().len(), asked, "a request is lost, or there twice");
        assert!(replay.index().size() <= max_size);
        let counts = replay.block_counts();
        assert_eq!(counts.free + counts.filling + counts.complete, blocks, "a block is lost, or there twice");
        if let Some(poison) = replay.intake().poison() {
            assert!(!poison.to_string().is_empty());
            assert!(matches!(replay.intake().phase(), Phase::Closed(_)), "nothing more comes of it");
        }
    }

    /// Everybody goes. However spoilt it is, the table can be ended, and lets go of them all.
    fn ends(&mut self) {
        while !self.workers.is_empty() {
            self.kill_worker(0);
        }
        let all: Vec<MemberKey> = self.readers.keys().chain(&self.away).copied().collect();
        for key in all {
            self.kill_reader(key);
        }
        assert_eq!(self.replay().index().leased(), 0);
        self.act(|replay, actions| replay.close(EndReason::Dropped, actions));
        assert!(self.replay().is_drained());
        for _ in 0..TURNS {
            if self.leaving.is_empty() {
                break;
            }
            self.tick();
            self.check();
        }
        assert!(!self.replay().has_members(), "it keeps members that are gone");
    }
}

/// The key of a sample that there was, or is none.
fn any_key(input: &mut Input<'_>) -> u64 {
    if input.below(8) == 0 { input.u64() } else { input.u8().into() }
}
