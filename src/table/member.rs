//! Who is attached to a table: writers and readers.

use std::fmt;
use std::sync::Arc;

use crate::ids::{ClientId, GrantNumber, MemberId};
use crate::ring::record::{ClientPage, Record, RecordedClaim};
use crate::sync::Ordering;

/// A member, among those of all clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemberKey {
    /// Its client.
    pub client: ClientId,
    /// Its number there.
    pub member: MemberId,
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.client, self.member)
    }
}

/// A process that may write the table's memory.
pub struct Writer {
    page: Arc<ClientPage>,
    record: u32,
    /// It said that it commits no more.
    pub finished: bool,
    /// It can no longer write: its process is gone, or it said that it unmapped. What its records say is not kept as
    /// orphaned yet, since there was no room for it.
    pub gone: bool,
}

impl Writer {
    /// The writer of that record.
    ///
    /// # Panics
    /// If the page has no such record, which only the daemon's own book-keeping could cause.
    pub fn new(page: Arc<ClientPage>, record: u32) -> Self {
        assert!(page.record(record).is_some(), "record {record}");
        Self { page, record, finished: false, gone: false }
    }

    /// Its line in the client page.
    pub fn record(&self) -> Record<'_> {
        self.page.record(self.record).expect("checked when the writer was made")
    }

    /// The claims that its records allege and that it has not given up. One that is gone takes and commits nothing
    /// any more, so that it holds nothing.
    pub fn held(&self) -> impl Iterator<Item = RecordedClaim> {
        let alleged = if self.gone { [None, None] } else { self.record().alleged() };
        alleged.into_iter().flatten().filter(|claim| !claim.dropped)
    }

    /// Whether its records are empty.
    pub fn is_idle(&self) -> bool {
        self.record().alleged() == [None, None]
    }

    /// Whether it says that it waits for space.
    pub fn is_waiting(&self) -> bool {
        self.record().waiting().load(Ordering::Relaxed) != 0
    }

    /// Samples committed, by its own account.
    pub fn committed(&self) -> u64 {
        self.record().committed().load(Ordering::Relaxed)
    }
}

/// A process that is granted batches.
#[derive(Debug)]
pub struct Reader {
    /// How many grants it may hold.
    pub prefetch: u16,
    /// How many it holds.
    pub held: u32,
    /// Its last grant's number.
    pub last_number: GrantNumber,
    /// Batches that it gave back.
    pub batches: u64,
    /// It gets new grants. Not if its connection is gone while its process lives.
    pub connected: bool,
    /// It was told that no more grants come.
    pub ended: bool,
    /// When it was last granted something, counted in grants of the table: the longest waiting comes first.
    pub turn: u64,
}

impl Reader {
    /// A reader that holds nothing.
    pub const fn new(prefetch: u16) -> Self {
        Self {
            prefetch,
            held: 0,
            last_number: GrantNumber(0),
            batches: 0,
            connected: true,
            ended: false,
            turn: 0,
        }
    }

    /// Whether it may be granted a batch.
    pub const fn wants(&self) -> bool {
        self.connected && self.held < self.prefetch as u32
    }
}
