//! A replay table: workers write samples, trainers are given those that are chosen, and they stay until they are removed.
//!
//! A state machine over a ring's words and the private record, as the other kinds are. How samples come in is [`Intake`]'s;
//! which there are, which are chosen and which have to go is the [`Index`]'s, whose columns are a region of the private
//! record. Here the two are held together:
//!
//! ```text
//! a commit bit ──▶ the index: the item is stored ──▶ the remover, or whatever else, removes it ──▶ its slot is free
//! a request    ──▶ the index: picks, each leased  ──▶ the reader copies them, and gives them back ──▶ not leased
//! a block whose slots are all free ──▶ retired ──▶ published again, as far as the limiter lets workers go
//! ```
//!
//! *Taking in.* Nobody tells the daemon of a commit. It looks at the commit bits of what is claimed when somebody asks for
//! samples, when a worker finds no room, and from time to time; soon, while anybody waits. The limiter needs no more: it
//! acts through `write_limit`, so a worker that may go on asks nobody, and one that may not asks here.
//!
//! What always holds: a block is retired only when each of its slots was committed, removed from the index, and is leased
//! by nobody. While a reader of before this daemon is not back, no block is. What is refused has changed nothing.
//!
//! The table has no end of its own: workers and trainers come and go. It ends when it is dropped or its daemon stops.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::ids::{BlockIndex, BlockSeq};
use crate::replay::index::{Index, Pick, Updated};
use crate::replay::settings::{Real, ReplaySpec};
use crate::ring::control::Control;
use crate::ring::record::ClientPage;
use crate::ring::words::Words;
use crate::table::action::{Action, Occupied, Violation};
use crate::table::ending::Phase;
use crate::table::intake::Intake;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::poison::{Poison, RebuildError};
use crate::table::roster::Part;
use crate::wire::message::{BlockCounts, EndReason, SampleCounts};

mod turn;

/// Samples that one reader may have asked for and not given back: what is told of them fits into what a client may leave
/// unread.
pub const MAX_OUTSTANDING: u64 = 8192;
/// Requests that they may be of: each is answered by a message, and as many messages a client may leave unread, too.
pub const MAX_REQUESTS: u32 = 512;
/// Looks for room that one request of a writer's buys: some 0.3 s of them. It asks again for as long as it waits.
const LOOKS: u32 = 150;

/// The state machine.
pub struct Replay {
    intake: Intake,
    index: Index,
    settings: ReplaySpec,
    readers: BTreeMap<MemberKey, Sampler>,
    /// Requests that wait for what they lack, the oldest first.
    waiting: VecDeque<Asked>,
    /// Readers of before this daemon that are not back.
    absent: BTreeMap<MemberKey, Part>,
    /// Blocks that are claimed and of which not every sample was taken in.
    open: VecDeque<Open>,
    /// The first block that is not claimed, as far as was seen.
    next_open: BlockSeq,
    /// Of each block, how many of its slots are not free yet.
    left: Vec<u8>,
    /// Blocks whose slots are all free, while a reader is absent.
    unread: Vec<BlockIndex>,
    random: fastrand::Rng,
    /// How often the daemon still looks, soon, for room that a writer waits for.
    looks: u32,
    /// For how many ticks workers have waited for room alone, less those since.
    pressed: u32,
    /// There was more to do than one turn does.
    has_more: bool,
    /// Samples whose worker gave them a priority that is none.
    refused: u64,
}

/// A process that samples.
#[derive(Debug, Default)]
pub struct Sampler {
    /// Its connection is there. If it is gone and its process is not, it keeps what it holds.
    pub connected: bool,
    /// What it holds, by the number of its request.
    samples: BTreeMap<u64, Vec<u32>>,
    last_number: u64,
    /// What it has asked for, and not given back.
    outstanding: u64,
    /// Of how many requests.
    requests: u32,
    /// Samples that it has had of the trainer's present version. With it they are gone: a trainer that starts again has had
    /// none.
    had: u64,
    /// Samples that it gave back.
    pub done: u64,
}

