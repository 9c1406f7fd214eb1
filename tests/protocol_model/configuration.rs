//! How large the modelled table is, what may go wrong in it, and which rules are kept.
//!
//! A configuration bounds the state space: everything counts down (samples to write, crashes, rescues), so that every
//! exploration ends. It also answers the questions of geometry, which no state can change.

use crate::rules::Rules;
use crate::shared::{Ready, ReadyState, Word};

/// The bounds of the arrays in a state; a configuration may be smaller.
pub const MAX_WORKERS: usize = 3;
pub const MAX_READERS: usize = 2;
pub const MAX_BLOCKS: usize = 3;
pub const MAX_SLOTS: usize = 4;
pub const MAX_REFILL: usize = 2;
pub const MAX_FILL: usize = 4;
pub const MAX_SAMPLES: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Configuration {
    pub workers: usize,
    pub readers: usize,
    /// Physical blocks. All are published at the start.
    pub blocks: usize,
    /// Slots a block.
    pub slots: usize,
    /// Commit words a block; divides `slots`.
    pub words: usize,
    pub refill_entries: usize,
    pub fill_entries: usize,
    /// Samples that each worker writes.
    pub samples_each: u8,
    /// The longest claim that a worker takes at once, in samples.
    pub longest_claim: u8,
    /// Block sequences below this are published, and then no more.
    pub sequences: u8,

    /// How often a worker, a reader, the daemon may be killed, each before any step.
    pub worker_crashes: u8,
    pub reader_crashes: u8,
    pub daemon_crashes: u8,
    /// How many blocks the daemon may rescue from a worker that it takes for stopped.
    pub rescues: u8,
    /// How many claims may be dropped instead of committed.
    pub drops: u8,
    /// Samples of later traffic: when all is quiet and a sample waits in a block that is not full, a worker writes
    /// one of these. Without finishing, a last block becomes deliverable in no other way.
    pub fillers: u8,

    /// Workers without room sleep on `space`, where otherwise they only look again.
    pub workers_sleep: bool,
    /// Readers sleep on `ready`, and do *not* look at the words themselves.
    pub readers_sleep: bool,
    /// A completer wakes only if GRANTED is set in `ready`.
    pub wake_needs_granted: bool,
    /// The daemon finishes the table when all writers are gone; each worker says goodbye after its last sample, and
    /// a killed one may stay away.
    pub finishing: bool,

    pub rules: Rules,
    /// Stop after this many states, with the exploration incomplete.
    pub states_at_most: usize,
}

impl Configuration {
    /// Two workers with a sample each, one reader, two blocks of two slots, a commit word a slot, nothing goes wrong.
    pub const SMALL: Configuration = Configuration {
        workers: 2,
        readers: 1,
        blocks: 2,
        slots: 2,
        words: 2,
        refill_entries: 1,
        fill_entries: 2,
        samples_each: 1,
        longest_claim: 1,
        sequences: 9,
        worker_crashes: 0,
        reader_crashes: 0,
        daemon_crashes: 0,
        rescues: 0,
        drops: 0,
        fillers: 6,
        workers_sleep: false,
        readers_sleep: false,
        wake_needs_granted: false,
        finishing: false,
        rules: Rules::ON,
        states_at_most: 60_000_000,
    };

    /// [`Configuration::SMALL`], with finishing in place of later traffic.
    pub const FINISHING: Configuration =
        Configuration { fillers: 0, finishing: true, ..Configuration::SMALL };

    /// Panics where the configuration exceeds the bounds of the model.
    pub fn check(&self) {
        assert!(self.workers <= MAX_WORKERS && self.readers <= MAX_READERS && self.blocks <= MAX_BLOCKS);
        assert!(self.slots <= MAX_SLOTS && self.slots.is_multiple_of(self.words));
        assert!(self.refill_entries <= MAX_REFILL && self.fill_entries <= MAX_FILL);
        assert!(self.fill_entries >= self.blocks);
        assert!(self.workers * usize::from(self.samples_each) <= MAX_SAMPLES);
        assert!(self.longest_claim <= 2, "a record holds one or two positions");
        assert!(self.sequences < 16, "sequences take four bits");
        assert!(usize::from(self.sequences) * self.slots < 62, "positions take six bits");
        assert!(!self.finishing || self.fillers == 0, "a table either finishes or has later traffic");
    }

    /// The block sequence that a position belongs to.
    pub fn sequence_of(&self, position: u8) -> u8 {
        position / self.slots as u8
    }

    /// The slot of a position within its block.
    pub fn slot_of(&self, position: u8) -> usize {
        usize::from(position) % self.slots
    }

    /// The first position of a block sequence.
    pub fn first_position(&self, sequence: u8) -> u8 {
        sequence * self.slots as u8
    }

    /// The entry of `fill` that speaks of a position's block.
    pub fn fill_entry(&self, position: u8) -> usize {
        usize::from(self.sequence_of(position)) % self.fill_entries
    }

    /// The word and the bit of a slot.
    pub fn bit_of(&self, slot: usize) -> (usize, u8) {
        let a_word = self.slots_a_word();
        (slot / a_word, 1 << (slot % a_word))
    }

    pub fn slots_a_word(&self) -> usize {
        self.slots / self.words
    }

    /// The commit bits of a full word.
    pub fn full_bits(&self) -> u8 {
        (1 << self.slots_a_word()) - 1
    }

    /// The commit bits of a full block, one a slot.
    pub fn all_slots(&self) -> u8 {
        (1 << self.slots) - 1
    }

    /// Does a look at this word find all its slots committed?
    pub fn is_full(&self, word: Word) -> bool {
        // Where commits are no CAS, a retired word's bits are worth nothing.
        word.bits == self.full_bits() && (self.rules.commit_is_cas || !word.retired)
    }

    /// `ready` of a sequence in a state, not GRANTED.
    pub fn ready(&self, sequence: u8, state: ReadyState) -> Ready {
        let sequence = if self.rules.ready_carries_sequence { sequence } else { 0 };
        Ready { sequence, state, granted: false }
    }
}
