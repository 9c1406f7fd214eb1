//! The daemon's private record: what survives the daemon, and what no client can write.

use crate::configuration::{Configuration, MAX_BLOCKS};
use crate::packing::{Codec, numbered};
use crate::record::Record;

numbered! {
    /// What the daemon knows of a physical block.
    pub enum BlockState {
        /// It holds nothing and nobody can write it.
        Free,
        /// It holds a sequence that is written, waited for, or read.
        Published,
        /// A rescue has begun; some of its words may be RETIRED.
        Rescuing,
        /// Broken: its words do not change any more, and its counted samples are being copied elsewhere.
        Quarantined,
        /// Its counted bits are final and its bytes lie together; length, words and `ready` may not say so yet.
        Finishing,
        /// Its first `length` slots are samples, and readers can see that.
        Finished,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRecord {
    pub state: BlockState,
    pub sequence: u8,
    /// The reader that it is granted to.
    pub grant: Option<u8>,
    /// Of a quarantined or finishing block: the slots whose commits counted.
    pub counted: u8,
    /// Of a quarantined block: the counted slots that have been copied elsewhere.
    pub copied: u8,
    /// Of a block in rescue: the workers that held it. Only where quarantine waits for processes.
    pub holders: u8,
}

impl BlockRecord {
    const FREE: BlockRecord =
        BlockRecord { state: BlockState::Free, sequence: 0, grant: None, counted: 0, copied: 0, holders: 0 };

    /// Slots whose samples are nowhere else yet.
    pub fn uncopied(&self) -> u8 {
        self.counted & !self.copied
    }

    pub fn is(&self, state: BlockState) -> bool {
        self.state == state
    }
}

/// A sample on its way out of a quarantined block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyInFlight {
    pub block: u8,
    pub slot: u8,
    /// The position that it goes to.
    pub target: u8,
}

/// How many claims of dead workers the daemon can keep.
const MAX_ORPHANS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ledger {
    pub blocks: [BlockRecord; MAX_BLOCKS],
    pub next_sequence: u8,
    pub copy: Option<CopyInFlight>,
    /// Claims of workers that are gone, largest first, so that the order of dying makes no new state.
    pub orphans: [Option<Record>; MAX_ORPHANS],
    /// The table is finishing: no writer will come any more.
    pub finishing: bool,
}

impl Ledger {
    pub fn new() -> Ledger {
        Ledger {
            blocks: [BlockRecord::FREE; MAX_BLOCKS],
            next_sequence: 0,
            copy: None,
            orphans: [None; MAX_ORPHANS],
            finishing: false,
        }
    }

    /// The block that holds a position, by the private table.
    pub fn block_of(&self, config: &Configuration, position: u8) -> Option<usize> {
        let sequence = config.sequence_of(position);
        (0..config.blocks).find(|&block| {
            !self.blocks[block].is(BlockState::Free) && self.blocks[block].sequence == sequence
        })
    }

    /// The same, if the block can still be written.
    pub fn published_block_of(&self, config: &Configuration, position: u8) -> Option<usize> {
        let sequence = config.sequence_of(position);
        (0..config.blocks).find(|&block| {
            self.blocks[block].is(BlockState::Published) && self.blocks[block].sequence == sequence
        })
    }

    /// Keeps the claim of a worker that is gone.
    pub fn keep_orphan(&mut self, record: Record) {
        let orphan = Some(Record { dropped: false, ..record });
        if self.orphans.contains(&orphan) {
            return;
        }
        let room = self.orphans.iter_mut().find(|kept| kept.is_none()).expect("room for an orphaned claim");
        *room = orphan;
        self.orphans.sort_unstable_by(|a, b| b.cmp(a));
    }

    pub fn settle_orphan(&mut self, orphan: usize) {
        self.orphans[orphan] = None;
        self.orphans.sort_unstable_by(|a, b| b.cmp(a));
    }

    pub fn fields(&mut self, config: &Configuration, codec: &mut impl Codec) {
        codec.bits(&mut self.next_sequence, 4);
        codec.flag(&mut self.finishing);
        for orphan in &mut self.orphans {
            Record::fields(orphan, codec);
        }
        for block in &mut self.blocks[..config.blocks] {
            codec.variant(&mut block.state, 3);
            codec.bits(&mut block.sequence, 4);
            codec.option(&mut block.grant, 2);
            codec.bits(&mut block.counted, config.slots as u32);
            codec.bits(&mut block.copied, config.slots as u32);
            codec.bits(&mut block.holders, config.workers as u32);
        }
        let mut source = self.copy.map(|copy| copy.block * config.slots as u8 + copy.slot);
        let mut target = self.copy.map_or(0, |copy| copy.target);
        codec.option(&mut source, 4);
        codec.bits(&mut target, 6);
        self.copy = source.map(|source| CopyInFlight {
            block: source / config.slots as u8,
            slot: source % config.slots as u8,
            target,
        });
    }
}
