//! The trainer's side of a replay table: batches of samples that were chosen for it.
//!
//! What is asked for ahead, and who copies, is the client's: a call here takes what is ready, or waits for it without the
//! interpreter's lock, in slices. A slice that ends asks for nothing less; only when the caller's time is over is the
//! oldest request cut, and answered with what there is.
//!
//! A batch that nobody got after all, because its call was cancelled meanwhile, is kept for the next call. If this program
//! holds every batch, no other can come: the wait then ends in an error, after some patience, since another thread may be
//! about to let one go.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use echo_client::message::MAX_PREFETCH;
use echo_client::{Canceller, Counted, Error, Pinned, Sampler as Inner, SamplerOptions};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::all_held::AllHeld;
use crate::connection::{Client, Described};
use crate::failure;
use crate::filling::derived;
use crate::late::{Late, Whose, seconds};
use crate::leaf::Leaves;
use crate::lease::{Held, Lease, Taken};
use crate::marks::version_of;
use crate::pending::Pending;
use crate::pinning::pin;
use crate::sampled::SampledBatch;
use crate::shown::Shown;
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, ask, duration, look};

/// Longest time without a look where something in this process may end the wait.
const SHORT: Duration = Duration::from_millis(1);
/// Most threads that gather: more of them are a slip.
const MAX_THREADS: i64 = 256;

/// The right to sample a replay table. Threads may share it.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Sampler {
    sampler: Arc<Inner>,
    canceller: Canceller,
    leaves: Arc<Leaves>,
    structure: Py<Structure>,
    table: Arc<str>,
    /// Batches that were handed out and not given back.
    held: Arc<Held>,
    pending: Py<Pending>,
    /// Batches that nobody got.
    kept: Mutex<VecDeque<Py<SampledBatch>>>,
    copy: bool,
    /// How long it waits while this program holds everything.
    patience: Option<Duration>,
    /// How long an answer may take.
    timeout: Duration,
    pinned: Mutex<Option<Pinned>>,
}

