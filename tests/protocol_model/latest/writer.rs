//! The writer: claims the next sequence, writes the value, commits it, and says that it is the newest.
//!
//! ```text
//! Gone -> Idle -> ReadRefill -> ReadCursor -> ReadLimit -> ReadFill -> WriteRecord -> TakeClaim -> WriteFirst
//!          ^        ^  a hole: WriteRecord         | no room: WaitForSpace                             |
//!          |        +-------------------------------                                                  v
//!     ClearRecord <- WakeReaders <- PublishNewest <- MarkComplete <- Commit <------------------- WriteSecond
//! ```

use super::daemon::DaemonStep;
use super::state::{State, Value};
use super::{FILL, LatestTable};
use crate::packing::{Codec, numbered};
use crate::successors::Successors;

numbered! {
    pub enum WriterStep {
        /// Not attached.
        Gone,
        /// Loads `space`, and begins the next value if there is one.
        Idle,
        ReadRefill,
        ReadCursor,
        ReadLimit,
        ReadFill,
        WriteRecord,
        /// The CAS on the refill entry or the cursor.
        TakeClaim,
        ClearLostRecord,
        WriteFirst,
        WriteSecond,
        Commit,
        MarkComplete,
        PublishNewest,
        WakeReaders,
        ClearRecord,
        WaitForSpace,
        /// Killed; its record stays.
        Dead,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    pub step: WriterStep,
    pub asleep: bool,
    /// In its client page: the sequence that it claims.
    pub record: Option<u8>,
    wanted: u8,
    block: u8,
    from_hole: bool,
    seen_space: u8,
}

impl Writer {
    pub const GONE: Writer = Writer {
        step: WriterStep::Gone,
        asleep: false,
        record: None,
        wanted: 0,
        block: 0,
        from_hole: false,
        seen_space: 0,
    };

    fn at(step: WriterStep) -> Writer {
        Writer { step, ..Writer::GONE }
    }

    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 5);
        codec.flag(&mut self.asleep);
        codec.option(&mut self.record, 3);
        codec.bits(&mut self.wanted, 3);
        codec.bits(&mut self.block, 2);
        codec.flag(&mut self.from_hole);
        codec.bits(&mut self.seen_space, 3);
    }
}

