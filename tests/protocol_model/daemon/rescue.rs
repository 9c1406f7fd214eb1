//! Rescuing a block from a worker that is stopped: retire its words, break it, quarantine it.
//!
//! The old values of the words, read by the same operation that retires them, are exactly the commits that counted.

use super::DaemonStep;
use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::shared::{Ready, ReadyState};
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    let record = &state.ledger.blocks[block];
    let is_candidate = record.is(BlockState::Published) && !state.shared.all_full(config, block);
    if state.budget.rescues == 0 || !is_candidate {
        return;
    }
    let positions = config.first_position(record.sequence)..config.first_position(record.sequence + 1);
    let holds = |who: &usize| {
        let records = state.workers[*who].records;
        records.into_iter().flatten().any(|record| positions.clone().any(|position| record.covers(position)))
    };
    let holders = (0..config.workers).filter(holds).fold(0, |all, who| all | 1 << who);
    let unwritable = state.ledger.blocks[..config.blocks]
        .iter()
        .filter(|block| !matches!(block.state, BlockState::Free | BlockState::Published))
        .count();
    let is_last = unwritable + 1 >= config.blocks;
    if holders == 0 || is_last && config.rules.last_block_never_quarantined {
        return;
    }
    let mut next = *state;
    next.budget.rescues -= 1;
    next.ledger.blocks[block].state = BlockState::Rescuing;
    next.ledger.blocks[block].holders = holders;
    next.daemon = super::Daemon::begin_with_block(DaemonStep::RetireWords, block);
    out.push(next, || format!("daemon begins to rescue block {block}"));
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let block = usize::from(state.daemon.block);
    let sequence = state.ledger.blocks[block].sequence;
    let then_wake = if config.readers_sleep { DaemonStep::WakeRescued } else { DaemonStep::Idle };
    match state.daemon.step {
        DaemonStep::RetireWords => {
            let index = usize::from(state.daemon.index);
            let word = &mut next.shared.words[block][index];
            word.retired = true;
            next.daemon.counted |= word.bits << (index * config.slots_a_word());
            next.daemon.index += 1;
            if index + 1 == config.words {
                next.daemon.go(DaemonStep::JudgeRescue);
            }
            out.push(next, || format!("daemon retires word {block}.{index}"));
        }
        DaemonStep::JudgeRescue => judge(config, state, out),
        DaemonStep::RecordQuarantine => {
            quarantine(&mut next, block);
            next.daemon.go(then_wake);
            out.push(next, || format!("daemon records block {block} as quarantined"));
        }
        DaemonStep::StoreBrokenLate => {
            next.shared.ready[block] = config.ready(sequence, ReadyState::Broken);
            next.daemon.go(then_wake);
            out.push(next, || format!("daemon stores ready[{block}] = broken"));
        }
        DaemonStep::HelpComplete => {
            let ready = &mut next.shared.ready[block];
            if ready.says(config.ready(sequence, ReadyState::Filling)) {
                *ready = Ready { granted: ready.granted, ..config.ready(sequence, ReadyState::Complete) };
            }
            next.daemon.go(then_wake);
            out.push(next, || format!("daemon helps ready[{block}] to complete"));
        }
        DaemonStep::WakeRescued => {
            next.wake_readers(config, block);
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || format!("daemon wakes ready[{block}]"));
        }
        other => unreachable!("{other:?} is no step of a rescue"),
    }
}

/// All words are retired: called off, or broken?
fn judge(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let block = usize::from(state.daemon.block);
    let record = &mut next.ledger.blocks[block];
    if state.daemon.counted == config.all_slots() && config.rules.rescue_called_off_when_complete {
        record.state = BlockState::Published;
        record.holders = 0;
        next.daemon.go(DaemonStep::HelpComplete);
        out.push(next, || format!("daemon calls the rescue of block {block} off: all commits counted"));
    } else if config.rules.broken_before_quarantine_record {
        next.shared.ready[block] = config.ready(record.sequence, ReadyState::Broken);
        next.daemon.go(DaemonStep::RecordQuarantine);
        out.push(next, || format!("daemon stores ready[{block}] = broken"));
    } else {
        quarantine(&mut next, block);
        next.daemon.go(DaemonStep::StoreBrokenLate);
        out.push(next, || format!("daemon records block {block} as quarantined"));
    }
}

fn quarantine(next: &mut State, block: usize) {
    let record = &mut next.ledger.blocks[block];
    record.state = BlockState::Quarantined;
    record.counted = next.daemon.counted;
    record.copied = 0;
}
