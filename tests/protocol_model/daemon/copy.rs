//! Copying a counted sample out of a quarantined block, to the cursor.
//!
//! The cursor is CLOSED while the target is noted, so that the daemon knows after a crash that the position is its own.

use super::{Daemon, DaemonStep, choice, then_tell_workers};
use crate::configuration::Configuration;
use crate::invariants::check_write;
use crate::ledger::{BlockState, CopyInFlight};
use crate::shared::Cursor;
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    let uncopied = state.ledger.blocks[block].uncopied();
    let under_closed = config.rules.daemon_copies_under_closed_cursor;
    let no_room = state.shared.cursor.position >= config.first_position(state.ledger.next_sequence);
    if uncopied == 0 || under_closed && no_room && !state.shared.cursor.closed {
        return;
    }
    let mut daemon = Daemon::begin_with_block(DaemonStep::CloseCursor, block);
    daemon.slot = uncopied.trailing_zeros() as u8;
    choice::go(config, state, daemon, out);
}

/// The copy in flight, and the block that it goes to.
fn in_flight(config: &Configuration, state: &State) -> (CopyInFlight, usize) {
    let copy = state.ledger.copy.expect("a copy is in flight");
    let block = state.ledger.block_of(config, copy.target).expect("the target of a copy lives");
    (copy, block)
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    match state.daemon.step {
        DaemonStep::CloseCursor => {
            next.daemon.cursor = state.shared.cursor.position;
            next.shared.cursor.closed |= config.rules.daemon_copies_under_closed_cursor;
            next.daemon.go(DaemonStep::RecordCopy);
            let verb = if next.shared.cursor.closed { "closes" } else { "reads" };
            out.push(next, || format!("daemon {verb} the cursor at {}", state.shared.cursor.position));
        }
        DaemonStep::RecordCopy => record_copy(config, state, out),
        DaemonStep::MoveCursor => move_cursor(config, state, out),
        DaemonStep::BumpAndWakeForCopy => {
            next.bump_space(config);
            next.wake_workers(config);
            next.daemon.go(DaemonStep::WriteCopy);
            out.push(next, || "daemon bumps and wakes space".into());
        }
        DaemonStep::ForgetCopy => {
            next.ledger.copy = None;
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || "daemon forgets the target of its copy".into());
        }
        DaemonStep::WriteCopy => write_copy(config, state, out),
        DaemonStep::CommitCopy => {
            let (copy, block) = in_flight(config, state);
            let (index, bit) = config.bit_of(config.slot_of(copy.target));
            next.shared.words[block][index].bits |= bit;
            next.daemon = Daemon::begin(DaemonStep::LookAtWords);
            out.push(next, || format!("daemon commits {}", copy.target));
        }
        DaemonStep::LookAtWords => {
            let (_, block) = in_flight(config, state);
            let index = usize::from(state.daemon.index);
            let full = config.is_full(state.shared.words[block][index]);
            if full && index + 1 < config.words {
                next.daemon.index += 1;
            } else {
                next.daemon.go(if full { DaemonStep::MarkComplete } else { DaemonStep::RecordCopied });
            }
            out.push(next, || format!("daemon looks at word {block}.{index}"));
        }
        DaemonStep::MarkComplete => {
            let (copy, block) = in_flight(config, state);
            next.mark_complete(config, block, config.sequence_of(copy.target));
            next.daemon.go(if config.readers_sleep {
                DaemonStep::WakeCopied
            } else {
                DaemonStep::RecordCopied
            });
            out.push(next, || format!("daemon marks ready[{block}] complete"));
        }
        DaemonStep::WakeCopied => {
            let (_, block) = in_flight(config, state);
            next.wake_readers(config, block);
            next.daemon.go(DaemonStep::RecordCopied);
            out.push(next, || format!("daemon wakes ready[{block}]"));
        }
        DaemonStep::RecordCopied => {
            let (copy, _) = in_flight(config, state);
            next.ledger.blocks[usize::from(copy.block)].copied |= 1 << copy.slot;
            next.ledger.copy = None;
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || format!("daemon records slot {} of block {} as copied", copy.slot, copy.block));
        }
        other => unreachable!("{other:?} is no step of a copy"),
    }
}

fn record_copy(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let Daemon { block, slot, cursor: target, .. } = state.daemon;
    let under_closed = config.rules.daemon_copies_under_closed_cursor;
    let then_tell = if under_closed { then_tell_workers(config) } else { DaemonStep::Idle };
    let target_block = state.ledger.block_of(config, target);
    if target >= config.first_position(state.ledger.next_sequence) {
        next.shared.cursor.closed = false;
        next.daemon.go(then_tell);
        out.push(next, || "daemon finds no room to copy, opens the cursor".into());
    } else if under_closed
        && target_block.is_some_and(|block| !state.ledger.blocks[block].is(BlockState::Published))
    {
        let beyond = config.first_position(config.sequence_of(target) + 1);
        next.shared.cursor = Cursor { position: beyond, closed: false };
        next.daemon.go(then_tell);
        out.push(next, || format!("daemon moves the cursor past a retired block, to {beyond}"));
    } else {
        next.ledger.copy = Some(CopyInFlight { block, slot, target });
        next.daemon.go(DaemonStep::MoveCursor);
        out.push(next, || format!("daemon records its copy of block {block} slot {slot} to {target}"));
    }
}

fn move_cursor(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let copy = state.ledger.copy.expect("a copy is in flight");
    let position = copy.target + 1;
    if config.rules.daemon_copies_under_closed_cursor {
        next.shared.cursor = Cursor { position, closed: false };
        let sleepers = config.workers_sleep;
        next.daemon.go(if sleepers { DaemonStep::BumpAndWakeForCopy } else { DaemonStep::WriteCopy });
        out.push(next, || format!("daemon moves the cursor to {position} and opens it"));
        return;
    }
    let won = state.shared.cursor.position == copy.target;
    if won {
        next.shared.cursor.position = position;
    }
    let usable = won && state.ledger.published_block_of(config, copy.target).is_some();
    next.daemon.go(if usable { DaemonStep::WriteCopy } else { DaemonStep::ForgetCopy });
    out.push(next, || format!("daemon CAS {} for {}", if won { "won" } else { "lost" }, copy.target));
}

fn write_copy(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let copy = state.ledger.copy.expect("a copy is in flight");
    let Some(block) = state.ledger.block_of(config, copy.target) else {
        out.violate(|| format!("the daemon copies to {}, which is in no live block", copy.target));
        return;
    };
    let slot = config.slot_of(copy.target);
    if state.shared.is_committed(config, block, slot) {
        next.daemon.go(DaemonStep::RecordCopied);
        out.push(next, || "daemon finds its copy committed".into());
        return;
    }
    check_write(config, state, "the daemon", block, copy.target, out);
    next.shared.data[block][slot] = state.shared.data[usize::from(copy.block)][usize::from(copy.slot)];
    next.daemon.go(DaemonStep::CommitCopy);
    out.push(next, || format!("daemon copies block {} slot {} to {}", copy.block, copy.slot, copy.target));
}
