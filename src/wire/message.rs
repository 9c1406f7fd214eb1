//! The whole conversation, on a page.
//!
//! ```text
//! client                                   echod
//!   Hello                ───────────────▶
//!                        ◀───────────────  Welcome + the client page        (or Refused)
//!   Received             ───────────────▶
//!   Call: AttachWriter   ───────────────▶
//!                        ◀───────────────  Answer: Attached + data + control
//!   Received             ───────────────▶
//!        ... samples and batches move in memory ...
//!                        ◀───────────────  Granted {numbers, blocks, tokens}
//!   Release {tokens}     ───────────────▶
//!                        ◀───────────────  Released
//!                        ◀───────────────  Ended                            (every writer finished)
//!   Goodbye              ───────────────▶
//! ```
//!
//! One message a packet. Tags, ids and versions are never zero, so that a message of zeros is no message.
//! The messages may change with [`PROTOCOL_MAX`]; `tests` beside the codec hold their bytes. No message is
//! recursive and no list is of empty elements, since both would let a small packet cost much (see `codec`).
//!
//! `Hello`, `Refused` and `Status`, the question and its answer, are frozen for ever, so that any `echoctl` can
//! ask any `echod`. Frozen means their tags, their fields, and how a field is encoded. They are not extended
//! either: a field at the end would be bytes behind the message, which every decoder before it refuses. Who has
//! more to say makes another message, at the end of its enum, and sends it to peers whose version knows it. Free
//! is what the strings say (`build`, `state`, `reason` and `name` are for people), and the bits of `features`.
//! `tests/frozen/` keeps the bytes that released versions send; nothing there is ever changed.

use bincode::{Decode, Encode};

use crate::access::AccessList;
use crate::ids::{BlockSeq, ClientId, GrantNumber, LeaseToken, MemberId, TableId};
use crate::replay::settings::Real;
use crate::spec::{ArraySpec, TableKind, TableSpec};
use crate::wire::tag::{NoTag, encode_by_discriminant};

/// First word of every connection.
pub const MAGIC: u64 = u64::from_be_bytes(*b"echo\x01\r\n\xff");
/// Oldest version of the conversation that this build speaks.
pub const PROTOCOL_MIN: u16 = 1;
/// Newest version of the conversation that this build speaks.
pub const PROTOCOL_MAX: u16 = 1;
/// Version of the bytes in shared memory; see `docs/layout.md`.
pub const LAYOUT_VERSION: u32 = 1;
/// Largest message, in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024;
/// Most descriptors that come with one message.
pub const MAX_DESCRIPTORS: usize = 2;
/// Most grants that one reader may hold ahead.
pub const MAX_PREFETCH: u16 = 256;
/// Most tokens in one `Release`, and numbers in one `ReturnSamples`.
pub const MAX_TOKENS: usize = 1024;
/// Most items in one `UpdatePriorities` or `DeleteItems`.
pub const MAX_PRIORITIES: usize = 2048;
/// Most samples in one `Sampled`.
pub const MAX_SAMPLED: usize = 1024;
/// What this build calls itself.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// From a client.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Request {
    #[doc(hidden)]
    Zero(NoTag),
    /// First message of a connection. Frozen.
    Hello(Hello),
    /// May come instead of `Hello`, answered by `Event::Status`. Frozen.
    Status,
    /// Answered by `Event::Answer` with the same id. Calls can be pipelined.
    Call {
        /// The client's own number, not zero.
        id: u32,
        /// What is wanted.
        call: Call,
    },
    /// The descriptors of the last message have arrived; the next ones may be sent.
    Received,
    /// Gives batches back; answered by `Event::Released`. Repeating it does no harm.
    Release {
        /// The reader.
        member: MemberId,
        /// What it shows; at most [`MAX_TOKENS`].
        tokens: Vec<LeaseToken>,
    },
    /// Everything is unmapped, and the connection ends.
    Goodbye,
    /// Wants samples of a replay table; answered by `Event::Sampled` once there are so many.
    Sample {
        /// The reader.
        member: MemberId,
        /// The reader's own number, above all that it gave before.
        number: u64,
        /// How many.
        count: u32,
    },
    /// Waits no longer: the request is answered with what there is for it. One that was answered stays as it is.
    CutSample {
        /// The reader.
        member: MemberId,
        /// The request's number.
        number: u64,
    },
    /// The samples of these requests were read. Repeating it does no harm.
    ReturnSamples {
        /// The reader.
        member: MemberId,
        /// The requests' numbers; at most [`MAX_TOKENS`].
        numbers: Vec<u64>,
    },
}

