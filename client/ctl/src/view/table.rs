//! Tables: all in a grid, one in full.

use echo_client::message::{MemberRow, TableDetails, TableRow};

use echo_client::AccessList;

use super::grid;
use super::printable::printable;
use super::quantity::{bytes, pinned};
use crate::cli;

pub(super) fn list(rows: &[TableRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.name.clone(),
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
    let mut lines = vec![
        format!("table {}: {}, of uid {}", row.name, printable(&row.state), row.uid),
        format!(
            "  size       {} batches of {} samples of {}",
            row.capacity,
            row.batch_size,
            bytes(row.sample_bytes)
        ),
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
    lines.extend([
        format!(
            "  samples    {} committed, {} delivered in {} batches, {} pending",
            row.samples.committed, row.samples.delivered, details.batches_delivered, row.samples.pending
        ),
        format!(
            "  blocks     {} free, {} filling, {} complete; {} granted to readers",
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
    lines.push(members(&details.members));
    lines.join("\n")
}

pub(super) fn access(details: &TableDetails) -> String {
    let TableDetails { row, access, .. } = details;
    let owner = format!("table {} is of uid {}, who may do everything with it", row.name, row.uid);
    let rules = access.0.iter().map(|rule| format!("  {rule}"));
    std::iter::once(owner).chain(rules).collect::<Vec<_>>().join("\n")
}

fn rules(access: &AccessList) -> String {
    let rules: Vec<_> = access.0.iter().map(ToString::to_string).collect();
    if rules.is_empty() { "its owner alone".into() } else { rules.join(" ") }
}

fn members(members: &[MemberRow]) -> String {
    if members.is_empty() {
        return "nobody is attached".into();
    }
    let cells = members.iter().map(|member| {
        vec![
            if member.writer { "writer" } else { "reader" }.to_owned(),
            member.pid.to_string(),
            printable(&member.name),
            format!("{} {}", member.done, if member.writer { "samples" } else { "batches" }),
            member.grants.to_string(),
            pinned(member.pinned_bytes),
            printable(&member.state),
        ]
    });
    grid(&["MEMBER", "#PID", "NAME", "#DONE", "#GRANTS", "#PINNED", "STATE"], cells)
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
TABLE     BATCH  CAPACITY    MEMORY  WRITERS  READERS  COMMITTED  DELIVERED  PENDING  STATE
rollouts    256         8  56.0 KiB        1        0        300        256       44  open"
        );
    }

    #[test]
    fn a_table_is_shown_with_its_arrays_and_members() {
        let arrays = vec![ArraySpec::new("obs", DType::F32, [4]), ArraySpec::new("reward", DType::F32, [])];
        let details = TableDetails {
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
            blocks: BlockCounts { free: 0, filling: 8, complete: 0, granted: 0 },
            holes_offered: 1,
            orphaned_claims: 0,
            members: vec![MemberRow {
                client: echo::ids::ClientId(3),
                member: echo::ids::MemberId(1),
                writer: true,
                pid: 4242,
                name: "worker".into(),
                state: "between samples".into(),
                done: 300,
                waits: 2,
                wakes: 1,
                grants: 0,
                pinned_bytes: 0,
            }],
        };
        assert_eq!(
            show(&details),
            "\
table rollouts: open, of uid 1000
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
}
