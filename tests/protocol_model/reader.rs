//! A trainer's reader of a queue table: waits for the block of its grant, reads it, releases it.
//!
//! ```text
//! WithoutGrant --grant--> WaitReady <--> LookAtWords      (or Sleep, where readers sleep)
//!      ^                     |  complete, or all words full
//!      |                     v
//!   release <- Released <- Read <- ReadLength             (the length only where tables finish)
//! ```
//!
//! Grants, releases and what follows *broken* are messages, which here arrive at once: the daemon's steps make them.

use crate::configuration::Configuration;
use crate::invariants::count_delivery;
use crate::packing::{Codec, numbered};
use crate::shared::{Ready, ReadyState};
use crate::state::{Fate, State};
use crate::successors::Successors;

numbered! {
    pub enum ReaderStep {
        WithoutGrant,
        /// Looks at `ready`.
        WaitReady,
        /// `ready` says nothing yet: looks at the commit words itself.
        LookAtWords,
        /// Alternative to a rule: looks at `ready` once more after its own look.
        ReadReadyAgain,
        /// Sleeps on `ready`, unless it has changed.
        Sleep,
        ReadLength,
        /// Reads slot after slot.
        Read,
        /// Has sent the token back.
        Released,
        /// Saw *broken* and asks the daemon.
        Broken,
        /// Killed; its grants are still with it.
        Dead,
        /// Was told that nothing more will come, unless another reader dies.
        Closed,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    pub step: ReaderStep,
    pub asleep: bool,
    /// The sequence and the block of its grant.
    pub sequence: u8,
    pub block: u8,
    /// The slot or word to look at next.
    index: u8,
    /// How many slots it delivers.
    length: u8,
    /// What it saw in `ready` before it went to sleep.
    seen: Ready,
}

impl Reader {
    pub const IDLE: Reader = Reader {
        step: ReaderStep::WithoutGrant,
        asleep: false,
        sequence: 0,
        block: 0,
        index: 0,
        length: 0,
        seen: Ready::BLANK,
    };

    /// A reader that has just been granted a block.
    pub fn with_grant(config: &Configuration, state: &State, sequence: u8, block: u8) -> Reader {
        let early = config.finishing && !config.rules.length_read_after_complete;
        let length = if early { state.shared.length[usize::from(block)] } else { 0 };
        Reader { step: ReaderStep::WaitReady, sequence, block, length, ..Reader::IDLE }
    }

    /// Does it hold bytes that must not change?
    pub fn holds_bytes(&self) -> bool {
        matches!(self.step, ReaderStep::ReadLength | ReaderStep::Read | ReaderStep::Released)
    }

    pub fn is_closed(&self) -> bool {
        self.step == ReaderStep::Closed
    }

    /// Does it wait for a block, without having seen it complete?
    pub fn waits(&self) -> bool {
        use ReaderStep::{LookAtWords, ReadReadyAgain, Sleep, WaitReady};
        matches!(self.step, WaitReady | LookAtWords | ReadReadyAgain | Sleep)
    }

    /// It saw its block complete.
    fn saw_complete(&mut self, config: &Configuration) {
        self.index = 0;
        self.step = ReaderStep::Read;
        if !config.finishing {
            self.length = config.slots as u8;
        } else if config.rules.length_read_after_complete {
            self.step = ReaderStep::ReadLength;
        }
    }

    pub fn fields(&mut self, config: &Configuration, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 4);
        codec.flag(&mut self.asleep);
        codec.bits(&mut self.sequence, 4);
        codec.bits(&mut self.block, 2);
        codec.bits(&mut self.index, 2);
        codec.bits(&mut self.length, 3);
        if config.readers_sleep {
            self.seen.fields(codec);
        }
    }
}

/// What a reader can do next.
pub fn step(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let reader = &state.readers[who];
    if reader.asleep {
        return;
    }
    match reader.step {
        ReaderStep::WaitReady => wait_ready(config, state, who, out),
        ReaderStep::LookAtWords => look_at_words(config, state, who, out),
        ReaderStep::ReadReadyAgain => read_ready_again(config, state, who, out),
        ReaderStep::Sleep => sleep(state, who, out),
        ReaderStep::ReadLength => read_length(state, who, out),
        ReaderStep::Read => read(config, state, who, out),
        // It is the daemon's turn.
        ReaderStep::WithoutGrant
        | ReaderStep::Released
        | ReaderStep::Broken
        | ReaderStep::Dead
        | ReaderStep::Closed => {}
    }
}