/// Who a client is. Frozen.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// Oldest version that the client speaks.
    pub protocol_min: u16,
    /// Newest version that it speaks.
    pub protocol_max: u16,
    /// Version of the shared bytes that it knows.
    pub layout: u32,
    /// What it must have of the daemon, one bit each; a bit that the daemon does not know is a refusal.
    pub features: u64,
    /// Its build, for people.
    pub build: String,
    /// What it calls itself, for people: the program's name.
    pub name: String,
}

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Call {
    #[doc(hidden)]
    Zero(NoTag),
    /// A table. One of that name with an equal spec, and an equal access list if one is given, is as good.
    CreateTable {
        /// What it is like.
        spec: TableSpec,
        /// Who may do what with it; if nothing is said everyone may observe it.
        access: Option<AccessList>,
    },
    /// The table ends for everybody attached.
    DropTable {
        /// Its name.
        name: String,
    },
    /// The right to write samples.
    AttachWriter {
        /// The table's name.
        table: String,
        /// What the client believes a sample is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
    },
    /// The right to read batches.
    AttachReader {
        /// The table's name.
        table: String,
        /// What the client believes a sample is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
        /// How many batches may be granted ahead, 1 to [`MAX_PREFETCH`].
        prefetch: u16,
        /// Whether the data descriptor must be writable, as page-locking for CUDA needs it.
        pin: bool,
    },
    /// This writer commits no more samples. When the last has said so the table ends.
    FinishWriter {
        /// The writer.
        member: MemberId,
    },
    /// The writer's claim record is marked DROPPED: the daemon takes the claim over and clears the record.
    DropClaim {
        /// The writer.
        member: MemberId,
    },
    /// The member's memory is unmapped. What a reader holds goes to others.
    Detach {
        /// The writer or reader.
        member: MemberId,
    },
    /// The tables, by name.
    ListTables {
        /// The last name of the page before.
        after: Option<String>,
    },
    /// One table, in full.
    ShowTable {
        /// Its name.
        name: String,
    },
    /// The clients, by id.
    ListClients {
        /// The last id of the page before.
        after: Option<ClientId>,
    },
    /// What is being waited for at one table.
    Why {
        /// Its name.
        name: String,
    },
    /// Another access list for a table. Who is attached stays so.
    SetAccess {
        /// The table's name.
        table: String,
        /// The list.
        access: AccessList,
    },
    /// The batches and values that readers hold, table by table, each in the order of its batches.
    ListLeases {
        /// Of this table alone.
        table: Option<String>,
        /// The last row of the page before.
        after: Option<LeasePlace>,
    },
    /// This reader wants to register its mapping with CUDA. Answered when it is its turn: at most
    /// one member of a table has it, and the others wait in the order in which they asked.
    BeginPin {
        /// The reader.
        member: MemberId,
    },
    /// The turn is over, or is no longer waited for: then the `BeginPin` is refused. Whoever has no turn only says anew
    /// what it has registered. A report that is refused ends the turn all the same.
    EndPin {
        /// The reader.
        member: MemberId,
        /// What it has registered now; none if nothing.
        pinned: Option<PinReport>,
    },
    /// The right to publish values of a latest table. One at a time has it.
    AttachPublisher {
        /// The table's name.
        table: String,
        /// What the client believes a value is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
    },
    /// The right to take a latest table's newest value. Nothing is granted: what the reader holds it says in the line of
    /// its client page that the answer names.
    AttachLatest {
        /// The table's name.
        table: String,
        /// What the client believes a value is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
        /// Whether the data descriptor must be writable, as page-locking for CUDA needs it.
        pin: bool,
    },
    /// This writer found no room, and is about to wait for it. Where that takes the daemon to look what can be written
    /// again, it looks now, and for a while more often than otherwise. The answer says nothing: room is told of in shared
    /// memory.
    NeedSpace {
        /// The writer.
        member: MemberId,
    },
    /// The right to write samples into a replay table.
    AttachReplayWriter {
        /// The table's name.
        table: String,
        /// What the client believes a sample is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
    },
    /// The right to sample a replay table.
    AttachSampler {
        /// The table's name.
        table: String,
        /// What the client believes a sample is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
        /// Whether the data descriptor must be writable, as page-locking for CUDA needs it.
        pin: bool,
    },
    /// Sets priorities of items, in this order. Answered by `Answer::Counted`; if one is no priority nothing has changed.
    UpdatePriorities {
        /// A writer or a reader of the table.
        member: MemberId,
        /// Which items, and to what; at most [`MAX_PRIORITIES`].
        items: Vec<ItemPriority>,
    },
    /// Removes items. Answered by `Answer::Counted`.
    DeleteItems {
        /// A writer or a reader of the table.
        member: MemberId,
        /// Which items; at most [`MAX_PRIORITIES`].
        keys: Vec<u64>,
    },
    /// The trainer is at this version. Answered by `Answer::Counted`: items that were removed, since they were too old.
    StateVersion {
        /// A reader of the table.
        member: MemberId,
        /// Its version.
        version: u64,
    },
    /// Removes all items, and counts from zero.
    ResetTable {
        /// The table's name.
        name: String,
    },
    /// The right to read batches out of a queue table, as one of a group. As `AttachReader`, which is of the default group.
    AttachGroupReader {
        /// The table's name.
        table: String,
        /// The group's name.
        group: String,
        /// What the client believes a sample is; a difference is refused.
        arrays: Option<Vec<ArraySpec>>,
        /// How many batches may be granted ahead; 1 to [`MAX_PREFETCH`].
        prefetch: u16,
        /// Whether the data descriptor must be writable, as page-locking for CUDA needs it.
        pin: bool,
    },
    /// Another group reads a queue table.
    AddGroup {
        /// The table's name.
        table: String,
        /// The group's name.
        group: String,
        /// From where on.
        from: GroupFrom,
        /// Bytes of batches by which it may lag before it skips the oldest; none is any number.
        max_lag: Option<u64>,
    },
    /// A group reads a queue table no more.
    RemoveGroup {
        /// The table's name.
        table: String,
        /// The group's name.
        group: String,
    },
    /// A group reads once more what is still there. Answered by `Answer::Counted`: batches.
    RewindGroup {
        /// The table's name.
        table: String,
        /// The group's name.
        group: String,
    },
}

