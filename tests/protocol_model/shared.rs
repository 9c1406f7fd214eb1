//! The words of the control region: what workers, readers and the daemon all see.

use crate::configuration::{Configuration, MAX_BLOCKS, MAX_FILL, MAX_REFILL, MAX_SLOTS};
use crate::packing::{Codec, numbered};

/// `write_cursor`: the next position not yet claimed; its CLOSED bit stops claims.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cursor {
    pub position: u8,
    pub closed: bool,
}

/// One commit word: a bit a slot, and RETIRED.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Word {
    pub bits: u8,
    pub retired: bool,
}

numbered! {
    /// The state in a block's `ready` word.
    pub enum ReadyState { Filling, Complete, Broken }
}

/// `ready[block]`: the sequence it speaks of, its state, and whether somebody waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    pub sequence: u8,
    pub state: ReadyState,
    pub granted: bool,
}

impl Ready {
    pub const BLANK: Ready = Ready { sequence: 0, state: ReadyState::Filling, granted: false };

    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.bits(&mut self.sequence, 4);
        codec.variant(&mut self.state, 2);
        codec.flag(&mut self.granted);
    }

    /// Compares all but GRANTED.
    pub fn says(self, other: Ready) -> bool {
        self.sequence == other.sequence && self.state == other.state
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shared {
    pub cursor: Cursor,
    /// `write_limit`: the first position that may not be claimed yet.
    pub limit: u8,
    pub fill: [u8; MAX_FILL],
    /// A hole that is offered again: its position.
    pub refill: [Option<u8>; MAX_REFILL],
    /// The block of the hole that was offered there last.
    pub refill_block: [u8; MAX_REFILL],
    pub words: [[Word; MAX_SLOTS]; MAX_BLOCKS],
    pub ready: [Ready; MAX_BLOCKS],
    /// `length[block]`: how many of its slots, from the first, hold samples.
    pub length: [u8; MAX_BLOCKS],
    /// Counts modulo 8: more than the bumps that a worker can sleep through in these configurations.
    pub space: u8,
    /// The data region: what lies in a slot. 0 is nothing, otherwise the sample's number plus one.
    pub data: [[u8; MAX_SLOTS]; MAX_BLOCKS],
}

impl Shared {
    pub fn new(config: &Configuration) -> Shared {
        Shared {
            cursor: Cursor::default(),
            limit: 0,
            fill: [0; MAX_FILL],
            refill: [None; MAX_REFILL],
            refill_block: [0; MAX_REFILL],
            words: [[Word::default(); MAX_SLOTS]; MAX_BLOCKS],
            ready: [Ready::BLANK; MAX_BLOCKS],
            length: [config.slots as u8; MAX_BLOCKS],
            space: 0,
            data: [[0; MAX_SLOTS]; MAX_BLOCKS],
        }
    }

    /// The commit bits of a block, one a slot.
    pub fn committed(&self, config: &Configuration, block: usize) -> u8 {
        (0..config.words)
            .map(|word| self.words[block][word].bits << (word * config.slots_a_word()))
            .fold(0, |all, bits| all | bits)
    }

    /// Is the commit bit of a slot set?
    pub fn is_committed(&self, config: &Configuration, block: usize, slot: usize) -> bool {
        let (word, bit) = config.bit_of(slot);
        self.words[block][word].bits & bit != 0
    }

    /// Are all words of a block full?
    pub fn all_full(&self, config: &Configuration, block: usize) -> bool {
        self.words[block][..config.words].iter().all(|&word| config.is_full(word))
    }

    pub fn fields(&mut self, config: &Configuration, codec: &mut impl Codec) {
        codec.bits(&mut self.cursor.position, 6);
        codec.flag(&mut self.cursor.closed);
        codec.bits(&mut self.limit, 6);
        codec.bits(&mut self.space, 3);
        for block in &mut self.fill[..config.fill_entries] {
            codec.bits(block, 2);
        }
        for entry in &mut self.refill[..config.refill_entries] {
            codec.option(entry, 6);
        }
        for block in &mut self.refill_block[..config.refill_entries] {
            codec.bits(block, 2);
        }
        let slots_a_word = config.slots_a_word() as u32;
        for block in 0..config.blocks {
            for word in &mut self.words[block][..config.words] {
                codec.bits(&mut word.bits, slots_a_word);
                codec.flag(&mut word.retired);
            }
            for sample in &mut self.data[block][..config.slots] {
                codec.bits(sample, 3);
            }
            self.ready[block].fields(codec);
            if config.finishing {
                codec.bits(&mut self.length[block], 3);
            }
        }
    }
}
