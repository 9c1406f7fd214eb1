//! Tables: all in a grid, one in full.

use echo_client::message::{MemberRow, ReplayDetails, TableDetails, TableRow};
use echo_client::replay::{Real, ReplaySpec};
use echo_client::{AccessList, TableKind};

use super::grid;
use super::printable::printable;
use super::quantity::{bytes, pinned};
use crate::cli;

pub(super) fn list(rows: &[TableRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
            row.kind.name().to_owned(),
            row.batch_size.to_string(),
            row.capacity.to_string(),
            bytes(row.committed_bytes),
            row.writers.to_string(),
            row.readers.to_string(),
            row.samples.committed.to_string(),
            row.samples.delivered.to_string(),
            row.samples.pending.to_string(),
            printable(&row.state),
        ]
    });
    let head = [
        "TABLE",
        "KIND",
        "#BATCH",
        "#CAPACITY",
        "#MEMORY",
        "#WRITERS",
        "#READERS",
        "#COMMITTED",
        "#DELIVERED",
        "#PENDING",
        "STATE",
    ];
    grid(&head, cells)
}

pub(super) fn show(details: &TableDetails) -> String {
    let TableDetails { row, spec, pages, blocks, .. } = details;
    let size = match spec.kind {
        TableKind::Queue => {
            format!("{} batches of {} samples of {}", row.capacity, row.batch_size, bytes(row.sample_bytes))
        }
        TableKind::Latest => format!("{} values of {}", row.capacity, bytes(row.sample_bytes)),
        TableKind::Replay => {
            let most = spec.replay.as_ref().map_or(0, |settings| settings.max_size);
            format!("{most} items of {}", bytes(row.sample_bytes))
        }
    };
    let mut lines = vec![
        format!("table {}: {}, of uid {}", row.name, printable(&row.state), row.uid),
        format!("  kind       {}", spec.kind),
        format!("  size       {size}"),
        format!(
            "  memory     samples {} resident, {} locked, {} on huge pages; {} with the control words",
            bytes(pages.resident_bytes),
            bytes(pages.locked_bytes),
            bytes(pages.huge_bytes),
            bytes(row.committed_bytes)
        ),
        format!("  policies   pin {}, huge pages {}", cli::pin(spec.pin), cli::huge_pages(spec.huge_pages)),
        format!("  access     {}", rules(&details.access)),
    ];
    lines.extend(pages.notes.iter().map(|note| format!("  note       {}", printable(note))));
    let samples = row.samples;
    lines.push(match spec.kind {
        TableKind::Queue => format!(
            "  samples    {} committed, {} delivered in {} batches, {} pending",
            samples.committed, samples.delivered, details.batches_delivered, samples.pending
        ),
        TableKind::Latest => format!(
            "  values     {} published, the newest is version {}; {} are overwritten, {} still there",
            samples.committed, details.newest, samples.delivered, samples.pending
        ),
        TableKind::Replay => format!(
            "  items      {} came, {} are there; {} samples were taken",
            samples.committed, samples.pending, samples.delivered
        ),
    });
    lines.extend(
        spec.replay.iter().zip(&details.replay).flat_map(|(settings, replay)| replayed(settings, replay)),
    );
    let granted = match spec.kind {
        TableKind::Queue => "granted to readers",
        TableKind::Latest => "held by readers",
        TableKind::Replay => "slots of removed items still read",
    };
    lines.extend([
        format!(
            "  blocks     {} free, {} filling, {} complete; {} {granted}",
            blocks.free, blocks.filling, blocks.complete, blocks.granted
        ),
        format!("  positions  next {}, limit {}", details.cursor, details.limit),
    ]);
    if details.holes_offered + details.orphaned_claims > 0 {
        lines.push(format!(
            "  dead       {} positions of dead writers are offered again, {} claims wait to be settled",
            details.holes_offered, details.orphaned_claims
        ));
    }
    let arrays = spec.arrays.iter().map(|array| {
        let slot_bytes = array.slot_bytes().map_or_else(String::new, bytes);
        vec![printable(&array.path), array.dtype.name().to_owned(), format!("{:?}", array.shape), slot_bytes]
    });
    lines.push(String::new());
    lines.push(grid(&["ARRAY", "DTYPE", "SHAPE", "#A SAMPLE"], arrays));
    lines.push(String::new());
    if details.groups.len() > 1 {
        lines.push(groups(details));
        lines.push(String::new());
    }
    lines.push(members(spec.kind, &details.members));
    lines.join("\n")
}

