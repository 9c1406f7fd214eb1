//! A rollout worker: claim, write, commit, and everything that can come in between.
//!
//! ```text
//! Idle -> ReadRefill -> ReadCursor -> ReadLimit -> ReadFill -> WriteRecord -> TakeClaim
//!   |       ^  a hole: straight to WriteRecord        |                          |  lost: ClearLostRecord, again
//!   |       |  no room: WaitForSpace, again           |                          v
//!   |       +--------- RETIRED: moves ----------------------------------- WriteBytes -> Commit
//!   v                                                                                     |
//!  Gone      ClearRecord <- AfterCommit <- WakeReaders <- MarkComplete <- LookAtWords <---+  the word became full
//! ```
//!
//! Each variant of [`WorkerStep`] is what the worker does *next*: one access to shared memory, so that anybody else may
//! come in between. Steps that touch only the worker's own memory are taken together with the next one.

use crate::configuration::Configuration;
use crate::daemon::DaemonStep;
use crate::invariants::{check_claim, check_write, count_commit};
use crate::ledger::BlockState;
use crate::packing::{Codec, numbered};
use crate::record::Record;
use crate::shared::Hole;
use crate::state::{FILLER, Fate, State};
use crate::successors::Successors;

numbered! {
    pub enum WorkerStep {
        /// No claim; begins the next sample if there is one.
        Idle,
        /// Looks whether a hole is offered.
        ReadRefill,
        ReadCursor,
        ReadLimit,
        /// Reads which block holds the position that it wants.
        ReadFill,
        /// Puts the claim into the client page, before taking it.
        WriteRecord,
        /// The CAS on the refill entry or the cursor.
        TakeClaim,
        /// The CAS was lost, or the second claim was retired too.
        ClearLostRecord,
        /// Rule off: reads `fill` only after the CAS.
        ReadFillLate,
        /// Reads its bytes back out of the retired block, to move them.
        ReadRetiredBytes,
        WriteBytes,
        /// The CAS on the commit word.
        Commit,
        /// Its word became full: are the others?
        LookAtWords,
        /// The CAS on `ready`.
        MarkComplete,
        WakeReaders,
        /// A sample is done: clears a second record, goes on to the next sample of the claim.
        AfterCommit,
        ClearRecord,
        /// Sleeps on `space`, unless it has changed.
        WaitForSpace,
        /// Rule off: reads `space` only after it found no room.
        ReadSpaceLate,
        /// Gives a claim up instead of committing it.
        DropClaim,
        /// Rule off: tells the daemon of a drop after the record is clear.
        SendDrop,
        /// Waits until the daemon has taken the dropped claim over.
        AwaitDropTaken,
        /// Killed; its records stay.
        Dead,
        /// Detached, after a goodbye or because the daemon noticed its death (finishing only).
        Gone,
    }
}

/// A claim, from the CAS to the clearing of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The CAS was won.
    pub owned: bool,
    pub first: u8,
    pub length: u8,
    /// How many of its samples are committed.
    pub done: u8,
    pub block: u8,
    /// The number of its first sample.
    pub sample: u8,
}

/// Where a sample goes that has to be moved out of a retired block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SecondClaim {
    pub owned: bool,
    pub position: u8,
    pub block: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    pub step: WorkerStep,
    pub asleep: bool,
    pub samples_left: u8,
    /// The client page: the claim, and the second one while moving.
    pub records: [Option<Record>; 2],

    pub claim: Claim,
    pub moving: bool,
    pub second: SecondClaim,
    /// The position that it tries to take.
    wanted: u8,
    /// The refill entry that it tries to take it from, and not the cursor.
    from_entry: Option<u8>,
    /// The refill entry or commit word to look at next.
    index: u8,
    seen_space: u8,
    /// The sample in hand is later traffic.
    filler: bool,
}

impl Worker {
    pub const IDLE: Worker = Worker {
        step: WorkerStep::Idle,
        asleep: false,
        samples_left: 0,
        records: [None; 2],
        claim: Claim { owned: false, first: 0, length: 0, done: 0, block: 0, sample: 0 },
        moving: false,
        second: SecondClaim { owned: false, position: 0, block: 0 },
        wanted: 0,
        from_entry: None,
        index: 0,
        seen_space: 0,
        filler: false,
    };

