//! A table's state machine, of whichever kind.
//!
//! What can be asked of every table is here, and goes to its kind. Who wants what only one kind can do matches on it.

use std::sync::Arc;

use crate::ring::control::Control;
use crate::spec::TableKind;
use crate::table::action::{Action, Violation};
use crate::table::ending::MoveSamples;
use crate::table::intake::Intake;
use crate::table::latest::Latest;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::poison::RebuildError;
use crate::table::queue::{Queue, Tokens};
use crate::wire::message::{BlockCounts, EndReason};

/// The state machine.
pub enum Machine {
    /// Each batch to one reader.
    Queue(Queue),
    /// The newest value to every reader.
    Latest(Latest),
}

impl Machine {
    /// A new table over zeroed words, whose first `usable` blocks have memory. They are published.
    pub fn create(
        kind: TableKind,
        control: Arc<Control>,
        ledger: Ledger,
        usable: u32,
        tokens: Tokens,
    ) -> Self {
        match kind {
            TableKind::Queue => Self::Queue(Queue::create(control, ledger, usable, tokens)),
            TableKind::Latest => Self::Latest(Latest::create(control, ledger, usable)),
        }
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever instruction. Its
    /// clients come back with their old keys; until then what they hold stays theirs.
    ///
    /// # Errors
    /// If the words do not fit the record.
    pub fn rebuild(
        kind: TableKind,
        control: Arc<Control>,
        ledger: Ledger,
        tokens: Tokens,
    ) -> Result<Self, RebuildError> {
        Ok(match kind {
            TableKind::Queue => Self::Queue(Queue::rebuild(control, ledger, tokens)?),
            TableKind::Latest => Self::Latest(Latest::rebuild(control, ledger)?),
        })
    }

    /// How samples come in.
    pub const fn intake(&self) -> &Intake {
        match self {
            Self::Queue(queue) => queue.intake(),
            Self::Latest(latest) => latest.intake(),
        }
    }

    /// The queue, if it is one.
    pub const fn queue(&self) -> Option<&Queue> {
        match self {
            Self::Queue(queue) => Some(queue),
            Self::Latest(_) => None,
        }
    }

    /// How many readers are attached.
    pub fn count_readers(&self) -> usize {
        match self {
            Self::Queue(queue) => queue.readers().len(),
            Self::Latest(latest) => latest.readers().len(),
        }
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.has_members(),
            Self::Latest(latest) => latest.has_members(),
        }
    }

    /// Blocks by state.
    pub fn block_counts(&self) -> BlockCounts {
        match self {
            Self::Queue(queue) => queue.intake().block_counts(),
            Self::Latest(latest) => latest.block_counts(),
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
        }
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds.
    pub fn disconnect(&mut self, key: MemberKey) {
        match self {
            Self::Queue(queue) => queue.disconnect(key),
            Self::Latest(latest) => latest.disconnect(key),
        }
    }

    /// A member can no longer touch the table's memory. False if the call is to be made again.
    pub fn detach(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> bool {
        match self {
            Self::Queue(queue) => queue.detach(key, actions),
            Self::Latest(latest) => latest.detach(key),
        }
    }

    /// What is done from time to time.
    pub fn tick(&mut self, mover: &mut dyn MoveSamples, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.tick(mover, actions),
            Self::Latest(latest) => latest.tick(actions),
        }
    }

    /// Whether [`Machine::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_unsettled(),
            Self::Latest(latest) => latest.is_unsettled(),
        }
    }

    /// Stops claims for good; what was committed and must be delivered will be.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.close(reason, actions),
            Self::Latest(latest) => latest.close(reason, actions),
        }
    }

    /// Ends the table for all who are attached, delivered or not.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        match self {
            Self::Queue(queue) => queue.end_all(reason, actions),
            Self::Latest(latest) => latest.end_all(reason, actions),
        }
    }

    /// Whether the table has ended, and nothing of it is waited for.
    pub fn is_drained(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_drained(),
            Self::Latest(latest) => latest.is_drained(),
        }
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        match self {
            Self::Queue(queue) => queue.into_ledger(),
            Self::Latest(latest) => latest.into_ledger(),
        }
    }
}
