//! What the daemon shows of itself: answers to the questions of `echoctl`.

use std::ops::Bound;
use std::time::Duration;

use echo::access::Role;
use echo::ids::{BlockIndex, BlockSeq, ClientId, MemberId, TableId};
use echo::ring::ready::{BlockState, ReadyWord};
use echo::sync::Ordering;
use echo::table::ledger::GrantRecord;
use echo::table::member::MemberKey;
use echo::table::why;
use echo::wire::message::{
    Answer, ClientRow, LeaseRow, LeaseState, MAX_MEMBER_ROWS, MAX_PINS, MAX_PINS_OF_CLIENT, MAX_ROWS,
    MemberRow, PinRow, TableDetails, TableRow,
};

use crate::client::Client;
use crate::supervisor::Supervisor;
use crate::table::Table;

fn row(id: TableId, table: &Table) -> TableRow {
    let (spec, queue) = (table.store.spec(), table.store.queue());
    let state = match (queue.poison(), queue.end_reason()) {
        (Some(poison), _) => format!("poisoned: {poison}"),
        (None, Some(reason)) => format!("{reason:?}").to_lowercase(),
        (None, None) => "open".into(),
    };
    TableRow {
        name: spec.name.clone(),
        table: id,
        state,
        uid: table.uid,
        batch_size: spec.batch_size,
        capacity: spec.capacity,
        sample_bytes: spec.sample_bytes(),
        committed_bytes: table.store.committed_bytes(),
        writers: queue.writers().len() as u32,
        readers: queue.readers().len() as u32,
        samples: queue.samples(),
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
    let queue = table.store.queue();
    let (cursor, limit) = queue.cursor_and_limit();
    let writers = queue.writers().iter().map(|(&key, writer)| {
        let state = match (writer.finished, writer.is_waiting(), writer.is_idle()) {
            (true, ..) => "finished",
            (_, true, _) => "waits for space",
            (_, _, true) => "between samples",
            _ => "holds a claim",
        };
        (key, true, state, writer.committed(), writer.waits_and_wakes(), 0)
    });
    let readers = queue.readers().iter().map(|(&key, reader)| {
        let state = match (reader.connected, reader.held) {
            (false, _) => "disconnected, alive",
            (true, 0) => "holds nothing",
            _ => "holds grants",
        };
        (key, false, state, reader.batches, (0, 0), reader.held)
    });
    let members = writers
        .chain(readers)
        .take(MAX_MEMBER_ROWS)
        .map(|(key, writer, state, done, (waits, wakes), grants)| {
            let (pid, name) = who(supervisor, key.client);
            let (client, member, state) = (key.client, key.member, state.into());
            let at = supervisor.clients.get(&client).and_then(|client| client.members.get(&member));
            let pinned_bytes = at.and_then(|at| at.pinned.as_ref()).map_or(0, |report| report.bytes);
            MemberRow { client, member, writer, pid, name, state, done, waits, wakes, grants, pinned_bytes }
        })
        .collect();
    Answer::TableDetails(TableDetails {
        row: row(id, table),
        spec: table.store.spec().clone(),
        access: table.access.clone(),
        pages: table.store.pages().clone(),
        cursor,
        limit,
        batches_delivered: queue.batches_delivered(),
        blocks: queue.block_counts(),
        holes_offered: queue.holes_offered(),
        orphaned_claims: queue.orphaned_claims(),
        members,
    })
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
        let readers = table.store.queue().readers().range(of_client.clone());
        readers.take_while(|(key, _)| key.client == client.id).map(|(_, reader)| reader.held).sum()
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
    Answer::Why { waits: why::waits(table.store.queue(), &table.turn, &table.watch, supervisor.now(), &who) }
}

/// A page of leases: of one table, or of all, also those that were dropped and are still mapped. It works per lease
/// of the tables that it comes to, and looks at no sample.
pub fn leases(
    supervisor: &Supervisor,
    asks: ClientId,
    table: Option<TableId>,
    after: Option<(TableId, BlockSeq)>,
) -> Answer {
    let from = after.map_or(Bound::Unbounded, |(table, _)| Bound::Included(table));
    let tables = supervisor.tables.range((from, Bound::Unbounded));
    let now = supervisor.now();
    let mut rows = Vec::new();
    let shown =
        |id: TableId| table.is_none_or(|table| table == id) && supervisor.may(asks, id, Role::Observe);
    for (&id, of) in tables.filter(|(id, _)| shown(**id)) {
        let seen = after.and_then(|(table, seq)| (table == id).then_some(seq));
        let mut granted: Vec<_> = of.store.queue().granted_blocks().collect();
        granted.retain(|(seq, ..)| seen.is_none_or(|seen| *seq > seen));
        granted.sort_unstable_by_key(|(seq, ..)| *seq);
        for lease in granted {
            if rows.len() == MAX_ROWS {
                return Answer::Leases { rows, more: true };
            }
            rows.push(lease_row(supervisor, id, of, lease, now));
        }
    }
    Answer::Leases { rows, more: false }
}

fn lease_row(
    supervisor: &Supervisor,
    id: TableId,
    table: &Table,
    (seq, block, grant): (BlockSeq, BlockIndex, GrantRecord),
    now: Duration,
) -> LeaseRow {
    let queue = table.store.queue();
    // Relaxed: it is told to people, and nothing is read behind it.
    let word = ReadyWord::decode(queue.control().ready(block).load(Ordering::Relaxed));
    let (was_complete, since) = table.watch.lease(grant.reader, seq);
    // A worker can die between its last commit and the state word; the watch has looked at the commits.
    let state = match word.map(|word| word.state) {
        Some(BlockState::Complete) => LeaseState::Complete,
        _ if was_complete => LeaseState::Complete,
        Some(BlockState::Filling) if !table.dropped && queue.poison().is_none() => LeaseState::Filling,
        _ => LeaseState::Broken,
    };
    // What was seen is of a batch that filled, if it has become complete since.
    let since = since.filter(|_| was_complete == (state == LeaseState::Complete));
    let (pid, name) = who(supervisor, grant.reader.client);
    LeaseRow {
        table: id,
        table_name: table.name().to_owned(),
        client: grant.reader.client,
        member: grant.reader.member,
        pid,
        name,
        number: grant.number,
        seq,
        block: block.get(),
        state,
        for_ms: since.map(|since| now.saturating_sub(since).as_millis() as u64),
    }
}

/// A client's process and name.
fn who(supervisor: &Supervisor, client: ClientId) -> (u32, String) {
    match supervisor.clients.get(&client) {
        Some(client) => (client.peer.pid(), client.name.clone()),
        None => (0, "gone".into()),
    }
}
