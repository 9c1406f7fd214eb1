//! How tables come to be, elsewhere, and go.

use std::sync::Arc;

use echo::access::{AccessList, Role};
use echo::ids::{ClientId, TableId};
use echo::spec::TableSpec;
use echo::sync::{AtomicU64, Ordering};
use echo::table::group::DEFAULT_GROUP;
use echo::table::machine::Machine;
use echo::table::queue::Queue;
use echo::table::store::{Store, StoreError};
use echo::wire::codec;
use echo::wire::message::{
    Answer, BEING_MADE, EndReason, Event, Refusal, RefusalKind, SampleCounts, TableRow,
};
use tracing::{info, warn};

use super::grouping::{self, batch_bytes};
use super::requests::{refusal, same_access, same_spec};
use super::{Building, Input, Supervisor};
use crate::bytes::Bytes;
use crate::config::DeclaredGroup;
use crate::table::Table;
use crate::view;

/// Tables that are being made for one user at a time: each takes as many cores as it has threads.
const MAKING: usize = 8;
/// Progress of a large table is logged in steps of so many bytes.
const PROGRESS: u64 = 8 << 30;

impl Supervisor {
    pub(super) fn create_table(
        &mut self,
        id: ClientId,
        call_id: u32,
        spec: TableSpec,
        mut access: Option<AccessList>,
    ) -> Option<Answer> {
        let valid = spec.validate().map_err(|error| error.to_string());
        if let Err(why) = valid.and_then(|()| codec::check_spec(&spec).map_err(|error| error.to_string())) {
            return Some(Answer::Refused(refusal(RefusalKind::InvalidSpec, why)));
        }
        let uid = self.clients[&id].peer.uid();
        if let Ok(table) = self.named(&spec.name) {
            let result = self
                .permitted_anything(id, table)
                .and_then(|()| same_spec(&self.tables[&table].store.spec().diff(&spec), &spec.name))
                .and_then(|()| same_access(&self.tables[&table].access, access.as_ref(), &spec.name));
            match result {
                Ok(()) if self.is_replaceable(table, uid) => {
                    info!(table = spec.name, client = %id, "table has ended and is read: it is made anew");
                    access = access.or_else(|| self.tables.get(&table).map(|table| table.access.clone()));
                    if let Err(refusal) = self.drop_table(id, &spec.name) {
                        return Some(Answer::Refused(refusal));
                    }
                }
                Ok(()) => return Some(Answer::Table { table, created: false }),
                Err(refusal) => return Some(Answer::Refused(refusal)),
            }
        }
        if let Some(building) = self.building.get_mut(&spec.name) {
            let caller = self.clients[&id].peer.caller();
            let access_list = &building.access;
            let known = [0, self.limits.own_uid, building.uid].contains(&uid)
                || [Role::Write, Role::Read].iter().any(|&role| access_list.allows(caller, role));
            if !known {
                let message =
                    format!("table {:?} is being made by another user: use another name", spec.name);
                return Some(Answer::Refused(refusal(RefusalKind::NotPermitted, message)));
            }
            let same = same_spec(&building.spec.diff(&spec), &spec.name)
                .and_then(|()| same_access(&building.access, access.as_ref(), &spec.name));
            if let Err(refusal) = same {
                return Some(Answer::Refused(refusal));
            }
            if building.waiting.iter().any(|&(client, _)| client == id) {
                let message = format!("this client waits for table {:?} already", spec.name);
                return Some(Answer::Refused(refusal(RefusalKind::Limit, message)));
            }
            building.waiting.push((id, call_id));
            return None;
        }
        if self.drain_until.is_some() {
            return Some(Answer::Refused(refusal(RefusalKind::Draining, "echod is stopping".into())));
        }
        if self.tables.len() + self.building.len() >= self.limits.tables as usize {
            let limit = self.limits.tables;
            let message = format!("there are {limit} tables already, which is the limit: drop one");
            return Some(Answer::Refused(refusal(RefusalKind::Limit, message)));
        }
        let of_uid = self.tables.values().filter(|table| table.uid == uid).count()
            + self.building.values().filter(|building| building.uid == uid).count();
        if of_uid >= self.limits.tables_per_uid as usize {
            let message =
                format!("uid {uid} has {of_uid} tables already, which is the limit (max_tables): drop one");
            return Some(Answer::Refused(refusal(RefusalKind::Limit, message)));
        }
        let making = self.building.values().filter(|building| building.uid == uid).count();
        if making >= MAKING {
            let message =
                format!("uid {uid} has {making} tables being made already, which is the limit: wait for one");
            return Some(Answer::Refused(refusal(RefusalKind::Limit, message)));
        }
        self.build(spec, uid, access.unwrap_or_else(AccessList::owned), vec![(id, call_id)]);
        None
    }

    /// Whether a table that is asked for once more is one of an earlier run, of the same user, that has served.
    fn is_replaceable(&self, table: TableId, uid: u32) -> bool {
        let is = |table: &Table| {
            let machine = table.store.machine();
            // Groups that somebody added or declared are not asked for with the spec.
            let is_usual = |queue: &Queue| {
                let mut groups = queue.groups().values();
                let first = groups
                    .next()
                    .is_some_and(|group| group.name == DEFAULT_GROUP && group.most_lag.is_none());
                first && groups.next().is_none()
            };
            table.uid == uid && machine.is_spent() && machine.queue().is_some_and(is_usual)
        };
        self.drain_until.is_none() && self.tables.get(&table).is_some_and(is)
    }

