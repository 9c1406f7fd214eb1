//! How much of the daemon one client may use.

use std::time::Duration;

/// The limits in force.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Clients of one user.
    pub clients_per_uid: u32,
    /// Connections that have not said hello.
    pub pending: u32,
    /// Time to say hello.
    pub hello_timeout: Duration,
    /// Time for clients to finish when the daemon stops.
    pub drain_timeout: Duration,
    /// Threads that make a new table's pages resident.
    pub prefault_threads: u32,
    /// Tables in all.
    pub tables: usize,
    /// Tables of one user.
    pub tables_per_uid: usize,
    /// Writers and readers of one client.
    pub members_per_client: usize,
    /// The daemon's own user.
    pub own_uid: u32,
}