pub(super) fn access(details: &TableDetails) -> String {
    let TableDetails { row, access, .. } = details;
    let owner = format!("table {} is of uid {}, who may do everything with it", row.name, row.uid);
    let rules = access.0.iter().map(|rule| format!("  {rule}"));
    std::iter::once(owner).chain(rules).collect::<Vec<_>>().join("\n")
}

/// The groups that read it.
pub(super) fn groups(details: &TableDetails) -> String {
    let cells = details.groups.iter().map(|group| {
        let max_lag = group.max_lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string());
        let numbers = [group.readers.to_string(), group.batches.to_string(), group.lag.to_string(), max_lag];
        let name = std::iter::once(printable(&group.name));
        name.chain(numbers).chain([group.skipped.to_string()]).collect()
    });
    grid(&["GROUP", "#READERS", "#BATCHES", "#LAG", "#MAX LAG", "#SKIPPED"], cells)
}

/// How it chooses, and what has come of it.
fn replayed(settings: &ReplaySpec, replay: &ReplayDetails) -> Vec<String> {
    let often = match settings.max_times_sampled {
        0 => String::new(),
        n => format!(", each at most {n} times"),
    };
    let Real(bytes_per_item) = replay.bytes_per_item;
    let mut lines = vec![
        format!("  sampler    {}{often}; removed by {}", settings.sampler, settings.remover),
        format!(
            "  limiter    {}: {} inserts, {} samples, {} deletes; {} requests wait",
            settings.limiter, replay.inserts, replay.samples, replay.deletes, replay.waiting
        ),
        format!(
            "  removed    {} to make room, {} sampled often enough, {} by request, {} stale",
            replay.evicted, replay.exhausted, replay.deleted, replay.stale
        ),
        format!(
            "  leases     {} samples with readers, {} of items that were removed",
            replay.leased, replay.lingering
        ),
        format!("  overhead   {bytes_per_item:.0} bytes an item"),
    ];
    if replay.refused + replay.skipped > 0 {
        lines.push(format!(
            "  refused    {} samples with a priority that is none, {} priorities of items that were gone",
            replay.refused, replay.skipped
        ));
    }
    if let Some(version) = replay.version {
        let max = settings.staleness.max.map_or("none".to_owned(), |max| max.to_string());
        lines.push(format!(
            "  staleness  the trainer is at version {version}, most lag {max}; {}",
            lags(replay)
        ));
    }
    lines
}

/// How many samples lagged how far, where some did.
fn lags(replay: &ReplayDetails) -> String {
    let last = replay.lags.len().saturating_sub(1);
    let from = |bucket: usize| if bucket == 0 { 0 } else { 1_u64 << (bucket - 1) };
    let lagged = replay.lags.iter().enumerate().filter(|(_, count)| **count > 0);
    let mut told: Vec<String> = lagged
        .map(|(bucket, count)| match bucket {
            0 | 1 => format!("{count} by {bucket}"),
            _ if bucket == last => format!("{count} by {} or more", from(bucket)),
            _ => format!("{count} by {} to {}", from(bucket), from(bucket + 1) - 1),
        })
        .collect();
    if replay.unversioned > 0 {
        told.push(format!("{} without a version", replay.unversioned));
    }
    if told.is_empty() { "nothing was sampled".into() } else { format!("sampled: {}", told.join(", ")) }
}