impl Sampler {
    pub(crate) fn new(
        py: Python<'_>,
        sampler: Inner,
        structure: Option<Py<Structure>>,
        copy: bool,
        patience: Option<f64>,
        timeout: Duration,
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, sampler.spec())?);
        let structure = structure.map_or_else(|| derived(py, &leaves), Ok)?;
        Ok(Self {
            canceller: sampler.canceller(),
            table: sampler.spec().name.as_str().into(),
            sampler: Arc::new(sampler),
            leaves,
            structure,
            held: Arc::default(),
            pending: Py::new(py, Pending::default())?,
            kept: Mutex::default(),
            copy,
            patience: duration(patience)?,
            timeout,
            pinned: Mutex::default(),
        })
    }

    fn lease(&self, batch: echo_client::SampledBatch) -> Arc<Lease> {
        Lease::new(Taken::Sampled(batch), &self.held)
    }

    fn batch(&self, py: Python<'_>, batch: echo_client::SampledBatch) -> PyResult<Py<SampledBatch>> {
        let chosen = batch.chosen();
        let (structure, pending) = (self.structure.clone_ref(py), self.pending.clone_ref(py));
        let lease = self.lease(batch);
        let shown = Shown::new(lease, self.leaves.clone(), structure, pending, self.table.clone());
        Py::new(py, SampledBatch::new(if self.copy { shown.into_copy(py)? } else { shown }, chosen))
    }

    fn kept(&self) -> Option<Py<SampledBatch>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// A batch that is there now; else it is asked for.
    fn at_once(&self, py: Python<'_>) -> PyResult<Option<Py<SampledBatch>>> {
        if self.sampler.is_elsewhere() {
            return Err(failure::forked(py));
        }
        if !self.pending.get().is_empty() {
            self.pending.get().poll(py, false)?;
        }
        if let Some(kept) = self.kept() {
            return Ok(Some(kept));
        }
        match py.detach(|| self.sampler.try_next_batch()) {
            Ok(Some(batch)) => self.batch(py, batch).map(Some),
            // Somebody cancels, or has cut what several wait for; and what holds everything may be nobody's.
            Ok(None) | Err(Error::Cancelled | Error::NoSamples { .. } | Error::AllHeld { .. }) => Ok(None),
            Err(error) => Err(failure::of(py, error)),
        }
    }

    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<Py<SampledBatch>> {
        let patience = Patience::new(timeout)?;
        let mut all_held: Option<AllHeld> = None;
        let mut cut_at: Option<Instant> = None;
        loop {
            look(py, token)?;
            let (is_pending, given_back) = (self.pending.get().is_hopeful(), self.held.given_back());
            let longest = if is_pending || all_held.is_some() { SHORT } else { SLICE };
            let slice = patience.slice(longest);
            let got = py.detach(|| match slice {
                Some(slice) => self.sampler.wait_batch(slice),
                None => {
                    // The time is over. Said again with each slice: what was cut before may have gone to another thread.
                    self.sampler.cut()?;
                    self.sampler.wait_batch(longest)
                }
            });
            match got {
                Ok(Some(batch)) => return self.batch(py, batch),
                Ok(None) | Err(Error::Cancelled) => all_held = None,
                Err(Error::NoSamples { why, .. }) if slice.is_none() => {
                    return Err(self.no_samples(py, patience, &why));
                }
                // Another thread's time was over.
                Err(Error::NoSamples { .. }) => {}
                Err(Error::AllHeld { batches }) => {
                    let before = all_held.take().filter(|before| before.is_as_before(given_back));
                    let all_held = all_held.insert(before.unwrap_or_else(|| AllHeld::now(given_back)));
                    if !is_pending {
                        self.bear(py, all_held, batches, slice.is_none())?;
                    }
                    if slice.is_none() && self.held.now() as usize >= batches {
                        let until = if is_pending { " until their events have happened" } else { "" };
                        let why = format!(
                            "this program holds all {batches} batches that the reader can have{until}"
                        );
                        return Err(self.no_samples(py, patience, &why));
                    }
                    // Looked at again soon, and not as fast as a core can.
                    py.detach(|| std::thread::sleep(SHORT));
                }
                Err(error) => return Err(failure::of(py, error)),
            }
            if slice.is_none() {
                let since = cut_at.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.timeout {
                    let given = (self.timeout, Whose::Connection);
                    let advice = "echod is busy or stopped; `echoctl status` says whether it answers";
                    let whole = format!("the answer of echod for a batch of table {:?}", self.table);
                    return Err(Late::new("the answer of echod", &whole, given, advice).raise(py));
                }
            }
            if is_pending {
                self.pending.get().poll(py, false)?;
            }
            // One that another call did not want.
            if let Some(kept) = self.kept() {
                return Ok(kept);
            }
        }
    }

    /// Nothing was sampled in time.
    fn no_samples(&self, py: Python<'_>, patience: Patience, why: &str) -> PyErr {
        let after = patience.total();
        let message = format!(
            "no samples of table {:?} came within {} (the call's timeout): {why}; table.why() says who waits for whom",
            self.table,
            seconds(after)
        );
        let text = |said: &str| said.into_pyobject(py).expect("a text is one").into_any();
        let number = after.as_secs_f64().into_pyobject(py).expect("a number is one").into_any();
        let attributes = [("what", text("waiting for samples")), ("after", number), ("why", text(why))];
        failure::raise(py, "NoSamplesError", &message, &attributes)
    }

    /// How long everything may be held.
    fn bear(&self, py: Python<'_>, all_held: &mut AllHeld, batches: usize, is_late: bool) -> PyResult<()> {
        let is_over = all_held.is_over(py, self.patience, is_late)?;
        // What the garbage collector found is on its way back.
        let held = self.held.now();
        if !is_over || (held as usize) < batches {
            return Ok(());
        }
        let message = format!(
            "no batch of table {:?} can come: this program holds all {held} that the reader can have (prefetch + 1), and \
             has given none back for {:.1} s; release() or delete batches and the arrays over them, use copy=True, or ask for a larger prefetch",
            self.table,
            all_held.elapsed().as_secs_f64(),
        );
        let held = held.into_pyobject(py)?.into_any();
        let prefetch = self.sampler.prefetch().into_pyobject(py)?.into_any();
        Err(failure::raise(py, "AllHeldError", &message, &[("held", held), ("prefetch", prefetch)]))
    }
}

#[pymethods]
impl Sampler {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what a sampler is; named in Python")]
    #[pyo3(signature = (client, table, structure, batch_size, prefetch, threads, poll, copy, patience, arrays=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        batch_size: Option<i64>,
        prefetch: i64,
        threads: i64,
        poll: f64,
        copy: bool,
        patience: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Self> {
        let poll = duration(Some(poll))?.unwrap_or(Duration::MAX);
        let batch = batch_size.map(|n| count("batch_size", n, u32::MAX.into())).transpose()?;
        let prefetch = count("prefetch", prefetch, MAX_PREFETCH.into())?;
        let threads = count("threads", threads, MAX_THREADS)?;
        let options = SamplerOptions { batch, prefetch, threads, poll };
        client.get().sampler(py, table, structure, options, copy, patience, arrays)
    }