impl Sampler {
    /// How many requests' samples it holds.
    pub fn holds(&self) -> u32 {
        self.samples.len() as u32
    }

    /// What it holds: the numbers of its requests, and the slots of each.
    pub fn held(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.samples.iter().map(|(&number, slots)| (number, &slots[..]))
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub struct Asked {
    /// Whose.
    pub reader: MemberKey,
    /// Its number there.
    pub number: u64,
    /// How many samples.
    pub count: u32,
    /// What was picked for it so far.
    pub picks: Vec<Pick>,
}

/// A block that is claimed.
#[derive(Clone, Copy, Debug)]
struct Open {
    seq: BlockSeq,
    block: BlockIndex,
    /// One bit for each slot whose sample was taken in.
    taken: u64,
}

impl Replay {
    /// A new table over zeroed words, whose first `usable` blocks have memory. What the limiter allows is published.
    ///
    /// # Errors
    /// If the blocks are too few for the settings.
    pub fn create(
        settings: &ReplaySpec,
        control: Arc<Control>,
        ledger: Ledger,
        items: Words,
        usable: u32,
    ) -> Result<Self, RebuildError> {
        let slots = usable * control.geometry().block_slots();
        let index = Index::create(settings, slots, items)?;
        let mut replay = Self::over(settings, Intake::create(control, ledger, usable), index);
        replay.publish();
        Ok(replay)
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever instruction. Its
    /// clients come back by [`Replay::attach_writer`] and [`Replay::attach_reader`] with their old keys; of those that are
    /// gone [`Replay::detach`] says so. A reader that comes back reads nothing any more of what it was given before.
    ///
    /// # Errors
    /// If the words do not fit the record.
    pub fn rebuild(
        settings: &ReplaySpec,
        control: Arc<Control>,
        ledger: Ledger,
        items: Words,
    ) -> Result<Self, RebuildError> {
        let intake = Intake::rebuild(control, ledger)?;
        let slots = intake.ledger.usable() * intake.geometry().block_slots();
        let mut random = seeded();
        let index = Index::rebuild(settings, slots, items, [], &mut || random.u64(..))?;
        let mut replay = Self::over(settings, intake, index);
        replay.absent = replay.intake.ledger.roster();
        replay.next_open =
            replay.intake.live.keys().next().copied().unwrap_or(replay.intake.ledger.next_seq());
        replay.let_go();
        if replay.intake.phase == Phase::Open {
            replay.publish();
        }
        Ok(replay)
    }

    fn over(settings: &ReplaySpec, intake: Intake, index: Index) -> Self {
        let geometry = *intake.geometry();
        let left = vec![geometry.block_slots() as u8; geometry.max_blocks() as usize];
        Self {
            intake,
            index,
            settings: settings.clone(),
            readers: BTreeMap::new(),
            waiting: VecDeque::new(),
            absent: BTreeMap::new(),
            open: VecDeque::new(),
            next_open: BlockSeq(0),
            left,
            unread: Vec::new(),
            random: seeded(),
            looks: 0,
            pressed: 0,
            has_more: false,
            refused: 0,
        }
    }

    /// How samples come in.
    pub const fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Which items there are.
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The same, to be cut short by tests.
    #[cfg(test)]
    pub(crate) const fn index_mut(&mut self) -> &mut Index {
        &mut self.index
    }

    /// How it chooses, removes, limits and ages.
    pub const fn settings(&self) -> &ReplaySpec {
        &self.settings
    }

    /// Its readers.
    pub const fn readers(&self) -> &BTreeMap<MemberKey, Sampler> {
        &self.readers
    }

    /// Requests that wait, the oldest first.
    pub const fn waiting(&self) -> &VecDeque<Asked> {
        &self.waiting
    }

    /// Readers of before this daemon that are not back.
    pub fn absent_readers(&self) -> usize {
        self.absent.len()
    }

    /// Samples whose worker gave them a priority that is none. They are not there.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        !self.intake.writers.is_empty() || !self.readers.is_empty() || !self.absent.is_empty()
    }

    /// Blocks by state; those that are full stay so until their items are gone.
    pub fn block_counts(&self) -> BlockCounts {
        let (free, live, filling) =
            (self.intake.free_blocks(), self.intake.live.len() as u32, self.open.len() as u32);
        let (cursor, limit) = self.intake.cursor_and_limit();
        let unclaimed = limit.saturating_sub(cursor).div_ceil(self.intake.geometry().block_slots().into());
        let complete = live.saturating_sub(filling).saturating_sub(unclaimed as u32);
        BlockCounts { free, filling: live - complete, complete, granted: self.index.lingering() }
    }

    /// Items: those that came, the samples of them that were taken, and those that are there.
    pub fn samples(&self) -> SampleCounts {
        SampleCounts {
            committed: self.index.inserted(),
            delivered: self.index.totals().samples,
            pending: self.index.size().into(),
        }
    }

    /// Bytes for each item that the table has room for, besides its arrays.
    pub fn bytes_per_item(&self) -> f64 {
        let geometry = self.intake.geometry();
        let live = self.intake.live.len() * (size_of::<(BlockSeq, BlockIndex)>() + size_of::<usize>());
        let blocks = self.left.len() + live + Ledger::bytes(geometry, crate::spec::TableKind::Replay);
        (geometry.control_bytes() + blocks + self.index.bytes()) as f64 / f64::from(self.settings.max_size)
    }

    /// A process may write from now on.
    pub fn attach_writer(&mut self, key: MemberKey, page: Arc<ClientPage>, record: u32) {
        self.intake.attach_writer(key, page, record);
    }

    /// A process may sample from now on.
    ///
    /// # Errors
    /// If there are too many.
    pub fn attach_reader(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> Result<(), Occupied> {
        if !self.intake.ledger.enrol(key, Part::Reads) {
            return Err(Occupied::Full);
        }
        self.absent.remove(&key);
        self.readers.insert(key, Sampler { connected: true, ..Sampler::default() });
        if let Phase::Closed(reason) | Phase::Closing(reason) = self.intake.phase {
            actions.push(Action::End { member: key, reason, end: BlockSeq(0) });
        }
        self.let_go_of_unread();
        Ok(())
    }

    /// A writer commits no more samples. The table goes on.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn finish_writer(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.finish_writer(key)
    }

    /// A writer gave up its claim: it marked its record, and says so.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn drop_claim(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.drop_claim(key)
    }

    /// A writer found no room, and wants to know soon when there is some.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn need_space(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> Result<(), Violation> {
        if !self.intake.writers.contains_key(&key) {
            return Err(Violation::NoMember(key));
        }
        self.looks = LOOKS;
        self.turn(actions);
        Ok(())
    }

