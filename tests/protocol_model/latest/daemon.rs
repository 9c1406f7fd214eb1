//! The daemon: lets blocks go round that nobody holds, and does what dead writers left undone.
//!
//! ```text
//! Idle -> Scan, a reader a step -> Free, a block a step                 recycling
//! Idle -> Prepare -> RecordLive -> RaiseLimit                           publishing a free block
//! Idle -> CatchUp                                                       `newest` for a writer that did not come to it
//! Idle -> KeepOrphan -> ClearRecord -> Settle -> Offer -> ForgetOrphan  a writer that is gone
//! ```
//!
//! What it knows is in the record, but for what it has seen of hazards: a daemon that takes over looks again, and not
//! before every reader is back.

use super::reader::{Reader, ReaderStep};
use super::state::{Block, State, Value};
use super::writer::{Writer, WriterStep};
use super::{FILL, LatestTable};
use crate::packing::{Codec, numbered};
use crate::successors::Successors;

numbered! {
    pub enum DaemonStep {
        Idle,
        /// Looks at the next reader's hazard.
        Scan,
        /// Notes in the record that an old block which nobody holds is free.
        Free,
        /// Sets a free block's words for its next life.
        Prepare,
        RecordLive,
        RaiseLimit,
        /// The CAS on `newest`.
        CatchUp,
        /// Keeps a dead writer's claim in the record.
        KeepOrphan,
        ClearRecord,
        /// Looks what became of the orphaned claim.
        Settle,
        /// Notes what it offers, then offers it.
        RecordOffer,
        Offer,
        ForgetOrphan,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Daemon {
    pub step: DaemonStep,
    /// Readers whose page it knows, a bit each.
    pub known: u8,
    /// The newest value, as it was read.
    newest: Value,
    /// What it is about to say is the newest.
    target: Value,
    /// Blocks that somebody holds, a bit each.
    held: u8,
    /// The reader, writer or block that is next.
    index: u8,
}

impl Daemon {
    pub const IDLE: Daemon = Daemon {
        step: DaemonStep::Idle,
        known: 0,
        newest: Value { version: 0, block: 0 },
        target: Value { version: 0, block: 0 },
        held: 0,
        index: 0,
    };

    fn at(&self, step: DaemonStep, index: usize) -> Daemon {
        Daemon { step, known: self.known, index: index as u8, ..Daemon::IDLE }
    }

    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 4);
        codec.bits(&mut self.known, 2);
        self.newest.fields(codec);
        self.target.fields(codec);
        codec.bits(&mut self.held, 3);
        codec.bits(&mut self.index, 2);
    }
}

