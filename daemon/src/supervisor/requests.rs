//! What clients ask for, and whether they may.

use echo::access::{AccessList, Role};
use echo::ids::{ClientId, LeaseToken, MemberId, TableId};
use echo::peer::ProofOfExit;
use echo::table::action::{Action, Violation};
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::wire::message::{Answer, Call, Event, Refusal, RefusalKind, Request};
use tracing::info;

use super::attaching::Wanted;
use super::{Building, Supervisor};
use crate::client::Member;
use crate::view;

impl Supervisor {
    pub(super) fn request(&mut self, id: ClientId, request: Request) {
        // What it sent before its goodbye, or its death, may be handled after it.
        if self.clients.get(&id).is_none_or(|client| client.gone.is_some()) {
            return;
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.messages.requests += 1;
        }
        match request {
            Request::Call { id: call_id, call } => {
                if let Some(answer) = self.call(id, call_id, call) {
                    self.say(id, Event::Answer { id: call_id, answer });
                }
            }
            Request::Release { member, tokens } => self.release(id, member, &tokens),
            Request::Sample { member, number, count } => self.sample(id, member, number, count),
            Request::CutSample { member, number } => self.cut_sample(id, member, number),
            Request::ReturnSamples { member, numbers } => self.return_samples(id, member, &numbers),
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
            Call::CreateTable { spec, access } => return self.create_table(id, call_id, spec, access),
            Call::DropTable { name } => self.drop_table(id, &name),
            Call::AttachWriter { table, arrays } => {
                return self.attached(id, call_id, &table, arrays.as_deref(), Wanted::Writer);
            }
            Call::AttachReader { table, arrays, prefetch, pin } => {
                return self.attached(
                    id,
                    call_id,
                    &table,
                    arrays.as_deref(),
                    Wanted::Reader { prefetch, pin },
                );
            }
            Call::AttachPublisher { table, arrays } => {
                return self.attached(id, call_id, &table, arrays.as_deref(), Wanted::Publisher);
            }
            Call::AttachLatest { table, arrays, pin } => {
                return self.attached(id, call_id, &table, arrays.as_deref(), Wanted::Taker { pin });
            }
            Call::AttachReplayWriter { table, arrays } => {
                return self.attached(id, call_id, &table, arrays.as_deref(), Wanted::ReplayWriter);
            }
            Call::AttachSampler { table, arrays, pin } => {
                return self.attached(id, call_id, &table, arrays.as_deref(), Wanted::Sampler { pin });
            }
            Call::UpdatePriorities { member, items } => self.update_priorities(id, member, &items),
            Call::DeleteItems { member, keys } => self.delete_items(id, member, &keys),
            Call::StateVersion { member, version } => self.state_version(id, member, version),
            Call::ResetTable { name } => self.reset_table(id, &name),
            Call::AttachGroupReader { table, group, arrays, prefetch, pin } => {
                let wanted = Wanted::Reader { prefetch, pin };
                return self.attached_of(id, call_id, &table, &group, arrays.as_deref(), wanted);
            }
            Call::AddGroup { table, group, from, max_lag } => {
                self.add_group(id, &table, &group, from, max_lag)
            }
            Call::RemoveGroup { table, group } => self.remove_group(id, &table, &group),
            Call::RewindGroup { table, group } => self.rewind_group(id, &table, &group),
            Call::FinishWriter { member } => self.finish_writer(id, member),
            Call::DropClaim { member } => self.drop_claim(id, member),
            Call::NeedSpace { member } => self.need_space(id, member),
            Call::Detach { member } => {
                self.detach(id, member);
                Ok(Answer::Done)
            }
            Call::ListTables { after } => Ok(view::tables(self, id, after.as_deref())),
            Call::ShowTable { name } => self.observed(id, &name).map(|table| view::table(self, table)),
            Call::ListClients { after } => Ok(view::clients(self, id, after)),
            Call::Why { name } => self.observed(id, &name).map(|table| view::why(self, table)),
            Call::SetAccess { table, access } => self.set_access(id, &table, access),
            Call::ListLeases { table, after } => {
                let table = table.map(|name| self.observed(id, &name)).transpose();
                table.map(|table| view::leases(self, id, table, after))
            }
            Call::BeginPin { member } => return self.begin_pin(id, call_id, member),
            Call::EndPin { member, pinned } => self.end_pin(id, member, pinned),
        };
        Some(result.unwrap_or_else(Answer::Refused))
    }

    pub(super) fn named(&self, name: &str) -> Result<TableId, Refusal> {
        let found = self.tables.iter().find(|(_, table)| !table.dropped && table.name() == name);
        found.map(|(&id, _)| id).ok_or_else(|| {
            refusal(RefusalKind::NoSuchTable, format!("there is no table {name:?}: create it first"))
        })
    }

    /// The table of that name, if the client may look at it.
    fn observed(&self, id: ClientId, name: &str) -> Result<TableId, Refusal> {
        let table = self.named(name)?;
        self.permitted(id, table, Role::Observe).map(|()| table)
    }

    /// Whether the client may do that with the table.
    pub(super) fn permitted(&self, id: ClientId, table: TableId, role: Role) -> Result<(), Refusal> {
        if self.may(id, table, role) { Ok(()) } else { Err(self.not_permitted(id, table, role.name())) }
    }