    /// The worker without a claim and without a record; what it has left to write stays.
    pub fn without_claim(&self, step: WorkerStep) -> Worker {
        Worker { step, samples_left: self.samples_left, ..Worker::IDLE }
    }

    pub fn is_alive(&self) -> bool {
        !matches!(self.step, WorkerStep::Dead | WorkerStep::Gone)
    }

    /// Does it own a position in which it has not committed?
    pub fn owns(&self, position: u8) -> bool {
        let next = self.claim.first + self.claim.done;
        let first = if self.moving { next + 1 } else { next };
        let in_claim = (first..self.claim.first + self.claim.length).contains(&position);
        self.claim.owned && in_claim || self.second.owned && position == self.second.position
    }

    /// Where the sample in hand goes: position and block.
    fn place(&self) -> (u8, usize) {
        if self.moving {
            (self.second.position, usize::from(self.second.block))
        } else {
            (self.claim.first + self.claim.done, usize::from(self.claim.block))
        }
    }

    /// The number of the sample in hand.
    fn sample(&self) -> u8 {
        if self.claim.sample == FILLER { FILLER } else { self.claim.sample + self.claim.done }
    }

    /// How many positions it tries to take.
    fn wanted_length(&self) -> u8 {
        if self.moving { 1 } else { self.claim.length }
    }

    /// The record that covers what it tries to take.
    fn record(&mut self, config: &Configuration) -> &mut Option<Record> {
        let two = config.rules.quarantine_until_records_clear && config.rules.second_record_while_moving;
        &mut self.records[usize::from(self.moving && two)]
    }

    /// Back to the beginning of a claim. `space` is read first, if that is the rule.
    pub fn look_again(&mut self, config: &Configuration, space: u8) {
        self.step = WorkerStep::ReadRefill;
        self.index = 0;
        if config.workers_sleep && config.rules.space_read_before_limit {
            self.seen_space = space;
        }
    }

    /// There is no room.
    fn wait(&mut self, config: &Configuration) {
        self.index = 0;
        self.wanted = 0;
        self.step = match (config.workers_sleep, config.rules.space_read_before_limit) {
            (false, _) => WorkerStep::ReadRefill,
            (true, true) => WorkerStep::WaitForSpace,
            (true, false) => WorkerStep::ReadSpaceLate,
        };
    }

    fn set_place(&mut self, position: u8, length: u8) {
        if self.moving {
            self.second.position = position;
        } else {
            self.claim.first = position;
            self.claim.length = length;
        }
    }

    fn set_block(&mut self, block: u8) {
        if self.moving {
            self.second.block = block;
        } else {
            self.claim.block = block;
        }
    }

    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 5);
        codec.flag(&mut self.asleep);
        codec.bits(&mut self.samples_left, 2);
        self.records.iter_mut().for_each(|record| Record::fields(record, codec));
        codec.flag(&mut self.claim.owned);
        codec.bits(&mut self.claim.first, 6);
        codec.bits(&mut self.claim.length, 2);
        codec.bits(&mut self.claim.done, 1);
        codec.bits(&mut self.claim.block, 2);
        codec.bits(&mut self.claim.sample, 3);
        codec.flag(&mut self.moving);
        codec.flag(&mut self.second.owned);
        codec.bits(&mut self.second.position, 6);
        codec.bits(&mut self.second.block, 2);
        codec.bits(&mut self.wanted, 6);
        codec.option(&mut self.from_entry, 2);
        codec.bits(&mut self.index, 2);
        codec.bits(&mut self.seen_space, 3);
        codec.flag(&mut self.filler);
    }
}

