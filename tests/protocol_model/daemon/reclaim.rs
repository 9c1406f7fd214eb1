//! Settling the claims of workers that are gone, and claims that were dropped: for each position, is it a hole?
//!
//! The order of the looks is the point: the cursor, the refill entries, every live record, and last the bit. A position
//! can only wander along that order, so that none is missed. One function serves every way of dying, and doing it
//! again changes nothing.

use super::{Daemon, DaemonStep, choice};
use crate::configuration::Configuration;
use crate::invariants::check_offer;
use crate::record::Record;
use crate::state::State;
use crate::successors::Successors;

pub fn choose(config: &Configuration, state: &State, out: &mut Successors) {
    for orphan in (0..state.ledger.orphans.len()).filter(|&orphan| state.ledger.orphans[orphan].is_some()) {
        let daemon = Daemon { orphan: orphan as u8, ..Daemon::begin(DaemonStep::ReclaimReadsCursor) };
        choice::go(config, state, daemon, out);
    }
}

/// A live worker has dropped its claim.
pub fn choose_dropped(state: &State, who: usize, out: &mut Successors) {
    let worker = &state.workers[who];
    if let Some(record) = worker.records[0].filter(|record| record.dropped && worker.is_alive()) {
        let mut next = *state;
        next.ledger.keep_orphan(record);
        next.daemon = Daemon { client: who as u8, ..Daemon::begin(DaemonStep::ClearDroppedRecord) };
        out.push(next, || format!("daemon takes over the dropped claim of w{who}"));
    }
}

/// The order in which a position is looked up.
fn after(config: &Configuration, step: DaemonStep) -> DaemonStep {
    use DaemonStep as D;
    match (step, config.rules.reclaim_order) {
        (D::ReclaimReadsCursor, true) => D::ReclaimReadsRefill,
        (D::ReclaimReadsCursor, false) => D::ReclaimReadsBit,
        (D::ReclaimReadsRefill, _) => D::ReclaimReadsRecords,
        (D::ReclaimReadsRecords, true) => D::ReclaimReadsBit,
        (D::ReclaimReadsRecords, false) => D::OfferHole,
        (D::ReclaimReadsBit, true) => D::OfferHole,
        (D::ReclaimReadsBit, false) => D::ReclaimReadsRefill,
        (other, _) => unreachable!("{other:?} is no look of reclaim"),
    }
}

pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    match state.daemon.step {
        DaemonStep::ClearDroppedRecord => {
            let mut next = *state;
            let who = usize::from(state.daemon.client);
            let record = &mut next.workers[who].records[0];
            record.take_if(|record| record.dropped);
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || format!("daemon clears the record of w{who}"));
        }
        DaemonStep::SettleOrphan => {
            let mut next = *state;
            next.ledger.settle_orphan(usize::from(state.daemon.orphan));
            next.daemon.go(DaemonStep::Idle);
            out.push(next, || "daemon has settled the orphaned claim".into());
        }
        _ => look(config, state, out),
    }
}

/// One look at one position of the claim.
fn look(config: &Configuration, state: &State, out: &mut Successors) {
    let record = state.ledger.orphans[usize::from(state.daemon.orphan)].expect("an orphan is being settled");
    let position = record.first + state.daemon.offset;
    match state.daemon.step {
        DaemonStep::ReclaimReadsCursor => read_cursor(config, state, record, position, out),
        DaemonStep::ReclaimReadsRefill => read_refill(config, state, record, position, out),
        DaemonStep::ReclaimReadsRecords => read_records(config, state, position, out),
        DaemonStep::ReclaimReadsBit => read_bit(config, state, record, position, out),
        DaemonStep::OfferHole => offer(config, state, record, position, out),
        DaemonStep::BumpSpaceForHole => {
            let mut next = *state;
            next.bump_space(config);
            next.daemon.go(DaemonStep::WakeSpaceForHole);
            out.push(next, || format!("daemon bumps space to {}", next.shared.space));
        }
        DaemonStep::WakeSpaceForHole => {
            let mut next = *state;
            next.wake_workers(config);
            settle_position(&mut next, record);
            out.push(next, || "daemon wakes space".into());
        }
        other => unreachable!("{other:?} is no step of reclaim"),
    }
}

