//! The trainer's side: batches out.
//!
//! A batch that is complete is taken without letting go of the interpreter's lock; waits are made of slices. A batch that
//! nobody got after all, because its call was cancelled meanwhile, is put back for the next call: it was granted to this
//! reader, and dropping it would lose its samples.
//!
//! A reader whose every batch is held by this program can get no other: the wait then ends in an error (`all_held`).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use echo::memory::fork::Birthplace;
use echo_client::message::{EndReason, MAX_PREFETCH};
use echo_client::{Canceller, Error, Pinned, Reader as Inner, ReaderOptions};
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;

use crate::all_held::AllHeld;
use crate::batch::Batch;
use crate::connection::{Client, Described};
use crate::failure;
use crate::filling::derived;
use crate::late::Late;
use crate::leaf::Leaves;
use crate::lease::{Held, Lease, Taken};
use crate::pending::Pending;
use crate::pinning::pin;
use crate::shown::Shown;
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, duration, look};

/// What a reader can do who got nothing in time.
const ADVICE: &str = "no writer has filled one, or this reader holds what it may have; table.info()[\"writers\"] says how \
                      many writers there are (none, if all have crashed), and table.why() who waits for whom";

/// Longest time without a look where something in this process may end the wait.
const SHORT: Duration = Duration::from_millis(1);

/// The right to read batches out of a table. Each batch goes to one reader.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Reader {
    /// Looked at before anything else: in a child, a thread of the parent's may hold a lock for ever.
    birthplace: Birthplace,
    reader: Inner,
    canceller: Canceller,
    leaves: Arc<Leaves>,
    structure: Py<Structure>,
    table: Arc<str>,
    /// Batches that were handed out and not given back.
    held: Arc<Held>,
    depth: u32,
    pending: Py<Pending>,
    /// Batches that nobody got, and that cannot be put back, since they were copied.
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
            reader,
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
            self.pending.get().poll(py, false)?;
        }
        if let Some(kept) = self.kept() {
            return Ok(Some(kept));
        }
        match self.reader.try_next_batch_shared() {
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
            let is_pending = self.pending.get().is_hopeful();
            let (given_back, is_all_held) =
                (self.held.given_back(), !is_pending && self.held.now() >= self.depth);
            let longest = if is_pending || is_all_held { SHORT } else { SLICE };
            let slice = patience.slice(longest);
            let got = py.detach(|| {
                let batch = self.reader.next_batch_shared(slice.unwrap_or_default())?;
                Ok(self.lease(batch))
            });
            match got {
                Ok(lease) => return self.batch(py, lease),
                Err(Error::TimedOut { what, .. }) if slice.is_none() => {
                    let whole = format!("{what} of table {:?}", self.table);
                    return Err(Late::new(what, &whole, patience.given(), ADVICE).raise(py));
                }
                Err(Error::TimedOut { .. } | Error::Cancelled) => {}
                Err(error) => return Err(failure::of(py, error)),
            }
            if is_pending {
                self.pending.get().poll(py, false)?;
            }
            match &mut all_held {
                _ if !is_all_held => all_held = None,
                Some(all_held) if all_held.is_as_before(given_back) => self.bear(py, all_held)?,
                // For the first time, or anew: a thread was given what came back, and it was not this one.
                _ => all_held = Some(AllHeld::now(given_back)),
            }
            // One that another call did not want.
            if let Some(kept) = self.kept() {
                return Ok(kept);
            }
        }
    }

    fn kept(&self) -> Option<Py<Batch>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// How long everything may be held.
    fn bear(&self, py: Python<'_>, all_held: &mut AllHeld) -> PyResult<()> {
        let is_over = all_held.is_over(py, self.patience, false)?;
        // What the garbage collector found is on its way back.
        let held = self.held.now();
        if !is_over || held < self.depth {
            return Ok(());
        }
        let advice = match self.depth {
            _ if !self.pending.get().is_empty() => "some of them wait for events whose query() fails",
            1 => {
                "a loop holds its batch while it asks for the next one, which wants a prefetch of 2; or release() it first"
            }
            _ => {
                "release() or delete batches and the arrays over them, use copy=True, or ask for a larger prefetch"
            }
        };
        let message = format!(
            "no batch of table {:?} can come: this program holds all {held} that the reader can have (prefetch), and has \
             given none back for {:.1} s; {advice}",
            self.table,
            all_held.elapsed().as_secs_f64(),
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
    #[pyo3(signature = (client, table, structure, prefetch, registrable, poll, copy, patience, arrays=None, batch_size=None, group=None))]
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
        group: Option<String>,
    ) -> PyResult<Self> {
        let poll = duration(Some(poll))?.unwrap_or(Duration::MAX);
        let valid = u16::try_from(prefetch).ok().filter(|prefetch| (1..=MAX_PREFETCH).contains(prefetch));
        let prefetch = valid.ok_or_else(|| {
            PyValueError::new_err(format!("prefetch is {prefetch}, it must be 1 to {MAX_PREFETCH}"))
        })?;
        let options = ReaderOptions { prefetch, poll, registrable };
        client.get().reader(py, table, structure, options, copy, patience, arrays, batch_size, group)
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
        if batch.get().put_back() {
            return;
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push_back(batch);
        // Another call may want it.
        self.canceller.cancel();
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.canceller.cancel();
    }

    /// Page-locks the samples with CUDA.
    fn _pin(&self, py: Python<'_>, library: Option<PathBuf>, vendor_roots: Vec<PathBuf>) -> PyResult<()> {
        let pinned = pin(py, library, vendor_roots, |options| self.reader.pin_host_memory(options))?;
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
        self.held.now()
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
