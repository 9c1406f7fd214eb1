//! What a table's state machine wants said to clients, and what clients cannot have of it.

use thiserror::Error;

use crate::ids::BlockSeq;
use crate::table::member::MemberKey;
use crate::table::roster::ROSTER;
use crate::wire::message::{EndReason, Grant};

/// Something to be said to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// These batches are this reader's.
    Grant {
        /// The reader.
        reader: MemberKey,
        /// In ascending number.
        grants: Vec<Grant>,
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
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Violation {
    #[error("member {0} is not attached to this table")]
    NoMember(MemberKey),
}

/// Why a latest table takes no such member now.
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