/// What a worker can do next.
pub fn step(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let worker = &state.workers[who];
    if worker.asleep {
        return;
    }
    match worker.step {
        WorkerStep::Idle => begin(config, state, who, out),
        WorkerStep::ReadRefill => read_refill(config, state, who, out),
        WorkerStep::ReadCursor => read_cursor(config, state, who, out),
        WorkerStep::ReadLimit => read_limit(config, state, who, out),
        WorkerStep::ReadFill | WorkerStep::ReadFillLate => read_fill(config, state, who, out),
        WorkerStep::WriteRecord => write_record(config, state, who, out),
        WorkerStep::TakeClaim => take_claim(config, state, who, out),
        WorkerStep::ClearLostRecord => clear_lost_record(config, state, who, out),
        WorkerStep::ReadRetiredBytes => read_retired_bytes(config, state, who, out),
        WorkerStep::WriteBytes => write_bytes(config, state, who, out),
        WorkerStep::Commit => commit(config, state, who, out),
        WorkerStep::LookAtWords => look_at_words(config, state, who, out),
        WorkerStep::MarkComplete => mark_complete(config, state, who, out),
        WorkerStep::WakeReaders => wake_readers(config, state, who, out),
        WorkerStep::AfterCommit => after_commit(config, state, who, out),
        WorkerStep::ClearRecord => clear_record(state, who, out),
        WorkerStep::WaitForSpace => wait_for_space(config, state, who, out),
        WorkerStep::ReadSpaceLate => read_space_late(state, who, out),
        WorkerStep::DropClaim => drop_claim(config, state, who, out),
        WorkerStep::SendDrop => send_drop(state, who, out),
        WorkerStep::AwaitDropTaken => await_drop_taken(state, who, out),
        WorkerStep::Gone => attach_again(config, state, who, out),
        WorkerStep::Dead => {}
    }
}

/// The worker is killed before its next step.
pub fn crash(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let worker = &state.workers[who];
    if state.budget.worker_crashes == 0 || !worker.is_alive() || worker.step == WorkerStep::Idle {
        return;
    }
    let mut next = *state;
    next.budget.worker_crashes -= 1;
    if worker.claim.owned && worker.claim.sample != FILLER {
        abandon(&mut next, who);
    }
    next.workers[who] = Worker { records: worker.records, ..worker.without_claim(WorkerStep::Dead) };
    if !config.rules.drop_marks_record_first && worker.step == WorkerStep::SendDrop {
        next.workers[who].records = [None; 2];
    }
    out.push_chance(next, || format!("*** w{who} is killed"));
}

/// The uncommitted samples of a claim are lost: allowed, since their commit never returned.
fn abandon(state: &mut State, who: usize) {
    let Worker { claim, .. } = state.workers[who];
    for sample in claim.sample..claim.sample + claim.length {
        let fate = &mut state.fates[usize::from(sample)];
        if *fate == Fate::Unwritten {
            *fate = Fate::Abandoned;
        }
    }
}

fn begin(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    if worker.samples_left > 0 {
        worker.look_again(config, state.shared.space);
        if config.workers_sleep && config.rules.space_read_before_limit {
            out.push(next, || format!("w{who} reads space = {}", state.shared.space));
        } else {
            read_refill(config, &next, who, out);
        }
    } else if config.finishing {
        worker.step = WorkerStep::Gone;
        out.push(next, || format!("w{who} says goodbye"));
    } else if state.budget.fillers > 0 && waits_for_traffic(config, state) {
        worker.filler = true;
        worker.look_again(config, state.shared.space);
        next.budget.fillers -= 1;
        out.push(next, || format!("w{who} begins a sample of later traffic"));
    }
}

/// Nobody has anything to do, and a committed sample waits for its block to become full.
fn waits_for_traffic(config: &Configuration, state: &State) -> bool {
    let ledger = &state.ledger;
    let workers_rest = state.workers[..config.workers]
        .iter()
        .all(|worker| worker.step == WorkerStep::Idle && worker.samples_left == 0);
    let daemon_rests = state.daemon.step == DaemonStep::Idle
        && ledger.copy.is_none()
        && (ledger.orphans[0].is_none() || state.shared.refill.iter().any(Option::is_some));
    let has_room = state.shared.cursor.position < state.shared.limit;
    let blocks_rest = ledger.blocks[..config.blocks].iter().all(|block| match block.state {
        BlockState::Rescuing => false,
        BlockState::Quarantined => block.uncopied() == 0 || !has_room,
        _ => true,
    });
    let some_wait = state.fates.contains(&Fate::Committed) && !state.fates.contains(&Fate::Unwritten);
    workers_rest && daemon_rests && blocks_rest && some_wait
}

