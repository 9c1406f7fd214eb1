//! One client: a connection, and the process behind it.
//!
//! ```text
//!   connected ──── socket closes ────▶ disconnected ──── process exits ────▶ gone
//!       └─────────────── goodbye, or process exits ─────────────────────────────┘
//! ```
//!
//! A *disconnected* client can still touch the memory that it mapped, so what its members hold stays theirs.
//! When it is *gone*, all of it goes back.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use echo::ids::{ClientId, MemberId, TableId};
use echo::peer::{Peer, ProofOfExit};
use echo::ring::record::{ClientPage, RECORDS};
use echo::table::member::MemberKey;
use echo::wire::message::PinReport;

use crate::exit_watch::ExitWatch;
use crate::outbox::Outbox;

/// A client.
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// Who it is, by the kernel's word.
    pub peer: Peer,
    /// What it calls itself.
    pub name: String,
    /// Its build.
    pub build: String,
    /// When it connected.
    pub since: Duration,
    /// Where messages to it go; none once its connection is gone.
    pub outbox: Option<Outbox>,
    /// That none of its code can touch memory any more.
    pub gone: Option<ProofOfExit>,
    /// Its claim records.
    pub page: Arc<ClientPage>,
    /// The page's descriptor.
    pub page_fd: Arc<OwnedFd>,
    /// What it is attached to.
    pub members: BTreeMap<MemberId, Member>,
    /// Messages that it sent, and that it was sent.
    pub messages: Messages,
    last_member: u32,
    _watch: ExitWatch,
}

/// How many messages went to and fro.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Messages {
    /// From the client.
    pub requests: u64,
    /// To it.
    pub events: u64,
}

/// A writer or a reader of this client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its table.
    pub table: TableId,
    /// Whether it writes.
    pub writes: bool,
    /// Its line in the page, if it has one: a writer, or a reader of a latest table.
    pub line: Option<u32>,
    /// How many batches a reader may be granted ahead; none for others.
    pub prefetch: u16,
    /// Its detach could not be carried out yet.
    pub leaving: bool,
    /// What a reader says that it has registered with CUDA. For people: it is believed in nothing.
    pub pinned: Option<PinReport>,
}

impl Client {
    /// A client that has just said hello.
    #[expect(clippy::too_many_arguments, reason = "the parts of one greeting")]
    pub fn new(
        id: ClientId,
        peer: Peer,
        watch: ExitWatch,
        name: String,
        build: String,
        since: Duration,
        outbox: Outbox,
        page: Arc<ClientPage>,
        page_fd: Arc<OwnedFd>,
    ) -> Self {
        Self {
            id,
            peer,
            name,
            build,
            since,
            outbox: Some(outbox),
            gone: None,
            page,
            page_fd,
            members: BTreeMap::new(),
            messages: Messages::default(),
            last_member: 0,
            _watch: watch,
        }
    }

    /// A member of that table, with a line of the page if it wants one; `None` if all of them are taken.
    pub fn add_member(
        &mut self,
        table: TableId,
        writes: bool,
        prefetch: u16,
        wants_line: bool,
    ) -> Option<(MemberId, Option<u32>)> {
        let line = match wants_line {
            false => None,
            true => Some((0..RECORDS).find(|&free| self.members.values().all(|m| m.line != Some(free)))?),
        };
        self.last_member += 1;
        let member = Member { table, writes, line, prefetch, leaving: false, pinned: None };
        self.members.insert(MemberId(self.last_member), member);
        Some((MemberId(self.last_member), line))
    }

    /// The member's key among those of all clients.
    pub fn key(&self, member: MemberId) -> MemberKey {
        MemberKey { client: self.id, member }
    }

    /// How many write, and how many read.
    pub fn count_members(&self) -> (u32, u32) {
        let writers = self.members.values().filter(|member| member.writes).count();
        (writers as u32, (self.members.len() - writers) as u32)
    }

    /// In a word, for people.
    pub fn state(&self) -> &'static str {
        match (&self.outbox, &self.gone) {
            (_, Some(_)) => "gone: its claims are being settled",
            (Some(_), None) => "connected",
            (None, None) => "disconnected, but its process lives and keeps what it holds",
        }
    }
}
