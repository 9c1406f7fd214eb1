//! A reader: takes the newest value, holds it by a hazard in its client page, reads it where it lies, lets it go.
//!
//! ```text
//! Idle: loads newest -> StoreHazard -> LookAgain -> ReadFirst -> ReadSecond -> Release -> Idle
//!   |  nothing new        ^                |  another by now
//!   v                     +----------------+
//! Sleep
//! ```

use super::LatestTable;
use super::state::{State, Value};
use crate::packing::{Codec, numbered};
use crate::successors::Successors;

numbered! {
    pub enum ReaderStep {
        /// Looks whether `newest` is newer than what it had.
        Idle,
        /// Says in its page what it is about to hold.
        StoreHazard,
        /// Is it still the newest? Only then it is held.
        LookAgain,
        ReadFirst,
        ReadSecond,
        /// Clears the hazard.
        Release,
        /// Sleeps on `newest`, unless it has changed.
        Sleep,
        /// Killed; its hazard stays.
        Dead,
        /// Detached.
        Gone,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    pub step: ReaderStep,
    pub asleep: bool,
    /// It takes no more steps, and keeps what it holds.
    pub stopped: bool,
    /// In its client page: the value that it holds, or is about to.
    pub hazard: Value,
    seen: Value,
    /// The version that it had last.
    version: u8,
}

impl Reader {
    pub const IDLE: Reader = Reader {
        step: ReaderStep::Idle,
        asleep: false,
        stopped: false,
        hazard: Value { version: 0, block: 0 },
        seen: Value { version: 0, block: 0 },
        version: 0,
    };
    pub const GONE: Reader = Reader { step: ReaderStep::Gone, ..Reader::IDLE };

    /// Does it hold this block, so that its bytes must not change?
    pub fn holds(&self, block: u8) -> bool {
        use ReaderStep::{ReadFirst, ReadSecond, Release};
        matches!(self.step, ReadFirst | ReadSecond | Release) && self.seen.block == block
    }

    /// Has it had this version, and let it go?
    pub fn has_had(&self, version: u8) -> bool {
        self.version == version && matches!(self.step, ReaderStep::Idle | ReaderStep::Sleep)
    }

    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 4);
        codec.flag(&mut self.asleep);
        codec.flag(&mut self.stopped);
        self.hazard.fields(codec);
        self.seen.fields(codec);
        codec.bits(&mut self.version, 3);
    }
}

/// What a reader can do next.
pub fn step(table: &LatestTable, state: &State, who: usize, out: &mut Successors<State>) {
    let mut next = *state;
    let rules = table.rules;
    let newest = state.newest;
    let reader = &mut next.readers[who];
    if reader.asleep || reader.stopped {
        return;
    }
    match reader.step {
        ReaderStep::Dead | ReaderStep::Gone => {}
        ReaderStep::Idle => {
            if newest.version > reader.version {
                reader.step = ReaderStep::StoreHazard;
            } else if table.sleepers && newest.version < table.values {
                reader.step = ReaderStep::Sleep;
            } else {
                return;
            }
            reader.seen = newest;
            out.push(next, || format!("r{who} sees that value {} is the newest", newest.version));
        }
        ReaderStep::StoreHazard => {
            reader.hazard = reader.seen;
            reader.step =
                if rules.reader_looks_again { ReaderStep::LookAgain } else { ReaderStep::ReadFirst };
            out.push(next, || format!("r{who} stores its hazard"));
        }
        ReaderStep::LookAgain => {
            reader.step = if newest == reader.seen { ReaderStep::ReadFirst } else { ReaderStep::StoreHazard };
            reader.seen = newest;
            out.push(next, || format!("r{who} sees once more that value {} is the newest", newest.version));
        }
        ReaderStep::ReadFirst | ReaderStep::ReadSecond => {
            let word = usize::from(reader.step == ReaderStep::ReadSecond);
            let Value { version, block } = reader.seen;
            reader.step = if word == 0 { ReaderStep::ReadSecond } else { ReaderStep::Release };
            let got = state.blocks[usize::from(block)].data[word];
            if got != version {
                out.violate(|| format!("r{who} reads {got} in word {word} of value {version}"));
            }
            out.push(next, || format!("r{who} reads word {word} of value {version} in block {block}"));
        }
        ReaderStep::Release => {
            let version = reader.seen.version;
            if version <= reader.version {
                out.violate(|| format!("r{who} has had value {version} or a newer one before"));
            }
            *reader = Reader { version, ..Reader::IDLE };
            out.push(next, || format!("r{who} lets value {version} go"));
        }
        ReaderStep::Sleep => {
            reader.asleep = newest == reader.seen || !rules.sleep_compares;
            reader.seen = Value::default();
            reader.step = ReaderStep::Idle;
            let asleep = reader.asleep;
            out.push(next, || {
                format!("r{who} waits: {}", if asleep { "sleeps" } else { "there is a newer one" })
            });
        }
    }
}

/// The reader is killed before its next step.
pub fn crash(state: &State, who: usize, out: &mut Successors<State>) {
    let reader = &state.readers[who];
    if state.reader_crashes == 0 || matches!(reader.step, ReaderStep::Dead | ReaderStep::Gone) {
        return;
    }
    let mut next = *state;
    next.reader_crashes -= 1;
    next.readers[who] = Reader { step: ReaderStep::Dead, hazard: reader.hazard, ..Reader::IDLE };
    out.push_chance(next, || format!("*** r{who} is killed"));
}

/// The reader stops before its next step, and never goes on.
pub fn stop(state: &State, who: usize, out: &mut Successors<State>) {
    let reader = &state.readers[who];
    let does_something = !matches!(reader.step, ReaderStep::Idle | ReaderStep::Dead | ReaderStep::Gone);
    if state.stops == 0 || reader.stopped || !does_something {
        return;
    }
    let mut next = *state;
    next.stops -= 1;
    next.readers[who].stopped = true;
    out.push_chance(next, || format!("*** r{who} stops"));
}
