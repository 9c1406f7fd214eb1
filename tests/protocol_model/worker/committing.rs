//! From a claim to a committed sample, and to a complete block.

use super::{Worker, WorkerStep, step};
use crate::configuration::Configuration;
use crate::invariants::{check_write, count_commit};
use crate::state::State;
use crate::successors::Successors;

pub fn read_retired_bytes(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn write_bytes(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    let ((position, block), sample) = (worker.place(), worker.sample());
    check_write(config, state, &format!("w{who}"), block, position, out);
    worker.step = WorkerStep::Commit;
    next.shared.data[block][config.slot_of(position)] = sample + 1;
    out.push(next, || format!("w{who} writes sample {sample} at {position} in block {block}"));
}

pub fn commit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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
pub fn commit_elsewhere(config: &Configuration, state: &mut State, who: usize) {
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

pub fn look_at_words(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn mark_complete(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn wake_readers(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let (_, block) = state.workers[who].place();
    next.wake_readers(config, block);
    next.workers[who].step = WorkerStep::AfterCommit;
    out.push(next, || format!("w{who} wakes ready[{block}]"));
}

pub fn after_commit(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
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

pub fn clear_record(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let worker = &mut next.workers[who];
    *worker = Worker { records: [None, worker.records[1]], ..worker.without_claim(WorkerStep::Idle) };
    out.push(next, || format!("w{who} clears its record"));
}
