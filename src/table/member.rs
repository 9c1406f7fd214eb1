//! Who is attached to a table: writers, readers of batches, and readers of a newest value.

use std::fmt;
use std::sync::Arc;

use crate::ids::{ClientId, GrantNumber, MemberId};
use crate::ring::hold::HoldLine;
use crate::ring::newest::ValueWord;
use crate::ring::record::{ClientPage, Record, RecordedClaim};
use crate::sync::Ordering;
use crate::table::group::GroupId;

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
    /// It can touch the memory no more, but its records have found no place yet.
    pub(super) gone: bool,
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

    /// The claims that its records allege and that it has not given up. None if it can commit no more.
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

    /// How often it waited for room and woke a reader, by its own account.
    pub fn waits_and_wakes(&self) -> (u64, u64) {
        let record = self.record();
        (record.waits().load(Ordering::Relaxed), record.wakes().load(Ordering::Relaxed))
    }

    /// Samples committed, by its own account.
    pub fn committed(&self) -> u64 {
        self.record().committed().load(Ordering::Relaxed)
    }
}

/// The user of readers whose process has not come back to a daemon that took the table over.
pub const UNKNOWN_UID: u32 = u32::MAX;

/// A process that is granted batches.
#[derive(Debug)]
pub struct Reader {
    /// Its user.
    pub uid: u32,
    /// The group that it reads for.
    pub group: GroupId,
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
    pub const fn new(uid: u32, prefetch: u16, group: GroupId) -> Self {
        Self {
            uid,
            group,
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

/// A process that takes the newest value of a latest table, and holds it while it reads it.
pub struct Taker {
    page: Arc<ClientPage>,
    line: u32,
    /// Its connection is there. If it is gone and its process is not, it keeps what it holds.
    pub connected: bool,
}

impl Taker {
    /// The reader of that line.
    ///
    /// # Panics
    /// If the page has no such line, which only the daemon's own book-keeping could cause.
    pub fn new(page: Arc<ClientPage>, line: u32) -> Self {
        assert!(page.holds(line).is_some(), "line {line}");
        Self { page, line, connected: true }
    }

    /// Its line in the client page.
    pub fn line(&self) -> HoldLine<'_> {
        self.page.holds(self.line).expect("checked when the reader was made")
    }

    /// The values that it says it holds, of a table of so many blocks.
    pub fn held(&self, max_blocks: u32) -> impl Iterator<Item = ValueWord> + use<> {
        let alleged = self.line().alleged().into_iter();
        alleged.filter_map(move |word| ValueWord::decode(word, max_blocks))
    }

    /// If it says that it waits for a newer value: the version that it has.
    pub fn waits_with(&self) -> Option<u64> {
        let line = self.line();
        (line.waiting().load(Ordering::Relaxed) != 0).then(|| line.having().load(Ordering::Relaxed))
    }

    /// Values that it took, by its own account.
    pub fn taken(&self) -> u64 {
        self.line().taken().load(Ordering::Relaxed)
    }
}
