//! Answers for programs. A field keeps its name and its meaning for as long as [`SCHEMA`] stays.

use echo_client::message::{
    ClientRow, GroupRow, LeaseRow, LeaseState, MemberRow, PinRow, ReplayDetails, Status, TableDetails,
    TableRow, Wait,
};
use echo_client::replay::{Real, ReplaySpec, Staleness};
use echo_client::{AccessList, TableKind, TableSpec};
use serde_json::{Value, json};

use crate::cli;
use crate::commands::{Answer, GroupChange};
use crate::doctor::Section;
use crate::watch::rates::{Look, Rates};

/// The version of what is printed.
pub const SCHEMA: u32 = 1;

/// An answer as one object.
pub fn answer(answer: &Answer) -> Value {
    let mut object = match answer {
        Answer::Status { socket, status } => json!({
            "socket": socket.to_string_lossy(),
            "status": self::status(status),
        }),
        Answer::Tables(rows) => json!({ "tables": rows.iter().map(table_row).collect::<Vec<_>>() }),
        Answer::Table(details) => json!({ "table": table(details) }),
        Answer::Created { name, created } => json!({ "name": name, "created": created }),
        Answer::Dropped { name } => json!({ "name": name, "dropped": true }),
        Answer::Reset { name } => json!({ "name": name, "reset": true }),
        Answer::Groups(details) => {
            json!({ "table": details.row.name, "groups": details.groups.iter().map(group).collect::<Vec<_>>() })
        }
        Answer::GroupChanged { table, group, what } => match what {
            GroupChange::Added => json!({ "table": table, "group": group, "added": true }),
            GroupChange::Removed => json!({ "table": table, "group": group, "removed": true }),
            GroupChange::Rewound { batches } => {
                json!({ "table": table, "group": group, "batches_again": batches })
            }
        },
        Answer::Access(details) => json!({
            "name": details.row.name,
            "uid": details.row.uid,
            "access": access(&details.access),
        }),
        Answer::Clients(rows) => json!({ "clients": rows.iter().map(client).collect::<Vec<_>>() }),
        Answer::Why { table, waits } => json!({
            "table": table,
            "waits": waits.iter().map(wait).collect::<Vec<_>>(),
        }),
        Answer::Leases(rows) => json!({ "leases": rows.iter().map(lease).collect::<Vec<_>>() }),
        Answer::Doctor(report) => json!({
            "verdict": report.verdict().name(),
            "sections": report.sections.iter().map(section).collect::<Vec<_>>(),
        }),
    };
    object["schema"] = SCHEMA.into();
    object
}

/// What `watch` prints of one look, without its schema and time.
pub fn watched(look: &Look, before: Option<&Look>) -> Value {
    // A thousandth of a sample a second is nothing.
    let rounded = |rate: f64| (rate * 1000.0).round() / 1000.0;
    let tables = look.tables.iter().map(|table| {
        let mut object = table_row(&table.row);
        object["batches_delivered"] = table.batches.into();
        object["rates"] = Rates::of(before, look, table).map_or(Value::Null, |rates| {
            json!({
                "over_ms": rates.over.as_millis() as u64,
                "samples_committed_per_s": rounded(rates.committed),
                "samples_delivered_per_s": rounded(rates.delivered),
                "batches_delivered_per_s": rounded(rates.batches),
                "bytes_committed_per_s": rounded(rates.committed * table.row.sample_bytes as f64),
            })
        });
        object["wait"] = table.wait.as_ref().map_or(Value::Null, wait);
        object
    });
    json!({
        "instance": look.instance.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "tables": tables.collect::<Vec<_>>(),
    })
}

fn status(status: &Status) -> Value {
    json!({
        "build": status.build,
        "state": status.state,
        "pid": status.pid,
        "uptime_ms": status.uptime_ms,
        "protocol_min": status.protocol_min,
        "protocol_max": status.protocol_max,
        "layout": status.layout,
        "tables": status.tables,
        "clients": status.clients,
        "host_budget_bytes": status.host_budget,
        "host_used_bytes": status.host_used,
    })
}

