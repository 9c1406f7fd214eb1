//! What the daemon shows of itself: answers to the questions of `echoctl`.

use std::ops::Bound;
use std::time::Duration;

use echo::access::Role;
use echo::ids::{BlockIndex, BlockSeq, ClientId, GrantNumber, MemberId, TableId};
use echo::replay::items::Cause;
use echo::replay::limiter::Totals;
use echo::replay::settings::Real;
use echo::ring::newest::ValueWord;
use echo::ring::ready::{BlockState, ReadyWord};
use echo::spec::TableSpec;
use echo::sync::Ordering;
use echo::table::group::{Group, GroupId};
use echo::table::intake::Intake;
use echo::table::latest::Latest;
use echo::table::ledger::GrantRecord;
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::table::queue::Queue;
use echo::table::replay::Replay;
use echo::table::why;
use echo::wire::message::{
    Answer, ClientRow, GroupRow, LeasePlace, LeaseRow, LeaseState, MAX_MEMBER_ROWS, MAX_PINS,
    MAX_PINS_OF_CLIENT, MAX_ROWS, MemberRow, PinRow, ReplayDetails, TableDetails, TableRow,
};

use crate::client::Client;
use crate::supervisor::Supervisor;
use crate::table::Table;

/// Samples in a batch, and how much a table holds, as whoever declared it said. Samples of a replay table lie in blocks of the
/// table's own choice.
pub(crate) fn size(spec: &TableSpec) -> (u32, u32) {
    match &spec.replay {
        Some(settings) => (settings.batch_size, settings.max_size),
        None => (spec.batch_size, spec.capacity),
    }
}

fn row(id: TableId, table: &Table) -> TableRow {
    let (spec, machine) = (table.store.spec(), table.store.machine());
    let (batch_size, capacity) = size(spec);
    let intake = machine.intake();
    let state = match (intake.poison(), intake.end_reason()) {
        (Some(poison), _) => format!("poisoned: {poison}"),
        (None, Some(reason)) => format!("{reason:?}").to_lowercase(),
        (None, None) => "open".into(),
    };
    TableRow {
        name: spec.name.clone(),
        table: id,
        kind: spec.kind,
        state,
        uid: table.uid,
        batch_size,
        capacity,
        sample_bytes: spec.sample_bytes(),
        committed_bytes: table.store.committed_bytes(),
        writers: intake.writers().len() as u32,
        readers: machine.count_readers() as u32,
        samples: machine.samples(),
    }
}

/// A page of the tables that the client may look at, by name; those that are being made are among them.
pub fn tables(supervisor: &Supervisor, asks: ClientId, after: Option<&str>) -> Answer {
    let made = supervisor
        .tables
        .iter()
        .filter(|(_, table)| !table.dropped)
        .filter(|(id, _)| supervisor.may(asks, **id, Role::Observe))
        .map(|(&id, table)| (table.name(), Some((id, table))));
    let being_made = supervisor.building.iter();
    let being_made = being_made.filter(|(_, building)| supervisor.may_observe(asks, building));
    let mut all: Vec<_> = made
        .chain(being_made.map(|(name, _)| (name.as_str(), None)))
        .filter(|(name, _)| after.is_none_or(|after| *name > after))
        .collect();
    all.sort_by_key(|(name, _)| *name);
    let shown = |&(name, table): &(&str, Option<(TableId, &Table)>)| match table {
        Some((id, table)) => row(id, table),
        None => supervisor.building[name].row(),
    };
    let rows = all.iter().take(MAX_ROWS).map(shown).collect();
    Answer::Tables { rows, more: all.len() > MAX_ROWS }
}