/// On to the claim's next position.
fn settle_position(next: &mut State, record: Record) {
    let daemon = &mut next.daemon;
    let more = daemon.offset + 1 < record.length;
    let (step, offset) = if more {
        (DaemonStep::ReclaimReadsCursor, daemon.offset + 1)
    } else {
        (DaemonStep::SettleOrphan, 0)
    };
    *daemon = Daemon { orphan: daemon.orphan, offset, ..Daemon::begin(step) };
}

fn read_cursor(config: &Configuration, state: &State, record: Record, position: u8, out: &mut Successors) {
    let mut next = *state;
    let lives =
        state.ledger.published_block_of(config, position).is_some() || !config.rules.private_block_table;
    let claimed = lives && position < state.shared.cursor.position;
    if claimed {
        next.daemon.index = 0;
        next.daemon.free_entry = None;
        next.daemon.go(after(config, DaemonStep::ReclaimReadsCursor));
    } else {
        settle_position(&mut next, record);
    }
    out.push(next, || {
        format!(
            "reclaim {position}: {}",
            if claimed { "below the cursor" } else { "not claimed, or its block is gone" }
        )
    });
}

fn read_refill(config: &Configuration, state: &State, record: Record, position: u8, out: &mut Successors) {
    let mut next = *state;
    let index = state.daemon.index;
    let hole = state.shared.refill[usize::from(index)];
    if hole == Some(position) {
        settle_position(&mut next, record);
        out.push(next, || format!("reclaim {position}: is offered in refill[{index}]"));
        return;
    }
    if hole.is_none() && state.daemon.free_entry.is_none() {
        next.daemon.free_entry = Some(index);
    }
    next.daemon.index += 1;
    if usize::from(index) + 1 == config.refill_entries {
        next.daemon.index = 0;
        next.daemon.go(after(config, DaemonStep::ReclaimReadsRefill));
    }
    out.push(next, || format!("reclaim {position}: not in refill[{index}]"));
}

fn read_records(config: &Configuration, state: &State, position: u8, out: &mut Successors) {
    let mut next = *state;
    let mut index = usize::from(state.daemon.index);
    if config.rescues == 0 {
        index = index.next_multiple_of(2); // second records exist only where there are rescues
    }
    if index >= 2 * config.workers {
        next.daemon.index = 0;
        next.daemon.go(after(config, DaemonStep::ReclaimReadsRecords));
        super::step(config, &next, out);
        return;
    }
    let who = index / 2;
    let covers = state.workers[who].records[index % 2]
        .is_some_and(|record| !record.dropped && record.covers(position));
    next.daemon.index = index as u8 + 1;
    if covers {
        next.daemon.go(DaemonStep::Idle);
    }
    out.push(next, || {
        format!(
            "reclaim {position}: {} by record {} of w{who}",
            if covers { "covered" } else { "not covered" },
            index % 2
        )
    });
}

/// The block of a position: by the private table, or by `fill` where that rule is off.
fn block_of(config: &Configuration, state: &State, position: u8) -> usize {
    let by_fill = || usize::from(state.shared.fill[config.fill_entry(position)]);
    state.ledger.published_block_of(config, position).unwrap_or_else(by_fill)
}

fn read_bit(config: &Configuration, state: &State, record: Record, position: u8, out: &mut Successors) {
    let mut next = *state;
    let committed =
        state.shared.is_committed(config, block_of(config, state, position), config.slot_of(position));
    if committed {
        settle_position(&mut next, record);
    } else {
        next.daemon.go(after(config, DaemonStep::ReclaimReadsBit));
    }
    out.push(next, || {
        format!("reclaim {position}: {}", if committed { "committed" } else { "its bit is unset" })
    });
}

fn offer(config: &Configuration, state: &State, record: Record, position: u8, out: &mut Successors) {
    let mut next = *state;
    let Some(entry) = state.daemon.free_entry else {
        next.daemon.go(DaemonStep::Idle);
        out.push(next, || format!("reclaim {position}: refill is full, later"));
        return;
    };
    let block = block_of(config, state, position);
    check_offer(config, state, block, position, out);
    next.shared.refill_block[usize::from(entry)] = block as u8;
    next.shared.refill[usize::from(entry)] = Some(position);
    if config.workers_sleep {
        next.daemon.index = 0;
        next.daemon.free_entry = None;
        next.daemon.go(DaemonStep::BumpSpaceForHole);
    } else {
        settle_position(&mut next, record);
    }
    out.push(next, || format!("daemon offers {position} in refill[{entry}]"));
}
