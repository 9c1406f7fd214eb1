//! A state of the whole system: shared memory, the daemon's record, the client pages, and where each process stands.

use std::fmt::{self, Write};

use super::daemon::Daemon;
use super::reader::{Reader, ReaderStep};
use super::writer::{Writer, WriterStep};
use super::{FILL, LatestTable, MAX_BLOCKS, MAX_READERS, MAX_WRITERS};
use crate::packing::Codec;

/// The word that says which value is the newest, or what a hazard says: a version, and its block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Value {
    /// Sequence + 1, or 0 for none.
    pub version: u8,
    pub block: u8,
}

impl Value {
    pub fn fields(&mut self, codec: &mut impl Codec) {
        codec.bits(&mut self.version, 3);
        codec.bits(&mut self.block, 2);
    }
}

/// One block: what is shared of it, and what the record says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Block {
    pub committed: bool,
    /// `ready`: the version that it speaks of, and whether it is complete.
    pub ready: u8,
    pub complete: bool,
    /// The bytes: two words, each 0 or the version that was written.
    pub data: [u8; 2],
    /// The record: the version that lives here, or 0 if the block is free.
    pub live: u8,
}

#[derive(Clone, Copy, PartialEq)]
pub struct State {
    /// Next sequence that is not claimed, and the first that may not be yet.
    pub cursor: u8,
    pub limit: u8,
    pub space: u8,
    pub fill: [u8; FILL],
    /// A hole that is offered: its sequence and its block.
    pub refill: Option<u8>,
    pub refill_block: u8,
    pub newest: Value,
    pub blocks: [Block; MAX_BLOCKS],
    /// The record: the next sequence to be published, what is offered, and the claim of a writer that is gone.
    pub next_sequence: u8,
    pub offered: Option<u8>,
    pub orphan: Option<u8>,

    pub daemon: Daemon,
    pub writers: [Writer; MAX_WRITERS],
    pub readers: [Reader; MAX_READERS],

    pub writer_crashes: u8,
    pub reader_crashes: u8,
    pub daemon_crashes: u8,
    pub stops: u8,
}

impl State {
    /// Every block is published and nobody has begun.
    pub fn initial(table: &LatestTable) -> State {
        let mut state = State::blank(table);
        for block in 0..table.blocks {
            let version = block as u8 + 1;
            state.blocks[block] = Block { live: version, ready: version, ..Block::default() };
            state.fill[block] = block as u8;
        }
        state.next_sequence = table.blocks as u8;
        state.limit = state.next_sequence;
        state.daemon.known = (1 << table.readers) - 1;
        state
    }

    pub fn blank(table: &LatestTable) -> State {
        State {
            cursor: 0,
            limit: 0,
            space: 0,
            fill: [0; FILL],
            refill: None,
            refill_block: 0,
            newest: Value::default(),
            blocks: [Block::default(); MAX_BLOCKS],
            next_sequence: 0,
            offered: None,
            orphan: None,
            daemon: Daemon::IDLE,
            writers: [Writer::GONE; MAX_WRITERS],
            readers: [Reader::IDLE; MAX_READERS],
            writer_crashes: table.writer_crashes,
            reader_crashes: table.reader_crashes,
            daemon_crashes: table.daemon_crashes,
            stops: table.stops,
        }
    }

    /// All values were published, each reader that goes on has had the last one, and nothing is unsettled.
    pub fn is_goal(&self, table: &LatestTable) -> bool {
        let done = |reader: &Reader| match reader.step {
            ReaderStep::Gone => true,
            _ => reader.stopped || reader.has_had(table.values),
        };
        self.newest.version == table.values
            && self.orphan.is_none()
            && self.writers[..table.writers].iter().all(|writer| writer.step == WriterStep::Gone)
            && self.readers[..table.readers].iter().all(done)
    }

    /// Is there something left to write?
    pub fn has_work(&self, table: &LatestTable) -> bool {
        self.refill.is_some() || self.cursor < table.values
    }

    /// A reader that holds this block.
    pub fn holder_of(&self, table: &LatestTable, block: u8) -> Option<usize> {
        self.readers[..table.readers].iter().position(|reader| reader.holds(block))
    }

    pub fn wake_readers(&mut self, table: &LatestTable) {
        for reader in &mut self.readers[..table.readers] {
            reader.asleep = false;
        }
    }

    pub fn bump_space(&mut self, table: &LatestTable) {
        if table.sleepers {
            self.space = (self.space + 1) % 8;
            for writer in &mut self.writers[..table.writers] {
                writer.asleep = false;
            }
        }
    }

    pub fn fields(&mut self, table: &LatestTable, codec: &mut impl Codec) {
        codec.bits(&mut self.cursor, 3);
        codec.bits(&mut self.limit, 3);
        codec.bits(&mut self.space, 3);
        for block in &mut self.fill {
            codec.bits(block, 2);
        }
        codec.option(&mut self.refill, 3);
        codec.bits(&mut self.refill_block, 2);
        self.newest.fields(codec);
        for block in &mut self.blocks[..table.blocks] {
            codec.flag(&mut block.committed);
            codec.bits(&mut block.ready, 3);
            codec.flag(&mut block.complete);
            codec.bits(&mut block.data[0], 3);
            codec.bits(&mut block.data[1], 3);
            codec.bits(&mut block.live, 3);
        }
        codec.bits(&mut self.next_sequence, 3);
        codec.option(&mut self.offered, 3);
        codec.option(&mut self.orphan, 3);
        self.daemon.fields(codec);
        for writer in &mut self.writers[..table.writers] {
            writer.fields(codec);
        }
        for reader in &mut self.readers[..table.readers] {
            reader.fields(codec);
        }
        codec.bits(&mut self.writer_crashes, 2);
        codec.bits(&mut self.reader_crashes, 2);
        codec.bits(&mut self.daemon_crashes, 2);
        codec.bits(&mut self.stops, 2);
    }

    /// The state as lines for a trace.
    pub fn show(&self, table: &LatestTable) -> String {
        let mut lines = String::new();
        self.write_lines(table, &mut lines).expect("a string takes all that is written");
        lines
    }

    fn write_lines(&self, table: &LatestTable, f: &mut String) -> fmt::Result {
        let State { cursor, limit, space, newest, refill, orphan, .. } = self;
        writeln!(
            f,
            "cursor {cursor}, limit {limit}, space {space}, fill {:?}, refill {refill:?}",
            self.fill
        )?;
        writeln!(f, "newest {} in block {}; orphan {orphan:?}", newest.version, newest.block)?;
        for (number, block) in self.blocks[..table.blocks].iter().enumerate() {
            writeln!(f, "block {number}: {block:?}")?;
        }
        for (who, writer) in self.writers[..table.writers].iter().enumerate() {
            writeln!(f, "w{who}: {writer:?}")?;
        }
        for (who, reader) in self.readers[..table.readers].iter().enumerate() {
            writeln!(f, "r{who}: {reader:?}")?;
        }
        write!(f, "daemon: {:?}", self.daemon)
    }
}
