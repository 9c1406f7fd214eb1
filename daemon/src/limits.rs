//! How much of the daemon one client, and all of one user's together, may use.

use std::time::Duration;

/// Requests of one user that wait for the supervisor at a time: what the others may have to wait for.
pub const REQUESTS: usize = 8;
/// And of one connection, so that the next one of the same user has its turn.
pub const OWN_REQUESTS: usize = 4;
/// One part in so many of the supervisor's time is what the calls of one user may take for long.
pub const PART: u32 = 4;

/// The limits in force.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Clients of one user.
    pub clients_per_uid: u32,
    /// Connections of one user that have not said hello.
    pub pending_per_uid: u32,
    /// Calls a second of one user, once it has made as many at once.
    pub calls_per_uid: u32,
    /// Batches that may be granted ahead to the readers of one user: the sum of their prefetch depths.
    pub leases_per_uid: u32,
    /// Tables of one user.
    pub tables_per_uid: u32,
    /// Tables in all.
    pub tables: u32,
    /// Writers and readers of one client.
    pub members_per_client: u32,
    /// Time to say hello.
    pub hello_timeout: Duration,
    /// Time for clients to finish when the daemon stops.
    pub drain_timeout: Duration,
    /// Threads that make a new table's pages resident.
    pub prefault_threads: u32,
    /// The daemon's own user.
    pub own_uid: u32,
}
