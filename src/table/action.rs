//! What a table's state machine wants said to clients, and what clients cannot have of it.

use thiserror::Error;

use crate::ids::BlockSeq;
use crate::replay::index::{Pick, PriorityError};
use crate::table::member::MemberKey;
use crate::table::roster::ROSTER;
use crate::wire::message::{EndReason, Grant};

/// Something to be said to a client.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// These batches are this reader's.
    Grant {
        /// The reader.
        reader: MemberKey,
        /// In ascending number.
        grants: Vec<Grant>,
    },
    /// These samples are this reader's, until it gives them back.
    Sampled {
        /// The reader.
        reader: MemberKey,
        /// The number of its request.
        number: u64,
        /// What was picked.
        picks: Vec<Pick>,
        /// How likely the least likely item of the table is to be chosen.
        least: Option<f64>,
        /// Why they are fewer than were asked for.
        short: Option<String>,
    },
    /// This member's stream ends.
    End {
        /// The writer or reader.
        member: MemberKey,
        /// Why.
        reason: EndReason,
        /// First sequence that will not be delivered.
        end: BlockSeq,
    },
}

/// A client asked for what it has no right to.
#[derive(Clone, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Violation {
    #[error("member {0} is not attached to this table")]
    NoMember(MemberKey),
    #[error("reader {reader} asks for {asked} samples with {outstanding} outstanding, and {most} may be")]
    TooManySamples { reader: MemberKey, asked: u32, outstanding: u64, most: u64 },
    #[error("reader {reader} has {most} requests outstanding, as many as may be")]
    TooManyRequests { reader: MemberKey, most: u32 },
    #[error("reader {reader} asks for sample {number} after {last}: numbers ascend")]
    SampleNumber { reader: MemberKey, number: u64, last: u64 },
    #[error(transparent)]
    Priority(PriorityError),
}

/// Why a table takes no such member now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Occupied {
    #[error("it has its writer")]
    Writer(MemberKey),
    #[error("what its last writer had claimed is not settled yet")]
    Unsettled,
    #[error("it has {ROSTER} members already")]
    Full,
}
