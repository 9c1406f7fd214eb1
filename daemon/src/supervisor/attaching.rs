//! How clients become members of tables.

use echo::access::Role;
use echo::ids::ClientId;
use echo::ring::record::RECORDS;
use echo::spec::{ArraySpec, TableKind, diff_arrays};
use echo::table::action::Occupied;
use echo::table::group::DEFAULT_GROUP;
use echo::table::machine::Machine;
use echo::table::store::Rights;
use echo::wire::message::{Answer, EndReason, Event, MAX_PREFETCH, Refusal, RefusalKind};
use tracing::debug;

use super::Supervisor;
use super::requests::{refusal, same_spec};
use crate::view;

/// What a client wants to be of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Of a queue table.
    Writer,
    /// Of a queue table, with that many batches granted ahead.
    Reader { prefetch: u16, pin: bool },
    /// The writer of a latest table.
    Publisher,
    /// A reader of a latest table.
    Taker { pin: bool },
    /// A writer of a replay table.
    ReplayWriter,
    /// A reader of a replay table.
    Sampler { pin: bool },
}

impl Wanted {
    const fn kind(self) -> TableKind {
        match self {
            Self::Writer | Self::Reader { .. } => TableKind::Queue,
            Self::Publisher | Self::Taker { .. } => TableKind::Latest,
            Self::ReplayWriter | Self::Sampler { .. } => TableKind::Replay,
        }
    }

    const fn rights(self) -> Rights {
        match self {
            Self::Writer | Self::Publisher | Self::ReplayWriter => Rights::Write,
            Self::Reader { pin: true, .. } | Self::Taker { pin: true } | Self::Sampler { pin: true } => {
                Rights::Pin
            }
            Self::Reader { .. } | Self::Taker { .. } | Self::Sampler { .. } => Rights::Read,
        }
    }

    const fn role(self) -> Role {
        match self.rights() {
            Rights::Write => Role::Write,
            Rights::Read => Role::Read,
            Rights::Pin => Role::Pin,
        }
    }

    const fn writes(self) -> bool {
        matches!(self, Self::Writer | Self::Publisher | Self::ReplayWriter)
    }

    const fn prefetch(self) -> u16 {
        match self {
            Self::Reader { prefetch, .. } => prefetch,
            _ => 0,
        }
    }

    /// Whether it says something in a line of its client page.
    const fn wants_line(self) -> bool {
        !matches!(self, Self::Reader { .. } | Self::Sampler { .. })
    }
}

impl Supervisor {
    /// `None` if the answer has been sent.
    pub(super) fn attached(
        &mut self,
        id: ClientId,
        call_id: u32,
        name: &str,
        arrays: Option<&[ArraySpec]>,
        wanted: Wanted,
    ) -> Option<Answer> {
        self.attached_of(id, call_id, name, DEFAULT_GROUP, arrays, wanted)
    }

    /// As [`Supervisor::attached`], of a reader of that group.
    pub(super) fn attached_of(
        &mut self,
        id: ClientId,
        call_id: u32,
        name: &str,
        group: &str,
        arrays: Option<&[ArraySpec]>,
        wanted: Wanted,
    ) -> Option<Answer> {
        self.attach(id, call_id, name, group, arrays, wanted).err().map(Answer::Refused)
    }

