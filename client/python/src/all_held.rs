//! A program that holds all that its reader can have, and asks for more, waits for itself.
//!
//! Another thread may be about to give something back, so that is borne for a while, in which nothing came back. Where there is
//! no other thread, for less.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long everything is held before the garbage collector is asked.
const COLLECT: Duration = Duration::from_millis(100);

/// How long everything is held where no other thread of Python's could give something back.
const ALONE: Duration = Duration::from_secs(1);

/// Since when this program holds all that the reader can have.
pub(crate) struct AllHeld {
    since: Instant,
    /// Nothing came back meanwhile if it is still this.
    given_back: u32,
    is_collected: bool,
}

impl AllHeld {
    /// From now on, where that was `Held::given_back` before it was found out.
    pub(crate) fn now(given_back: u32) -> Self {
        Self { since: Instant::now(), given_back, is_collected: false }
    }

    /// Whether nothing has come back.
    pub(crate) fn is_as_before(&self, given_back: u32) -> bool {
        self.given_back == given_back
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether it was borne for long enough. Has the garbage collector look in time, or at once for one `is_late`.
    pub(crate) fn is_over(
        &mut self,
        py: Python<'_>,
        patience: Option<Duration>,
        is_late: bool,
    ) -> PyResult<bool> {
        let elapsed = self.elapsed();
        let is_over = match patience {
            None => false,
            Some(patience) if elapsed >= patience => true,
            Some(_) if elapsed < ALONE => false,
            Some(_) => 1 == py.import("threading")?.call_method0("active_count")?.extract::<usize>()?,
        };
        if !self.is_collected && (is_over || is_late || elapsed >= COLLECT) {
            // Batches in cycles (an exception's traceback, say) are nobody's, and nobody else may look for them.
            self.is_collected = true;
            py.import("gc")?.call_method0("collect")?;
        }
        Ok(is_over)
    }
}