/// What the daemon can do next.
pub fn step(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    let mut next = *state;
    let daemon = state.daemon;
    let index = usize::from(daemon.index);
    match daemon.step {
        DaemonStep::Idle => choose(table, state, out),
        DaemonStep::Scan => scan(table, state, out),
        DaemonStep::Free => free(table, state, out),
        DaemonStep::Prepare => {
            let block = &mut next.blocks[index];
            (block.committed, block.complete, block.ready) = (false, false, state.next_sequence + 1);
            next.fill[usize::from(state.next_sequence) % FILL] = daemon.index;
            next.daemon.step = DaemonStep::RecordLive;
            out.push(next, || format!("the daemon prepares block {index} for {}", state.next_sequence));
        }
        DaemonStep::RecordLive => {
            next.blocks[index].live = state.next_sequence + 1;
            next.next_sequence += 1;
            next.daemon.step = DaemonStep::RaiseLimit;
            out.push(next, || format!("the daemon records that block {index} is {}", state.next_sequence));
        }
        DaemonStep::RaiseLimit => {
            next.limit = state.next_sequence;
            next.bump_space(table);
            next.daemon = daemon.at(DaemonStep::Idle, 0);
            out.push(next, || format!("the daemon raises the limit to {}", next.limit));
        }
        DaemonStep::CatchUp => {
            if state.newest == daemon.newest || !table.rules.newest_is_monotone {
                next.newest = daemon.target;
            }
            if next.newest.version < state.newest.version {
                out.violate(|| {
                    format!("the newest value was {} and is {}", state.newest.version, next.newest.version)
                });
            }
            next.wake_readers(table);
            next.daemon = daemon.at(DaemonStep::Idle, 0);
            out.push(next, || format!("the daemon says that value {} is the newest", next.newest.version));
        }
        DaemonStep::KeepOrphan => {
            next.orphan = state.orphan.or(state.writers[index].record);
            next.daemon.step = DaemonStep::ClearRecord;
            out.push(next, || format!("the daemon keeps the claim of w{index}"));
        }
        DaemonStep::ClearRecord => {
            next.writers[index] = Writer::GONE;
            if table.rules.daemon_wakes_for_the_dead {
                next.wake_readers(table);
            }
            next.daemon = daemon.at(DaemonStep::Idle, 0);
            out.push(next, || format!("the daemon lets go of w{index}"));
        }
        DaemonStep::Settle => settle(table, state, out),
        DaemonStep::RecordOffer => {
            next.offered = state.orphan;
            next.daemon.step = DaemonStep::Offer;
            out.push(next, || "the daemon records what it offers".into());
        }
        DaemonStep::Offer => {
            next.refill = state.orphan;
            next.refill_block = daemon.index;
            next.bump_space(table);
            next.daemon.step = DaemonStep::ForgetOrphan;
            out.push(next, || format!("the daemon offers {:?}", state.orphan));
        }
        DaemonStep::ForgetOrphan => {
            next.orphan = None;
            next.daemon = daemon.at(DaemonStep::Idle, 0);
            out.push(next, || "the daemon forgets the claim".into());
        }
    }
}

/// Everything that it can begin.
fn choose(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    let begin = |step, index| State { daemon: state.daemon.at(step, index), ..*state };
    for (who, writer) in state.writers[..table.writers].iter().enumerate() {
        // A claim that is kept already is kept once.
        let has_room = state.orphan.is_none() || state.orphan == writer.record;
        if writer.step == WriterStep::Dead && has_room {
            out.push(begin(DaemonStep::KeepOrphan, who), || format!("the daemon misses w{who}"));
        }
    }
    if state.orphan.is_some() {
        out.push(begin(DaemonStep::Settle, 0), || "the daemon looks at the claim of the dead".into());
    }
    for (who, reader) in state.readers[..table.readers].iter().enumerate() {
        meet(state, who, reader, out);
    }
    let blocks = &state.blocks[..table.blocks];
    let unsaid = (0..table.blocks)
        .filter(|&block| blocks[block].live > state.newest.version && blocks[block].committed)
        .max_by_key(|&block| blocks[block].live);
    if let Some(block) = unsaid.filter(|_| table.rules.daemon_catches_up) {
        let mut next = begin(DaemonStep::CatchUp, 0);
        next.daemon.newest = state.newest;
        next.daemon.target = Value { version: blocks[block].live, block: block as u8 };
        out.push(next, || format!("the daemon sees that value {} is committed", blocks[block].live));
    }
    let everybody = (1 << table.readers) - 1;
    let may_recycle = state.daemon.known == everybody || !table.rules.recycling_waits_for_readers;
    if may_recycle && blocks.iter().any(|block| is_old(table, block, state.newest)) {
        let mut next = begin(DaemonStep::Scan, 0);
        next.daemon.newest = state.newest;
        out.push(next, || format!("the daemon reads that value {} is the newest", state.newest.version));
    }
    let free = blocks.iter().position(|block| block.live == 0);
    if let Some(block) = free.filter(|_| state.next_sequence < table.values) {
        out.push(begin(DaemonStep::Prepare, block), || format!("the daemon takes block {block}"));
    }
}