    /// Takes over a table that the configuration declares.
    pub fn declare(&mut self, mut store: Store, access: AccessList, groups: &[DeclaredGroup]) {
        let batch_bytes = batch_bytes(store.spec());
        if let Machine::Queue(queue) = store.machine_mut() {
            let most_lag = |max_lag: Bytes| grouping::most_lag(max_lag.0, batch_bytes);
            queue.found_groups(groups.iter().map(|group| (&*group.name, group.max_lag.map(most_lag))));
        }
        let (id, uid) = (self.next_table(), self.limits.own_uid);
        self.insert(id, Table::new(store, uid, access));
    }

    fn next_table(&mut self) -> TableId {
        self.last_table += 1;
        TableId(self.last_table)
    }

    fn insert(&mut self, id: TableId, table: Table) {
        info!(table = table.name(), uid = table.uid, bytes = table.store.committed_bytes(), "table is there");
        for note in &table.store.pages().notes {
            warn!(table = table.name(), note, "not as wished");
        }
        self.tables.insert(id, table);
    }

    fn build(&mut self, spec: TableSpec, uid: u32, access: AccessList, waiting: Vec<(ClientId, u32)>) {
        let (governor, inputs, threads) =
            (self.governor.clone(), self.inputs.clone(), self.limits.prefault_threads);
        let burials = self.burials.clone();
        let (id, name, resident) = (self.next_table(), spec.name.clone(), Arc::new(AtomicU64::new(0)));
        let building = Building { id, spec: spec.clone(), uid, access, waiting, resident: resident.clone() };
        self.building.insert(name.clone(), building);
        // Making gigabytes resident takes seconds: not here. Nor on tokio's threads, which panic where there can be none.
        let create = move || {
            let make = || {
                // relaxed: for people
                resident.store(0, Ordering::Relaxed);
                let progress = progress(spec.name.clone(), resident.clone());
                Store::create(&spec, &governor, uid, threads, progress)
            };
            let result = match make() {
                // Neither a budget nor a limit of the kernel is used up by a table that was dropped before.
                Err(StoreError::Budget(_) | StoreError::Memory(_)) if burials.wait() => make(),
                result => result,
            };
            let result = result.map(Box::new);
            // If the supervisor is gone, so is the table.
            let _ = inputs.blocking_send(Input::Built(spec.name, result));
        };
        if let Err(error) = std::thread::Builder::new().name("creation".into()).spawn(create) {
            self.built(&name, Err(StoreError::Thread(error)));
        }
    }

    pub(super) fn built(&mut self, name: &str, result: Result<Box<Store>, StoreError>) {
        let Some(Building { id, uid, access, waiting, .. }) = self.building.remove(name) else { return };
        let answer = match result {
            Ok(store) => {
                self.insert(id, Table::new(*store, uid, access));
                if self.drain_until.is_some() {
                    self.close_table(id, EndReason::Draining);
                }
                Ok(id)
            }
            Err(error) => {
                warn!(table = name, uid, %error, "table could not be made");
                let kind = match &error {
                    StoreError::Budget(_) => RefusalKind::Budget,
                    _ => RefusalKind::Memory,
                };
                Err(refusal(kind, format!("table {name:?} could not be made: {error}")))
            }
        };
        for (i, (client, call_id)) in waiting.into_iter().enumerate() {
            let answer = match &answer {
                Ok(table) => match self.clients.get(&client).map(|_| self.permitted_anything(client, *table))
                {
                    Some(Ok(())) => Answer::Table { table: *table, created: i == 0 },
                    Some(Err(refusal)) => Answer::Refused(refusal),
                    None => continue,
                },
                Err(refusal) => Answer::Refused(refusal.clone()),
            };
            self.say(client, Event::Answer { id: call_id, answer });
        }
    }

    pub(super) fn drop_table(&mut self, id: ClientId, name: &str) -> Result<Answer, Refusal> {
        let table_id = self.named(name)?;
        self.permitted(id, table_id, Role::Administer)?;
        let mut actions = Vec::new();
        if let Some(table) = self.tables.get_mut(&table_id) {
            info!(table = name, client = %id, "table is dropped");
            table.dropped = true;
            table.store.machine_mut().end_all(EndReason::Dropped, &mut actions);
        }
        self.perform(actions);
        let why = refusal(RefusalKind::NoSuchTable, format!("table {name:?} was dropped"));
        self.refuse_turns(table_id, &why);
        self.forget_if_unused(table_id);
        Ok(Answer::Done)
    }

    /// A dropped table's memory is given back when nobody has it mapped.
    pub(super) fn forget_if_unused(&mut self, id: TableId) {
        if !self.tables.get(&id).is_some_and(|table| table.dropped) {
            return;
        }
        let used = self.clients.values().any(|client| client.members.values().any(|m| m.table == id));
        if !used && let Some(table) = self.tables.remove(&id) {
            self.burials.bury(table);
        }
    }
}

impl Building {
    /// What is shown of it in a list.
    pub(crate) fn row(&self) -> TableRow {
        let (batch_size, capacity) = view::size(&self.spec);
        TableRow {
            name: self.spec.name.clone(),
            table: self.id,
            kind: self.spec.kind,
            state: BEING_MADE.into(),
            uid: self.uid,
            batch_size,
            capacity,
            sample_bytes: self.spec.sample_bytes(),
            // relaxed: for people
            committed_bytes: self.resident.load(Ordering::Relaxed),
            writers: 0,
            readers: 0,
            samples: SampleCounts::default(),
        }
    }
}

/// Counts how much of a table's memory is resident, and logs it of a large one.
pub(crate) fn progress(table: String, resident: Arc<AtomicU64>) -> impl Fn(u64) + Send + Sync {
    move |bytes| {
        // relaxed: each thread adds what it did, and whoever looks wants no more than the number
        let before = resident.fetch_add(bytes, Ordering::Relaxed);
        if before / PROGRESS != (before + bytes) / PROGRESS {
            info!(table, bytes = before + bytes, "making memory resident");
        }
    }
}