    fn attach(
        &mut self,
        id: ClientId,
        call_id: u32,
        name: &str,
        group: &str,
        arrays: Option<&[ArraySpec]>,
        wanted: Wanted,
    ) -> Result<(), Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, wanted.role())?;
        if let Wanted::Reader { prefetch, .. } = wanted {
            self.check_prefetch(id, prefetch)?;
        }
        let table = self.tables.get_mut(&table_id).expect("named just now");
        let client = self.clients.get_mut(&id).expect("it asks");
        same_kind(table.store.spec().kind, wanted, name)?;
        if let Some(arrays) = arrays {
            same_spec(&diff_arrays(&table.store.spec().arrays, arrays), name)?;
        }
        let intake = table.store.machine().intake();
        if let Some(poison) = intake.poison() {
            let message = format!("table {name:?} is poisoned ({poison}): drop it and create it again");
            return Err(refusal(RefusalKind::Poisoned, message));
        }
        match intake.end_reason() {
            Some(EndReason::Draining) if wanted.writes() => {
                return Err(refusal(RefusalKind::Draining, "echod is stopping".into()));
            }
            Some(_) if wanted.writes() => {
                let message = format!("table {name:?} has ended: drop it and create it again");
                return Err(refusal(RefusalKind::Finished, message));
            }
            _ => {}
        }
        if client.members.len() >= self.limits.members_per_client as usize {
            let message = format!(
                "this client has {} members already, which is the limit: connect another client",
                client.members.len()
            );
            return Err(refusal(RefusalKind::Limit, message));
        }
        let added = client.add_member(table_id, wanted.writes(), wanted.prefetch(), wanted.wants_line());
        let Some((member, line)) = added else {
            let message = format!(
                "this client has {RECORDS} writers and readers of latest tables already: connect another client"
            );
            return Err(refusal(RefusalKind::Limit, message));
        };
        let (key, uid, page, line) =
            (client.key(member), client.peer.uid(), client.page.clone(), line.unwrap_or(0));
        let mut actions = Vec::new();
        let attached = match table.store.machine_mut() {
            Machine::Queue(queue) if wanted.writes() => {
                queue.attach_writer(key, page, line);
                Ok(())
            }
            Machine::Queue(queue) => {
                let attached = queue.attach_reader(key, uid, wanted.prefetch(), group, &mut actions);
                if let Err(error) = attached {
                    client.members.remove(&member);
                    return Err(refusal(RefusalKind::NoSuchGroup, error.to_string()));
                }
                Ok(())
            }
            Machine::Latest(latest) if wanted.writes() => latest.attach_writer(key, page, line),
            Machine::Latest(latest) => latest.attach_reader(key, page, line, &mut actions),
            Machine::Replay(replay) if wanted.writes() => {
                replay.attach_writer(key, page, line);
                Ok(())
            }
            Machine::Replay(replay) => replay.attach_reader(key, &mut actions),
        };
        if let Err(occupied) = attached {
            client.members.remove(&member);
            return Err(self.occupied(name, occupied));
        }
        debug!(table = name, client = %id, member = %member, ?wanted, "attached");
        let attachment = table.store.attachment(table_id, member, line);
        let descriptors = table.store.descriptors(wanted.rights());
        // The answer goes before the grants.
        let answer = Answer::Attached(attachment);
        self.say_with(id, Event::Answer { id: call_id, answer }, descriptors);
        self.perform(actions);
        Ok(())
    }

    /// Why a table takes nobody more of that kind, and whom to ask.
    fn occupied(&self, name: &str, occupied: Occupied) -> Refusal {
        let message = match occupied {
            Occupied::Writer(key) => {
                let (pid, who) = view::who(self, key.client);
                format!(
                    "table {name:?} has its writer, {who} (pid {pid}), and takes one at a time: try again when it is gone"
                )
            }
            Occupied::Unsettled => format!("table {name:?} cannot take a writer yet: {occupied}; try again"),
            Occupied::Full => format!("table {name:?} cannot take another member: {occupied}"),
        };
        refusal(RefusalKind::Limit, message)
    }

    /// Whether the client may be granted so many batches ahead, beside what its user's other readers may.
    fn check_prefetch(&self, id: ClientId, prefetch: u16) -> Result<(), Refusal> {
        if prefetch == 0 || prefetch > MAX_PREFETCH {
            let message = format!("prefetch is {prefetch}, it must be 1 to {MAX_PREFETCH}");
            return Err(refusal(RefusalKind::Invalid, message));
        }
        let uid = self.clients[&id].peer.uid();
        let of_uid = self.clients.values().filter(|client| client.peer.uid() == uid);
        let leases: u32 =
            of_uid.flat_map(|client| client.members.values()).map(|m| u32::from(m.prefetch)).sum();
        let limit = self.limits.leases_per_uid;
        if leases + u32::from(prefetch) > limit {
            let message = format!(
                "the readers of uid {uid} may have {leases} batches granted ahead already, {prefetch} more are over the \
                 limit of {limit} (max_leases): use a smaller prefetch depth, or fewer readers"
            );
            return Err(refusal(RefusalKind::Limit, message));
        }
        Ok(())
    }
}

/// Whether a table of that kind has such members.
fn same_kind(kind: TableKind, wanted: Wanted, name: &str) -> Result<(), Refusal> {
    if kind == wanted.kind() {
        return Ok(());
    }
    let members = match kind {
        TableKind::Queue => "writers that append samples and readers of batches",
        TableKind::Latest => "one publisher, and readers of its newest value",
        TableKind::Replay => "writers of samples with priorities, and samplers",
    };
    let message = format!("table {name:?} is a {kind} table, which has {members}: attach one of those");
    Err(refusal(RefusalKind::SpecMismatch, message))
}
