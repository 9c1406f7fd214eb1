//! Clients, and what they have registered with CUDA.

use echo_client::message::ClientRow;

use super::grid;
use super::printable::printable;
use super::quantity::{age, pinned};

pub(super) fn list(rows: &[ClientRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.client.to_string(),
            row.pid.to_string(),
            row.uid.to_string(),
            printable(&row.name),
            row.writers.to_string(),
            row.readers.to_string(),
            row.grants.to_string(),
            pinned(row.pinned_bytes),
            age(row.age_ms),
            printable(&row.state),
            libraries(row),
        ]
    });
    let head = [
        "#CLIENT",
        "#PID",
        "#UID",
        "NAME",
        "#WRITERS",
        "#READERS",
        "#GRANTS",
        "#PINNED",
        "#SINCE",
        "STATE",
        "PINNED THROUGH",
    ];
    grid(&head, cells)
}

/// Each library once, as its readers name it.
fn libraries(row: &ClientRow) -> String {
    let mut named: Vec<String> = Vec::new();
    for report in row.pins.iter().map(|pin| &pin.report) {
        let library = printable(&report.library) + if report.read_only { " (mapped read-only)" } else { "" };
        if !named.contains(&library) {
            named.push(library);
        }
    }
    if row.pins_left_out > 0 {
        named.push(format!("and what {} more readers say", row.pins_left_out));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use echo::ids::{ClientId, MemberId};
    use echo_client::message::{PinReport, PinRow};

    use super::*;

    #[test]
    fn a_client_is_a_line_with_what_it_has_pinned() {
        let pin = |member, library: &str, read_only| PinRow {
            member: MemberId(member),
            report: PinReport { bytes: 1 << 20, registrations: 1, library: library.into(), read_only },
        };
        let row = |id, pins: Vec<PinRow>, pins_left_out| ClientRow {
            client: ClientId(id),
            pid: 77,
            uid: 1000,
            name: "trainer".into(),
            build: "0.1.0".into(),
            state: "connected".into(),
            age_ms: 2000,
            writers: 0,
            readers: pins.len() as u32 + pins_left_out,
            grants: 2,
            requests: 1,
            events: 1,
            pinned_bytes: pins.iter().map(|pin| pin.report.bytes).sum(),
            pins,
            pins_left_out,
        };
        let pins = vec![pin(1, "lib\x1b[2J", false), pin(2, "lib\x1b[2J", false), pin(3, "lib", true)];
        assert_eq!(
            list(&[row(1, vec![], 0), row(2, pins, 2)]),
            "\
CLIENT  PID   UID  NAME     WRITERS  READERS  GRANTS   PINNED  SINCE  STATE      PINNED THROUGH
     1   77  1000  trainer        0        0       2        -   2.0s  connected
     2   77  1000  trainer        0        5       2  3.0 MiB   2.0s  connected  lib\\u{1b}[2J, lib (mapped read-only), and what 2 more readers say"
        );
    }
}
