//! Ending a quarantine: the block is free when nothing offers it, no record covers it, and its grant has come back.

use super::{Daemon, DaemonStep, choice};
use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    let record = &state.ledger.blocks[block];
    if record.uncopied() == 0 {
        if config.rules.quarantine_until_records_clear {
            let passed = state.shared.cursor.position >= config.first_position(record.sequence + 1);
            let returned = record.grant.is_none() || !config.rules.broken_block_waits_for_its_grant;
            if passed && returned {
                choice::go(
                    config,
                    state,
                    Daemon::begin_with_block(DaemonStep::QuarantineReadsRefill, block),
                    out,
                );
            }
        } else if record.holders == 0 {
            let mut next = *state;
            next.ledger.blocks[block].state = BlockState::Free;
            out.push(next, || format!("daemon ends the quarantine of block {block}: its holders are gone"));
        }
    }
    withdraw_offers(config, state, block, out);
}

/// Holes of a retired block are no use to anybody.
fn withdraw_offers(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    for entry in (0..config.refill_entries).filter(|&entry| offers(config, state, entry, block)) {
        let mut next = *state;
        next.shared.refill[entry] = None;
        out.push(next, || format!("daemon withdraws refill[{entry}]"));
    }
}

fn offers(config: &Configuration, state: &State, entry: usize, block: usize) -> bool {
    let sequence = state.ledger.blocks[block].sequence;
    state.shared.refill[entry].is_some_and(|position| config.sequence_of(position) == sequence)
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let block = usize::from(state.daemon.block);
    if state.daemon.step == DaemonStep::QuarantineReadsRefill {
        let offered = (0..config.refill_entries).any(|entry| offers(config, state, entry, block));
        next.daemon.go(if offered { DaemonStep::Idle } else { DaemonStep::QuarantineReadsRecords });
        out.push(next, || {
            format!("daemon: block {block} is {} offered", if offered { "still" } else { "not" })
        });
        return;
    }
    let index = usize::from(state.daemon.index);
    let who = index / 2;
    if index == 2 * config.workers {
        next.ledger.blocks[block].state = BlockState::Free;
        next.ledger.blocks[block].grant = None;
        next.daemon.go(DaemonStep::Idle);
        out.push(next, || format!("daemon ends the quarantine of block {block}"));
        return;
    }
    let first = config.first_position(state.ledger.blocks[block].sequence);
    let covered = state.workers[who].records[index % 2]
        .is_some_and(|record| (first..first + config.slots as u8).any(|position| record.covers(position)));
    next.daemon.index += 1;
    if covered {
        next.daemon.go(DaemonStep::Idle);
    }
    out.push(next, || {
        format!("daemon: a record of w{who} {} block {block}", if covered { "covers" } else { "spares" })
    });
}