/// From where on a group reads that is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupFrom {
    /// All that is still there.
    Oldest = 1,
    /// Batches that are not begun yet.
    Newest = 2,
}

encode_by_discriminant!(GroupFrom: Oldest, Newest);

/// The priority that an item is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ItemPriority {
    /// The item: the position of its sample.
    pub key: u64,
    /// Finite, and not negative.
    pub priority: Real,
}

/// Which row of a list of leases: they are in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub struct LeasePlace {
    /// The table.
    pub table: TableId,
    /// The batch, or the value.
    pub seq: BlockSeq,
    /// The reader's client: several may hold one value.
    pub client: ClientId,
    /// The reader.
    pub member: MemberId,
}

/// What a reader says that it has registered with CUDA. For people: nothing is decided by it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct PinReport {
    /// Bytes; at most what the table has committed.
    pub bytes: u64,
    /// Pieces that they were registered in.
    pub registrations: u32,
    /// Path and version of the library; of a longer text [`MAX_LIBRARY`] bytes are kept.
    pub library: String,
    /// Whether the device may only read them.
    pub read_only: bool,
}

/// From the daemon.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
#[expect(clippy::large_enum_variant, reason = "decoded, matched and gone")]
pub enum Event {
    #[doc(hidden)]
    Zero(NoTag),
    /// The hello is accepted. Carries one descriptor: the client page.
    Welcome(Welcome),
    /// The connection is not wanted, and closes. Frozen.
    Refused(Refused),
    /// Frozen.
    Status(Status),
    /// To the call of that id. `Answer::Attached` carries two descriptors: data, control.
    Answer {
        /// The call's id.
        id: u32,
        /// What became of it.
        answer: Answer,
    },
    /// Batches that this reader, and no other, will read.
    Granted {
        /// The reader.
        member: MemberId,
        /// As in `Released`, where a release led to these grants: one packet instead of two.
        released: u32,
        /// In ascending number.
        grants: Vec<Grant>,
    },
    /// These tokens are worth nothing any more.
    Released {
        /// The reader.
        member: MemberId,
        /// As many as were in the message that this answers.
        count: u32,
    },
    /// A writer may claim no more; a reader will get no more grants, and those it holds whose sequence is
    /// `end` or later come to nothing.
    Ended {
        /// The writer or reader.
        member: MemberId,
        /// Why.
        reason: EndReason,
        /// First block sequence that will not be delivered.
        end: BlockSeq,
    },
    /// The daemon closes this connection.
    Closing {
        /// Why, and what to do.
        reason: String,
    },
    /// Samples of a replay table, which stay as they are until the reader returns them.
    Sampled {
        /// The reader.
        member: MemberId,
        /// The number of its request.
        number: u64,
        /// At most [`MAX_SAMPLED`].
        samples: Vec<SampledItem>,
        /// Whether more of this request follow in another message.
        more: bool,
        /// How likely the item is to be chosen that is the least likely of the table, in the last message.
        least: Option<Real>,
        /// Why they are fewer than were wanted, in the last message.
        short: Option<String>,
    },
}

