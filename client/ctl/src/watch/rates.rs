//! From two looks to rates. Pure: no clock, no socket.
//!
//! A rate is a difference of two counts of the same table of the same daemon over the time between them, as it was
//! measured here. Where there is no such pair there is no rate, rather than one that would be negative or enormous.

use std::time::Duration;

use echo_client::message::{TableRow, Wait};

/// What was seen of a daemon.
#[derive(Clone, PartialEq, Debug)]
pub struct Look {
    /// Which daemon it was, among all that ever ran.
    pub instance: [u8; 16],
    /// Its tables.
    pub tables: Vec<TableLook>,
}

/// What was seen of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableLook {
    /// When, counted from any fixed instant.
    pub at: Duration,
    /// Its counts, and who is attached.
    pub row: TableRow,
    /// Batches that readers have given back.
    pub batches: u64,
    /// What has been waiting longest.
    pub wait: Option<Wait>,
}

/// What happened in a second, between two looks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// The time between them.
    pub over: Duration,
    /// Samples committed.
    pub committed: f64,
    /// Samples delivered.
    pub delivered: f64,
    /// Batches delivered.
    pub batches: f64,
}

impl Rates {
    /// Those of a table since the look before, if that saw it.
    pub fn of(before: Option<&Look>, now: &Look, table: &TableLook) -> Option<Self> {
        let before = before.filter(|before| before.instance == now.instance)?;
        // Ids are not used again by one daemon; a table that was dropped and made anew has another.
        let earlier = before.tables.iter().find(|earlier| earlier.row.table == table.row.table)?;
        let over = table.at.checked_sub(earlier.at).filter(|over| !over.is_zero())?;
        let rate = |now: u64, earlier: u64| now.saturating_sub(earlier) as f64 / over.as_secs_f64();
        Some(Self {
            over,
            committed: rate(table.row.samples.committed, earlier.row.samples.committed),
            delivered: rate(table.row.samples.delivered, earlier.row.samples.delivered),
            batches: rate(table.batches, earlier.batches),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use echo::ids::TableId;
    use echo_client::TableKind;
    use echo_client::message::SampleCounts;

    use super::*;

    pub(crate) fn look(instance: u8, id: u32, at_ms: u64, committed: u64, batches: u64) -> Look {
        let delivered = batches * 4;
        let row = TableRow {
            name: "rollouts".into(),
            table: TableId(id),
            kind: TableKind::Queue,
            state: "open".into(),
            uid: 1000,
            batch_size: 4,
            capacity: 2,
            sample_bytes: 1024,
            committed_bytes: 8192,
            writers: 3,
            readers: 1,
            samples: SampleCounts { committed, delivered, pending: committed.saturating_sub(delivered) },
        };
        let at = Duration::from_millis(at_ms);
        Look { instance: [instance; 16], tables: vec![TableLook { at, row, batches, wait: None }] }
    }

    fn rates(before: Option<&Look>, now: &Look) -> Option<Rates> {
        Rates::of(before, now, &now.tables[0])
    }

    #[test]
    fn a_rate_is_the_difference_over_the_time_that_passed() {
        let (before, now) = (look(1, 1, 1000, 100, 20), look(1, 1, 3000, 300, 60));
        let over = Duration::from_secs(2);
        assert_eq!(
            rates(Some(&before), &now),
            Some(Rates { over, committed: 100.0, delivered: 80.0, batches: 20.0 })
        );
        let still = look(1, 1, 5000, 300, 60);
        assert_eq!(
            rates(Some(&now), &still),
            Some(Rates { over, committed: 0.0, delivered: 0.0, batches: 0.0 })
        );
    }

    #[test]
    fn what_was_not_seen_before_has_no_rate() {
        let now = look(1, 2, 3000, 300, 60);
        assert_eq!(rates(None, &now), None);
        assert_eq!(rates(Some(&look(1, 1, 1000, 100, 20)), &now), None, "another table of that name");
        assert_eq!(rates(Some(&look(9, 2, 1000, 100, 20)), &now), None, "another daemon");
        assert_eq!(rates(Some(&look(1, 2, 3000, 100, 20)), &now), None, "no time has passed");
        assert_eq!(rates(Some(&look(1, 2, 4000, 100, 20)), &now), None, "time does not run backwards");
    }

    #[test]
    fn a_count_that_fell_is_no_negative_rate() {
        let (before, now) = (look(1, 1, 1000, 100, 20), look(1, 1, 2000, 90, 20));
        assert_eq!(rates(Some(&before), &now).map(|rates| rates.committed), Some(0.0));
    }
}
