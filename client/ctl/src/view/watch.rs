//! What changed at the tables between two looks.

use echo_client::message::Wait;

use super::grid;
use super::printable::printable;
use super::quantity::{age, bytes};
use crate::watch::rates::{Look, Rates, TableLook};

/// A column of what is watched.
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// Enough for what usually stands there.
    pub(crate) width: usize,
    pub(crate) right: bool,
}

const HEADS: [(&str, usize); 10] = [
    ("TABLE", 12),
    ("#COMMITTED/S", 11),
    ("#DELIVERED/S", 11),
    ("#BATCHES/S", 9),
    ("#WRITTEN/S", 10),
    ("#PENDING", 8),
    ("#WRITERS", 7),
    ("#READERS", 7),
    ("STATE", 8),
    ("WAITS LONGEST", 0),
];

/// The columns, for who lays them out line by line.
pub(crate) fn columns() -> Vec<Column> {
    let column = |(head, width): (&'static str, usize)| match head.strip_prefix('#') {
        Some(head) => Column { head, width, right: true },
        None => Column { head, width, right: false },
    };
    HEADS.map(column).into()
}

/// The cells of each table.
pub(crate) fn lines(look: &Look, before: &Look) -> Vec<Vec<String>> {
    look.tables.iter().map(|table| cells(table, Rates::of(Some(before), look, table))).collect()
}

/// All tables in a grid.
pub(crate) fn table(look: &Look, before: &Look) -> String {
    match look.tables.is_empty() {
        true => "there are no tables".into(),
        false => grid(&HEADS.map(|(head, _)| head), lines(look, before).into_iter()),
    }
}

fn cells(table: &TableLook, rates: Option<Rates>) -> Vec<String> {
    let row = &table.row;
    let rate =
        |of: fn(&Rates) -> f64| rates.as_ref().map_or_else(|| "-".to_owned(), |rates| number(of(rates)));
    let written = |rates: Rates| bytes((rates.committed * row.sample_bytes as f64) as u64);
    vec![
        row.name.clone(),
        rate(|rates| rates.committed),
        rate(|rates| rates.delivered),
        rate(|rates| rates.batches),
        rates.map_or_else(|| "-".to_owned(), written),
        row.samples.pending.to_string(),
        row.writers.to_string(),
        row.readers.to_string(),
        // What a poisoned table suffers from is what everybody waits for.
        printable(row.state.split(':').next().unwrap_or_default()),
        table.wait.as_ref().map(wait).unwrap_or_default(),
    ]
}

fn wait(wait: &Wait) -> String {
    printable(&format!("{} for {}: {}", wait.who, age(wait.for_ms), wait.waits_for))
}

/// A rate, with a decimal where that says something.
fn number(rate: f64) -> String {
    if rate > 0.0 && rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rates::tests::look;

    #[test]
    fn rates_are_in_a_grid_with_what_waits() {
        let (before, mut now) = (look(1, 1, 1000, 100, 20), look(1, 1, 3000, 300, 21));
        now.tables[0].wait = Some(Wait {
            who: "reader trainer\x1b (pid 42)".into(),
            waits_for: "batch 0".into(),
            held_by: vec![],
            for_ms: 2000,
        });
        assert_eq!(
            table(&now, &before),
            "\
TABLE     COMMITTED/S  DELIVERED/S  BATCHES/S  WRITTEN/S  PENDING  WRITERS  READERS  STATE  WAITS LONGEST
rollouts          100          2.0        0.5  100.0 KiB      216        3        1  open   reader trainer\\u{1b} (pid 42) for 2.0s: batch 0"
        );
        now.tables[0].row.state = "poisoned: the cursor is 1".into();
        assert_eq!(
            lines(&now, &look(2, 1, 1000, 100, 20))[0][1..9],
            ["-", "-", "-", "-", "216", "3", "1", "poisoned"]
        );
    }
}