fn rules(access: &AccessList) -> String {
    let rules: Vec<_> = access.0.iter().map(ToString::to_string).collect();
    if rules.is_empty() { "its owner alone".into() } else { rules.join(" ") }
}

fn members(kind: TableKind, members: &[MemberRow]) -> String {
    if members.is_empty() {
        return "nobody is attached".into();
    }
    let (written, read, held) = match kind {
        TableKind::Queue => ("samples", "batches", "#GRANTS"),
        TableKind::Latest => ("values", "values", "#HOLDS"),
        TableKind::Replay => ("samples", "samples", "#HOLDS"),
    };
    let cells = members.iter().map(|member| {
        vec![
            if member.writer { "writer" } else { "reader" }.to_owned(),
            member.pid.to_string(),
            printable(&member.name),
            format!("{} {}", member.done, if member.writer { written } else { read }),
            member.grants.to_string(),
            pinned(member.pinned_bytes),
            printable(&member.state),
        ]
    });
    grid(&["MEMBER", "#PID", "NAME", "#DONE", held, "#PINNED", "STATE"], cells)
}

#[cfg(test)]
mod tests {
    use echo_client::message::{BlockCounts, Pages, SampleCounts};
    use echo_client::{ArraySpec, DType, TableSpec};

    use super::*;

    fn row() -> TableRow {
        TableRow {
            name: "rollouts".into(),
            table: echo::ids::TableId(1),
            kind: TableKind::Queue,
            state: "open".into(),
            uid: 1000,
            batch_size: 256,
            capacity: 8,
            sample_bytes: 20,
            committed_bytes: 56 << 10,
            writers: 1,
            readers: 0,
            samples: SampleCounts { committed: 300, delivered: 256, pending: 44 },
        }
    }

    #[test]
    fn a_list_is_a_grid() {
        assert_eq!(
            list(&[row()]),
            "\
TABLE     KIND   BATCH  CAPACITY    MEMORY  WRITERS  READERS  COMMITTED  DELIVERED  PENDING  STATE
rollouts  queue    256         8  56.0 KiB        1        0        300        256       44  open"
        );
    }

