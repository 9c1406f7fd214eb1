//! What can go wrong, as sentences that say what to do, and as methods for programs.

use std::path::PathBuf;
use std::time::Duration;

use echo::host_pinning::PinError;
use echo::memory::MemoryError;
use echo::ring::claim::ClaimError;
use echo::ring::commit::CommitError;
use echo::ring::hold::HoldError;
use echo::spec::DType;
use echo::wire::codec::CodecError;
use echo::wire::message::{
    BUILD, EndReason, LAYOUT_VERSION, PROTOCOL_MAX, PROTOCOL_MIN, Refusal, RefusalKind, Refused,
};
use echo::wire::socket::SocketError;
use thiserror::Error as ThisError;

/// A call that was not done.
#[derive(Debug, ThisError)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Error {
    #[error("no echod was found at {tried}: start it, or say where it listens with ECHO_SOCKET")]
    NoDaemon { tried: String },
    #[error("cannot connect to echod at {path}: is it running, and may this user write to its socket")]
    Connect { path: PathBuf, source: SocketError },
    #[error("echod refuses this client: {}", refused(.0))]
    Version(Box<Refused>),
    #[error("{}", .0.message)]
    Refused(Refusal),
    #[error("echod is gone: {reason}")]
    Gone { reason: String },
    #[error("{what} took longer than {after:?}")]
    TimedOut { what: &'static str, after: Duration },
    #[error("the wait was cancelled")]
    Cancelled,
    #[error("this process was forked from the one that connected: connect again in the child")]
    Forked,
    #[error("table {table:?} {}", ended(*.reason))]
    Closed { table: String, reason: EndReason },
    #[error("array {array:?} of {samples} samples is {expected} bytes, and {got} were given")]
    Length { array: String, samples: usize, expected: usize, got: usize },
    #[error("the table has {expected} arrays, and {got} were given")]
    Arrays { expected: usize, got: usize },
    #[error("array {array:?} holds {dtype}, which is not {asked}")]
    Element { array: String, dtype: DType, asked: DType },
    #[error("{done} of {of} samples were written, and then: {source}")]
    Partly { done: usize, of: usize, source: Box<Error> },
    #[error("the memory of the table cannot be used")]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error("echod does not do what it says, or is of another version: {0}")]
    Announced(String),
    #[error("the table's memory is spoilt")]
    Claim(#[from] ClaimError),
    #[error("the table's memory is spoilt")]
    Hold(#[from] HoldError),
    #[error(
        "this reader holds {held} different values, which is the most: drop one, or attach another reader"
    )]
    TooManyHeld { held: usize },
    #[error("{samples} samples were given, and marks for {got}: give one for each, or none")]
    Marks { samples: usize, got: usize },
    #[error("sample {number} has the priority {priority}: it must be finite and not negative")]
    Priority { number: usize, priority: f64 },
    #[error(
        "item {key}, number {number} of the list, has the priority {priority}: it must be finite and not negative"
    )]
    ItemPriority { key: u64, number: usize, priority: f64 },
    #[error("sample {number} has the version 2^64 - 1, which means that it has none")]
    MarkVersion { number: usize },
    #[error("no samples came within {after:?}: {why}")]
    NoSamples { after: Duration, why: String },
    #[error("all {batches} batches of this sampler are held: drop one, or attach it with a larger prefetch")]
    AllHeld { batches: usize },
    #[error(
        "this sampler gathers nothing, so there is no memory to page-lock: attach it with a thread or more"
    )]
    NotGathered,
    #[error("a batch of {batch} samples is more than the {most} that a sampler may have outstanding")]
    BatchTooLarge { batch: u32, most: u64 },
    #[error("the sample could not be committed")]
    Commit(#[from] CommitError),
    #[error("the message cannot be sent")]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("a thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl Error {
    /// Whether the same call may succeed later, with nothing else changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoDaemon { .. }
            | Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::NoSamples { .. }
            | Self::Cancelled => true,
            // A limit, or it is stopping.
            Self::Version(refused) => refused.versions_meet(),
            Self::Refused(refusal) => {
                matches!(refusal.kind, RefusalKind::Budget | RefusalKind::Limit | RefusalKind::Draining)
            }
            Self::Partly { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    /// What kind of refusal it is, if the daemon refused the call.
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused(refusal) => Some(refusal.kind),
            _ => None,
        }
    }
}

/// Why, and where that is a matter of versions, which ones these are.
fn refused(refused: &Refused) -> String {
    let Refused { protocol_min, protocol_max, layout, build, reason } = refused;
    if refused.versions_meet() {
        return reason.clone();
    }
    format!(
        "{reason} (echod {build} speaks versions {protocol_min} to {protocol_max} of the protocol over version \
         {layout} of the shared memory; this client, {BUILD}, speaks versions {PROTOCOL_MIN} to {PROTOCOL_MAX} \
         over version {LAYOUT_VERSION})"
    )
}

/// An error and its causes, where only a sentence can be kept.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

fn ended(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Finished => "has ended: all its writers have finished",
        EndReason::Dropped => "was dropped",
        EndReason::Draining => "has ended, since echod is stopping",
        EndReason::Poisoned => "is poisoned: one of its workers spoilt its memory",
    }
}
