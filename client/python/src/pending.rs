//! What is given back once an event has happened, such as the end of a copy to a GPU.
//!
//! Events are Python code: they are asked without any lock of ours, by whoever waits for a batch and by a thread of
//! `echod._releaser`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::lease::Lease;

/// After so long an event is asked again whose question failed.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);

/// Batches or values of one reader that are given back when their events have happened.
#[pyclass(frozen, module = "echod._native")]
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    waiting: Vec<Awaited>,
    /// Whose events are being asked, by whatever thread: they wait as well.
    asked: usize,
}

/// An event, and what goes back once it has happened.
struct Awaited {
    event: Py<PyAny>,
    _lease: Arc<Lease>,
    /// Its question failed, and somebody was told: not again, until it has been answered.
    is_told: bool,
    /// Since its question failed it is asked more rarely.
    not_before: Option<Instant>,
}

impl PendingState {
    const fn len(&self) -> usize {
        self.waiting.len() + self.asked
    }
}

#[pymethods]
impl Pending {
    /// Asks every event that no other thread asks, and gives back what waited for those that have happened. How many are
    /// left.
    ///
    /// If a question fails nobody knows whether the event has happened, so what waits for it stays and it is asked again, a while
    /// later. The failure is raised, once: for one who looks on behalf of nobody (`quietly`) it is left to the next.
    #[pyo3(signature = (quietly=false))]
    pub(crate) fn poll(&self, py: Python<'_>, quietly: bool) -> PyResult<usize> {
        // Taken out, since events are Python code: no lock is held while it runs.
        let waiting = {
            let mut state = self.lock();
            state.asked += state.waiting.len();
            std::mem::take(&mut state.waiting)
        };
        let asked = waiting.len();
        let (mut left, mut first) = (Vec::new(), None);
        let now = Instant::now();
        for mut awaited in waiting {
            let is_owed = !quietly && !awaited.is_told;
            if awaited.not_before.is_some_and(|at| now < at) && !is_owed {
                left.push(awaited);
                continue;
            }
            match awaited.event.bind(py).call_method0("query").and_then(|happened| happened.is_truthy()) {
                Ok(true) => drop(awaited),
                Ok(false) => {
                    (awaited.is_told, awaited.not_before) = (false, None);
                    left.push(awaited);
                }
                // No failure of the event, but somebody's wish that this ends.
                Err(error) if !error.is_instance_of::<PyException>(py) => {
                    left.push(awaited);
                    first.get_or_insert(error);
                }
                Err(error) => {
                    awaited.not_before = Some(now + AFTER_A_FAILURE);
                    if is_owed && first.is_none() {
                        awaited.is_told = true;
                        first = Some(error);
                    }
                    left.push(awaited);
                }
            }
        }
        let mut state = self.lock();
        state.asked -= asked;
        state.waiting.append(&mut left);
        match first {
            Some(error) => Err(error),
            None => Ok(state.len()),
        }
    }

    #[pyo3(name = "__len__")]
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }
}

impl Pending {
    pub(crate) fn add(&self, event: Py<PyAny>, lease: Arc<Lease>) {
        self.lock().waiting.push(Awaited { event, _lease: lease, is_told: false, not_before: None });
    }

    /// Whether some event may happen that gives something back. One whose question fails may not.
    pub(crate) fn is_hopeful(&self) -> bool {
        let state = self.lock();
        state.asked > 0 || state.waiting.iter().any(|awaited| !awaited.is_told)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
