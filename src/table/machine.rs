//! A table's state machine, of whichever kind.
//!
//! What can be asked of every table is here, and goes to its kind. Who wants what only one kind can do matches on it.

use std::sync::Arc;

use crate::ids::LeaseToken;
use crate::replay::items::Items;
use crate::ring::control::Control;
use crate::ring::words::Words;
use crate::spec::{TableKind, TableSpec};
use crate::table::action::{Action, Violation};
use crate::table::ending::MoveSamples;
use crate::table::intake::Intake;
use crate::table::latest::Latest;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::poison::RebuildError;
use crate::table::queue::{Queue, Tokens};
use crate::table::replay::Replay;
use crate::wire::message::{BlockCounts, EndReason, SampleCounts};

/// The state machine.
pub enum Machine {
    /// Each batch to one reader.
    Queue(Queue),
    /// The newest value to every reader.
    Latest(Latest),
    /// What is chosen to whoever asks.
    Replay(Box<Replay>),
}

/// What is the daemon's own of a table.
pub struct Private {
    /// What became of its blocks.
    pub ledger: Ledger,
    /// Of a replay table, its items: [`Machine::items_bytes`] of them.
    pub items: Option<Words>,
    /// What its grants are given back with.
    pub tokens: Tokens,
}

impl Machine {
    /// Bytes of the items of a table of that valid spec; 0 if it has none.
    pub fn items_bytes(spec: &TableSpec) -> usize {
        match spec.kind {
            TableKind::Queue | TableKind::Latest => 0,
            TableKind::Replay => Items::bytes(spec.capacity.saturating_mul(spec.batch_size)),
        }
    }

    /// A new table of a valid spec over zeroed words, whose first blocks, as many as it has capacity, have memory. They are
    /// published.
    ///
    /// # Errors
    /// If the words are not as many as the spec needs.
    pub fn create(spec: &TableSpec, control: Arc<Control>, private: Private) -> Result<Self, RebuildError> {
        let Private { ledger, items, tokens } = private;
        Ok(match (spec.kind, &spec.replay, items) {
            (TableKind::Queue, ..) => Self::Queue(Queue::create(control, ledger, spec.capacity, tokens)),
            (TableKind::Latest, ..) => Self::Latest(Latest::create(control, ledger, spec.capacity)),
            (TableKind::Replay, Some(settings), Some(items)) => {
                Self::Replay(Box::new(Replay::create(settings, control, ledger, items, spec.capacity)?))
            }
            (TableKind::Replay, ..) => return Err(RebuildError::NoItems),
        })
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever instruction. Its
    /// clients come back with their old keys; until then what they hold stays theirs.
    ///
    /// # Errors
    /// If the words do not fit the record.
    pub fn rebuild(spec: &TableSpec, control: Arc<Control>, private: Private) -> Result<Self, RebuildError> {
        let Private { ledger, items, tokens } = private;
        Ok(match (spec.kind, &spec.replay, items) {
            (TableKind::Queue, ..) => Self::Queue(Queue::rebuild(control, ledger, tokens)?),
            (TableKind::Latest, ..) => Self::Latest(Latest::rebuild(control, ledger)?),
            (TableKind::Replay, Some(settings), Some(items)) => {
                Self::Replay(Box::new(Replay::rebuild(settings, control, ledger, items)?))
            }
            (TableKind::Replay, ..) => return Err(RebuildError::NoItems),
        })
    }

    /// How samples come in.
    pub const fn intake(&self) -> &Intake {
        match self {
            Self::Queue(queue) => queue.intake(),
            Self::Latest(latest) => latest.intake(),
            Self::Replay(replay) => replay.intake(),
        }
    }

    /// The queue, if it is one.
    pub const fn queue(&self) -> Option<&Queue> {
        match self {
            Self::Queue(queue) => Some(queue),
            Self::Latest(_) | Self::Replay(_) => None,
        }
    }

    /// How many readers are attached.
    pub fn count_readers(&self) -> usize {
        match self {
            Self::Queue(queue) => queue.readers().len(),
            Self::Latest(latest) => latest.readers().len(),
            Self::Replay(replay) => replay.readers().len(),
        }
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.has_members(),
            Self::Latest(latest) => latest.has_members(),
            Self::Replay(replay) => replay.has_members(),
        }
    }