    fn details() -> TableDetails {
        let arrays = vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])];
        TableDetails {
            row: row(),
            spec: TableSpec::new("rollouts", arrays, 256, 8),
            access: AccessList::owned(),
            pages: Pages {
                page_bytes: 4096,
                resident_bytes: 40 << 10,
                locked_bytes: 0,
                huge_bytes: 0,
                notes: vec!["not locked: raise the limit".into()],
            },
            cursor: 300,
            limit: 2304,
            batches_delivered: 1,
            newest: 0,
            groups: vec![],
            replay: None,
            blocks: BlockCounts { free: 0, filling: 8, complete: 0, granted: 0 },
            holes_offered: 1,
            orphaned_claims: 0,
            members: vec![member("worker", true, "between samples", 300, 0)],
        }
    }

    fn member(name: &str, writer: bool, state: &str, done: u64, grants: u32) -> MemberRow {
        MemberRow {
            client: echo::ids::ClientId(3),
            member: echo::ids::MemberId(1),
            writer,
            pid: 4242,
            name: name.into(),
            state: state.into(),
            done,
            waits: 2,
            wakes: 1,
            grants,
            pinned_bytes: 0,
        }
    }

    #[test]
    fn a_table_is_shown_with_its_arrays_and_members() {
        assert_eq!(
            show(&details()),
            "\
table rollouts: open, of uid 1000
  kind       queue
  size       8 batches of 256 samples of 20 B
  memory     samples 40.0 KiB resident, 0 B locked, 0 B on huge pages; 56.0 KiB with the control words
  policies   pin best-effort, huge pages auto
  access     everyone=observe
  note       not locked: raise the limit
  samples    300 committed, 256 delivered in 1 batches, 44 pending
  blocks     0 free, 8 filling, 0 complete; 0 granted to readers
  positions  next 300, limit 2304
  dead       1 positions of dead writers are offered again, 0 claims wait to be settled

ARRAY   DTYPE    SHAPE  A SAMPLE
obs     float32  [4]        16 B
reward  float32  []          4 B

MEMBER   PID  NAME           DONE  GRANTS  PINNED  STATE
writer  4242  worker  300 samples       0       -  between samples"
        );
    }

    #[test]
    fn a_latest_table_is_shown_with_its_newest_value_and_who_holds_what() {
        let policy = TableDetails {
            row: TableRow {
                name: "policy".into(),
                kind: TableKind::Latest,
                batch_size: 1,
                capacity: 4,
                sample_bytes: 4096,
                samples: SampleCounts { committed: 12, delivered: 9, pending: 3 },
                ..row()
            },
            spec: TableSpec::latest("policy", vec![ArraySpec::new("w", DType::F32, [1024])]),
            pages: Pages::default(),
            cursor: 12,
            limit: 13,
            newest: 12,
            batches_delivered: 9,
            blocks: BlockCounts { free: 0, filling: 1, complete: 3, granted: 2 },
            holes_offered: 0,
            members: vec![member("actor", false, "holds values", 7, 2)],
            ..details()
        };
        let shown = show(&policy);
        let shown: Vec<&str> = shown.lines().collect();
        assert_eq!(shown[1..3], ["  kind       latest", "  size       4 values of 4.0 KiB"]);
        assert_eq!(
            shown[6..9],
            [
                "  values     12 published, the newest is version 12; 9 are overwritten, 3 still there",
                "  blocks     0 free, 1 filling, 3 complete; 2 held by readers",
                "  positions  next 12, limit 13",
            ]
        );
        assert_eq!(
            shown[13..],
            [
                "MEMBER   PID  NAME       DONE  HOLDS  PINNED  STATE",
                "reader  4242  actor  7 values      2       -  holds values",
            ]
        );
    }

    #[test]
    fn a_replay_table_is_shown_with_what_it_removed_and_how_old_its_samples_were() {
        let mut settings = ReplaySpec::new(1000, 32);
        settings.max_times_sampled = 8;
        settings.staleness.max = Some(4);
        let mut counted = ReplayDetails {
            size: 90,
            lingering: 2,
            leased: 64,
            inserts: 100,
            samples: 200,
            deletes: 10,
            evicted: 1,
            exhausted: 2,
            deleted: 3,
            stale: 4,
            refused: 5,
            skipped: 6,
            version: Some(13),
            lags: vec![1, 20, 0, 300, 0, 6],
            unversioned: 7,
            waiting: 1,
            bytes_per_item: Real(100.4),
        };
        let lines = replayed(&settings, &counted);
        assert_eq!(
            lines,
            [
                "  sampler    uniform, each at most 8 times; removed by fifo",
                "  limiter    min-size:1: 100 inserts, 200 samples, 10 deletes; 1 requests wait",
                "  removed    1 to make room, 2 sampled often enough, 3 by request, 4 stale",
                "  leases     64 samples with readers, 2 of items that were removed",
                "  overhead   100 bytes an item",
                "  refused    5 samples with a priority that is none, 6 priorities of items that were gone",
                "  staleness  the trainer is at version 13, most lag 4; sampled: 1 by 0, 20 by 1, 300 by 4 to 7, 6 by 16 or \
                 more, 7 without a version",
            ]
        );
        // What nobody said, or nobody lost, is no line.
        (counted.refused, counted.skipped, counted.version) = (0, 0, None);
        assert_eq!(replayed(&settings, &counted), lines[..5]);
        (counted.version, counted.lags, counted.unversioned) = (Some(1), vec![], 0);
        settings.staleness.max = None;
        let last = replayed(&settings, &counted).pop();
        assert_eq!(
            last.as_deref(),
            Some("  staleness  the trainer is at version 1, most lag none; nothing was sampled")
        );
    }
}
