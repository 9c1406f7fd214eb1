//! A rollout worker: claim, write, commit, and everything that can come in between.
//!
//! ```text
//! Idle -> ReadRefill -> ReadCursor -> ReadLimit -> ReadFill -> WriteRecord -> TakeClaim
//!   |       ^  a hole: its block, then WriteRecord    |                          |  lost: ClearLostRecord, again
//!   |       |  no room: WaitForSpace, again           |                          v
//!   |       +--------- RETIRED: moves ----------------------------------- WriteBytes -> Commit
//!   v                                                                                     |
//!  Gone      ClearRecord <- AfterCommit <- WakeReaders <- MarkComplete <- LookAtWords <---+  the word became full
//! ```
//!
//! Each variant of [`WorkerStep`] is what the worker does *next*: one access to shared memory, so that anybody else may
//! come in between. Steps that touch only the worker's own memory are taken together with the next one.

mod claiming;
mod committing;
mod dropping;

use crate::configuration::Configuration;
use crate::daemon::DaemonStep;
use crate::ledger::BlockState;
use crate::packing::{Codec, numbered};
use crate::record::Record;
use crate::state::{FILLER, Fate, State};
use crate::successors::Successors;

numbered! {
    pub enum WorkerStep {
        /// No claim; begins the next sample if there is one.
        Idle,
        /// Looks whether a hole is offered.
        ReadRefill,
        /// Reads which block the hole is in.
        ReadRefillBlock,
        /// Reads from `ready` whether that block holds the hole.
        CheckRefillBlock,
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
        WorkerStep::ReadRefill => claiming::read_refill(config, state, who, out),
        WorkerStep::ReadRefillBlock => claiming::read_refill_block(config, state, who, out),
        WorkerStep::CheckRefillBlock => claiming::check_refill_block(config, state, who, out),
        WorkerStep::ReadCursor => claiming::read_cursor(config, state, who, out),
        WorkerStep::ReadLimit => claiming::read_limit(config, state, who, out),
        WorkerStep::ReadFill | WorkerStep::ReadFillLate => claiming::read_fill(config, state, who, out),
        WorkerStep::WriteRecord => claiming::write_record(config, state, who, out),
        WorkerStep::TakeClaim => claiming::take_claim(config, state, who, out),
        WorkerStep::ClearLostRecord => claiming::clear_lost_record(config, state, who, out),
        WorkerStep::ReadRetiredBytes => committing::read_retired_bytes(config, state, who, out),
        WorkerStep::WriteBytes => committing::write_bytes(config, state, who, out),
        WorkerStep::Commit => committing::commit(config, state, who, out),
        WorkerStep::LookAtWords => committing::look_at_words(config, state, who, out),
        WorkerStep::MarkComplete => committing::mark_complete(config, state, who, out),
        WorkerStep::WakeReaders => committing::wake_readers(config, state, who, out),
        WorkerStep::AfterCommit => committing::after_commit(config, state, who, out),
        WorkerStep::ClearRecord => committing::clear_record(state, who, out),
        WorkerStep::WaitForSpace => wait_for_space(config, state, who, out),
        WorkerStep::ReadSpaceLate => read_space_late(state, who, out),
        WorkerStep::DropClaim => dropping::drop_claim(config, state, who, out),
        WorkerStep::SendDrop => dropping::send_drop(state, who, out),
        WorkerStep::AwaitDropTaken => dropping::await_drop_taken(state, who, out),
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
            claiming::read_refill(config, &next, who, out);
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
