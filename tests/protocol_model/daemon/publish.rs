//! Publishing a free block: words, length, `ready`, `fill`, the private record, and then the limit that shows them.

use super::{Daemon, DaemonStep, choice, then_tell_workers};
use crate::configuration::Configuration;
use crate::ledger::{BlockRecord, BlockState};
use crate::shared::{ReadyState, Word};
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, out: &mut Successors) {
    let ledger = &state.ledger;
    if ledger.next_sequence == config.sequences || ledger.finishing {
        return;
    }
    if let Some(block) = (0..config.blocks).find(|&block| ledger.blocks[block].is(BlockState::Free)) {
        choice::go(config, state, Daemon::begin_with_block(DaemonStep::ClearWords, block), out);
    }
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let block = usize::from(state.daemon.block);
    let sequence = state.ledger.next_sequence;
    match state.daemon.step {
        DaemonStep::ClearWords => {
            let index = usize::from(state.daemon.index);
            next.shared.words[block][index] = Word::default();
            next.shared.length[block] = config.slots as u8; // nobody reads it before the limit moves
            next.daemon.index += 1;
            if index + 1 == config.words {
                next.daemon.go(DaemonStep::StoreFilling);
            }
            out.push(next, || format!("daemon clears word {block}.{index}"));
        }
        DaemonStep::StoreFilling => {
            next.shared.ready[block] = config.ready(sequence, ReadyState::Filling);
            next.daemon.go(DaemonStep::StoreFill);
            out.push(next, || format!("daemon stores ready[{block}] = filling, sequence {sequence}"));
        }
        DaemonStep::StoreFill => {
            let entry = usize::from(sequence) % config.fill_entries;
            next.shared.fill[entry] = block as u8;
            next.daemon.go(DaemonStep::RecordPublished);
            out.push(next, || format!("daemon stores fill[{entry}] = {block}"));
        }
        DaemonStep::RecordPublished => {
            next.ledger.blocks[block] = BlockRecord {
                state: BlockState::Published,
                sequence,
                grant: None,
                counted: 0,
                copied: 0,
                holders: 0,
            };
            next.ledger.next_sequence += 1;
            // The private record can only be told from the limit if the daemon may die between the two.
            if config.daemon_crashes > 0 {
                next.daemon.go(DaemonStep::StoreLimit);
                out.push(next, || format!("daemon records sequence {sequence} in block {block}"));
            } else {
                store_limit(config, &mut next);
                out.push(next, || {
                    format!("daemon records sequence {sequence} in block {block}, raises the limit")
                });
            }
        }
        DaemonStep::StoreLimit => {
            store_limit(config, &mut next);
            out.push(next, || format!("daemon stores limit = {}", next.shared.limit));
        }
        DaemonStep::BumpSpace => {
            next.bump_space(config);
            next.daemon.go(DaemonStep::WakeSpace);
            out.push(next, || format!("daemon bumps space to {}", next.shared.space));
        }
        DaemonStep::WakeSpace => {
            next.wake_workers(config);
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || "daemon wakes space".into());
        }
        other => unreachable!("{other:?} is no step of publishing"),
    }
}

fn store_limit(config: &Configuration, next: &mut State) {
    next.shared.limit = config.first_position(next.ledger.next_sequence);
    next.daemon.go(then_tell_workers(config));
}
