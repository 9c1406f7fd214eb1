//! The daemon comes back: everything that it needs is in shared memory and in its ledger.

use super::{Daemon, DaemonStep, then_tell_workers};
use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::reader::{Reader, ReaderStep};
use crate::shared::Cursor;
use crate::state::State;
use crate::successors::Successors;

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    match state.daemon.step {
        DaemonStep::Down => {
            next.daemon.go(DaemonStep::RestoreLimit);
            out.push(next, || "the daemon starts again".into());
        }
        DaemonStep::RestoreLimit => {
            next.shared.limit = config.first_position(state.ledger.next_sequence);
            let sleepers = config.workers_sleep || config.readers_sleep;
            next.daemon.go(if sleepers { DaemonStep::WakeEverybody } else { DaemonStep::Resume });
            out.push(next, || format!("daemon stores limit = {} again", next.shared.limit));
        }
        DaemonStep::WakeEverybody => {
            next.bump_space(config);
            next.wake_workers(config);
            next.readers.iter_mut().for_each(|reader| reader.asleep = false);
            next.daemon.go(DaemonStep::Resume);
            out.push(next, || "daemon bumps space and wakes all".into());
        }
        DaemonStep::Resume => resume(config, state, out),
        other => unreachable!("{other:?} is no step of a restart"),
    }
}

/// Clients come back and say what they hold; the copy in flight goes on; otherwise the cursor is opened.
fn resume(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    compare_grants(config, &mut next);
    if state.ledger.copy.is_some() {
        resume_copy(config, next, out);
        return;
    }
    let reopen = state.shared.cursor.closed && !state.ledger.finishing;
    if reopen {
        next.shared.cursor.closed = false;
    }
    next.daemon.go(if reopen { then_tell_workers(config) } else { DaemonStep::Idle });
    out.push(next, || format!("daemon is up{}", if reopen { ", opens the cursor" } else { "" }));
}

/// A grant that its reader never got is nobody's, and one that was taken back is no grant.
fn compare_grants(config: &Configuration, next: &mut State) {
    for block in &mut next.ledger.blocks[..config.blocks] {
        block.grant.take_if(|who| next.readers[usize::from(*who)].step == ReaderStep::WithoutGrant);
    }
    for reader in &mut next.readers[..config.readers] {
        let block = &next.ledger.blocks[usize::from(reader.block)];
        if next.ledger.finishing && reader.waits() && block.is(BlockState::Free) {
            *reader = Reader::IDLE;
        }
    }
}

fn resume_copy(config: &Configuration, mut next: State, out: &mut Successors) {
    let target = next.ledger.copy.expect("a copy is in flight").target;
    if config.rules.daemon_copies_under_closed_cursor {
        next.daemon = Daemon::begin(DaemonStep::WriteCopy);
        if next.shared.cursor.closed {
            next.shared.cursor = Cursor { position: target + 1, closed: false };
            if config.workers_sleep {
                next.daemon.go(DaemonStep::BumpAndWakeForCopy);
            }
        }
        out.push(next, || "daemon goes on with its copy".into());
        return;
    }
    // Rule off: whose claim is the target? It can only guess from the cursor, the block and the bit.
    let block = next.ledger.block_of(config, target);
    let gone = block.is_some_and(|block| !next.ledger.blocks[block].is(BlockState::Published));
    if next.shared.cursor.position <= target || gone {
        next.ledger.copy = None;
        next.daemon.go(DaemonStep::Idle);
        out.push(next, || format!("daemon finds that {target} was never claimed"));
        return;
    }
    let done = block.is_none_or(|block| next.shared.is_committed(config, block, config.slot_of(target)));
    next.daemon = Daemon::begin(if done { DaemonStep::RecordCopied } else { DaemonStep::WriteCopy });
    out.push(next, || format!("daemon takes {target} for its own"));
}