fn read_refill(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let index = usize::from(worker.index);
    let hole = state.shared.refill[index];
    if let Some(Hole { position, block }) = hole {
        worker.from_entry = Some(index as u8);
        worker.wanted = position;
        worker.set_place(position, 1);
        worker.set_block(block);
        worker.step = WorkerStep::WriteRecord;
    } else if index + 1 < config.refill_entries {
        worker.index += 1;
    } else {
        worker.index = 0;
        worker.from_entry = None;
        worker.step = WorkerStep::ReadCursor;
    }
    out.push(next, || match hole {
        None => format!("w{who} reads refill[{index}]: nothing"),
        Some(hole) => format!("w{who} reads refill[{index}]: {} in block {}", hole.position, hole.block),
    });
}

fn read_cursor(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let cursor = state.shared.cursor;
    if cursor.closed {
        worker.wait(config);
    } else {
        worker.wanted = cursor.position;
        worker.step = WorkerStep::ReadLimit;
    }
    out.push(next, || {
        format!("w{who} reads cursor = {}{}", cursor.position, if cursor.closed { " CLOSED" } else { "" })
    });
}

fn read_limit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let worker = &state.workers[who];
    let (position, limit) = (worker.wanted, state.shared.limit);
    if position >= limit {
        let mut next = *state;
        next.workers[who].wait(config);
        out.push(next, || format!("w{who} reads limit = {limit}: no room"));
        return;
    }
    let to_the_edge = config.slots as u8 - position % config.slots as u8;
    let longest = if worker.moving || worker.filler {
        1
    } else {
        worker.samples_left.min(config.longest_claim).min(to_the_edge).min(limit - position)
    };
    for length in 1..=longest {
        let mut next = *state;
        next.workers[who].set_place(position, length);
        next.workers[who].step =
            if config.rules.fill_read_before_cas { WorkerStep::ReadFill } else { WorkerStep::WriteRecord };
        out.push(next, || format!("w{who} reads limit = {limit}, wants {position}+{length}"));
    }
}

fn read_fill(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let late = worker.step == WorkerStep::ReadFillLate;
    let position = if late { worker.place().0 } else { worker.wanted };
    let block = state.shared.fill[config.fill_entry(position)];
    worker.set_block(block);
    worker.step = match (late, worker.moving) {
        (false, _) => WorkerStep::WriteRecord,
        (true, true) => WorkerStep::ReadRetiredBytes,
        (true, false) => WorkerStep::WriteBytes,
    };
    out.push(next, || format!("w{who} reads fill for {position}: block {block}"));
}

fn write_record(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let record = Record { first: worker.wanted, length: worker.wanted_length(), dropped: false };
    *worker.record(config) = Some(record);
    worker.step = WorkerStep::TakeClaim;
    out.push(next, || format!("w{who} records its claim {}+{}", record.first, record.length));
}

fn take_claim(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &state.workers[who];
    let (position, length) = (worker.wanted, worker.wanted_length());
    let won = match worker.from_entry {
        Some(entry) => {
            let entry = &mut next.shared.refill[usize::from(entry)];
            let offered = entry.is_some_and(|hole| hole.position == position);
            entry.take_if(|_| offered).is_some()
        }
        None => {
            let cursor = &mut next.shared.cursor;
            let free = cursor.position == position && !cursor.closed;
            cursor.position += if free { length } else { 0 };
            free
        }
    };
    let from = if worker.from_entry.is_some() { "refill" } else { "the cursor" };
    if !won {
        lose_claim(config, &mut next, who);
        out.push(next, || format!("w{who} CAS lost for {position} at {from}"));
        return;
    }
    for claimed in position..position + length {
        check_claim(config, &next, who, claimed, out);
    }
    let samples = config.samples_each;
    let worker = &mut next.workers[who];
    worker.wanted = 0;
    worker.index = 0;
    worker.from_entry = None;
    if worker.moving {
        worker.second.owned = true;
    } else {
        worker.claim.owned = true;
        worker.claim.done = 0;
        worker.claim.sample = FILLER;
        if !worker.filler {
            worker.claim.sample = who as u8 * samples + (samples - worker.samples_left);
            worker.samples_left -= length;
        }
    }
    worker.step = match (config.rules.fill_read_before_cas, worker.moving) {
        (false, _) => WorkerStep::ReadFillLate,
        (true, true) => WorkerStep::ReadRetiredBytes,
        (true, false) => WorkerStep::WriteBytes,
    };
    out.push(next, || format!("w{who} CAS won: owns {position}+{length} from {from}"));
    if next.budget.drops > 0 && !worker_is_bound(&next.workers[who]) {
        next.budget.drops -= 1;
        next.workers[who].step = WorkerStep::DropClaim;
        out.push(next, || format!("w{who} CAS won: owns {position}+{length}, and will drop it"));
    }
}