/// One table, in full.
pub fn table(supervisor: &Supervisor, id: TableId) -> Answer {
    let table = &supervisor.tables[&id];
    let machine = table.store.machine();
    let intake = machine.intake();
    let (cursor, limit) = intake.cursor_and_limit();
    let (readers, newest) = match machine {
        Machine::Queue(queue) => (queue_readers(queue), 0),
        Machine::Latest(latest) => (takers(latest), latest.newest().map_or(0, ValueWord::version)),
        Machine::Replay(replay) => (samplers(replay), 0),
    };
    let members = writers(intake).into_iter().chain(readers).take(MAX_MEMBER_ROWS);
    Answer::TableDetails(TableDetails {
        row: row(id, table),
        spec: table.store.spec().clone(),
        access: table.access.clone(),
        pages: table.store.pages().clone(),
        cursor,
        limit,
        batches_delivered: intake.batches_delivered(),
        newest,
        blocks: machine.block_counts(),
        holes_offered: intake.holes_offered(),
        orphaned_claims: intake.orphaned_claims(),
        groups: machine.queue().map(groups).unwrap_or_default(),
        replay: replay(machine),
        members: members.map(|shown| member_row(supervisor, shown)).collect(),
    })
}

/// What a state machine knows of one member.
struct Shown {
    key: MemberKey,
    writer: bool,
    state: &'static str,
    done: u64,
    waits_and_wakes: (u64, u64),
    held: u32,
}

fn writers(intake: &Intake) -> Vec<Shown> {
    let shown = intake.writers().iter().map(|(&key, writer)| {
        let state = match (writer.finished, writer.is_waiting(), writer.is_idle()) {
            (true, ..) => "finished",
            (_, true, _) => "waits for space",
            (_, _, true) => "between samples",
            _ => "holds a claim",
        };
        let waits_and_wakes = writer.waits_and_wakes();
        Shown { key, writer: true, state, done: writer.committed(), waits_and_wakes, held: 0 }
    });
    shown.collect()
}

fn queue_readers(queue: &Queue) -> Vec<Shown> {
    let shown = queue.readers().iter().map(|(&key, reader)| {
        let state = match (reader.connected, reader.left, reader.held) {
            (false, ..) => "disconnected, alive",
            (_, true, _) => "takes no more",
            (.., 0) => "holds nothing",
            _ => "holds grants",
        };
        let (done, held) = (reader.batches, reader.held);
        Shown { key, writer: false, state, done, waits_and_wakes: (0, 0), held }
    });
    shown.collect()
}

fn takers(latest: &Latest) -> Vec<Shown> {
    let shown = latest.readers().iter().map(|(&key, reader)| {
        let held = latest.count_held(key);
        let state = match (reader.connected, reader.waits_with(), held) {
            (false, ..) => "disconnected, alive",
            (_, Some(_), _) => "waits for a newer value",
            (.., 0) => "holds nothing",
            _ => "holds values",
        };
        Shown { key, writer: false, state, done: reader.taken(), waits_and_wakes: (0, 0), held }
    });
    shown.collect()
}

fn groups(queue: &Queue) -> Vec<GroupRow> {
    let row = |(&id, group): (&GroupId, &Group)| {
        let (skipped, batches) = queue.group_counts(id);
        GroupRow {
            name: group.name.clone(),
            readers: queue.readers_of(id) as u32,
            lag: queue.lag(id),
            max_lag: group.most_lag,
            batches,
            skipped,
        }
    };
    queue.groups().iter().map(row).collect()
}

fn samplers(replay: &Replay) -> Vec<Shown> {
    let shown = replay.readers().iter().map(|(&key, reader)| {
        let waits = replay.waiting().iter().any(|asked| asked.reader == key);
        let state = match (reader.connected, waits, reader.holds()) {
            (false, ..) => "disconnected, alive",
            (_, true, _) => "waits for samples",
            (.., 0) => "holds nothing",
            _ => "holds samples",
        };
        Shown { key, writer: false, state, done: reader.done, waits_and_wakes: (0, 0), held: reader.holds() }
    });
    shown.collect()
}

fn replay(machine: &Machine) -> Option<ReplayDetails> {
    let Machine::Replay(replay) = machine else { return None };
    let index = replay.index();
    let Totals { inserts, samples, deletes } = index.totals();
    Some(ReplayDetails {
        size: index.size(),
        lingering: index.lingering(),
        leased: index.leased(),
        inserts,
        samples,
        deletes,
        evicted: index.removed(Cause::Evicted),
        exhausted: index.removed(Cause::Exhausted),
        deleted: index.removed(Cause::Deleted),
        stale: index.removed(Cause::Stale),
        refused: replay.refused(),
        skipped: index.skipped(),
        version: index.version(),
        lags: index.lags().buckets.to_vec(),
        unversioned: index.lags().unversioned,
        waiting: replay.waiting().len() as u32,
        bytes_per_item: Real(replay.bytes_per_item()),
    })
}