fn table_row(row: &TableRow) -> Value {
    json!({
        "name": row.name,
        "id": row.table.0,
        "kind": row.kind.name(),
        "state": row.state,
        "uid": row.uid,
        "batch_size": row.batch_size,
        "capacity": row.capacity,
        "sample_bytes": row.sample_bytes,
        "committed_bytes": row.committed_bytes,
        "writers": row.writers,
        "readers": row.readers,
        "samples": {
            "committed": row.samples.committed,
            "delivered": row.samples.delivered,
            "pending": row.samples.pending,
        },
    })
}

fn table(details: &TableDetails) -> Value {
    let mut object = table_row(&details.row);
    object["spec"] = spec(&details.spec);
    object["access"] = access(&details.access);
    object["pages"] = json!({
        "page_bytes": details.pages.page_bytes,
        "resident_bytes": details.pages.resident_bytes,
        "locked_bytes": details.pages.locked_bytes,
        "huge_bytes": details.pages.huge_bytes,
        "notes": details.pages.notes,
    });
    object["cursor"] = details.cursor.into();
    object["limit"] = details.limit.into();
    object["batches_delivered"] = details.batches_delivered.into();
    object["newest"] = details.newest.into();
    object["groups"] = details.groups.iter().map(group).collect();
    object["replay"] = details.replay.as_ref().map(replay).into();
    object["blocks"] = json!({
        "free": details.blocks.free,
        "filling": details.blocks.filling,
        "complete": details.blocks.complete,
        "granted": details.blocks.granted,
    });
    object["holes_offered"] = details.holes_offered.into();
    object["orphaned_claims"] = details.orphaned_claims.into();
    object["members"] = details.members.iter().map(|row| member(details.spec.kind, row)).collect();
    object
}

/// Rules, as the configuration file and `--access` have them.
fn access(access: &AccessList) -> Value {
    access.0.iter().map(ToString::to_string).collect()
}

fn spec(spec: &TableSpec) -> Value {
    let arrays = spec
        .arrays
        .iter()
        .map(|array| json!({ "path": array.path, "dtype": array.dtype.name(), "shape": array.shape }));
    json!({
        "kind": spec.kind.name(),
        "arrays": arrays.collect::<Vec<_>>(),
        "batch_size": spec.batch_size,
        "capacity": spec.capacity,
        "max_capacity": spec.max_capacity,
        "pin": cli::pin(spec.pin),
        "huge_pages": cli::huge_pages(spec.huge_pages),
        "replay": spec.replay.as_ref().map(settings),
    })
}

fn group(row: &GroupRow) -> Value {
    json!({
        "name": row.name,
        "readers": row.readers,
        "lag": row.lag,
        "max_lag": row.max_lag,
        "batches_given_back": row.batches,
        "batches_skipped": row.skipped,
    })
}

fn settings(settings: &ReplaySpec) -> Value {
    let Staleness { max, decay, admission } = settings.staleness;
    json!({
        "sampler": settings.sampler.to_string(),
        "remover": settings.remover.to_string(),
        "max_size": settings.max_size,
        "max_times_sampled": settings.max_times_sampled,
        "rate_limiter": settings.limiter.to_string(),
        "batch_size": settings.batch_size,
        "max_staleness": max,
        "staleness_decay": decay.map(|Real(decay)| decay),
        "samples_per_version": admission.map(|admission| admission.samples_per_version),
        "max_running": admission.map(|admission| admission.max_running),
    })
}

fn replay(details: &ReplayDetails) -> Value {
    let Real(bytes_per_item) = details.bytes_per_item;
    json!({
        "size": details.size,
        "lingering": details.lingering,
        "leased": details.leased,
        "inserts": details.inserts,
        "samples": details.samples,
        "deletes": details.deletes,
        "removed": {
            "evicted": details.evicted,
            "exhausted": details.exhausted,
            "deleted": details.deleted,
            "stale": details.stale,
        },
        "refused": details.refused,
        "priorities_skipped": details.skipped,
        "version": details.version,
        "lags": details.lags,
        "unversioned": details.unversioned,
        "waiting": details.waiting,
        "bytes_per_item": bytes_per_item,
    })
}