/// What a writer can do next.
pub fn step(table: &LatestTable, state: &State, who: usize, out: &mut Successors<State>) {
    let mut next = *state;
    let rules = table.rules;
    let writer = &mut next.writers[who];
    if writer.asleep {
        return;
    }
    let (wanted, block) = (writer.wanted, usize::from(writer.block));
    let version = wanted + 1;
    match writer.step {
        WriterStep::Dead => {}
        WriterStep::Gone => {
            if !may_attach(table, state, who) {
                return;
            }
            *writer = Writer::at(WriterStep::Idle);
            out.push(next, || format!("w{who} attaches"));
        }
        WriterStep::Idle => {
            if !state.has_work(table) {
                *writer = Writer::GONE;
                return out.push(next, || format!("w{who} finishes"));
            }
            *writer = Writer { seen_space: state.space, ..Writer::at(WriterStep::ReadRefill) };
            out.push(next, || format!("w{who} reads space = {}", state.space));
        }
        WriterStep::ReadRefill => {
            writer.step = WriterStep::ReadCursor;
            if let Some(hole) = state.refill {
                (writer.wanted, writer.block, writer.from_hole) = (hole, state.refill_block, true);
                writer.step = WriterStep::WriteRecord;
            }
            out.push(next, || format!("w{who} reads refill = {:?}", state.refill));
        }
        WriterStep::ReadCursor => {
            writer.wanted = state.cursor;
            writer.step = if state.cursor < table.values { WriterStep::ReadLimit } else { WriterStep::Idle };
            out.push(next, || format!("w{who} reads cursor = {}", state.cursor));
        }
        WriterStep::ReadLimit => {
            writer.step = match wanted < state.limit {
                true => WriterStep::ReadFill,
                false if table.sleepers => WriterStep::WaitForSpace,
                false => WriterStep::Idle,
            };
            out.push(next, || format!("w{who} reads limit = {}", state.limit));
        }
        WriterStep::ReadFill => {
            writer.block = state.fill[usize::from(wanted) % FILL];
            writer.step = WriterStep::WriteRecord;
            out.push(next, || format!("w{who} reads fill: {wanted} is in block {}", next.writers[who].block));
        }
        WriterStep::WriteRecord => {
            writer.record = Some(wanted);
            writer.step = WriterStep::TakeClaim;
            out.push(next, || format!("w{who} records its claim to {wanted}"));
        }
        WriterStep::TakeClaim => {
            let is_free = match writer.from_hole {
                true => state.refill == Some(wanted),
                false => state.cursor == wanted,
            };
            writer.step = match is_free {
                true if rules.newest_after_commit => WriterStep::WriteFirst,
                true => WriterStep::PublishNewest,
                false => WriterStep::ClearLostRecord,
            };
            match writer.from_hole {
                _ if !is_free => {}
                true => next.refill = None,
                false => next.cursor += 1,
            }
            out.push(next, || format!("w{who} {} {wanted}", if is_free { "claims" } else { "loses" }));
        }
        WriterStep::ClearLostRecord => {
            *writer = Writer::at(WriterStep::Idle);
            out.push(next, || format!("w{who} clears the record of what it lost"));
        }
        WriterStep::WriteFirst | WriterStep::WriteSecond => {
            let word = usize::from(writer.step == WriterStep::WriteSecond);
            writer.step = if word == 0 { WriterStep::WriteSecond } else { WriterStep::Commit };
            check_write(table, state, who, out);
            next.blocks[block].data[word] = version;
            out.push(next, || format!("w{who} writes word {word} of value {version} into block {block}"));
        }
        WriterStep::Commit => {
            writer.step = WriterStep::MarkComplete;
            next.blocks[block].committed = true;
            out.push(next, || format!("w{who} commits value {version}"));
        }
        WriterStep::MarkComplete => {
            writer.step =
                if rules.newest_after_commit { WriterStep::PublishNewest } else { WriterStep::WakeReaders };
            // The CAS carries the sequence.
            let ready = &mut next.blocks[block];
            ready.complete |= ready.ready == version;
            out.push(next, || format!("w{who} marks block {block} complete"));
        }
        WriterStep::PublishNewest => {
            writer.step =
                if rules.newest_after_commit { WriterStep::WakeReaders } else { WriterStep::WriteFirst };
            if state.newest.version > version {
                out.violate(|| format!("value {version} of w{who} is committed, and older than the newest"));
            }
            if state.newest.version < version {
                next.newest = Value { version, block: block as u8 };
            }
            out.push(next, || format!("w{who} says that value {version} is the newest"));
        }
        WriterStep::WakeReaders => {
            writer.step = WriterStep::ClearRecord;
            next.wake_readers(table);
            out.push(next, || format!("w{who} wakes the readers"));
        }
        WriterStep::ClearRecord => {
            *writer = Writer::at(WriterStep::Idle);
            out.push(next, || format!("w{who} clears its record"));
        }
        WriterStep::WaitForSpace => {
            writer.asleep = state.space == writer.seen_space;
            let asleep = writer.asleep;
            *writer = Writer { asleep, ..Writer::at(WriterStep::Idle) };
            out.push(next, || {
                format!("w{who} waits for space: {}", if asleep { "sleeps" } else { "it changed" })
            });
        }
    }
}

fn may_attach(table: &LatestTable, state: &State, who: usize) -> bool {
    let others = || (0..table.writers).filter(|&other| other != who).map(|other| &state.writers[other]);
    let alone = others().all(|other| other.step == WriterStep::Gone);
    let settled = state.orphan.is_none();
    // A message that the daemon handles between its other doings.
    state.daemon.step == DaemonStep::Idle
        && state.has_work(table)
        && (alone || !table.rules.one_writer)
        && (settled || !table.rules.next_writer_waits_for_the_hole)
}

/// What must hold of a block that is written.
fn check_write(table: &LatestTable, state: &State, who: usize, out: &mut Successors<State>) {
    let writer = &state.writers[who];
    let (block, version) = (&state.blocks[usize::from(writer.block)], writer.wanted + 1);
    if block.live != version {
        out.violate(|| format!("w{who} writes value {version} into {block:?}"));
    }
    if block.committed {
        out.violate(|| format!("w{who} writes value {version} over one that is committed"));
    }
    if let Some(reader) = state.holder_of(table, writer.block) {
        out.violate(|| format!("w{who} writes value {version} into a block that r{reader} holds"));
    }
}

/// The writer is killed before its next step.
pub fn crash(state: &State, who: usize, out: &mut Successors<State>) {
    let writer = &state.writers[who];
    if state.writer_crashes == 0 || matches!(writer.step, WriterStep::Gone | WriterStep::Dead) {
        return;
    }
    let mut next = *state;
    next.writer_crashes -= 1;
    next.writers[who] = Writer { record: writer.record, ..Writer::at(WriterStep::Dead) };
    out.push_chance(next, || format!("*** w{who} is killed"));
}
