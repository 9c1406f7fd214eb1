//! Tables whose memory is being given back.
//!
//! The kernel takes a third of a second a GiB for that, so it does not happen on the supervisor. Whoever makes a
//! table waits for what was dropped before: a budget is not used up by a table that its owner has dropped.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::table::Table;

/// How many there are, and who waits for their end.
#[derive(Clone, Default)]
pub struct Burials(Arc<(Mutex<usize>, Condvar)>);

impl Burials {
    /// Gives a table's memory back, elsewhere.
    pub fn bury(&self, table: Table) {
        *self.count() += 1;
        let burials = self.clone();
        let dig = move || {
            drop(table);
            *burials.count() -= 1;
            burials.0.1.notify_all();
        };
        // Not tokio's threads, which panic where there can be none. Then what cannot wait is dropped here, with the
        // closure: it takes longer.
        if std::thread::Builder::new().name("burial".into()).spawn(dig).is_err() {
            *self.count() -= 1;
            self.0.1.notify_all();
        }
    }

    /// Waits until all that was dropped before is given back. Blocks.
    pub fn wait(&self) {
        let mut count = self.count();
        while *count > 0 {
            count = self.0.1.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn count(&self) -> std::sync::MutexGuard<'_, usize> {
        // A number cannot be left half-changed.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
