//! What readers and writers ask of a replay table.

use echo::access::Role;
use echo::ids::{ClientId, MemberId, TableId};
use echo::replay::index::{Pick, Updated};
use echo::replay::settings::Real;
use echo::table::action::{Action, Violation};
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::table::replay::Replay;
use echo::wire::message::{Answer, Event, ItemPriority, MAX_SAMPLED, Refusal, RefusalKind, SampledItem};
use tracing::info;

use super::Supervisor;
use super::requests::refusal;

impl Supervisor {
    pub(super) fn sample(&mut self, id: ClientId, member: MemberId, number: u64, count: u32) {
        self.as_reader(id, member, |replay, key, actions| replay.sample(key, number, count, actions));
    }

    pub(super) fn cut_sample(&mut self, id: ClientId, member: MemberId, number: u64) {
        self.as_reader(id, member, |replay, key, actions| replay.cut(key, number, actions));
    }

    pub(super) fn return_samples(&mut self, id: ClientId, member: MemberId, numbers: &[u64]) {
        self.as_reader(id, member, |replay, key, actions| replay.give_back(key, numbers, actions));
    }

    /// A request that has no answer of its own: one that makes no sense ends the connection. A reader may have been detached
    /// since it asked.
    fn as_reader(
        &mut self,
        id: ClientId,
        member: MemberId,
        act: impl FnOnce(&mut Replay, MemberKey, &mut Vec<Action>) -> Result<(), Violation>,
    ) {
        let Ok(done) = self.with_replay(id, member, act) else { return };
        if let Err(violation) = done {
            self.expel(id, violation.to_string());
        }
    }

    pub(super) fn update_priorities(
        &mut self,
        id: ClientId,
        member: MemberId,
        items: &[ItemPriority],
    ) -> Result<Answer, Refusal> {
        let items: Vec<(u64, Real)> = items.iter().map(|item| (item.key, item.priority)).collect();
        let done =
            self.with_replay(id, member, |replay, _, actions| replay.update_priorities(&items, actions))?;
        let updated = done.map_err(|violation| refusal(RefusalKind::Invalid, violation.to_string()))?;
        Ok(counted(updated))
    }

    pub(super) fn delete_items(
        &mut self,
        id: ClientId,
        member: MemberId,
        keys: &[u64],
    ) -> Result<Answer, Refusal> {
        self.with_replay(id, member, |replay, _, actions| replay.delete(keys, actions)).map(counted)
    }

    pub(super) fn state_version(
        &mut self,
        id: ClientId,
        member: MemberId,
        version: u64,
    ) -> Result<Answer, Refusal> {
        let removed =
            self.with_replay(id, member, |replay, _, actions| replay.set_version(version, actions))?;
        Ok(Answer::Counted { applied: removed, skipped: 0 })
    }

    pub(super) fn reset_table(&mut self, id: ClientId, name: &str) -> Result<Answer, Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, Role::Administer)?;
        let mut actions = Vec::new();
        match self.tables.get_mut(&table_id).map(|table| table.store.machine_mut()) {
            Some(Machine::Replay(replay)) => replay.reset(&mut actions),
            _ => return Err(no_replay_table(name)),
        }
        info!(table = name, client = %id, "all items are removed");
        self.perform(actions);
        Ok(Answer::Done)
    }

    /// Does something with a member's replay table, and what follows from it.
    fn with_replay<T>(
        &mut self,
        id: ClientId,
        member: MemberId,
        act: impl FnOnce(&mut Replay, MemberKey, &mut Vec<Action>) -> T,
    ) -> Result<T, Refusal> {
        let table_id: TableId = self.member(id, member)?.table;
        let key = self.clients[&id].key(member);
        let gone = || refusal(RefusalKind::NoSuchTable, format!("the table of member {member} is gone"));
        let table = self.tables.get_mut(&table_id).ok_or_else(gone)?;
        let was_poisoned = table.store.machine().intake().poison().is_some();
        let mut actions = Vec::new();
        let result = match table.store.machine_mut() {
            Machine::Replay(replay) => act(replay, key, &mut actions),
            _ => return Err(no_replay_table(table.name())),
        };
        table.warn_of_poison(was_poisoned);
        self.perform(actions);
        Ok(result)
    }

    /// Tells a reader what it was given, in as many messages as it takes.
    pub(super) fn say_sampled(
        &mut self,
        reader: MemberKey,
        number: u64,
        picks: &[Pick],
        least: Option<f64>,
        short: Option<String>,
    ) {
        let least = least.map(Real);
        let member = reader.member;
        let mut pieces = picks.chunks(MAX_SAMPLED).peekable();
        while let Some(piece) = pieces.next() {
            let samples = piece.iter().map(sampled).collect();
            let more = pieces.peek().is_some();
            let (least, short) = if more { (None, None) } else { (least, short.clone()) };
            self.say(reader.client, Event::Sampled { member, number, samples, more, least, short });
        }
        if picks.is_empty() {
            let event = Event::Sampled { member, number, samples: Vec::new(), more: false, least, short };
            self.say(reader.client, event);
        }
    }
}

fn no_replay_table(name: &str) -> Refusal {
    refusal(RefusalKind::SpecMismatch, format!("table {name:?} is no replay table: it has no items"))
}

const fn counted(updated: Updated) -> Answer {
    Answer::Counted { applied: updated.applied, skipped: updated.skipped }
}

fn sampled(pick: &Pick) -> SampledItem {
    let &Pick { slot, times_sampled, key, probability, priority, table_size, version, age } = pick;
    SampledItem {
        slot,
        key,
        probability: Real(probability),
        priority: Real(priority),
        times_sampled,
        table_size,
        version,
        age_us: u64::try_from(age.as_micros()).unwrap_or(u64::MAX),
    }
}