impl Event {
    /// How many descriptors the message carries.
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Welcome(_) => 1,
            Self::Answer { answer: Answer::Attached(_), .. } => 2,
            _ => 0,
        }
    }
}

/// One sample, as it was when it was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct SampledItem {
    /// Where it is, counted over all blocks.
    pub slot: u32,
    /// Which item: its position.
    pub key: u64,
    /// How likely it was to be chosen; 1 from selectors that leave nothing to chance.
    pub probability: Real,
    /// Its priority.
    pub priority: Real,
    /// How often it was sampled, this time included.
    pub times_sampled: u32,
    /// Items in the table, this one included.
    pub table_size: u32,
    /// The version of the policy that made it.
    pub version: Option<u64>,
    /// Since when it is in the table, in microseconds.
    pub age_us: u64,
}

/// The hello is accepted.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Welcome {
    /// The version that both will speak.
    pub protocol: u16,
    /// This daemon, among all that ever ran.
    pub instance: [u8; 16],
    /// The client's id here.
    pub client: ClientId,
    /// Bytes of the client page.
    pub page_bytes: u64,
    /// Claim records in it.
    pub records: u32,
}

/// Why a connection is not wanted. Frozen.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Refused {
    /// Oldest version that the daemon speaks.
    pub protocol_min: u16,
    /// Newest version that it speaks.
    pub protocol_max: u16,
    /// Version of the shared bytes that it makes.
    pub layout: u32,
    /// Its build.
    pub build: String,
    /// Why, and what to do.
    pub reason: String,
}

impl Refused {
    /// Whether this build and the daemon's could speak to each other: it is for another reason then.
    pub const fn versions_meet(&self) -> bool {
        self.protocol_min <= PROTOCOL_MAX
            && self.protocol_max >= PROTOCOL_MIN
            && self.layout == LAYOUT_VERSION
    }
}

/// How a daemon is. Frozen.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Status {
    /// Oldest version of the conversation that it speaks.
    pub protocol_min: u16,
    /// Newest version.
    pub protocol_max: u16,
    /// Version of the shared bytes that it makes.
    pub layout: u32,
    /// Its build.
    pub build: String,
    /// Its process.
    pub pid: u32,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// `serving` or `draining`.
    pub state: String,
    /// Tables.
    pub tables: u32,
    /// Clients.
    pub clients: u32,
    /// Bytes of host memory that it may commit.
    pub host_budget: u64,
    /// Bytes of host memory that are committed.
    pub host_used: u64,
}