    /// The next batch. Waits for it, for ever unless `timeout` says how many seconds; what was sampled by then, if anything,
    /// is then the batch, and its `short` says why that is all.
    ///
    /// Raises `NoSamplesError`, a `TimeoutError` whose `why` is the inequality of the rate limiter, if nothing was sampled;
    /// `ClosedError` when the table has ended, `GoneError` when the daemon is gone, and `AllHeldError` when this program
    /// holds every batch that the reader can have.
    #[pyo3(signature = (timeout=None, *, _token=None))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<Py<SampledBatch>> {
        match self.at_once(py)? {
            Some(batch) => Ok(batch),
            None => self.wait(py, timeout, _token.map(Bound::get)),
        }
    }

    /// The next batch if it is ready now, else None. The first call only asks for it.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Py<SampledBatch>>> {
        self.at_once(py)
    }

    const fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// As `next()`. There is no end but an error.
    fn __next__(&self, py: Python<'_>) -> PyResult<Py<SampledBatch>> {
        self.next(py, None, None)
    }

    /// Sets priorities of items: `keys` are of `info.keys`, and `priorities` one for each. Items that are gone, or whose slots
    /// hold newer samples, are skipped and counted.
    ///
    /// Nothing is waited for, and `table.info()["replay"]` counts what was skipped, unless `wait`: then it returns a
    /// `Counted`. Raises `PriorityError` if one is not finite or is negative; nothing has changed then.
    #[pyo3(signature = (keys, priorities, *, wait=false))]
    fn update_priorities<'py>(
        &self,
        keys: &Bound<'py, PyAny>,
        priorities: &Bound<'py, PyAny>,
        wait: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = keys.py();
        let keys = keys_of(keys)?;
        let priorities = numbers_of(priorities)?;
        if keys.len() != priorities.len() {
            let message = format!("{} keys were given, and {} priorities", keys.len(), priorities.len());
            return Err(PyValueError::new_err(message));
        }
        let items: Vec<(u64, f64)> = keys.into_iter().zip(priorities).collect();
        if wait {
            let sampler = self.sampler.clone();
            let done = ask(py, move || sampler.update_priorities(&items))?;
            return counted(py, done).map(Some);
        }
        py.detach(|| self.sampler.send_priorities(&items)).map_err(|error| failure::of(py, error))?;
        Ok(None)
    }

    /// Removes items, and returns a `Counted`: those that were there, and those that were gone.
    fn delete<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = keys.py();
        let (sampler, keys) = (self.sampler.clone(), keys_of(keys)?);
        let done = ask(py, move || sampler.delete_items(&keys))?;
        counted(py, done)
    }

    /// Says which version the trainer's policy has. Lags are counted from it, and what lags by more than the table's
    /// `max_staleness` is removed: how many items were.
    fn state_version(&self, version: &Bound<'_, PyAny>) -> PyResult<u64> {
        let (sampler, number) = (self.sampler.clone(), version_of(version)?);
        ask(version.py(), move || sampler.state_version(number))
    }

    /// Takes a batch back that nobody got.
    fn _keep(&self, batch: Py<SampledBatch>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push_back(batch);
        // Another call may want it.
        self.canceller.cancel();
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.canceller.cancel();
    }

    /// Page-locks the memory that batches are gathered into. Called before anybody has the sampler, since signal handlers may
    /// run meanwhile.
    fn _pin(&self, py: Python<'_>, library: Option<PathBuf>, vendor_roots: Vec<PathBuf>) -> PyResult<()> {
        let pinned = pin(py, library, vendor_roots, |options| self.sampler.pin_host_memory(options))?;
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

    /// Samples in a batch.
    #[getter]
    fn batch_size(&self) -> usize {
        self.sampler.batch_size()
    }

    /// How many batches are asked for ahead of the one that is used.
    #[getter]
    fn prefetch(&self) -> usize {
        self.sampler.prefetch()
    }

    /// The name of the table that it samples.
    #[getter]
    fn table_name(&self) -> &str {
        &self.table
    }
}

fn count<T: TryFrom<i64>>(what: &str, n: i64, most: i64) -> PyResult<T> {
    let valid = T::try_from(n).ok().filter(|_| (1..=most).contains(&n));
    valid.ok_or_else(|| PyValueError::new_err(format!("{what} is {n}, it must be 1 to {most}")))
}

fn counted<'py>(py: Python<'py>, done: Counted) -> PyResult<Bound<'py, PyAny>> {
    py.import("echod._columns")?.getattr("Counted")?.call1((done.applied, done.skipped))
}

/// Keys, as a batch has them or as whatever can be made such an array.
fn keys_of(keys: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    if let Ok(array) = keys.extract::<PyReadonlyArray1<'_, u64>>() {
        return Ok(array.as_array().to_vec());
    }
    let made = keys.py().import("echod._columns")?.getattr("keys")?.call1((keys,))?;
    Ok(made.extract::<PyReadonlyArray1<'_, u64>>()?.as_array().to_vec())
}

/// Numbers, as a trainer has them or as whatever can be made such an array.
fn numbers_of(numbers: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    if let Ok(array) = numbers.extract::<PyReadonlyArray1<'_, f64>>() {
        return Ok(array.as_array().to_vec());
    }
    if let Ok(array) = numbers.extract::<PyReadonlyArray1<'_, f32>>() {
        return Ok(array.as_array().iter().copied().map(f64::from).collect());
    }
    let made = numbers.py().import("echod._columns")?.getattr("priorities")?.call1((numbers,))?;
    Ok(made.extract::<PyReadonlyArray1<'_, f64>>()?.as_array().to_vec())
}