    /// A reader wants that many samples. It is answered when they are there, or when it [cuts](Replay::cut) its request.
    ///
    /// # Errors
    /// If it may not have so many, or the number is not above its last one.
    pub fn sample(
        &mut self,
        key: MemberKey,
        number: u64,
        count: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        let reader = self.readers.get_mut(&key).ok_or(Violation::NoMember(key))?;
        let outstanding = reader.outstanding;
        if count == 0 || outstanding + u64::from(count) > MAX_OUTSTANDING {
            return Err(Violation::TooManySamples {
                reader: key,
                asked: count,
                outstanding,
                most: MAX_OUTSTANDING,
            });
        }
        if reader.requests == MAX_REQUESTS {
            return Err(Violation::TooManyRequests { reader: key, most: MAX_REQUESTS });
        }
        if number <= reader.last_number {
            return Err(Violation::SampleNumber { reader: key, number, last: reader.last_number });
        }
        reader.last_number = number;
        if self.intake.phase != Phase::Open {
            // It was told of the end, which is the answer.
            return Ok(());
        }
        reader.outstanding += u64::from(count);
        reader.requests += 1;
        self.waiting.push_back(Asked { reader: key, number, count, picks: Vec::new() });
        self.turn(actions);
        Ok(())
    }

    /// A reader waits no longer for a request: it is answered with what there is for it, and why that is all.
    ///
    /// # Errors
    /// If there is no reader of that key. A request that was answered is none any more, and nothing is done.
    pub fn cut(&mut self, key: MemberKey, number: u64, actions: &mut Vec<Action>) -> Result<(), Violation> {
        if !self.readers.contains_key(&key) {
            return Err(Violation::NoMember(key));
        }
        // What came meanwhile may be enough.
        self.turn(actions);
        let found = self.waiting.iter().position(|asked| (asked.reader, asked.number) == (key, number));
        if let Some(asked) = found.and_then(|at| self.waiting.remove(at)) {
            let why = self.why_not_sample();
            self.answer(asked, Some(why), actions);
        }
        Ok(())
    }