fn member_row(supervisor: &Supervisor, shown: Shown) -> MemberRow {
    let Shown { key, writer, state, done, waits_and_wakes: (waits, wakes), held: grants } = shown;
    let (pid, name) = who(supervisor, key.client);
    let (client, member, state) = (key.client, key.member, state.into());
    let at = supervisor.clients.get(&client).and_then(|client| client.members.get(&member));
    let pinned_bytes = at.and_then(|at| at.pinned.as_ref()).map_or(0, |report| report.bytes);
    MemberRow { client, member, writer, pid, name, state, done, waits, wakes, grants, pinned_bytes }
}

/// A page of clients, by id. What readers have registered is shown of the tables that the client who asks may look at.
pub fn clients(supervisor: &Supervisor, asks: ClientId, after: Option<ClientId>) -> Answer {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rows: Vec<ClientRow> = Vec::new();
    let mut pins = 0;
    for client in supervisor.clients.range((from, Bound::Unbounded)).map(|(_, client)| client) {
        let row = client_row(supervisor, asks, client);
        pins += row.pins.len();
        if rows.len() == MAX_ROWS || pins > MAX_PINS {
            return Answer::Clients { rows, more: true };
        }
        rows.push(row);
    }
    Answer::Clients { rows, more: false }
}

fn client_row(supervisor: &Supervisor, asks: ClientId, client: &Client) -> ClientRow {
    let (writers, readers) = client.count_members();
    let of_client = MemberKey { client: client.id, member: MemberId(0) }..;
    let held = |table: &Table| -> u32 {
        let range = of_client.clone();
        match table.store.machine() {
            Machine::Queue(queue) => {
                let readers = queue.readers().range(range);
                readers.take_while(|(key, _)| key.client == client.id).map(|(_, reader)| reader.held).sum()
            }
            Machine::Latest(latest) => {
                let readers = latest.readers().range(range).map(|(&key, _)| key);
                readers.take_while(|key| key.client == client.id).map(|key| latest.count_held(key)).sum()
            }
            Machine::Replay(replay) => {
                let readers = replay.readers().range(range);
                readers.take_while(|(key, _)| key.client == client.id).map(|(_, reader)| reader.holds()).sum()
            }
        }
    };
    let reports = client.members.iter().filter_map(|(&member, at)| Some((member, at, at.pinned.as_ref()?)));
    let (mut pins, mut pins_left_out, mut pinned_bytes) = (Vec::new(), 0, 0_u64);
    for (member, at, report) in reports {
        pinned_bytes = pinned_bytes.saturating_add(report.bytes);
        let may_be_shown =
            supervisor.tables.contains_key(&at.table) && supervisor.may(asks, at.table, Role::Observe);
        if may_be_shown && pins.len() < MAX_PINS_OF_CLIENT {
            pins.push(PinRow { member, report: report.clone() });
        } else {
            pins_left_out += 1;
        }
    }
    ClientRow {
        client: client.id,
        pid: client.peer.pid(),
        uid: client.peer.uid(),
        name: client.name.clone(),
        build: client.build.clone(),
        state: client.state().into(),
        age_ms: supervisor.now().saturating_sub(client.since).as_millis() as u64,
        writers,
        readers,
        grants: supervisor.tables.values().map(held).sum(),
        requests: client.messages.requests,
        events: client.messages.events,
        pinned_bytes,
        pins,
        pins_left_out,
    }
}

/// What is being waited for at one table.
pub fn why(supervisor: &Supervisor, id: TableId) -> Answer {
    let table = &supervisor.tables[&id];
    let who = |client| who(supervisor, client);
    Answer::Why {
        waits: why::waits(table.store.machine(), &table.turn, &table.watch, supervisor.now(), &who),
    }
}

/// What a reader holds: a batch that was granted, or a value.
struct Lease {
    reader: MemberKey,
    seq: BlockSeq,
    block: BlockIndex,
    number: GrantNumber,
}

impl Lease {
    fn place(&self, table: TableId) -> LeasePlace {
        let MemberKey { client, member } = self.reader;
        LeasePlace { table, seq: self.seq, client, member }
    }
}