/// The reader is killed before its next step. What it read of a batch that it had not released does not count.
pub fn crash(state: &State, who: usize, out: &mut Successors) {
    let reader = &state.readers[who];
    let has_nothing = matches!(reader.step, ReaderStep::WithoutGrant | ReaderStep::Dead | ReaderStep::Closed);
    if state.budget.reader_crashes == 0 || has_nothing {
        return;
    }
    let mut next = *state;
    next.budget.reader_crashes -= 1;
    let slots_read = match reader.step {
        ReaderStep::Read => usize::from(reader.index),
        ReaderStep::Released => usize::from(reader.length),
        _ => 0,
    };
    for slot in 0..slots_read {
        let sample = usize::from(state.shared.data[usize::from(reader.block)][slot]);
        let fate = sample.checked_sub(1).and_then(|sample| next.fates.get_mut(sample));
        if let Some(fate) = fate
            && *fate == Fate::Delivered
        {
            *fate = Fate::Committed;
        }
    }
    next.readers[who] = Reader { step: ReaderStep::Dead, ..Reader::IDLE };
    out.push_chance(next, || format!("*** r{who} is killed"));
}

fn wait_ready(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let reader = &mut next.readers[who];
    let block = usize::from(reader.block);
    let ready = state.shared.ready[block];
    let is_later = config.rules.reader_reads_ready_again && ready.sequence != reader.sequence;
    if ready.says(config.ready(reader.sequence, ReadyState::Complete)) {
        reader.saw_complete(config);
    } else if ready.says(config.ready(reader.sequence, ReadyState::Broken)) || is_later {
        reader.step = ReaderStep::Broken;
    } else if config.readers_sleep {
        reader.step = ReaderStep::Sleep;
        reader.seen = ready;
    } else if config.rules.reader_looks_at_words {
        reader.step = ReaderStep::LookAtWords;
        reader.index = 0;
    } else {
        return;
    }
    out.push(next, || format!("r{who} reads ready[{block}]: {} {:?}", ready.sequence, ready.state));
}

fn look_at_words(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let reader = &mut next.readers[who];
    let (block, index) = (usize::from(reader.block), usize::from(reader.index));
    let full = config.is_full(state.shared.words[block][index]);
    if !full {
        reader.index = 0;
        reader.step = ReaderStep::WaitReady;
    } else if index + 1 < config.words {
        reader.index += 1;
    } else if config.rules.reader_reads_ready_again {
        reader.index = 0;
        reader.step = ReaderStep::ReadReadyAgain;
    } else {
        reader.saw_complete(config);
    }
    out.push(next, || {
        format!("r{who} looks at word {block}.{index}: {}", if full { "full" } else { "not full" })
    });
}

fn read_ready_again(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let reader = &mut next.readers[who];
    let ready = state.shared.ready[usize::from(reader.block)];
    if ready.sequence == reader.sequence && ready.state != ReadyState::Broken {
        reader.saw_complete(config);
    } else {
        reader.step = ReaderStep::Broken;
    }
    out.push(next, || format!("r{who} reads ready again: {} {:?}", ready.sequence, ready.state));
}

fn sleep(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let reader = &mut next.readers[who];
    let ready = state.shared.ready[usize::from(reader.block)];
    let unchanged = reader.seen == ready;
    reader.asleep = unchanged;
    reader.seen = Ready::BLANK;
    reader.step = ReaderStep::WaitReady;
    out.push(next, || {
        format!("r{who} {}", if unchanged { "sleeps on ready" } else { "does not sleep: ready changed" })
    });
}

fn read_length(state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let reader = &mut next.readers[who];
    reader.length = state.shared.length[usize::from(reader.block)];
    reader.step = ReaderStep::Read;
    out.push(next, || {
        format!("r{who} reads length[{}] = {}", next.readers[who].block, next.readers[who].length)
    });
}

fn read(config: &Configuration, state: &State, who: usize, out: &mut Successors) {
    let mut next = *state;
    let (block, slot) = (usize::from(state.readers[who].block), usize::from(state.readers[who].index));
    count_delivery(config, &mut next, who, slot, out);
    let reader = &mut next.readers[who];
    reader.index += 1;
    if reader.index == reader.length {
        reader.index = 0;
        reader.step = ReaderStep::Released;
    }
    out.push(next, || {
        format!(
            "r{who} reads slot {slot} of block {block}: sample {}",
            state.shared.data[block][slot].wrapping_sub(1) as i8
        )
    });
}