    /// Why a request that waits does, in a sentence.
    pub fn why_not_sample(&self) -> String {
        match self.index.why_not_sample(1) {
            Some(reason) => reason.to_string(),
            None if self.index.size() == 0 => "the table is empty".into(),
            None => "others asked before".into(),
        }
    }

    /// A reader has read the samples of these requests. Of one that it gave back before nothing is done.
    ///
    /// # Errors
    /// If there is no reader of that key.
    pub fn give_back(
        &mut self,
        key: MemberKey,
        numbers: &[u64],
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        let reader = self.readers.get_mut(&key).ok_or(Violation::NoMember(key))?;
        let mut slots = Vec::new();
        for number in numbers {
            if let Some(of_request) = reader.samples.remove(number) {
                slots.extend(of_request);
                reader.requests -= 1;
            }
        }
        reader.outstanding -= slots.len() as u64;
        reader.done += slots.len() as u64;
        self.release(&slots);
        self.turn(actions);
        Ok(())
    }

    fn release(&mut self, slots: &[u32]) {
        // What a reader holds is leased, by our own book-keeping alone.
        let released = self.index.release(slots);
        debug_assert_eq!(released, Ok(()));
    }

    /// A member changes priorities. Items that are gone are skipped and counted.
    ///
    /// # Errors
    /// If one is no priority, by name; nothing has changed then.
    pub fn update_priorities(
        &mut self,
        items: &[(u64, Real)],
        actions: &mut Vec<Action>,
    ) -> Result<Updated, Violation> {
        // Its items may be among those that were not taken in yet.
        self.take_in_or_poison(actions);
        let items: Vec<(u64, f64)> = items.iter().map(|&(key, Real(priority))| (key, priority)).collect();
        let updated = self.index.update_priorities(&items).map_err(Violation::Priority)?;
        self.turn(actions);
        Ok(updated)
    }

    /// A member deletes items. Those that are gone are skipped and counted.
    pub fn delete(&mut self, keys: &[u64], actions: &mut Vec<Action>) -> Updated {
        self.take_in_or_poison(actions);
        let updated = self.index.delete(keys);
        self.turn(actions);
        updated
    }

    /// The trainer is at this version. How many items were too old by it.
    pub fn set_version(&mut self, version: u64, actions: &mut Vec<Action>) -> u64 {
        self.take_in_or_poison(actions);
        self.use_up(version);
        let removed = self.index.set_version(version);
        self.drop_picks(|index, pick| index.is_stale(pick.version));
        self.turn(actions);
        removed
    }

    /// All items leave, and inserts and samples are counted from zero.
    pub fn reset(&mut self, actions: &mut Vec<Action>) {
        self.take_in_or_poison(actions);
        self.index.reset();
        self.drop_picks(|_, _| true);
        self.readers.values_mut().for_each(|reader| reader.had = 0);
        self.turn(actions);
    }