    /// Counts the samples. Of a replay table: what came, what was sampled, what is there.
    pub fn samples(&self) -> SampleCounts {
        match self {
            Self::Queue(_) | Self::Latest(_) => self.intake().samples(),
            Self::Replay(replay) => replay.samples(),
        }
    }

    /// Blocks by state.
    pub fn block_counts(&self) -> BlockCounts {
        match self {
            Self::Queue(queue) => queue.intake().block_counts(),
            Self::Latest(latest) => latest.block_counts(),
            Self::Replay(replay) => replay.block_counts(),
        }
    }

    /// A writer commits no more samples.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn finish_writer(&mut self, key: MemberKey) -> Result<(), Violation> {
        match self {
            Self::Queue(queue) => queue.finish_writer(key),
            Self::Latest(latest) => latest.finish_writer(key),
            Self::Replay(replay) => replay.finish_writer(key),
        }
    }

    /// A writer gave up its claim: it marked its record, and says so.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn drop_claim(&mut self, key: MemberKey) -> Result<(), Violation> {
        match self {
            Self::Queue(queue) => queue.drop_claim(key),
            Self::Latest(latest) => latest.drop_claim(key),
            Self::Replay(replay) => replay.drop_claim(key),
        }
    }

    /// A writer found no room, and wants to know soon when there is some. In a queue table that is when a reader gives a
    /// batch back, and needs no asking.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn need_space(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> Result<(), Violation> {
        match self {
            Self::Queue(queue) => match queue.intake().writers().contains_key(&key) {
                true => Ok(()),
                false => Err(Violation::NoMember(key)),
            },
            Self::Latest(latest) => latest.need_space(key, actions),
            Self::Replay(replay) => replay.need_space(key, actions),
        }
    }

    /// A reader of batches takes no more, but keeps these. Readers of other tables were granted nothing.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn leave_reader(
        &mut self,
        key: MemberKey,
        keeps: &[LeaseToken],
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        match self {
            Self::Queue(queue) => queue.leave_reader(key, keeps, actions),
            Self::Latest(_) | Self::Replay(_) => Err(Violation::NoMember(key)),
        }
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds.
    pub fn disconnect(&mut self, key: MemberKey) {
        match self {
            Self::Queue(queue) => queue.disconnect(key),
            Self::Latest(latest) => latest.disconnect(key),
            Self::Replay(replay) => replay.disconnect(key),
        }
    }

    /// A member can no longer touch the table's memory. False if the call is to be made again.
    pub fn detach(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> bool {
        match self {
            Self::Queue(queue) => queue.detach(key, actions),
            Self::Latest(latest) => latest.detach(key),
            Self::Replay(replay) => replay.detach(key, actions),
        }
    }

    /// What is done from time to time.
    pub fn tick(&mut self, mover: &mut dyn MoveSamples, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.tick(mover, actions),
            Self::Latest(latest) => latest.tick(actions),
            Self::Replay(replay) => replay.tick(actions),
        }
    }

    /// Whether [`Machine::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_unsettled(),
            Self::Latest(latest) => latest.is_unsettled(),
            Self::Replay(replay) => replay.is_unsettled(),
        }
    }

    /// Stops claims for good; what was committed and must be delivered will be.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.close(reason, actions),
            Self::Latest(latest) => latest.close(reason, actions),
            Self::Replay(replay) => replay.close(reason, actions),
        }
    }

    /// Ends the table for all who are attached, delivered or not.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.end_all(reason, actions),
            Self::Latest(latest) => latest.end_all(reason, actions),
            Self::Replay(replay) => replay.end_all(reason, actions),
        }
    }

    /// Whether the table has ended, and nothing of it is waited for.
    pub fn is_drained(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_drained(),
            Self::Latest(latest) => latest.is_drained(),
            Self::Replay(replay) => replay.is_drained(),
        }
    }

    /// Whether it is a queue that its writers have finished and its readers have read, and nobody is attached: one of that name
    /// may take its place, and nothing is lost.
    pub fn is_spent(&self) -> bool {
        self.queue().is_some_and(Queue::is_spent)
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        match self {
            Self::Queue(queue) => queue.into_ledger(),
            Self::Latest(latest) => latest.into_ledger(),
            Self::Replay(replay) => replay.into_ledger(),
        }
    }
}
