//! Finishing the table, when every writer is gone: the last, partly written blocks are delivered as they are.
//!
//! Nobody can commit any more, so a block's commit bits are final, and an unset one below the cursor is a hole for ever.
//! Holes and orphaned claims therefore need no settling. Per block, in this order:
//!
//! 1. count the commit bits (of a quarantined block: the counted slots that are not copied yet), `n` of them; a block
//!    with none is freed and its grant taken back;
//! 2. move the bytes of counted slots from `n` on into the holes below `n`; those sources are never overwritten, so
//!    that after a crash the same is done again;
//! 3. record `Finishing` with the counted bits: from here on a restarted daemon counts and moves nothing;
//! 4. store `length[block] = n`, then fill the commit words, then `ready = {sequence, complete}`, wake;
//! 5. record `Finished`.
//!
//! When every block that holds samples is granted, the readers without a grant are told that the table is closed. They
//! listen still: what a reader that dies held is granted to them.

use super::{Daemon, DaemonStep, choice};
use crate::configuration::Configuration;
use crate::invariants::{check_closing, check_no_reader};
use crate::ledger::{BlockState, Ledger};
use crate::reader::{Reader, ReaderStep};
use crate::shared::{Ready, ReadyState};
use crate::state::State;
use crate::successors::Successors;
use crate::worker::WorkerStep;

pub fn choose(config: &Configuration, state: &State, out: &mut Successors) {
    if !state.ledger.finishing {
        if may_begin(config, state) {
            let mut next = *state;
            next.ledger.finishing = true;
            next.ledger.orphans = Ledger::new().orphans;
            next.daemon.go(DaemonStep::CloseForGood);
            out.push(next, || "daemon records that the table is finishing".into());
        }
    } else if !state.shared.cursor.closed {
        choice::go(config, state, Daemon::begin(DaemonStep::CloseForGood), out);
    } else if let Some(block) = next_block(config, state) {
        begin_block(config, state, block, out);
    } else if all_is_granted(config, state) {
        close_readers(config, state, out);
    }
}

/// Every writer is gone. (What was begun, a rescue or a copy, has ended, since the daemon is idle.)
fn may_begin(config: &Configuration, state: &State) -> bool {
    state.workers[..config.workers].iter().all(|worker| {
        let ignored = !config.rules.finishing_waits_for_writers && worker.records[0].is_some();
        worker.step == WorkerStep::Gone || ignored
    })
}

/// The oldest block that is not finished and can be.
fn next_block(config: &Configuration, state: &State) -> Option<usize> {
    let blocks = &state.ledger.blocks;
    (0..config.blocks)
        .filter(|&block| match blocks[block].state {
            BlockState::Published | BlockState::Finishing => true,
            // Its copies may have nowhere to go: what is not copied is finished where it is.
            BlockState::Quarantined => blocks[block].uncopied() != 0 && blocks[block].grant.is_none(),
            BlockState::Free | BlockState::Rescuing | BlockState::Finished => false,
        })
        .min_by_key(|&block| blocks[block].sequence)
}

/// Counts a block, and begins with what follows.
fn begin_block(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    let record = state.ledger.blocks[block];
    let mut daemon = Daemon::begin_with_block(DaemonStep::MoveBytes, block);
    daemon.counted = match record.state {
        BlockState::Published => state.shared.committed(config, block),
        BlockState::Quarantined => record.uncopied(),
        _ => record.counted,
    };
    if daemon.counted == 0 {
        free_empty(config, state, block, out);
        return;
    }
    let moved_first = config.rules.bytes_moved_before_finishing_record;
    daemon.step = match (record.is(BlockState::Finishing), moved_first) {
        (false, true) | (true, false) => after_count(config, daemon.counted),
        (false, false) => DaemonStep::RecordFinishing,
        (true, true) => after(config, DaemonStep::RecordFinishing, daemon.counted),
    };
    choice::go(config, state, daemon, out);
}

fn after_count(config: &Configuration, counted: u8) -> DaemonStep {
    if moves(config, counted).next().is_some() {
        DaemonStep::MoveBytes
    } else {
        after(config, DaemonStep::MoveBytes, counted)
    }
}

/// The order of the steps, with the variants of the rules.
fn after(config: &Configuration, step: DaemonStep, counted: u8) -> DaemonStep {
    use DaemonStep as D;
    let rules = &config.rules;
    let first_store = if rules.length_before_words { D::StoreLength } else { D::FillWords };
    match step {
        D::MoveBytes if rules.bytes_moved_before_finishing_record && rules.finishing_record_before_words => {
            D::RecordFinishing
        }
        D::MoveBytes => first_store,
        D::RecordFinishing if rules.bytes_moved_before_finishing_record => first_store,
        D::RecordFinishing => after_count(config, counted),
        D::StoreLength if rules.length_before_words => D::FillWords,
        D::FillWords if !rules.length_before_words => D::StoreLength,
        D::StoreLength | D::FillWords => D::StoreComplete,
        D::StoreComplete if config.readers_sleep && rules.finishing_wakes_readers => D::WakeFinished,
        D::StoreComplete | D::WakeFinished => D::RecordFinished,
        other => unreachable!("{other:?} is no step of finishing a block"),
    }
}

