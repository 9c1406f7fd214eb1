//! What clients ask for, and whether they may.

use echo::ids::{ClientId, LeaseToken, MemberId, TableId};
use echo::peer::ProofOfExit;
use echo::ring::record::RECORDS;
use echo::spec::{ArraySpec, diff_arrays};
use echo::table::member::MemberKey;
use echo::table::queue::{Queue, Violation};
use echo::wire::message::{Answer, Call, EndReason, Event, MAX_PREFETCH, Refusal, RefusalKind, Request};
use tracing::debug;

use super::Supervisor;
use crate::client::Member;
use crate::view;

impl Supervisor {
    pub(super) fn request(&mut self, id: ClientId, request: Request) {
        // What it sent before its goodbye, or its death, may be handled after it.
        if self.clients.get(&id).is_none_or(|client| client.gone.is_some()) {
            return;
        }
        match request {
            Request::Call { id: call_id, call } => {
                if let Some(answer) = self.call(id, call_id, call) {
                    self.say(id, Event::Answer { id: call_id, answer });
                }
            }
            Request::Release { member, tokens } => self.release(id, member, &tokens),
            Request::Goodbye => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.gone = Some(ProofOfExit::unmapped());
                    client.outbox = None;
                }
                self.detach_all(id);
            }
            Request::Hello(_) | Request::Status | Request::Received => {
                self.expel(id, "hello, status and received make no sense here".into());
            }
        }
    }

    /// `None` if the answer comes later, or has been sent.
    fn call(&mut self, id: ClientId, call_id: u32, call: Call) -> Option<Answer> {
        let result = match call {
            Call::CreateTable(spec) => return self.create_table(id, call_id, spec),
            Call::DropTable { name } => self.drop_table(id, &name),
            Call::AttachWriter { table, arrays } => {
                return self.attach(id, call_id, &table, arrays.as_deref(), None).err().map(Answer::Refused);
            }
            Call::AttachReader { table, arrays, prefetch } => {
                let result = self.attach(id, call_id, &table, arrays.as_deref(), Some(prefetch));
                return result.err().map(Answer::Refused);
            }
            Call::FinishWriter { member } => self.finish_writer(id, member),
            Call::DropClaim { member } => self.drop_claim(id, member),
            Call::Detach { member } => {
                self.detach(id, member);
                Ok(Answer::Done)
            }
            Call::ListTables { after } => Ok(view::tables(self, after.as_deref())),
            Call::ShowTable { name } => self.named(&name).map(|table| view::table(self, table)),
            Call::ListClients { after } => Ok(view::clients(self, after)),
            Call::Why { name } => self.named(&name).map(|table| view::why(self, table)),
            Call::ListLeases { table, after } => {
                let table = table.map(|name| self.named(&name)).transpose();
                table.map(|table| view::leases(self, table, after))
            }
        };
        Some(result.unwrap_or_else(Answer::Refused))
    }

    pub(super) fn named(&self, name: &str) -> Result<TableId, Refusal> {
        let found = self.tables.iter().find(|(_, table)| !table.dropped && table.name() == name);
        found.map(|(&id, _)| id).ok_or_else(|| {
            refusal(RefusalKind::NoSuchTable, format!("there is no table {name:?}: create it first"))
        })
    }

    /// Whether the client may use or drop the table: its owner, root, the daemon's own user, and for a table
    /// that the configuration declares, everybody who may connect.
    pub(super) fn permitted(&self, id: ClientId, table: TableId, to_drop: bool) -> Result<(), Refusal> {
        let (uid, table) = (self.clients[&id].peer.uid(), &self.tables[&table]);
        let privileged = uid == 0 || uid == self.limits.own_uid || uid == table.uid;
        if privileged || (table.public && !to_drop) {
            return Ok(());
        }
        let (name, owner) = (table.name(), table.uid);
        Err(refusal(
            RefusalKind::NotPermitted,
            format!(
                "table {name:?} belongs to uid {owner} and this is uid {uid}: use a table of your own, or one \
                 that the configuration declares"
            ),
        ))
    }

    fn attach(
        &mut self,
        id: ClientId,
        call_id: u32,
        name: &str,
        arrays: Option<&[ArraySpec]>,
        prefetch: Option<u16>,
    ) -> Result<(), Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, false)?;
        let table = self.tables.get_mut(&table_id).expect("named just now");
        let client = self.clients.get_mut(&id).expect("it asks");
        if let Some(arrays) = arrays {
            same_spec(&diff_arrays(&table.store.spec().arrays, arrays), name)?;
        }
        let queue = table.store.queue();
        if let Some(poison) = queue.poison() {
            let message = format!("table {name:?} is poisoned ({poison}): drop it and create it again");
            return Err(refusal(RefusalKind::Poisoned, message));
        }
        match (prefetch, queue.end_reason()) {
            (None, Some(EndReason::Draining)) => {
                return Err(refusal(RefusalKind::Draining, "echod is stopping".into()));
            }
            (None, Some(_)) => {
                let message = format!("table {name:?} has ended: drop it and create it again");
                return Err(refusal(RefusalKind::Finished, message));
            }
            (Some(prefetch), _) if prefetch == 0 || prefetch > MAX_PREFETCH => {
                let message = format!("prefetch is {prefetch}, it must be 1 to {MAX_PREFETCH}");
                return Err(refusal(RefusalKind::Invalid, message));
            }
            _ => {}
        }
        if prefetch.is_some() && client.members.len() >= self.limits.members_per_client {
            let message =
                format!("this client has {} members already, which is the limit", client.members.len());
            return Err(refusal(RefusalKind::Limit, message));
        }
        let Some((member, Member { record, .. })) = client.add_member(table_id, prefetch.is_none()) else {
            let message = format!("this client has {RECORDS} writers already: connect another client");
            return Err(refusal(RefusalKind::Limit, message));
        };
        let (key, page) = (client.key(member), client.page.clone());
        debug!(table = name, client = %id, member = %member, writer = prefetch.is_none(), "attached");
        let attachment = table.store.attachment(table_id, member, record.unwrap_or(0));
        let descriptors = table.store.descriptors(prefetch.is_none());
        // The answer goes before the grants.
        let answer = Answer::Attached(attachment);
        self.say_with(id, Event::Answer { id: call_id, answer }, descriptors);
        let mut actions = Vec::new();
        let queue = self.tables.get_mut(&table_id).expect("named just now").store.queue_mut();
        match (prefetch, record) {
            (Some(prefetch), _) => queue.attach_reader(key, prefetch, &mut actions),
            (None, record) => queue.attach_writer(key, page, record.unwrap_or(0)),
        }
        self.perform(actions);
        Ok(())
    }

    fn member(&self, id: ClientId, member: MemberId) -> Result<Member, Refusal> {
        let found = self.clients.get(&id).and_then(|client| client.members.get(&member));
        found.copied().ok_or_else(|| {
            refusal(RefusalKind::Invalid, format!("this client has no member {member}: attach first"))
        })
    }

    fn finish_writer(&mut self, id: ClientId, member: MemberId) -> Result<Answer, Refusal> {
        self.with_queue(id, member, |queue, key| queue.finish_writer(key))
    }

    fn drop_claim(&mut self, id: ClientId, member: MemberId) -> Result<Answer, Refusal> {
        self.with_queue(id, member, |queue, key| queue.drop_claim(key))
    }

    fn with_queue(
        &mut self,
        id: ClientId,
        member: MemberId,
        act: impl FnOnce(&mut Queue, MemberKey) -> Result<(), Violation>,
    ) -> Result<Answer, Refusal> {
        let at = self.member(id, member)?;
        let key = self.clients[&id].key(member);
        let Some(table) = self.tables.get_mut(&at.table) else { return Ok(Answer::Done) };
        act(table.store.queue_mut(), key)
            .map_err(|violation| refusal(RefusalKind::Invalid, violation.to_string()))?;
        self.tick_table(at.table);
        Ok(Answer::Done)
    }

    fn release(&mut self, id: ClientId, member: MemberId, tokens: &[LeaseToken]) {
        let count = tokens.len() as u32;
        if let Ok(at) = self.member(id, member)
            && let Some(table) = self.tables.get_mut(&at.table)
        {
            let key = self.clients[&id].key(member);
            let mut actions = Vec::new();
            let result = table.store.queue_mut().release(key, tokens, &mut actions);
            self.perform(actions);
            if let Err(violation) = result {
                self.expel(id, violation.to_string());
                return;
            }
        }
        self.say(id, Event::Released { member, count });
    }
}

pub(super) fn refusal(kind: RefusalKind, message: String) -> Refusal {
    Refusal { kind, message }
}

pub(super) fn same_spec(diff: &[String], name: &str) -> Result<(), Refusal> {
    if diff.is_empty() {
        return Ok(());
    }
    // A diff of a thousand arrays must fit into a message with the rest.
    let (shown, more) = diff.split_at(diff.len().min(40));
    let more = if more.is_empty() { String::new() } else { format!("\n... and {} more", more.len()) };
    Err(refusal(
        RefusalKind::SpecMismatch,
        format!("table {name:?} is another one (-: the table, +: asked for):\n{}{more}", shown.join("\n")),
    ))
}