fn member(kind: TableKind, member: &MemberRow) -> Value {
    // What is counted is not the same thing, so that it has not the same name.
    let done = match (member.writer, kind) {
        (true, TableKind::Queue | TableKind::Replay) => "samples_committed",
        (true, TableKind::Latest) => "values_published",
        (false, TableKind::Queue) => "batches_given_back",
        (false, TableKind::Latest) => "values_taken",
        (false, TableKind::Replay) => "samples_given_back",
    };
    json!({
        "client": member.client.0,
        "member": member.member.0,
        "role": if member.writer { "writer" } else { "reader" },
        "pid": member.pid,
        "name": member.name,
        "state": member.state,
        done: member.done,
        "waits": member.waits,
        "wakes": member.wakes,
        "grants": member.grants,
        "pinned_bytes": member.pinned_bytes,
    })
}

fn client(row: &ClientRow) -> Value {
    json!({
        "id": row.client.0,
        "pid": row.pid,
        "uid": row.uid,
        "name": row.name,
        "build": row.build,
        "state": row.state,
        "age_ms": row.age_ms,
        "writers": row.writers,
        "readers": row.readers,
        "grants": row.grants,
        "requests": row.requests,
        "events": row.events,
        "pinned_bytes": row.pinned_bytes,
        "pins": row.pins.iter().map(pin).collect::<Vec<_>>(),
        "pins_left_out": row.pins_left_out,
    })
}

fn pin(row: &PinRow) -> Value {
    json!({
        "member": row.member.0,
        "bytes": row.report.bytes,
        "registrations": row.report.registrations,
        "library": row.report.library,
        "read_only": row.report.read_only,
    })
}

fn wait(wait: &Wait) -> Value {
    let held_by = wait.held_by.iter().map(|holder| {
        json!({ "pid": holder.pid, "name": holder.name, "what": holder.what, "for_ms": holder.for_ms })
    });
    json!({
        "who": wait.who,
        "waits_for": wait.waits_for,
        "for_ms": wait.for_ms,
        "held_by": held_by.collect::<Vec<_>>(),
    })
}

fn lease(row: &LeaseRow) -> Value {
    // Samples that were chosen are no batch of the table's, and in no one block.
    let is_batch = row.kind != TableKind::Replay;
    json!({
        "table": row.table_name,
        "table_id": row.table.0,
        "client": row.client.0,
        "member": row.member.0,
        "pid": row.pid,
        "name": row.name,
        "grant": row.number.0,
        "batch": is_batch.then_some(row.seq.0),
        "version": if row.kind == TableKind::Latest { Value::from(row.seq.0 + 1) } else { Value::Null },
        "block": is_batch.then_some(row.block),
        "state": lease_state(row.state),
        "for_ms": row.for_ms,
    })
}

fn section(section: &Section) -> Value {
    let checks = section.checks.iter().map(|check| {
        json!({
            "name": check.name,
            "state": check.state.name(),
            "found": check.found,
            "advice": check.advice,
            "required": check.required,
        })
    });
    json!({ "name": section.name, "title": section.title, "checks": checks.collect::<Vec<_>>() })
}

/// What a reader can do with its batch, in a word.
pub(crate) const fn lease_state(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Filling => "filling",
        LeaseState::Complete => "complete",
        LeaseState::Broken => "broken",
    }
}

#[cfg(test)]
mod tests {
    use echo::ids::{ClientId, MemberId};
    use echo_client::message::PinReport;

    use super::*;

    #[test]
    fn what_a_client_has_pinned_is_a_list_by_reader() {
        let report = PinReport { bytes: 4096, registrations: 2, library: "lib\x1b".into(), read_only: true };
        let row = ClientRow {
            client: ClientId(3),
            pid: 77,
            uid: 1000,
            name: "trainer".into(),
            build: "0.1.0".into(),
            state: "connected".into(),
            age_ms: 2000,
            writers: 0,
            readers: 2,
            grants: 2,
            requests: 1,
            events: 1,
            pinned_bytes: 8192,
            pins: vec![PinRow { member: MemberId(1), report }],
            pins_left_out: 1,
        };
        let object = client(&row);
        assert_eq!((&object["pinned_bytes"], &object["pins_left_out"]), (&8192.into(), &1.into()));
        let pin = json!({
            "member": 1,
            "bytes": 4096,
            "registrations": 2,
            "library": "lib\x1b",
            "read_only": true,
        });
        assert_eq!(object["pins"], json!([pin]));
    }
}
