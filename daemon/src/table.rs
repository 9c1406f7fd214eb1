//! One table, and what the daemon knows about it beyond its samples.

use std::time::Duration;

use echo::access::AccessList;
use echo::table::store::Store;
use echo::table::turn::Turn;
use echo::table::why::Watch;
use tracing::warn;

/// A table.
pub struct Table {
    /// Its samples and their memory.
    pub store: Store,
    /// Its owner: the user that it is accounted to, who may do everything with it.
    pub uid: u32,
    /// What others may do.
    pub access: AccessList,
    /// Its name is free again; it stays until nobody has it mapped.
    pub dropped: bool,
    /// Which of its readers registers its memory with CUDA now.
    pub turn: Turn,
    /// Since when what is waiting waits.
    pub watch: Watch,
}

impl Table {
    /// A new table.
    pub fn new(store: Store, uid: u32, access: AccessList) -> Self {
        Self { store, uid, access, dropped: false, turn: Turn::default(), watch: Watch::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.store.spec().name
    }

    /// Says in the log if it is poisoned, and was not.
    pub fn warn_of_poison(&self, was_poisoned: bool) {
        if !was_poisoned && let Some(poison) = self.store.machine().intake().poison() {
            warn!(table = self.name(), %poison, "table is poisoned");
        }
    }

    /// Looks at who waits.
    pub fn observe(&mut self, now: Duration) {
        self.watch.observe(self.store.machine(), now);
    }
}
