//! What keeps a batch, or a value, from being given back.
//!
//! ```text
//! array ─▶ Hold ─▶ Viewing ─▶ Lease ─▶ Taken     a Hold for each tree of arrays, of which it is the base
//! DLPack ────────▶ Viewing                       until its consumer deletes it
//! Batch, Value ──────────────▶ Lease             until it is released
//! Pending ───────────────────▶ Lease             until its event has happened
//! ```
//!
//! The last of them that goes gives the block back. numpy keeps the base of an array for every view of the array, so a
//! slice, a reshape, or a tensor over it holds the lease as well.

use std::sync::{Arc, Mutex, PoisonError};

use echo::sync::{AtomicU32, Ordering};
use echo_client::{ArrayView, Batch, SampledBatch, Value};
use pyo3::prelude::*;

use crate::filling::WriterCell;

/// What a reader took out of a table, in the client's hands.
pub(crate) enum Taken {
    Batch(Batch),
    Value(Value),
    Sampled(SampledBatch),
}

impl Taken {
    /// Whether this process was forked from the one that took it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.is_elsewhere(),
            Self::Value(value) => value.is_elsewhere(),
            Self::Sampled(batch) => batch.is_elsewhere(),
        }
    }

    /// Whether its memory is page-locked for CUDA.
    pub(crate) fn is_pinned(&self) -> bool {
        match self {
            Self::Batch(batch) => batch.is_pinned(),
            Self::Value(value) => value.is_pinned(),
            Self::Sampled(batch) => batch.is_pinned(),
        }
    }

    /// Samples in it: the length of each array's first axis. None of a value, which has no such axis.
    pub(crate) fn samples(&self) -> Option<usize> {
        match self {
            Self::Batch(batch) => Some(batch.len()),
            Self::Sampled(batch) => Some(batch.len()),
            Self::Value(_) => None,
        }
    }

    /// One array.
    pub(crate) fn array(&self, array: usize) -> ArrayView<'_> {
        match self {
            Self::Batch(batch) => batch.array(array),
            Self::Value(value) => value.array(array),
            Self::Sampled(batch) => batch.array(array),
        }
    }

    /// What it is called.
    pub(crate) const fn noun(&self) -> &'static str {
        match self {
            Self::Batch(_) => "batch",
            Self::Sampled(_) => "sampled batch",
            Self::Value(_) => "value",
        }
    }

    /// Its number: a batch's in its table or of its sampler, a value's version.
    pub(crate) const fn number(&self) -> u64 {
        match self {
            Self::Batch(batch) => batch.seq(),
            Self::Value(value) => value.version(),
            Self::Sampled(batch) => batch.number(),
        }
    }
}

/// What was taken, and not given back.
pub(crate) struct Lease {
    pub(crate) taken: Taken,
    /// Trees of views that are alive.
    views: AtomicU32,
    /// Dropped after what was taken.
    _counted: Counted,
}

/// One of those that a reader has handed out.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        // release: whoever sees the lower number sees that it is back
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Lease {
    /// Of what was handed out just now.
    pub(crate) fn new(taken: Taken, held: &Arc<AtomicU32>) -> Arc<Self> {
        held.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { taken, views: AtomicU32::new(0), _counted: Counted(held.clone()) })
    }

    /// Trees of views that are alive.
    pub(crate) fn views(&self) -> u32 {
        // acquire: pairs with the release in `Viewing::drop`
        self.views.load(Ordering::Acquire)
    }
}

/// Something looks at it: a tree of arrays, of whatever framework.
pub(crate) struct Viewing(Arc<Lease>);

impl Viewing {
    pub(crate) fn new(lease: Arc<Lease>) -> Self {
        lease.views.fetch_add(1, Ordering::Relaxed);
        Self(lease)
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        // release: pairs with the acquire in `Lease::views`
        self.0.views.fetch_sub(1, Ordering::Release);
    }
}

/// The owner of the memory that an array shows. Nothing can be done with it.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct Hold {
    keeps: Keeps,
}

enum Keeps {
    Taken(Viewing),
    Writer(#[expect(dead_code, reason = "kept, so that its memory stays mapped")] Arc<WriterCell>),
}

impl Hold {
    pub(crate) fn of_lease(lease: Arc<Lease>) -> Self {
        Self { keeps: Keeps::Taken(Viewing::new(lease)) }
    }

    pub(crate) const fn of_writer(cell: Arc<WriterCell>) -> Self {
        Self { keeps: Keeps::Writer(cell) }
    }
}

#[pymethods]
impl Hold {
    fn __repr__(&self) -> String {
        match &self.keeps {
            Keeps::Taken(viewing) => {
                let taken = &viewing.lease().taken;
                format!("<memory of {} {}>", taken.noun(), taken.number())
            }
            Keeps::Writer(_) => "<memory of a claim>".into(),
        }
    }
}

/// Batches or values of one reader that are given back when their events have happened.
#[pyclass(frozen, module = "echod._native")]
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<PendingState>,
}

#[derive(Default)]
struct PendingState {
    waiting: Vec<(Py<PyAny>, Arc<Lease>)>,
    /// Whose events are being asked, by whatever thread: they wait as well.
    asked: usize,
}

impl PendingState {
    const fn len(&self) -> usize {
        self.waiting.len() + self.asked
    }
}

#[pymethods]
impl Pending {
    /// Asks every event that no other thread asks, and gives back the batches of those that have happened. How many are
    /// left.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<usize> {
        // Taken out, since events are Python code: no lock is held while it runs.
        let waiting = {
            let mut state = self.lock();
            state.asked += state.waiting.len();
            std::mem::take(&mut state.waiting)
        };
        let asked = waiting.len();
        let (mut left, mut first) = (Vec::new(), None);
        for (event, lease) in waiting {
            match event.bind(py).call_method0("query").and_then(|happened| happened.is_truthy()) {
                Ok(true) => drop(lease),
                Ok(false) => left.push((event, lease)),
                Err(error) => {
                    // Nobody knows whether it has happened, so the batch stays.
                    left.push((event, lease));
                    first.get_or_insert(error);
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
        self.lock().waiting.push((event, lease));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