    /// Requests that wait are not answered with such picks: others take their place.
    fn drop_picks(&mut self, such: impl Fn(&Index, &Pick) -> bool) {
        let Self { index, waiting, readers, .. } = self;
        let mut dropped = Vec::new();
        for asked in waiting.iter_mut() {
            let before = dropped.len();
            dropped.extend(asked.picks.extract_if(.., |pick| such(index, pick)).map(|pick| pick.slot));
            if let Some(reader) = readers.get_mut(&asked.reader) {
                reader.had = reader.had.saturating_sub((dropped.len() - before) as u64);
            }
        }
        self.release(&dropped);
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds, and is given nothing more.
    pub fn disconnect(&mut self, key: MemberKey) {
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.connected = false;
            reader.had = 0;
            self.forget_requests(key);
        }
    }

    fn forget_requests(&mut self, key: MemberKey) {
        let (gone, stay) = self.waiting.drain(..).partition(|asked: &Asked| asked.reader == key);
        self.waiting = stay;
        for asked in gone {
            let slots: Vec<u32> = asked.picks.iter().map(|pick| pick.slot).collect();
            self.release(&slots);
        }
    }

    /// A member can no longer touch the table's memory: its process is gone, or it said that it unmapped. What a reader
    /// holds is held no more; what a writer had claimed is offered to others. False if that cannot be done yet: then the
    /// call is to be made again.
    ///
    /// Calling it for a member that is gone does nothing.
    pub fn detach(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> bool {
        if !self.intake.detach_writer(key) {
            return false;
        }
        if let Some(reader) = self.readers.remove(&key) {
            self.forget_requests(key);
            for slots in reader.samples.values() {
                self.release(slots);
            }
        }
        self.absent.remove(&key);
        // Last: until then it is one for whom a successor of this daemon would wait.
        self.intake.ledger.strike(key);
        self.let_go_of_unread();
        self.turn(actions);
        true
    }

    /// What is done from time to time.
    pub fn tick(&mut self, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() {
            return;
        }
        self.intake.settle();
        self.feel_pressure();
        match self.intake.check_words() {
            Ok(()) => self.turn(actions),
            Err(poison) => self.poisoned(poison, actions),
        }
    }

    /// Whether [`Replay::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        let waits = self.looks > 0 || self.has_more || !self.waiting.is_empty();
        self.intake.is_unsettled() || (waits && self.intake.phase == Phase::Open)
    }

    /// Notes what broke the table, and tells all who are attached.
    fn poisoned(&mut self, poison: Poison, actions: &mut Vec<Action>) {
        if self.intake.poison.is_none() {
            self.intake.poison = Some(poison);
            self.end_all(EndReason::Poisoned, actions);
        }
    }

    /// Ends the table for all who are attached.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        self.intake.end_all(reason, actions);
        let readers = self.readers.keys();
        actions.extend(readers.map(|&member| Action::End { member, reason, end: BlockSeq(0) }));
        for key in self.readers.keys().copied().collect::<Vec<_>>() {
            self.forget_requests(key);
        }
    }

    /// Ends an open table: nothing of it has to be delivered first.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        if self.intake.phase == Phase::Open {
            self.end_all(reason, actions);
        }
    }

    /// Whether the table has ended.
    pub fn is_drained(&self) -> bool {
        self.intake.poison.is_some() || matches!(self.intake.phase, Phase::Closed(_))
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        self.intake.into_ledger()
    }

    /// Lets go of the private record and of the items, for the next who opens them.
    pub fn into_parts(self) -> (Ledger, Words) {
        (self.intake.into_ledger(), self.index.into_words())
    }
}

fn seeded() -> fastrand::Rng {
    fastrand::Rng::new()
}

/// Counted from the machine's start, and so the same for each daemon.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}
