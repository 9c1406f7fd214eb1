//! The trainer's side: batches out.
//!
//! A batch that is complete is taken without letting go of the interpreter's lock; waits are made of slices. A batch that
//! nobody got after all, because its call was cancelled meanwhile, is kept for the next call: it was granted to this
//! reader, and dropping it would lose its samples.
//!
//! A reader whose every batch is held by this program can get no other. The wait then ends in an error, after some
//! patience: another thread may be about to give one back.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use echo::memory::fork::Birthplace;
use echo::sync::{AtomicU32, Ordering};
use echo_client::message::{EndReason, MAX_PREFETCH};
use echo_client::{Canceller, Error, Pinned, Reader as Inner, ReaderOptions};
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;

use crate::batch::Batch;
use crate::connection::{Client, Described};
use crate::failure;
use crate::filling::derived;
use crate::leaf::Leaves;
use crate::lease::{Lease, Pending, Taken};
use crate::pinning::pin;
use crate::shown::Shown;
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, duration, look};

/// Longest time without a look where something in this process may end the wait.
const SHORT: Duration = Duration::from_millis(1);

/// How long everything is held before the garbage collector is asked.
const COLLECT: Duration = Duration::from_millis(100);

/// This program holds all that the reader can have.
struct AllHeld {
    since: Instant,
    /// The garbage collector was asked.
    is_collected: bool,
}

/// The right to read batches out of a table. Each batch goes to one reader.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Reader {
    /// Looked at before any lock: in a child, a thread of the parent's may hold it for ever.
    birthplace: Birthplace,
    reader: Mutex<Inner>,
    canceller: Canceller,
    leaves: Arc<Leaves>,
    structure: Py<Structure>,
    table: Arc<str>,
    /// Batches that were handed out and not given back.
    held: Arc<AtomicU32>,
    depth: u32,
    pending: Py<Pending>,
    /// Batches that nobody got.
    kept: Mutex<VecDeque<Py<Batch>>>,
    copy: bool,
    /// How long it waits while this program holds everything.
    patience: Option<Duration>,
    pinned: Mutex<Option<Pinned>>,
}

