//! What an idle daemon can do. Where several things wait, each order is explored.

use super::{Daemon, DaemonStep, copy, finish, grant, publish, quarantine, reclaim, rescue};
use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::reader::{Reader, ReaderStep};
use crate::state::State;
use crate::successors::Successors;
use crate::worker::WorkerStep;

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    // What was begun comes first.
    if state.ledger.copy.is_some() {
        return go(config, state, Daemon::begin(DaemonStep::WriteCopy), out);
    }
    if let Some(block) = (0..config.blocks).find(|&block| state.ledger.blocks[block].is(BlockState::Rescuing))
    {
        return go(config, state, Daemon::begin_with_block(DaemonStep::RetireWords, block), out);
    }
    publish::choose(config, state, out);
    grant::choose(config, state, out);
    for who in 0..config.readers {
        hear_reader(config, state, who, out);
    }
    for who in 0..config.workers {
        bury_worker(config, state, who, out);
        reclaim::choose_dropped(state, who, out);
    }
    reclaim::choose(config, state, out);
    for block in 0..config.blocks {
        rescue::choose(config, state, block, out);
        if state.ledger.blocks[block].is(BlockState::Quarantined) && !state.ledger.finishing {
            copy::choose(config, state, block, out);
            quarantine::choose(config, state, block, out);
        }
    }
    if config.finishing {
        finish::choose(config, state, out);
    }
}

/// Begins something whose choice nobody can see: together with its first step.
pub fn go(config: &Configuration, state: &State, daemon: Daemon, out: &mut Successors) {
    super::step(config, &State { daemon, ..*state }, out);
}

/// Releases, deaths, and questions after *broken*.
fn hear_reader(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let reader = state.readers[who];
    let mut next = *state;
    next.readers[who] = Reader::IDLE;
    let blocks = &mut next.ledger.blocks[..config.blocks];
    match reader.step {
        ReaderStep::Released => {
            let block = &mut blocks[usize::from(reader.block)];
            block.state = BlockState::Free;
            block.grant = None;
            out.push(next, || format!("daemon takes the release of r{who}: block {} is free", reader.block));
        }
        ReaderStep::Dead | ReaderStep::Broken => {
            for block in blocks.iter_mut().filter(|block| block.grant == Some(who as u8)) {
                block.grant = None;
            }
            let why = if reader.step == ReaderStep::Dead { "is gone" } else { "saw a broken block" };
            out.push(next, || format!("daemon takes the grants back of r{who}, which {why}"));
        }
        _ => {}
    }
}

/// A worker is gone: its claims are kept, and its place is free for another.
fn bury_worker(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let worker = &state.workers[who];
    if worker.step != WorkerStep::Dead {
        return;
    }
    let mut next = *state;
    for record in worker.records.into_iter().flatten() {
        next.ledger.keep_orphan(record);
    }
    for block in &mut next.ledger.blocks {
        block.holders &= !(1 << who);
    }
    let step = if config.finishing { WorkerStep::Gone } else { WorkerStep::Idle };
    next.workers[who] = worker.without_claim(step);
    out.push(next, || format!("daemon sees that w{who} is gone, and keeps its claims"));
}
