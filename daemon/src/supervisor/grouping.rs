//! The groups that read a queue table: adding, removing, rewinding.

use echo::access::Role;
use echo::ids::ClientId;
use echo::spec::TableSpec;
use echo::table::action::Action;
use echo::table::group::GroupError;
use echo::table::machine::Machine;
use echo::table::queue::Queue;
use echo::wire::message::{Answer, GroupFrom, Refusal, RefusalKind};
use tracing::info;

use super::Supervisor;
use super::requests::refusal;

impl Supervisor {
    pub(super) fn add_group(
        &mut self,
        id: ClientId,
        table: &str,
        group: &str,
        from: GroupFrom,
        max_lag: Option<u64>,
    ) -> Result<Answer, Refusal> {
        self.with_queue(id, table, |queue, batch_bytes, actions| {
            let most_lag = max_lag.map(|bytes| most_lag(bytes, batch_bytes));
            queue.add_group(group, from, most_lag, actions)
        })?;
        info!(table, group, ?from, max_lag, client = %id, "group is added");
        Ok(Answer::Done)
    }

    pub(super) fn remove_group(&mut self, id: ClientId, table: &str, group: &str) -> Result<Answer, Refusal> {
        self.with_queue(id, table, |queue, _, actions| queue.remove_group(group, actions))?;
        info!(table, group, client = %id, "group is removed");
        Ok(Answer::Done)
    }

    pub(super) fn rewind_group(&mut self, id: ClientId, table: &str, group: &str) -> Result<Answer, Refusal> {
        let batches = self.with_queue(id, table, |queue, _, actions| queue.rewind_group(group, actions))?;
        info!(table, group, batches, client = %id, "group is rewound");
        Ok(Answer::Counted { applied: batches, skipped: 0 })
    }

    /// Does something with the groups of a queue table whose administrator asks, and what follows from it.
    fn with_queue<T>(
        &mut self,
        id: ClientId,
        name: &str,
        act: impl FnOnce(&mut Queue, u64, &mut Vec<Action>) -> Result<T, GroupError>,
    ) -> Result<T, Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, Role::Administer)?;
        let kinds = || {
            let message = format!("table {name:?} is no queue table: only those are read by groups");
            refusal(RefusalKind::SpecMismatch, message)
        };
        let table = self.tables.get_mut(&table_id).ok_or_else(kinds)?;
        let batch_bytes = batch_bytes(table.store.spec());
        let Machine::Queue(queue) = table.store.machine_mut() else { return Err(kinds()) };
        let mut actions = Vec::new();
        let result = act(queue, batch_bytes, &mut actions);
        self.perform(actions);
        result.map_err(|error| refusal(RefusalKind::NoSuchGroup, error.to_string()))
    }
}

/// Bytes of a batch's arrays, and 1 where there are none.
pub(super) fn batch_bytes(spec: &TableSpec) -> u64 {
    (spec.sample_bytes() * u64::from(spec.batch_size)).max(1)
}

/// The whole batches in so many bytes, at least one.
pub(super) fn most_lag(bytes: u64, batch_bytes: u64) -> u32 {
    u32::try_from(bytes / batch_bytes).unwrap_or(u32::MAX).max(1)
}
