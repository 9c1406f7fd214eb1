//! Batches and values that readers hold.

use echo_client::TableKind;
use echo_client::message::LeaseRow;

use super::grid;
use super::printable::printable;
use super::quantity::age;
use crate::json::lease_state;

pub(super) fn list(rows: &[LeaseRow]) -> String {
    let cells = rows.iter().map(|row| {
        let none = || "-".to_owned();
        let (number, seq, block) = (row.number.to_string(), row.seq, row.block.to_string());
        // Samples that were chosen come from all over their table.
        let [grant, batch, block] = match row.kind {
            TableKind::Queue => [number, seq.to_string(), block],
            TableKind::Latest => [none(), format!("v{}", seq.0 + 1), block],
            TableKind::Replay => [number, none(), none()],
        };
        vec![
            row.table_name.clone(),
            format!("{}.{}", row.client, row.member),
            row.pid.to_string(),
            printable(&row.name),
            grant,
            batch,
            block,
            lease_state(row.state).to_owned(),
            row.for_ms.map_or_else(none, age),
        ]
    });
    let head = ["TABLE", "#READER", "#PID", "NAME", "#GRANT", "#BATCH", "#BLOCK", "STATE", "#FOR"];
    grid(&head, cells)
}

#[cfg(test)]
mod tests {
    use echo::ids::{BlockSeq, ClientId, GrantNumber, MemberId, TableId};
    use echo_client::message::LeaseState;

    use super::*;

    #[test]
    fn a_lease_is_a_line() {
        let row = |seq, state, for_ms| LeaseRow {
            table: TableId(1),
            table_name: "rollouts".into(),
            kind: TableKind::Queue,
            client: ClientId(2),
            member: MemberId(1),
            pid: 77,
            name: "trainer\n".into(),
            number: GrantNumber(seq + 1),
            seq: BlockSeq(seq),
            block: 0,
            state,
            for_ms,
        };
        let value = LeaseRow {
            kind: TableKind::Latest,
            number: GrantNumber(0),
            ..row(11, LeaseState::Complete, Some(1000))
        };
        let chosen = LeaseRow { kind: TableKind::Replay, ..row(12, LeaseState::Complete, Some(1000)) };
        assert_eq!(
            list(&[
                row(9, LeaseState::Complete, Some(2000)),
                row(10, LeaseState::Filling, None),
                value,
                chosen
            ]),
            "\
TABLE     READER  PID  NAME          GRANT  BATCH  BLOCK  STATE      FOR
rollouts     2.1   77  trainer\\u{a}     10      9      0  complete  2.0s
rollouts     2.1   77  trainer\\u{a}     11     10      0  filling      -
rollouts     2.1   77  trainer\\u{a}      -    v12      0  complete  1.0s
rollouts     2.1   77  trainer\\u{a}     13      -      -  complete  1.0s"
        );
    }
}
