//! Tables whose memory is being given back.
//!
//! The kernel takes a third of a second a GiB for that, so it does not happen on the supervisor. Whoever makes a
//! table that does not fit beside what is on its way out waits for that, and for nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::table::Table;

/// Which there are, and who waits for their end.
#[derive(Clone, Default)]
pub struct Burials(Arc<(Mutex<Numbers>, Condvar)>);

/// Burials by number.
#[derive(Default)]
struct Numbers {
    last: u64,
    going_on: BTreeSet<u64>,
}

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

    /// Waits until all that was dropped before this is given back, and for nothing that is dropped meanwhile. Blocks.
    /// Whether there was anything.
    pub fn wait(&self) -> bool {
        let last = self.numbers().last;
        self.wait_for(last)
    }

    /// Waits for all up to that number.
    fn wait_for(&self, last: u64) -> bool {
        let goes_on = |numbers: &Numbers| numbers.going_on.first().is_some_and(|&first| first <= last);
        let mut numbers = self.numbers();
        let any = goes_on(&numbers);
        while goes_on(&numbers) {
            numbers = self.0.1.wait(numbers).unwrap_or_else(PoisonError::into_inner);
        }
        any
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, Numbers> {
        // A set of numbers cannot be left half-changed.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is buried.
struct Grave {
    _table: Table,
    _burial: Burial,
}

/// One that goes on until this is dropped.
struct Burial {
    burials: Burials,
    number: u64,
}

impl Burial {
    fn begin(burials: Burials) -> Self {
        let mut numbers = burials.numbers();
        numbers.last += 1;
        let number = numbers.last;
        numbers.going_on.insert(number);
        drop(numbers);
        Self { burials, number }
    }
}

impl Drop for Burial {
    fn drop(&mut self) {
        self.burials.numbers().going_on.remove(&self.number);
        self.burials.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_for_what_was_before_and_not_for_what_comes() {
        let burials = Burials::default();
        assert!(!burials.wait());
        let before = Burial::begin(burials.clone());
        let waiting = std::thread::spawn({
            let burials = burials.clone();
            move || burials.wait_for(1)
        });
        let _later = Burial::begin(burials.clone());
        drop(before);
        // Whether it came in time to find the first or not, the second is nothing to it.
        waiting.join().unwrap();
        assert!(!burials.wait_for(1));
    }
}