/// A worker that moves a sample, or writes later traffic, does not drop its claim.
fn worker_is_bound(worker: &Worker) -> bool {
    worker.moving || worker.filler
}

fn lose_claim(config: &Configuration, state: &mut State, who: usize) {
    let space = state.shared.space;
    let worker = &mut state.workers[who];
    worker.wanted = 0;
    worker.index = 0;
    worker.from_entry = None;
    if config.rules.record_cleared_after_lost_cas {
        worker.step = WorkerStep::ClearLostRecord;
    } else {
        worker.look_again(config, space);
    }
}

fn clear_lost_record(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker.record(config) = None;
    worker.look_again(config, state.shared.space);
    out.push(next, || format!("w{who} clears the record of the claim that it did not get"));
}

fn read_retired_bytes(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let (position, block) = (worker.claim.first + worker.claim.done, worker.claim.block);
    let found = state.shared.data[usize::from(block)][config.slot_of(position)];
    let sample = worker.sample();
    if found != sample + 1 {
        out.violate(|| {
            format!("w{who} moves sample {sample} out of block {block}, but finds {found} (one more) there")
        });
    }
    worker.step = WorkerStep::WriteBytes;
    out.push(next, || format!("w{who} reads its bytes from the retired block {block}"));
}

fn write_bytes(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let ((position, block), sample) = (worker.place(), worker.sample());
    check_write(config, state, &format!("w{who}"), block, position, out);
    worker.step = WorkerStep::Commit;
    next.shared.data[block][config.slot_of(position)] = sample + 1;
    out.push(next, || format!("w{who} writes sample {sample} at {position} in block {block}"));
}

fn commit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let ((position, block), sample) = (state.workers[who].place(), state.workers[who].sample());
    let (index, bit) = config.bit_of(config.slot_of(position));
    let word = &mut next.shared.words[block][index];
    let before = *word;
    if before.retired && before.bits & bit == 0 {
        if !config.rules.commit_is_cas {
            word.bits |= bit;
        }
        commit_elsewhere(config, &mut next, who);
        out.push(next, || format!("w{who} commits {position}: RETIRED, claims anew"));
        return;
    }
    if before.retired {
        out.violate(|| format!("w{who} commits {position}, whose bit is set already in a retired word"));
    }
    word.bits |= bit;
    let after = *word;
    count_commit(&mut next, sample, out);
    let worker = &mut next.workers[who];
    worker.second.owned &= !worker.moving;
    worker.step = match (config.is_full(after), config.words > 1) {
        (false, _) => WorkerStep::AfterCommit,
        (true, true) => WorkerStep::LookAtWords,
        (true, false) => WorkerStep::MarkComplete,
    };
    out.push(next, || format!("w{who} commits sample {sample} at {position} (word {block}.{index})"));
}

/// The commit did not count: the sample has to go somewhere else.
fn commit_elsewhere(config: &Configuration, state: &mut State, who: usize) {
    let space = state.shared.space;
    let worker = &mut state.workers[who];
    if worker.moving {
        worker.second.owned = false;
        if config.rules.quarantine_until_records_clear {
            worker.step = WorkerStep::ClearLostRecord;
            return;
        }
    }
    worker.moving = true;
    worker.look_again(config, space);
}

