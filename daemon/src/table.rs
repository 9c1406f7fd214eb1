//! One table, and what the daemon knows about it beyond its samples.

use std::time::Duration;

use echo::table::store::Store;
use echo::table::why::Watch;

/// A table.
pub struct Table {
    /// Its samples and their memory.
    pub store: Store,
    /// The user that it is accounted to, and who may use it.
    pub uid: u32,
    /// The configuration declares it: everybody who may connect may use it.
    pub public: bool,
    /// Its name is free again; it stays until nobody has it mapped.
    pub dropped: bool,
    /// Since when what is waiting waits.
    pub watch: Watch,
}

impl Table {
    /// A new table.
    pub fn new(store: Store, uid: u32, public: bool) -> Self {
        Self { store, uid, public, dropped: false, watch: Watch::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.store.spec().name
    }

    /// Looks at who waits.
    pub fn observe(&mut self, now: Duration) {
        self.watch.observe(self.store.queue(), now);
    }
}