/// What became of a call.
#[derive(Clone, PartialEq, Debug, Encode, Decode)]
#[expect(clippy::large_enum_variant, reason = "decoded, matched and gone")]
pub enum Answer {
    #[doc(hidden)]
    Zero(NoTag),
    /// Done.
    Done,
    /// Not done.
    Refused(Refusal),
    /// The table is there.
    Table {
        /// Its id.
        table: TableId,
        /// Whether this call made it.
        created: bool,
    },
    /// The member is attached.
    Attached(Attachment),
    /// A page of tables.
    Tables {
        /// By name.
        rows: Vec<TableRow>,
        /// Whether another page follows.
        more: bool,
    },
    /// One table.
    TableDetails(TableDetails),
    /// A page of clients.
    Clients {
        /// By id.
        rows: Vec<ClientRow>,
        /// Whether another page follows.
        more: bool,
    },
    /// What is being waited for; empty if nothing is.
    Why {
        /// Longest first.
        waits: Vec<Wait>,
    },
    /// A page of leases.
    Leases {
        /// In the order of their places.
        rows: Vec<LeaseRow>,
        /// Whether another page follows.
        more: bool,
    },
    /// Of the items that were named.
    Counted {
        /// There, and it was done.
        applied: u64,
        /// Gone.
        skipped: u64,
    },
}

/// Why a call was not done.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// For people: what was asked, why not, and what to do.
    pub message: String,
}

/// The kinds of refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// There is no table of that name.
    NoSuchTable = 1,
    /// The table is there, with another spec.
    SpecMismatch = 2,
    /// No table can have such a spec.
    InvalidSpec = 3,
    /// A byte budget does not allow it.
    Budget = 4,
    /// The kernel refused the memory.
    Memory = 5,
    /// A limit on connections, members or prefetch.
    Limit = 6,
    /// The table's writers have finished.
    Finished = 7,
    /// The daemon is stopping.
    Draining = 8,
    /// The table's shared state is spoilt.
    Poisoned = 9,
    /// The table's access list does not allow it.
    NotPermitted = 10,
    /// The message makes no sense here.
    Invalid = 11,
    /// The daemon could not, through no fault of the client's.
    Internal = 12,
    /// The table has no such group, or cannot have it.
    NoSuchGroup = 13,
}

encode_by_discriminant!(RefusalKind: NoSuchTable, SpecMismatch, InvalidSpec, Budget, Memory, Limit, Finished, Draining, Poisoned, NotPermitted, Invalid, Internal, NoSuchGroup);

/// What a member needs to map its table.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Attachment {
    /// The member's id, within its client.
    pub member: MemberId,
    /// The table's id.
    pub table: TableId,
    /// The table's spec.
    pub spec: TableSpec,
    /// Blocks whose memory is committed.
    pub blocks: u32,
    /// Entries of the fill ring.
    pub fill_len: u32,
    /// Entries of the refill list.
    pub refill_len: u32,
    /// Commit bits in one word.
    pub bits_per_word: u32,
    /// Bytes of the data file.
    pub data_bytes: u64,
    /// Where each array starts in the data file.
    pub offsets: Vec<u64>,
    /// The line in the client page of a writer, or of a reader of a latest table.
    pub record: u32,
}

/// One batch, ahead of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Grant {
    /// Counts this reader's grants.
    pub number: GrantNumber,
    /// Which batch.
    pub seq: BlockSeq,
    /// Where it will be.
    pub block: u32,
    /// What gives it back.
    pub token: LeaseToken,
}

/// Why a member's stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// All writers have finished.
    Finished = 1,
    /// The table was dropped.
    Dropped = 2,
    /// The daemon is stopping.
    Draining = 3,
    /// The table's shared state is spoilt.
    Poisoned = 4,
}

encode_by_discriminant!(EndReason: Finished, Dropped, Draining, Poisoned);

/// The state of a table whose memory is not resident yet.
pub const BEING_MADE: &str = "being made";

/// One table in a list.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct TableRow {
    /// Its name.
    pub name: String,
    /// Its id.
    pub table: TableId,
    /// What becomes of its samples.
    pub kind: TableKind,
    /// `open`, `draining`, `finished`, `poisoned: ...`, or [`BEING_MADE`], when nobody can attach yet.
    pub state: String,
    /// The user that it is accounted to.
    pub uid: u32,
    /// Samples in one batch.
    pub batch_size: u32,
    /// Batches, or values, that it holds.
    pub capacity: u32,
    /// Bytes of one sample.
    pub sample_bytes: u64,
    /// Bytes of host memory that it has committed, with its control words and what is private to the daemon. Of one that
    /// is being made: that are resident so far.
    pub committed_bytes: u64,
    /// Writers attached.
    pub writers: u32,
    /// Readers attached.
    pub readers: u32,
    /// The samples, counted from the bits in the ring.
    pub samples: SampleCounts,
}

