//! Tables whose memory is being given back.
//!
//! The kernel takes a third of a second a GiB for that, so it does not happen on the supervisor. Whoever makes a
//! table that does not fit beside what is on its way out waits for that, and for nothing else.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::table::Table;

/// How many there are, and who waits for their end.
#[derive(Clone, Default)]
pub struct Burials(Arc<(Mutex<usize>, Condvar)>);

impl Burials {
    /// Gives a table's memory back, elsewhere.
    pub fn bury(&self, table: Table) {
        // Dropped in this order, and both whatever happens.
        let grave = Grave { _table: table, _burial: Burial::begin(self.clone()) };
        let dig = move || drop(grave);
        // Not tokio's threads, which panic where there can be none. Then what cannot wait is dropped here, with the
        // closure: it takes longer.
        let _ = std::thread::Builder::new().name("burial".into()).spawn(dig);
    }

    /// Waits until all that was dropped before is given back. Blocks. Whether there was anything.
    pub fn wait(&self) -> bool {
        let mut count = self.count();
        let any = *count > 0;
        while *count > 0 {
            count = self.0.1.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        any
    }

    fn count(&self) -> std::sync::MutexGuard<'_, usize> {
        // A number cannot be left half-changed.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is buried.
struct Grave {
    _table: Table,
    _burial: Burial,
}

/// One that is counted.
struct Burial(Burials);

impl Burial {
    fn begin(burials: Burials) -> Self {
        *burials.count() += 1;
        Self(burials)
    }
}

impl Drop for Burial {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.0.1.notify_all();
    }
}