/// What has to be moved so that the first `n` slots are the counted samples: from which slot to which.
fn moves(config: &Configuration, counted: u8) -> impl Iterator<Item = (usize, usize)> {
    let is_counted = move |slot: &usize| counted >> slot & 1 == 1;
    let n = counted.count_ones() as usize;
    let sources = (n..config.slots).filter(is_counted);
    let holes = (0..n).filter(move |slot| !is_counted(slot));
    sources.zip(holes)
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let Daemon { step, counted, .. } = state.daemon;
    let block = usize::from(state.daemon.block);
    let label: String = match step {
        DaemonStep::CloseForGood => {
            next.shared.cursor.closed = true;
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || "daemon closes the cursor for good".into());
            return;
        }
        DaemonStep::TakeGrantBack => return take_grant_back(state, out),
        DaemonStep::MoveBytes => return move_bytes(config, state, out),
        DaemonStep::FillWords => return fill_words(config, state, out),
        DaemonStep::RecordFinishing => {
            let record = &mut next.ledger.blocks[block];
            record.state = BlockState::Finishing;
            record.counted = counted;
            record.copied = 0;
            "records as finishing"
        }
        DaemonStep::StoreLength => {
            next.shared.length[block] = counted.count_ones() as u8;
            "stores the length of"
        }
        DaemonStep::StoreComplete => {
            let ready = &mut next.shared.ready[block];
            let complete = config.ready(state.ledger.blocks[block].sequence, ReadyState::Complete);
            *ready = Ready { granted: ready.granted, ..complete };
            "marks as complete"
        }
        DaemonStep::WakeFinished => {
            next.wake_readers(config, block);
            "wakes the readers of"
        }
        DaemonStep::RecordFinished => {
            let record = &mut next.ledger.blocks[block];
            record.state = BlockState::Finished;
            record.counted = counted;
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || format!("daemon records block {block} as finished"));
            return;
        }
        other => unreachable!("{other:?} is no step of finishing"),
    }
    .into();
    next.daemon.index = 0;
    next.daemon.go(after(config, step, counted));
    out.push(next, || format!("daemon {label} block {block} (counted {counted:b})"));
}

fn move_bytes(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let Daemon { counted, index, .. } = state.daemon;
    let block = usize::from(state.daemon.block);
    let (from, to) = moves(config, counted).nth(usize::from(index)).expect("a move is left");
    check_no_reader(config, state, "the daemon", block, to, out);
    next.shared.data[block][to] = state.shared.data[block][from];
    next.daemon.index += 1;
    if usize::from(index) + 1 == moves(config, counted).count() {
        next.daemon.index = 0;
        next.daemon.go(after(config, DaemonStep::MoveBytes, counted));
    }
    out.push(next, || format!("daemon moves slot {from} of block {block} to slot {to}"));
}

fn fill_words(config: &Configuration, state: &State, out: &mut Successors) {
    let mut next = *state;
    let Daemon { counted, index, .. } = state.daemon;
    let block = usize::from(state.daemon.block);
    next.shared.words[block][usize::from(index)].bits = config.full_bits();
    next.daemon.index += 1;
    if usize::from(index) + 1 == config.words {
        next.daemon.index = 0;
        next.daemon.go(after(config, DaemonStep::FillWords, counted));
    }
    out.push(next, || format!("daemon fills word {block}.{index}"));
}

/// A block without a sample is free, and whoever waits for it need not.
fn free_empty(config: &Configuration, state: &State, block: usize, out: &mut Successors) {
    let mut next = *state;
    let record = &mut next.ledger.blocks[block];
    record.state = BlockState::Free;
    let grant = record.grant.take();
    if let Some(who) = grant.filter(|_| config.rules.empty_grant_is_taken_back) {
        next.daemon = Daemon::begin_with_block(DaemonStep::TakeGrantBack, block);
        next.daemon.client = who;
    }
    out.push(next, || format!("daemon frees block {block}, which holds nothing"));
}

fn take_grant_back(state: &State, out: &mut Successors) {
    let mut next = *state;
    let Daemon { client, block, .. } = state.daemon;
    let reader = &mut next.readers[usize::from(client)];
    if reader.waits() && reader.block == block {
        *reader = Reader::IDLE;
    }
    next.daemon.go(DaemonStep::Idle);
    out.push(next, || format!("daemon takes the grant of block {block} back from r{client}"));
}

fn all_is_granted(config: &Configuration, state: &State) -> bool {
    state.ledger.blocks[..config.blocks].iter().all(|block| match block.state {
        BlockState::Free => true,
        BlockState::Quarantined => block.uncopied() == 0,
        BlockState::Finished => block.grant.is_some(),
        _ => false,
    })
}

fn close_readers(config: &Configuration, state: &State, out: &mut Successors) {
    for who in (0..config.readers).filter(|&who| state.readers[who].step == ReaderStep::WithoutGrant) {
        let mut next = *state;
        next.readers[who].step = ReaderStep::Closed;
        check_closing(config, state, who, out);
        out.push(next, || format!("daemon tells r{who} that the table is closed"));
    }
}