fn look_at_words(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let (_, block) = worker.place();
    let index = usize::from(worker.index);
    let full = config.is_full(state.shared.words[block][index]);
    if full && index + 1 < config.words {
        worker.index += 1;
    } else {
        worker.index = 0;
        worker.step = if full { WorkerStep::MarkComplete } else { WorkerStep::AfterCommit };
    }
    out.push(next, || {
        format!("w{who} looks at word {block}.{index}: {}", if full { "full" } else { "not full" })
    });
}

fn mark_complete(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let (position, block) = state.workers[who].place();
    let sequence = config.sequence_of(position);
    let wake = next.mark_complete(config, block, sequence) && config.readers_sleep;
    next.workers[who].step = if wake { WorkerStep::WakeReaders } else { WorkerStep::AfterCommit };
    out.push(next, || {
        let done = next.shared.ready[block] != state.shared.ready[block];
        format!("w{who} CAS {} on ready[{block}] for sequence {sequence}", if done { "won" } else { "lost" })
    });
}

fn wake_readers(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let (_, block) = state.workers[who].place();
    next.wake_readers(config, block);
    next.workers[who].step = WorkerStep::AfterCommit;
    out.push(next, || format!("w{who} wakes ready[{block}]"));
}

fn after_commit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let moved = worker.moving;
    if moved {
        if config.rules.quarantine_until_records_clear && config.rules.second_record_while_moving {
            worker.records[1] = None;
        }
        worker.moving = false;
        worker.second = Worker::IDLE.second;
    }
    worker.step = WorkerStep::ClearRecord;
    if worker.claim.done + 1 < worker.claim.length {
        worker.claim.done += 1;
        worker.step = WorkerStep::WriteBytes;
    }
    if moved {
        out.push(next, || format!("w{who} clears its second record"));
    } else {
        step(config, &next, who, out); // its own memory only: together with what follows
    }
}

fn clear_record(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker = Worker { records: [None, worker.records[1]], ..worker.without_claim(WorkerStep::Idle) };
    out.push(next, || format!("w{who} clears its record"));
}

fn wait_for_space(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let seen = worker.seen_space;
    if state.shared.space == seen {
        worker.asleep = true;
        out.push(next, || format!("w{who} sleeps on space = {seen}"));
    } else {
        worker.look_again(config, state.shared.space);
        out.push(next, || format!("w{who} does not sleep: space is no longer {seen}"));
    }
}

fn read_space_late(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    next.workers[who].seen_space = state.shared.space;
    next.workers[who].step = WorkerStep::WaitForSpace;
    out.push(next, || format!("w{who} reads space = {}", state.shared.space));
}

fn drop_claim(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    abandon(&mut next, who);
    let worker = &mut next.workers[who];
    worker.claim.owned = false;
    if config.rules.drop_marks_record_first {
        worker.records[0] = worker.records[0].map(|record| Record { dropped: true, ..record });
        worker.step = WorkerStep::AwaitDropTaken;
        out.push(next, || format!("w{who} marks its record DROPPED"));
    } else {
        worker.records[0] = None;
        worker.step = WorkerStep::SendDrop;
        out.push(next, || format!("w{who} clears its record to drop the claim"));
    }
}

/// Rule off: the message carries the claim, which here is the mark appearing in the record.
fn send_drop(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    worker.records[0] =
        Some(Record { first: worker.claim.first, length: worker.claim.length, dropped: true });
    worker.step = WorkerStep::AwaitDropTaken;
    out.push(next, || format!("w{who} tells the daemon of the drop"));
}

fn await_drop_taken(state: &State, who: usize, out: &mut Successors) {
    if state.workers[who].records[0].is_some() {
        return;
    }
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker = Worker { records: worker.records, ..worker.without_claim(WorkerStep::Idle) };
    out.push(next, || format!("w{who} sees its record cleared"));
}

/// A worker that was killed comes back for its remaining samples, unless the daemon turns it away.
fn attach_again(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let refused = config.rules.finishing_refuses_writers && state.ledger.finishing;
    if state.workers[who].samples_left == 0 || refused || state.daemon.step != DaemonStep::Idle {
        return;
    }
    let mut next = *state;
    next.workers[who].step = WorkerStep::Idle;
    out.push_chance(next, || format!("a new w{who} attaches"));
}