impl Reader {
    pub(crate) fn new(
        py: Python<'_>,
        reader: Inner,
        structure: Option<Py<Structure>>,
        copy: bool,
        patience: Option<f64>,
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, reader.spec())?);
        let structure = structure.map_or_else(|| derived(py, &leaves), Ok)?;
        Ok(Self {
            birthplace: Birthplace::here(),
            canceller: reader.canceller(),
            table: reader.spec().name.as_str().into(),
            depth: reader.depth(),
            reader: Mutex::new(reader),
            leaves,
            structure,
            held: Arc::default(),
            pending: Py::new(py, Pending::default())?,
            kept: Mutex::default(),
            copy,
            patience: duration(patience)?,
            pinned: Mutex::default(),
        })
    }

    /// The client's reader. Nobody runs Python code or waits for the interpreter while holding it.
    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        match self.birthplace.is_elsewhere() {
            true => Err(Error::Forked),
            false => Ok(self.reader.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn lease(&self, batch: echo_client::Batch) -> Arc<Lease> {
        Lease::new(Taken::Batch(batch), &self.held)
    }

    fn batch(&self, py: Python<'_>, lease: Arc<Lease>) -> PyResult<Py<Batch>> {
        let (structure, pending) = (self.structure.clone_ref(py), self.pending.clone_ref(py));
        let shown = Shown::new(lease, self.leaves.clone(), structure, pending, self.table.clone());
        Py::new(py, Batch::new(if self.copy { shown.into_copy(py)? } else { shown }))
    }

    /// A batch that is there now.
    #[inline]
    fn at_once(&self, py: Python<'_>) -> PyResult<Option<Py<Batch>>> {
        if self.birthplace.is_elsewhere() {
            return Err(failure::forked(py));
        }
        if !self.pending.get().is_empty() {
            self.pending.get().poll(py)?;
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if let Some(kept) = kept {
            return Ok(Some(kept));
        }
        // Who holds it waits without the interpreter's lock, and will find the batch.
        let found = match self.reader.try_lock() {
            Ok(mut reader) => reader.try_next_batch(),
            Err(_) => return Ok(None),
        };
        match found {
            Ok(Some(batch)) => self.batch(py, self.lease(batch)).map(Some),
            // Somebody cancels, but who says so by the token: it is looked at.
            Ok(None) | Err(Error::Cancelled) => Ok(None),
            Err(error) => Err(failure::of(py, error)),
        }
    }

    #[cold]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>, token: Option<&Token>) -> PyResult<Py<Batch>> {
        let patience = Patience::new(timeout)?;
        let mut all_held: Option<AllHeld> = None;
        loop {
            look(py, token)?;
            let is_pending = !self.pending.get().is_empty();
            // acquire: pairs with the release in `lease`: what is not held any more is on its way back
            let is_all_held = !is_pending && self.held.load(Ordering::Acquire) >= self.depth;
            let longest = if is_pending || is_all_held { SHORT } else { SLICE };
            let slice = patience.slice(longest);
            let got = py.detach(|| {
                let batch = self.lock()?.next_batch(slice.unwrap_or_default())?;
                Ok(self.lease(batch))
            });
            match got {
                Ok(lease) => return self.batch(py, lease),
                Err(Error::TimedOut { what, .. }) if slice.is_none() => {
                    return Err(failure::of(py, Error::TimedOut { what, after: patience.total() }));
                }
                Err(Error::TimedOut { .. } | Error::Cancelled) => {}
                Err(error) => return Err(failure::of(py, error)),
            }
            if is_pending {
                self.pending.get().poll(py)?;
            }
            match &mut all_held {
                _ if !is_all_held => all_held = None,
                None => all_held = Some(AllHeld { since: Instant::now(), is_collected: false }),
                Some(all_held) => self.bear(py, all_held, patience)?,
            }
            // One that another call did not want.
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(kept) = kept {
                return Ok(kept);
            }
        }
    }

    /// How long everything may be held.
    fn bear(&self, py: Python<'_>, all_held: &mut AllHeld, patience: Patience) -> PyResult<()> {
        let elapsed = all_held.since.elapsed();
        let is_over = self.patience.is_some_and(|most| elapsed >= most);
        if !all_held.is_collected && (is_over || elapsed >= COLLECT) {
            // Batches in cycles (an exception's traceback, say) are nobody's, and nobody else may look for them.
            all_held.is_collected = true;
            py.import("gc")?.call_method0("collect")?;
        }
        let held = self.held.load(Ordering::Acquire);
        if !is_over || held < self.depth {
            return Ok(());
        }
        let message = format!(
            "no batch of table {:?} can come: this program holds all {held} that the reader can have (prefetch), and has \
             given none back for {:.1} s; release() or delete batches and the arrays over them, use copy=True, or ask \
             for a larger prefetch",
            self.table,
            patience.elapsed().as_secs_f64(),
        );
        let number = |n: u32| n.into_pyobject(py).map(Bound::into_any);
        Err(failure::raise(
            py,
            "AllHeldError",
            &message,
            &[("held", number(held)?), ("prefetch", number(self.depth)?)],
        ))
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what a reader is; named in Python")]
    #[pyo3(signature = (client, table, structure, prefetch, registrable, poll, copy, patience, arrays=None, batch_size=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        prefetch: i64,
        registrable: bool,
        poll: f64,
        copy: bool,
        patience: Option<f64>,
        arrays: Option<Vec<Described>>,
        batch_size: Option<u32>,
    ) -> PyResult<Self> {
        let poll = duration(Some(poll))?.unwrap_or(Duration::MAX);
        let valid = u16::try_from(prefetch).ok().filter(|prefetch| (1..=MAX_PREFETCH).contains(prefetch));
        let prefetch = valid.ok_or_else(|| {
            PyValueError::new_err(format!("prefetch is {prefetch}, it must be 1 to {MAX_PREFETCH}"))
        })?;
        let options = ReaderOptions { prefetch, poll, registrable };
        client.get().reader(py, table, structure, options, copy, patience, arrays, batch_size)
    }

    /// The next batch. Waits for it, for ever unless `timeout` says how many seconds.
    ///
    /// Raises `ClosedError` when the table has ended and everything is read, `TimeoutError`, `GoneError` when the daemon
    /// is gone, and `AllHeldError` when this program holds every batch that the reader can have.
    #[pyo3(signature = (timeout=None, *, _token=None))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<Py<Batch>> {
        match self.at_once(py)? {
            Some(batch) => Ok(batch),
            None => self.wait(py, timeout, _token.map(Bound::get)),
        }
    }

    /// The next batch if it is complete now, else None.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<Batch>>> {
        self.at_once(py)
    }

    const fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// As `next()`; ends when all writers have finished and everything is read.
    fn __next__(&self, py: Python<'_>) -> PyResult<Py<Batch>> {
        self.next(py, None, None).map_err(|error| {
            let reason = error.value(py).getattr("reason").and_then(|reason| reason.extract::<String>());
            match reason {
                Ok(reason) if is_closed(py, &error) && reason == failure::end(EndReason::Finished) => {
                    PyStopIteration::new_err(())
                }
                _ => error,
            }
        })
    }

    /// Takes a batch back that nobody got.
    fn _keep(&self, batch: Py<Batch>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push_back(batch);
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.canceller.cancel();
    }

    /// Page-locks the samples with CUDA: `(bytes, library, pieces)`. Called before anybody has the reader, since signal
    /// handlers may run while it is locked.
    fn _pin(&self, py: Python<'_>, library: Option<PathBuf>, vendor_roots: Vec<PathBuf>) -> PyResult<()> {
        let pinned = pin(py, library, vendor_roots, |options| self.lock()?.pin_host_memory(options))?;
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).replace(pinned);
        Ok(())
    }

    /// How many of the batches that it holds wait for events.
    fn _pending(&self) -> usize {
        self.pending.get().len()
    }

    /// What is page-locked, as (bytes, library, pieces).
    fn _pinned(&self) -> Option<(u64, String, usize)> {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.as_ref().map(|pinned| (pinned.bytes, pinned.library.clone(), pinned.pieces))
    }

    /// Batches that were handed out and not given back yet.
    #[getter]
    fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// How many batches it can have at a time: the prefetch depth, or what the table has if that is less.
    #[getter]
    const fn prefetch(&self) -> u32 {
        self.depth
    }

    /// The name of the table that it reads.
    #[getter]
    fn table_name(&self) -> &str {
        &self.table
    }
}

fn is_closed(py: Python<'_>, error: &PyErr) -> bool {
    let class = py.import("echod._errors").and_then(|module| module.getattr("ClosedError"));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}
