//! A queue table, as the explorer sees it.

use crate::configuration::Configuration;
use crate::explorer::Model;
use crate::packing::Packer;
use crate::state::State;
use crate::successors::Successors;
use crate::{daemon, reader, worker};

impl Model for Configuration {
    type State = State;

    fn initial(&self) -> State {
        self.check();
        State::initial(self)
    }

    fn successors(&self, state: &State, out: &mut Successors) {
        for who in 0..self.workers {
            worker::step(self, state, who, out);
            worker::crash(self, state, who, out);
        }
        for who in 0..self.readers {
            reader::step(self, state, who, out);
            reader::crash(state, who, out);
        }
        daemon::step(self, state, out);
        daemon::crash(self, state, out);
    }

    fn is_goal(&self, state: &State) -> bool {
        state.is_goal(self)
    }

    fn pack(&self, state: &State) -> Packer {
        state.pack(self)
    }

    fn unpack(&self, packed: &[u64]) -> State {
        State::unpack(self, packed)
    }

    fn show(&self, state: &State) -> String {
        state.show(self)
    }

    fn states_at_most(&self) -> usize {
        self.states_at_most
    }
}
