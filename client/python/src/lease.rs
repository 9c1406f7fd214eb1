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

use std::sync::Arc;

use echo::sync::{AtomicU32, Ordering};
use echo_client::{ArrayView, Batch, SampledBatch, Value};
use pyo3::prelude::*;

use crate::cell::WriterCell;

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

/// How many a reader has handed out.
#[derive(Default)]
pub(crate) struct Held {
    now: AtomicU32,
    given_back: AtomicU32,
}

impl Held {
    /// How many are not back.
    pub(crate) fn now(&self) -> u32 {
        // acquire: pairs with the release in `Counted::drop`: what is not held any more is on its way back
        self.now.load(Ordering::Acquire)
    }

    /// Another number whenever one came back.
    pub(crate) fn given_back(&self) -> u32 {
        // Relaxed: who waits looks again and again, and nothing else hangs on it.
        self.given_back.load(Ordering::Relaxed)
    }
}

/// One of those that a reader has handed out.
struct Counted(Arc<Held>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.given_back.fetch_add(1, Ordering::Relaxed);
        // release: pairs with the acquire in `Held::now`
        self.0.now.fetch_sub(1, Ordering::Release);
    }
}

impl Lease {
    /// Of what was handed out just now.
    pub(crate) fn new(taken: Taken, held: &Arc<Held>) -> Arc<Self> {
        held.now.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { taken, views: AtomicU32::new(0), _counted: Counted(held.clone()) })
    }

    /// Gives a batch to nobody, so that its reader has it once more. False if what was taken goes to one only.
    pub(crate) fn put_back(self) -> bool {
        match self.taken {
            Taken::Batch(batch) => {
                batch.put_back();
                true
            }
            Taken::Value(_) | Taken::Sampled(_) => false,
        }
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
