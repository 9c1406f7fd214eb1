//! The daemon: one thing at a time, each step durable before the next, killed anywhere.
//!
//! From [`DaemonStep::Idle`] it chooses what to do (`choice`); what it has begun it does to the end, and then is idle
//! again. Its registers are lost when it is killed; the [`Ledger`](crate::ledger::Ledger) is not.

mod choice;
mod copy;
mod finish;
mod grant;
mod publish;
mod quarantine;
mod reclaim;
mod rescue;
mod restart;

use crate::configuration::Configuration;
use crate::packing::{Codec, numbered};
use crate::state::State;
use crate::successors::Successors;

numbered! {
    /// What the daemon does next.
    pub enum DaemonStep {
        Idle,

        // Publishing a block.
        ClearWords,
        StoreFilling,
        StoreFill,
        RecordPublished,
        StoreLimit,
        BumpSpace,
        WakeSpace,

        // Granting, where GRANTED is set before the message.
        SendGrant,

        // Taking over a dropped claim.
        ClearDroppedRecord,
        // Settling an orphaned claim, position by position.
        ReclaimReadsCursor,
        ReclaimReadsRefill,
        ReclaimReadsRecords,
        ReclaimReadsBit,
        OfferHole,
        BumpSpaceForHole,
        WakeSpaceForHole,
        SettleOrphan,

        // Rescuing a block.
        RetireWords,
        JudgeRescue,
        RecordQuarantine,
        StoreBrokenLate,
        HelpComplete,
        WakeRescued,

        // Copying one sample out of a quarantined block.
        CloseCursor,
        RecordCopy,
        MoveCursor,
        BumpAndWakeForCopy,
        ForgetCopy,
        WriteCopy,
        CommitCopy,
        LookAtWords,
        MarkComplete,
        WakeCopied,
        RecordCopied,

        // Ending a quarantine.
        QuarantineReadsRefill,
        QuarantineReadsRecords,

        // Finishing the table, and then block by block.
        CloseForGood,
        MoveBytes,
        RecordFinishing,
        StoreLength,
        FillWords,
        StoreComplete,
        WakeFinished,
        RecordFinished,
        TakeGrantBack,

        // Killed, and the way back.
        Down,
        RestoreLimit,
        WakeEverybody,
        Resume,
    }
}

/// What the daemon is doing, and its registers; most steps use few of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Daemon {
    pub step: DaemonStep,
    pub block: u8,
    /// The slot that is copied.
    pub slot: u8,
    /// The word, entry, record or move that comes next.
    pub index: u8,
    /// The bits that counted, one a slot.
    pub counted: u8,
    /// The cursor that was seen.
    pub cursor: u8,
    /// The orphaned claim that is being settled, and how far into it.
    pub orphan: u8,
    pub offset: u8,
    /// A free refill entry that was seen.
    pub free_entry: Option<u8>,
    /// The worker or reader that it is about.
    pub client: u8,
}

impl Daemon {
    pub const IDLE: Daemon = Daemon {
        step: DaemonStep::Idle,
        block: 0,
        slot: 0,
        index: 0,
        counted: 0,
        cursor: 0,
        orphan: 0,
        offset: 0,
        free_entry: None,
        client: 0,
    };

    pub fn begin(step: DaemonStep) -> Daemon {
        Daemon { step, ..Daemon::IDLE }
    }

    pub fn begin_with_block(step: DaemonStep, block: usize) -> Daemon {
        Daemon { step, block: block as u8, ..Daemon::IDLE }
    }

    /// On to the next step, with the registers as they are; an idle daemon has none.
    pub fn go(&mut self, step: DaemonStep) {
        self.step = step;
        if step == DaemonStep::Idle {
            *self = Daemon::IDLE;
        }
    }

    pub fn fields(&mut self, config: &Configuration, codec: &mut impl Codec) {
        codec.variant(&mut self.step, 6);
        codec.bits(&mut self.block, 2);
        codec.bits(&mut self.slot, 2);
        codec.bits(&mut self.index, 3);
        codec.bits(&mut self.counted, config.slots as u32);
        codec.bits(&mut self.cursor, 6);
        codec.bits(&mut self.orphan, 2);
        codec.bits(&mut self.offset, 1);
        codec.option(&mut self.free_entry, 2);
        codec.bits(&mut self.client, 2);
    }
}

/// What the daemon can do next.
pub fn step(config: &Configuration, state: &State, out: &mut Successors) {
    use DaemonStep as D;
    match state.daemon.step {
        D::Idle => choice::step(config, state, out),
        D::ClearWords
        | D::StoreFilling
        | D::StoreFill
        | D::RecordPublished
        | D::StoreLimit
        | D::BumpSpace
        | D::WakeSpace => publish::step(config, state, out),
        D::SendGrant => grant::send(config, state, out),
        D::ClearDroppedRecord
        | D::ReclaimReadsCursor
        | D::ReclaimReadsRefill
        | D::ReclaimReadsRecords
        | D::ReclaimReadsBit
        | D::OfferHole
        | D::BumpSpaceForHole
        | D::WakeSpaceForHole
        | D::SettleOrphan => reclaim::step(config, state, out),
        D::RetireWords
        | D::JudgeRescue
        | D::RecordQuarantine
        | D::StoreBrokenLate
        | D::HelpComplete
        | D::WakeRescued => rescue::step(config, state, out),
        D::CloseCursor
        | D::RecordCopy
        | D::MoveCursor
        | D::BumpAndWakeForCopy
        | D::ForgetCopy
        | D::WriteCopy
        | D::CommitCopy
        | D::LookAtWords
        | D::MarkComplete
        | D::WakeCopied
        | D::RecordCopied => copy::step(config, state, out),
        D::QuarantineReadsRefill | D::QuarantineReadsRecords => quarantine::step(config, state, out),
        D::CloseForGood
        | D::MoveBytes
        | D::RecordFinishing
        | D::StoreLength
        | D::FillWords
        | D::StoreComplete
        | D::WakeFinished
        | D::RecordFinished
        | D::TakeGrantBack => finish::step(config, state, out),
        D::Down | D::RestoreLimit | D::WakeEverybody | D::Resume => restart::step(config, state, out),
    }
}

/// The daemon is killed before its next step. An idle one has nothing to lose, and neither has one that starts.
pub fn crash(config: &Configuration, state: &State, out: &mut Successors) {
    use DaemonStep::{Down, Idle, RestoreLimit, Resume};
    if state.budget.daemon_crashes == 0 || matches!(state.daemon.step, Down | Idle | RestoreLimit | Resume) {
        return;
    }
    let mut next = *state;
    next.budget.daemon_crashes -= 1;
    next.daemon = Daemon::begin(Down);
    next.ledger.finishing &= config.rules.finishing_is_recorded;
    out.push_chance(next, || "*** the daemon is killed".into());
}

/// After a change that workers may sleep through: bump `space`, if anybody sleeps in this configuration.
fn then_tell_workers(config: &Configuration) -> DaemonStep {
    if config.workers_sleep { DaemonStep::BumpSpace } else { DaemonStep::Idle }
}
