//! Answers for people.

mod client;
mod doctor;
mod lease;
mod printable;
mod quantity;
mod status;
mod table;
pub(crate) mod watch;
mod why;

use comfy_table::{CellAlignment, ColumnConstraint, Table, presets};
pub(crate) use printable::printable;
pub(crate) use quantity::bytes;

use crate::commands::{Answer, GroupChange};

/// An answer, with its last line feed.
pub fn answer(answer: &Answer) -> String {
    let text = match answer {
        Answer::Status { socket, status } => status::show(socket, status),
        Answer::Tables(rows) if rows.is_empty() => {
            "there are no tables; 'echoctl table create' makes one, or a client, or the configuration file"
                .into()
        }
        Answer::Tables(rows) => table::list(rows),
        Answer::Table(details) => table::show(details),
        Answer::Created { name, created: true } => format!("table {name} was made"),
        Answer::Created { name, created: false } => {
            format!("table {name} was there already, with an equal spec")
        }
        Answer::Dropped { name } => format!("table {name} was dropped"),
        Answer::Groups(details) => table::groups(details),
        Answer::GroupChanged { table, group, what } => match what {
            GroupChange::Added => format!("table {table} is read by group {group}, too"),
            GroupChange::Removed => format!("table {table} is read by group {group} no more"),
            GroupChange::Rewound { batches } => {
                format!("group {group} reads {batches} batches of table {table} again")
            }
        },
        Answer::Reset { name } => format!("all items of table {name} were removed"),
        Answer::Access(details) => table::access(details),
        Answer::Clients(rows) if rows.is_empty() => "no client is connected".into(),
        Answer::Clients(rows) => client::list(rows),
        Answer::Why { table, waits } => why::show(table, waits),
        Answer::Leases(rows) if rows.is_empty() => "no reader holds a batch".into(),
        Answer::Leases(rows) => lease::list(rows),
        Answer::Doctor(report) => doctor::show(report),
    };
    text + "\n"
}

/// Rows in columns, without lines; a column whose head begins with `#` is aligned to the right. No line is
/// wrapped or has trailing blanks, so that `grep` and `awk` find what people see.
fn grid(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.iter().map(|name| name.trim_start_matches('#')));
    for row in rows {
        table.add_row(row);
    }
    for (column, name) in table.column_iter_mut().zip(head) {
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::ContentWidth);
        if name.starts_with('#') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_aligns_and_leaves_no_trailing_blanks() {
        let rows =
            [vec!["a".to_owned(), "1".into(), "x".into()], vec!["bcd".into(), "234".into(), String::new()]];
        assert_eq!(grid(&["NAME", "#N", "Z"], rows.into_iter()), "NAME    N  Z\na       1  x\nbcd   234");
    }
}