/// Where a table's samples are. `committed = delivered + pending`, each counted on its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct SampleCounts {
    /// Commit bits that were ever set: those of the blocks that were given back, and those in the ring.
    pub committed: u64,
    /// Samples of the batches that readers have given back; of a latest table, values that newer ones have replaced.
    pub delivered: u64,
    /// Commit bits in blocks that no reader has given back; of a latest table, values that are still there.
    pub pending: u64,
}

/// One table, in full.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct TableDetails {
    /// As in a list.
    pub row: TableRow,
    /// Its spec.
    pub spec: TableSpec,
    /// Who may do what with it, beside its owner.
    pub access: AccessList,
    /// What its memory is made of.
    pub pages: Pages,
    /// Next position to be claimed.
    pub cursor: u64,
    /// First position that may not be claimed yet.
    pub limit: u64,
    /// Batches given back by readers.
    pub batches_delivered: u64,
    /// Of a latest table: the newest version that the daemon has seen; 0 if there is none.
    pub newest: u64,
    /// Blocks by state.
    pub blocks: BlockCounts,
    /// Positions whose worker died, offered again.
    pub holes_offered: u32,
    /// Claims of workers that are gone, not settled yet.
    pub orphaned_claims: u32,
    /// Of a queue table: the groups that read it.
    pub groups: Vec<GroupRow>,
    /// Of a replay table.
    pub replay: Option<ReplayDetails>,
    /// Who is attached; at most [`MAX_MEMBER_ROWS`].
    pub members: Vec<MemberRow>,
}

/// A group that reads a queue table.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct GroupRow {
    /// What it is called.
    pub name: String,
    /// How many readers it has.
    pub readers: u32,
    /// Batches that are begun and that it is not done with.
    pub lag: u32,
    /// Batches by which it may lag.
    pub max_lag: Option<u32>,
    /// Batches that its readers gave back.
    pub batches: u64,
    /// Batches that it skipped, since it lagged by more than it may.
    pub skipped: u64,
}

/// What is known of a replay table beside.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ReplayDetails {
    /// Items that can be sampled.
    pub size: u32,
    /// Items that were removed and are still read.
    pub lingering: u32,
    /// Samples that readers hold.
    pub leased: u64,
    /// Since the table was made or reset.
    pub inserts: u64,
    /// Likewise.
    pub samples: u64,
    /// Likewise.
    pub deletes: u64,
    /// Removed because the table was full, since it was made.
    pub evicted: u64,
    /// Because they were sampled as often as they may be.
    pub exhausted: u64,
    /// Because somebody asked for it.
    pub deleted: u64,
    /// Because they were too old for the trainer.
    pub stale: u64,
    /// Samples that are not there because their worker gave them a priority that is none.
    pub refused: u64,
    /// Priorities for items that were gone.
    pub skipped: u64,
    /// The version that the trainer stated last.
    pub version: Option<u64>,
    /// How far samples lagged behind the trainer when they were chosen: how many by 0, by 1, by 2 to 3, by 4 to 7, and so
    /// on; the last one has all that lie beyond.
    pub lags: Vec<u64>,
    /// Samples that were chosen and had no version, or the trainer none.
    pub unversioned: u64,
    /// Requests that wait.
    pub waiting: u32,
    /// Bytes of memory for each item that there is room for, besides its arrays.
    pub bytes_per_item: Real,
}

/// Most rows in one page.
pub const MAX_ROWS: usize = 128;
/// Most members that are shown with a table, beside the largest spec.
pub const MAX_MEMBER_ROWS: usize = 64;
/// Most reports that are shown with a client.
pub const MAX_PINS_OF_CLIENT: usize = 8;
/// Most reports in one page of clients: a page ends before the client that would bring more.
pub const MAX_PINS: usize = 64;
/// Bytes of a library's name that are kept.
pub const MAX_LIBRARY: usize = 256;

/// Blocks by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct BlockCounts {
    /// Not in use.
    pub free: u32,
    /// Being filled.
    pub filling: u32,
    /// Full, not given back yet.
    pub complete: u32,
    /// Of both: granted to a reader, or held by one.
    pub granted: u32,
}