/// A reader is found dead, or comes back to a daemon that does not know it.
fn meet(state: &State, who: usize, reader: &Reader, out: &mut Successors<State>) {
    let mut next = *state;
    let known = state.daemon.known & 1 << who != 0;
    next.daemon.known |= 1 << who;
    match reader.step {
        ReaderStep::Dead => {
            next.readers[who] = Reader::GONE;
            out.push(next, || format!("the daemon lets go of r{who}"));
        }
        _ if !known => out.push(next, || format!("r{who} is back")),
        _ => {}
    }
}

/// Would a block be let go of, if nobody holds it?
fn is_old(table: &LatestTable, block: &Block, newest: Value) -> bool {
    let Block { live, committed, .. } = *block;
    let is_older = live < newest.version || (live == newest.version && !table.rules.newest_is_kept);
    live != 0 && is_older && (committed || !table.rules.only_committed_goes_round)
}

fn scan(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    let mut next = *state;
    let who = usize::from(state.daemon.index);
    // What a daemon does not know it cannot look at.
    if state.daemon.known & 1 << who != 0 {
        let hazard = state.readers[who].hazard;
        let lives = hazard.version != 0 && state.blocks[usize::from(hazard.block)].live == hazard.version;
        next.daemon.held |= u8::from(lives) << hazard.block;
    }
    next.daemon.index += 1;
    if who + 1 == table.readers {
        next.daemon.index = 0;
        next.daemon.step = DaemonStep::Free;
    }
    out.push(next, || format!("the daemon looks at the hazard of r{who}"));
}

fn free(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    let mut next = *state;
    let Daemon { newest, held, .. } = state.daemon;
    let newest = if table.rules.newest_read_before_hazards { newest } else { state.newest };
    let can_go = |block: &usize| is_old(table, &state.blocks[*block], newest) && held & 1 << *block == 0;
    match (0..table.blocks).find(can_go) {
        Some(block) => {
            next.blocks[block].live = 0;
            out.push(next, || format!("the daemon records that block {block} is free"));
        }
        None => {
            next.daemon = state.daemon.at(DaemonStep::Idle, 0);
            out.push(next, || "the daemon is done recycling".into());
        }
    }
}

/// Looks at an orphaned claim: never taken, offered, committed, or a hole. No living writer can be at the same position.
fn settle(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    let mut next = *state;
    let Some(sequence) = state.orphan else { return };
    let lives = (0..table.blocks).find(|&block| state.blocks[block].live == sequence + 1);
    let covers = |writer: &Writer| writer.step != WriterStep::Dead && writer.record == Some(sequence);
    let covered = state.writers[..table.writers].iter().any(covers);
    let is_hole = sequence < state.cursor
        && state.refill != Some(sequence)
        && lives.is_some_and(|block| !state.blocks[block].committed);
    next.daemon.step = match (is_hole, covered) {
        (true, true) => DaemonStep::Idle,
        (true, false) if state.refill.is_some() => DaemonStep::Idle,
        (true, false) => DaemonStep::RecordOffer,
        (false, _) => DaemonStep::ForgetOrphan,
    };
    next.daemon.index = lives.unwrap_or(0) as u8;
    if next.daemon.step == DaemonStep::Idle {
        next.daemon.index = 0;
    }
    out.push(next, || {
        format!("the daemon finds that {sequence} is {}", if is_hole { "a hole" } else { "none" })
    });
}

/// The daemon is killed before its next step, and another one takes over from the record.
pub fn crash(table: &LatestTable, state: &State, out: &mut Successors<State>) {
    if state.daemon_crashes == 0 {
        return;
    }
    let mut next = *state;
    next.daemon_crashes -= 1;
    next.daemon = Daemon::IDLE;
    // Those that are gone need not come back.
    for (who, reader) in state.readers.iter().enumerate() {
        next.daemon.known |= u8::from(reader.step == ReaderStep::Gone) << who;
    }
    // It raises the limit to what the record says, and wakes whom the last one may have left asleep.
    next.limit = state.next_sequence;
    next.bump_space(table);
    out.push_chance(next, || "*** the daemon is killed, and another takes over".into());
}
