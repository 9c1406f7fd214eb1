//! From no claim to one: a look at the holes, else at the cursor.

use super::{Worker, WorkerStep};
use crate::configuration::Configuration;
use crate::invariants::check_claim;
use crate::record::Record;
use crate::state::{FILLER, State};
use crate::successors::Successors;

pub fn read_refill(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let index = usize::from(worker.index);
    let hole = state.shared.refill[index];
    if let Some(position) = hole {
        worker.from_entry = Some(index as u8);
        worker.wanted = position;
        worker.set_place(position, 1);
        worker.step = WorkerStep::ReadRefillBlock;
    } else if index + 1 < config.refill_entries {
        worker.index += 1;
    } else {
        worker.index = 0;
        worker.from_entry = None;
        worker.step = WorkerStep::ReadCursor;
    }
    out.push(next, || match hole {
        None => format!("w{who} reads refill[{index}]: nothing"),
        Some(position) => format!("w{who} reads refill[{index}]: {position}"),
    });
}

pub fn read_refill_block(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let index = usize::from(worker.index);
    let block = state.shared.refill_block[index];
    worker.set_block(block);
    worker.step = match config.rules.hole_block_checked {
        true => WorkerStep::CheckRefillBlock,
        false => WorkerStep::WriteRecord,
    };
    out.push(next, || format!("w{who} reads refill_block[{index}] = {block}"));
}

pub fn check_refill_block(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let block = if worker.moving { worker.second.block } else { worker.claim.block };
    let ready = state.shared.ready[usize::from(block)];
    let holds_it = ready.sequence == config.ready(config.sequence_of(worker.wanted), ready.state).sequence;
    if holds_it {
        worker.step = WorkerStep::WriteRecord;
    } else {
        worker.wanted = 0;
        worker.from_entry = None;
        worker.look_again(config, state.shared.space);
    }
    out.push(next, || {
        format!(
            "w{who} reads ready[{block}]: {}",
            if holds_it { "it holds the hole" } else { "another life" }
        )
    });
}

pub fn read_cursor(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn read_limit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn read_fill(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn write_record(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let record = Record { first: worker.wanted, length: worker.wanted_length(), dropped: false };
    *worker.record(config) = Some(record);
    worker.step = WorkerStep::TakeClaim;
    out.push(next, || format!("w{who} records its claim {}+{}", record.first, record.length));
}

pub fn take_claim(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &state.workers[who];
    let (position, length) = (worker.wanted, worker.wanted_length());
    let won = match worker.from_entry {
        Some(entry) => {
            let entry = &mut next.shared.refill[usize::from(entry)];
            let offered = *entry == Some(position);
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
pub fn worker_is_bound(worker: &Worker) -> bool {
    worker.moving || worker.filler
}

pub fn lose_claim(config: &Configuration, state: &mut State, who: usize) {
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

pub fn clear_lost_record(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker.record(config) = None;
    worker.look_again(config, state.shared.space);
    out.push(next, || format!("w{who} clears the record of the claim that it did not get"));
}
