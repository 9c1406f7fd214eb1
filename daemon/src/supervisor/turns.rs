//! Who registers a table's memory with CUDA now, and what readers say that they have registered.
//!
//! [`Turn`](echo::table::turn::Turn) decides; here its answers become messages. Every call is answered once: by its turn,
//! or by a refusal when its reader gives up or leaves, or when the table is dropped or poisoned or echod stops. A call that
//! waits takes no place among its user's requests: the table's members bound the line.
//!
//! A reader whose connection is gone loses its turn at once, and its report only with its process: what it has registered
//! stays so until then.

use echo::ids::{ClientId, MemberId, TableId};
use echo::table::member::MemberKey;
use echo::table::turn::Asked;
use echo::wire::message::{Answer, Event, MAX_LIBRARY, PinReport, Refusal, RefusalKind};

use super::requests::refusal;
use super::{Supervisor, shortened};

impl Supervisor {
    /// `None` if the answer comes later.
    pub(super) fn begin_pin(&mut self, id: ClientId, call_id: u32, member: MemberId) -> Option<Answer> {
        match self.ask_for_turn(id, call_id, member) {
            Ok(true) => Some(Answer::Done),
            Ok(false) => None,
            Err(refusal) => Some(Answer::Refused(refusal)),
        }
    }

    fn ask_for_turn(&mut self, id: ClientId, call_id: u32, member: MemberId) -> Result<bool, Refusal> {
        let (table_id, key) = self.reader(id, member)?;
        let (now, draining) = (self.now(), self.drain_until.is_some());
        let Some(table) = self.tables.get_mut(&table_id).filter(|table| !table.dropped) else {
            let message =
                format!("the table of reader {member} was dropped: its memory needs no registration");
            return Err(refusal(RefusalKind::NoSuchTable, message));
        };
        if let Some(poison) = table.store.machine().intake().poison() {
            return Err(refusal(RefusalKind::Poisoned, poisoned(table.name(), poison)));
        }
        if draining {
            return Err(refusal(RefusalKind::Draining, "echod is stopping".into()));
        }
        let begun = table.turn.begin(key, call_id, now);
        begun.map_err(|error| refusal(RefusalKind::Invalid, error.to_string()))
    }

    pub(super) fn end_pin(
        &mut self,
        id: ClientId,
        member: MemberId,
        pinned: Option<PinReport>,
    ) -> Result<Answer, Refusal> {
        let (table_id, key) = self.reader(id, member)?;
        // Whatever becomes of the report: a turn that its reader believes to be over would never end.
        self.leave_turn(table_id, key);
        let committed = self.tables.get(&table_id).map_or(0, |table| table.store.committed_bytes());
        if let Some(PinReport { bytes, .. }) = pinned
            && bytes > committed
        {
            let message = format!(
                "reader {member} says that it has registered {bytes} bytes, and its table has committed {committed}"
            );
            return Err(refusal(RefusalKind::Invalid, message));
        }
        if let Some(at) = self.clients.get_mut(&id).and_then(|client| client.members.get_mut(&member)) {
            at.pinned =
                pinned.map(|report| PinReport { library: shortened(&report.library, MAX_LIBRARY), ..report });
        }
        Ok(Answer::Done)
    }

    /// A member that reads, and its table.
    fn reader(&self, id: ClientId, member: MemberId) -> Result<(TableId, MemberKey), Refusal> {
        let at = self.member(id, member)?;
        if at.writes {
            let message = format!("member {member} is a writer, and only readers page-lock: attach a reader");
            return Err(refusal(RefusalKind::Invalid, message));
        }
        Ok((at.table, self.clients[&id].key(member)))
    }

    /// A member's turn, or its wait for it, is over. The next one's begins.
    pub(super) fn leave_turn(&mut self, id: TableId, key: MemberKey) {
        let now = self.now();
        let Some(table) = self.tables.get_mut(&id) else { return };
        let left = table.turn.leave(key, now);
        if let Some(asked) = left.gave_up {
            let message = format!("reader {} gave up its turn to page-lock before it came", key.member);
            self.refuse_turn(asked, refusal(RefusalKind::Invalid, message));
        }
        if let Some(next) = left.next {
            self.say(next.member.client, Event::Answer { id: next.call, answer: Answer::Done });
        }
    }

    /// Nobody's turn will come at this table, for this reason.
    pub(super) fn refuse_turns(&mut self, id: TableId, why: &Refusal) {
        let Some(table) = self.tables.get_mut(&id) else { return };
        for asked in table.turn.refuse_all() {
            self.refuse_turn(asked, why.clone());
        }
    }

    /// A poisoned table need not be registered.
    pub(super) fn refuse_turns_if_poisoned(&mut self, id: TableId) {
        if let Some(table) = self.tables.get(&id)
            && let Some(poison) = table.store.machine().intake().poison()
            && table.turn.waiting().next().is_some()
        {
            let why = refusal(RefusalKind::Poisoned, poisoned(table.name(), poison));
            self.refuse_turns(id, &why);
        }
    }

    fn refuse_turn(&mut self, asked: Asked, why: Refusal) {
        let answer = Answer::Refused(why);
        self.say(asked.member.client, Event::Answer { id: asked.call, answer });
    }
}

fn poisoned(table: &str, poison: &echo::table::poison::Poison) -> String {
    format!("table {table:?} is poisoned ({poison}): drop it and create it again")
}