    /// Whether the client may do anything with the table but look at it.
    pub(super) fn permitted_anything(&self, id: ClientId, table: TableId) -> Result<(), Refusal> {
        let any = [Role::Write, Role::Read].into_iter().any(|role| self.may(id, table, role));
        if any { Ok(()) } else { Err(self.not_permitted(id, table, "use")) }
    }

    /// Whether the client has that role: everybody to whom the table's list gives it, its owner, root, and the
    /// daemon's own user.
    pub(crate) fn may(&self, id: ClientId, table: TableId, role: Role) -> bool {
        let (caller, table) = (self.clients[&id].peer.caller(), &self.tables[&table]);
        [0, self.limits.own_uid, table.uid].contains(&caller.uid) || table.access.allows(caller, role)
    }

    /// Whether the client may look at a table that is being made: as at one that is there.
    pub(crate) fn may_observe(&self, id: ClientId, building: &Building) -> bool {
        let caller = self.clients[&id].peer.caller();
        [0, self.limits.own_uid, building.uid].contains(&caller.uid)
            || building.access.allows(caller, Role::Observe)
    }

    fn not_permitted(&self, id: ClientId, table: TableId, what: &str) -> Refusal {
        let (caller, table) = (self.clients[&id].peer.caller(), &self.tables[&table]);
        let (name, owner, uid, given) = (table.name(), table.uid, caller.uid, table.access.describe(caller));
        refusal(
            RefusalKind::NotPermitted,
            format!(
                "uid {uid} may not {what} table {name:?} (it may {given}): its owner, uid {owner}, can change that, as \
                 with \"echoctl table access\", or use a table of your own"
            ),
        )
    }

    fn set_access(&mut self, id: ClientId, name: &str, access: AccessList) -> Result<Answer, Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, Role::Administer)?;
        if let Some(table) = self.tables.get_mut(&table_id) {
            info!(table = name, client = %id, rules = access.0.len(), "access list is replaced");
            table.access = access;
        }
        Ok(Answer::Done)
    }

    pub(super) fn member(&self, id: ClientId, member: MemberId) -> Result<&Member, Refusal> {
        let found = self.clients.get(&id).and_then(|client| client.members.get(&member));
        found.ok_or_else(|| {
            refusal(RefusalKind::Invalid, format!("this client has no member {member}: attach first"))
        })
    }

    fn finish_writer(&mut self, id: ClientId, member: MemberId) -> Result<Answer, Refusal> {
        self.with_machine(id, member, |machine, key| machine.finish_writer(key))
    }

    fn drop_claim(&mut self, id: ClientId, member: MemberId) -> Result<Answer, Refusal> {
        self.with_machine(id, member, |machine, key| machine.drop_claim(key))
    }

    fn need_space(&mut self, id: ClientId, member: MemberId) -> Result<Answer, Refusal> {
        let table_id = self.member(id, member)?.table;
        let key = self.clients[&id].key(member);
        let Some(table) = self.tables.get_mut(&table_id) else { return Ok(Answer::Done) };
        let was_poisoned = table.store.machine().intake().poison().is_some();
        let mut actions = Vec::new();
        table
            .store
            .machine_mut()
            .need_space(key, &mut actions)
            .map_err(|violation| refusal(RefusalKind::Invalid, violation.to_string()))?;
        table.warn_of_poison(was_poisoned);
        self.perform(actions);
        Ok(Answer::Done)
    }

    fn with_machine(
        &mut self,
        id: ClientId,
        member: MemberId,
        act: impl FnOnce(&mut Machine, MemberKey) -> Result<(), Violation>,
    ) -> Result<Answer, Refusal> {
        let table_id = self.member(id, member)?.table;
        let key = self.clients[&id].key(member);
        let Some(table) = self.tables.get_mut(&table_id) else { return Ok(Answer::Done) };
        act(table.store.machine_mut(), key)
            .map_err(|violation| refusal(RefusalKind::Invalid, violation.to_string()))?;
        self.tick_table(table_id);
        Ok(Answer::Done)
    }

    fn release(&mut self, id: ClientId, member: MemberId, tokens: &[LeaseToken]) {
        let count = tokens.len() as u32;
        if let Ok(table_id) = self.member(id, member).map(|at| at.table)
            && let Some(table) = self.tables.get_mut(&table_id)
            && let Machine::Queue(queue) = table.store.machine_mut()
        {
            let key = self.clients[&id].key(member);
            let mut actions = Vec::new();
            let result = queue.release(key, tokens, &mut actions);
            // What the releaser is granted for it comes in the same packet as the acknowledgement, and before it is
            // told of an end.
            let own = |action: &Action| matches!(action, Action::Grant { reader, .. } if *reader == key);
            match (result, actions.iter().position(own).map(|i| actions.remove(i))) {
                (Err(violation), _) => self.expel(id, violation.to_string()),
                (Ok(()), Some(Action::Grant { grants, .. })) => {
                    self.say(id, Event::Granted { member, released: count, grants });
                }
                (Ok(()), _) => self.say(id, Event::Released { member, count }),
            }
            self.perform(actions);
            return;
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

/// Whether the list that is asked for, if one is, is the one that the table has.
pub(super) fn same_access(
    access: &AccessList,
    asked: Option<&AccessList>,
    name: &str,
) -> Result<(), Refusal> {
    if asked.is_none_or(|asked| asked == access) {
        return Ok(());
    }
    let message = format!(
        "table {name:?} is there with another access list: say none, or change it as with \"echoctl table access\""
    );
    Err(refusal(RefusalKind::SpecMismatch, message))
}
