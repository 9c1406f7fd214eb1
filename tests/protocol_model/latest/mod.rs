//! A latest table, state by state: one writer publishes, readers take the newest value and hold it.
//!
//! What is the same as in a queue table (records, claims, holes, the limit) is as small here as it can be: a block has
//! one slot, and one writer lives at a time. What is new is looked at step by step: `newest`, the hazards by which
//! readers hold what they read, and the daemon that lets blocks go round behind their backs.
//!
//! A value's bytes are two words, written and read one after the other, so that a torn one shows. Read `state.rs` (what
//! there is), `writer.rs`, `reader.rs`, `daemon.rs` (who does what), [`rules`].

mod daemon;
mod reader;
mod rules;
mod rules_off;
mod rules_on;
mod state;
mod writer;

use crate::explorer::Model;
use crate::packing::{Packer, Unpacker};
use crate::successors::Successors;
use rules::Rules;
use state::State;

/// The bounds of the arrays in a state; a table may be smaller.
pub const MAX_BLOCKS: usize = 3;
pub const MAX_READERS: usize = 2;
pub const MAX_WRITERS: usize = 2;
/// Entries of `fill`: at least as many as blocks.
pub const FILL: usize = 4;

/// How large the table is, and what may go wrong in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatestTable {
    /// Physical blocks. All are published at the start.
    pub blocks: usize,
    pub readers: usize,
    /// Processes that can be the writer, one after the other.
    pub writers: usize,
    /// Values that are published in all.
    pub values: u8,
    pub writer_crashes: u8,
    pub reader_crashes: u8,
    pub daemon_crashes: u8,
    /// How many readers may stop for good, with what they hold.
    pub stops: u8,
    /// A writer without room and a reader without news sleep, where otherwise they only look again.
    pub sleepers: bool,
    pub rules: Rules,
}

impl LatestTable {
    /// A writer, a reader, two blocks, three values, nothing goes wrong.
    pub const SMALL: LatestTable = LatestTable {
        blocks: 2,
        readers: 1,
        writers: 1,
        values: 3,
        writer_crashes: 0,
        reader_crashes: 0,
        daemon_crashes: 0,
        stops: 0,
        sleepers: false,
        rules: Rules::ON,
    };

    fn check(&self) {
        assert!((2..=MAX_BLOCKS).contains(&self.blocks));
        assert!(self.readers <= MAX_READERS && self.writers <= MAX_WRITERS);
        assert!(self.values < 7, "versions take three bits");
        assert!(self.stops == 0 || self.blocks > 2, "what is held, what is newest, and what is written");
    }
}

impl Model for LatestTable {
    type State = State;

    fn initial(&self) -> State {
        self.check();
        State::initial(self)
    }

    fn successors(&self, state: &State, out: &mut Successors<State>) {
        for who in 0..self.writers {
            writer::step(self, state, who, out);
            writer::crash(state, who, out);
        }
        for who in 0..self.readers {
            reader::step(self, state, who, out);
            reader::crash(state, who, out);
            reader::stop(state, who, out);
        }
        daemon::step(self, state, out);
        daemon::crash(self, state, out);
    }

    fn is_goal(&self, state: &State) -> bool {
        state.is_goal(self)
    }

    fn pack(&self, state: &State) -> Packer {
        let mut packer = Packer::new();
        let mut copy = *state;
        copy.fields(self, &mut packer);
        packer
    }

    fn unpack(&self, packed: &[u64]) -> State {
        let mut state = State::blank(self);
        state.fields(self, &mut Unpacker::new(packed));
        state
    }

    fn show(&self, state: &State) -> String {
        state.show(self)
    }

    fn states_at_most(&self) -> usize {
        60_000_000
    }
}