/// What was asked of the kernel for a table's arrays, and what was got.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct Pages {
    /// Bytes of a small page.
    pub page_bytes: u64,
    /// Bytes that are resident.
    pub resident_bytes: u64,
    /// Bytes that are locked.
    pub locked_bytes: u64,
    /// Bytes on huge pages.
    pub huge_bytes: u64,
    /// What did not go as wished, for people; empty if all did.
    pub notes: Vec<String>,
}

/// A writer or a reader.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct MemberRow {
    /// Its client.
    pub client: ClientId,
    /// Its id within the client.
    pub member: MemberId,
    /// Whether it writes.
    pub writer: bool,
    /// Its process.
    pub pid: u32,
    /// What its client calls itself.
    pub name: String,
    /// What it is doing, for people.
    pub state: String,
    /// A writer: samples that it says it committed. A reader: batches given back, or values that it says it took.
    pub done: u64,
    /// A writer: how often it says that it waited for room.
    pub waits: u64,
    /// A writer: how often it says that it woke a reader: at most once a batch.
    pub wakes: u64,
    /// A reader: grants, or values, that it holds.
    pub grants: u32,
    /// A reader: bytes that it says it has registered with CUDA.
    pub pinned_bytes: u64,
}

/// A client in a list.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ClientRow {
    /// Its id.
    pub client: ClientId,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// What it calls itself.
    pub name: String,
    /// Its build.
    pub build: String,
    /// `connected`, or why it is still here although it is not.
    pub state: String,
    /// Milliseconds since it connected.
    pub age_ms: u64,
    /// Writers.
    pub writers: u32,
    /// Readers.
    pub readers: u32,
    /// Grants that its readers hold.
    pub grants: u32,
    /// Messages that it sent.
    pub requests: u64,
    /// Messages that it was sent.
    pub events: u64,
    /// Bytes that its readers say they have registered with CUDA, all together.
    pub pinned_bytes: u64,
    /// Of which readers: of tables that may be looked at, and at most [`MAX_PINS_OF_CLIENT`].
    pub pins: Vec<PinRow>,
    /// How many more readers have said something.
    pub pins_left_out: u32,
}

/// What one reader of a client says that it has registered.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct PinRow {
    /// The reader, within its client.
    pub member: MemberId,
    /// What it says.
    pub report: PinReport,
}

/// Something that waits, and for whom.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Wait {
    /// Who waits: `2 writers`, `reader pid 1234`, `the table`.
    pub who: String,
    /// For what, with the numbers that decide it.
    pub waits_for: String,
    /// Who holds it up.
    pub held_by: Vec<Holder>,
    /// Milliseconds for which the daemon has seen it so.
    pub for_ms: u64,
}

/// Who holds something up.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Holder {
    /// The process; zero if the kernel does not say.
    pub pid: u32,
    /// What its client calls itself.
    pub name: String,
    /// What it holds.
    pub what: String,
    /// Milliseconds for which the daemon has seen it so.
    pub for_ms: u64,
}

/// A batch or a value that a reader holds. A batch's token is nobody else's business.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct LeaseRow {
    /// The table's id.
    pub table: TableId,
    /// Its name; that of a dropped table may be another's by now.
    pub table_name: String,
    /// Its kind: whether a batch is held or a value.
    pub kind: TableKind,
    /// The reader's client.
    pub client: ClientId,
    /// The reader, within its client.
    pub member: MemberId,
    /// Its process.
    pub pid: u32,
    /// What its client calls itself.
    pub name: String,
    /// Counts the reader's grants; 0 of a value, which is not granted.
    pub number: GrantNumber,
    /// Which batch; a value's version - 1.
    pub seq: BlockSeq,
    /// Where it is.
    pub block: u32,
    /// What the reader can do with it.
    pub state: LeaseState,
    /// Milliseconds for which the daemon has seen it so. None if it has not looked since, or if the batch fills
    /// while the reader waits for one before it.
    pub for_ms: Option<u64>,
}

/// What a reader can do with a batch that it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseState {
    /// Wait: samples are missing.
    Filling = 1,
    /// Read it, and give it back.
    Complete = 2,
    /// Nothing: it was given up, or its table was dropped or poisoned before it was complete.
    Broken = 3,
}

encode_by_discriminant!(LeaseState: Filling, Complete, Broken);