fn held(machine: &Machine) -> Vec<Lease> {
    match machine {
        Machine::Queue(queue) => {
            let granted = queue.granted_blocks();
            let lease = |(seq, block, grant): (_, _, GrantRecord)| {
                let (reader, number) = (grant.reader, grant.number);
                Lease { reader, seq, block, number }
            };
            granted.map(lease).collect()
        }
        Machine::Latest(latest) => {
            let lease =
                |(reader, ValueWord { seq, block })| Lease { reader, seq, block, number: GrantNumber(0) };
            latest.held().map(lease).collect()
        }
        Machine::Replay(replay) => {
            let block_slots = replay.intake().control().geometry().block_slots();
            let max_blocks = replay.intake().control().geometry().max_blocks();
            let lease = |reader: MemberKey, number: u64, slots: &[u32]| {
                let block = BlockIndex::new(slots.first()? / block_slots, max_blocks)?;
                Some(Lease { reader, seq: BlockSeq(number), block, number: GrantNumber(number) })
            };
            let readers = replay.readers().iter();
            readers
                .flat_map(|(&key, reader)| {
                    reader.held().filter_map(move |(number, slots)| lease(key, number, slots))
                })
                .collect()
        }
    }
}

/// A page of leases: of one table, or of all, also those that were dropped and are still mapped. It works per lease
/// of the tables that it comes to, and looks at no sample.
pub fn leases(
    supervisor: &Supervisor,
    asks: ClientId,
    table: Option<TableId>,
    after: Option<LeasePlace>,
) -> Answer {
    let from = after.map_or(Bound::Unbounded, |place| Bound::Included(place.table));
    let tables = supervisor.tables.range((from, Bound::Unbounded));
    let now = supervisor.now();
    let mut rows = Vec::new();
    let shown =
        |id: TableId| table.is_none_or(|table| table == id) && supervisor.may(asks, id, Role::Observe);
    for (&id, of) in tables.filter(|(id, _)| shown(**id)) {
        let mut leases = held(of.store.machine());
        leases.retain(|lease| after.is_none_or(|after| lease.place(id) > after));
        leases.sort_unstable_by_key(|lease| lease.place(id));
        for lease in leases {
            if rows.len() == MAX_ROWS {
                return Answer::Leases { rows, more: true };
            }
            rows.push(lease_row(supervisor, id, of, &lease, now));
        }
    }
    Answer::Leases { rows, more: false }
}

fn lease_row(supervisor: &Supervisor, id: TableId, table: &Table, lease: &Lease, now: Duration) -> LeaseRow {
    let &Lease { reader, seq, block, number } = lease;
    let intake = table.store.machine().intake();
    // Relaxed: it is told to people, and nothing is read behind it.
    let word = ReadyWord::decode(intake.control().ready(block).load(Ordering::Relaxed));
    let (was_complete, since) = table.watch.lease(reader, seq);
    // A worker can die between its last commit and the state word; the watch has looked at the commits.
    let state = match word.map(|word| word.state) {
        // Samples are chosen among those that are committed.
        _ if matches!(table.store.machine(), Machine::Replay(_)) => LeaseState::Complete,
        Some(BlockState::Complete) => LeaseState::Complete,
        _ if was_complete => LeaseState::Complete,
        Some(BlockState::Filling) if !table.dropped && intake.poison().is_none() => LeaseState::Filling,
        _ => LeaseState::Broken,
    };
    // What was seen is of a batch that filled, if it has become complete since.
    let since = since.filter(|_| was_complete == (state == LeaseState::Complete));
    let (pid, name) = who(supervisor, reader.client);
    LeaseRow {
        table: id,
        table_name: table.name().to_owned(),
        kind: table.store.spec().kind,
        client: reader.client,
        member: reader.member,
        pid,
        name,
        number,
        seq,
        block: block.get(),
        state,
        for_ms: since.map(|since| now.saturating_sub(since).as_millis() as u64),
    }
}

/// A client's process and name.
pub(crate) fn who(supervisor: &Supervisor, client: ClientId) -> (u32, String) {
    match supervisor.clients.get(&client) {
        Some(client) => (client.peer.pid(), client.name.clone()),
        None => (0, "gone".into()),
    }
}
