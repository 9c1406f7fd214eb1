//! How the daemon is.

use std::path::Path;

use echo_client::message::Status;

use super::printable::printable;
use super::quantity::{age, bytes};

pub(super) fn show(socket: &Path, status: &Status) -> String {
    let Status { build, state, pid, uptime_ms, tables, clients, .. } = status;
    format!(
        "echod {} (pid {pid}) is {} at {}, for {}\n\
         \x20 memory    {} of {} committed\n\
         \x20 tables    {tables}\n\
         \x20 clients   {clients}\n\
         \x20 versions  protocol {} to {}, layout {}",
        printable(build),
        printable(state),
        printable(&socket.to_string_lossy()),
        age(*uptime_ms),
        bytes(status.host_used),
        bytes(status.host_budget),
        status.protocol_min,
        status.protocol_max,
        status.layout,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_five_lines() {
        let status = Status {
            protocol_min: 1,
            protocol_max: 2,
            layout: 1,
            build: "0.1.0".into(),
            pid: 77,
            uptime_ms: 125_000,
            state: "serving".into(),
            tables: 1,
            clients: 3,
            host_budget: 8 << 30,
            host_used: 1_572_864,
        };
        assert_eq!(
            show(Path::new("/run/echo/echod.sock"), &status),
            "\
echod 0.1.0 (pid 77) is serving at /run/echo/echod.sock, for 2m 5s
  memory    1.5 MiB of 8.0 GiB committed
  tables    1
  clients   3
  versions  protocol 1 to 2, layout 1"
        );
    }
}
