//! Granting: the oldest block that nobody has goes to a reader that has none.

use super::{Daemon, DaemonStep};
use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::reader::{Reader, ReaderStep};
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, out: &mut Successors) {
    let blocks = &state.ledger.blocks;
    let oldest = (0..config.blocks)
        .filter(|&block| matches!(blocks[block].state, BlockState::Published | BlockState::Finished))
        .filter(|&block| blocks[block].grant.is_none())
        .min_by_key(|&block| blocks[block].sequence);
    let Some(block) = oldest else { return };
    let sequence = blocks[block].sequence;
    let listens = |reader: &Reader| matches!(reader.step, ReaderStep::WithoutGrant | ReaderStep::Closed);
    for who in (0..config.readers).filter(|&who| listens(&state.readers[who])) {
        let mut next = *state;
        next.ledger.blocks[block].grant = Some(who as u8);
        if config.wake_needs_granted {
            next.shared.ready[block].granted = true;
            next.daemon = Daemon::begin_with_block(DaemonStep::SendGrant, block);
            next.daemon.client = who as u8;
            out.push(next, || format!("daemon sets GRANTED in ready[{block}]"));
        } else {
            next.readers[who] = Reader::with_grant(config, state, sequence, block as u8);
            out.push(next, || format!("daemon grants sequence {sequence} (block {block}) to r{who}"));
        }
    }
}

pub fn send(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let (block, who) = (usize::from(state.daemon.block), usize::from(state.daemon.client));
    next.readers[who] = Reader::with_grant(config, state, state.ledger.blocks[block].sequence, block as u8);
    next.daemon.go(DaemonStep::Idle);
    out.push(next, || format!("daemon grants block {block} to r{who}"));
}
