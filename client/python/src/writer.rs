//! The worker's side: samples in.
//!
//! A sample is taken apart and checked first, then copied into a claim and committed: what is refused has claimed
//! nothing. A small sample for which there is room goes without letting go of the interpreter's lock, which costs as much
//! as the copy; everything else goes without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo::memory::fork::Birthplace;
use echo_client::{Canceller, ClaimAside, Error, Writer as Inner};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

use crate::claim::Claim;
use crate::connection::Client;
use crate::failure;
use crate::leaf::{Leaves, Source, absent};
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, interruptible, look};

/// A sample of more bytes is copied without the interpreter's lock.
const SMALL: usize = 8 << 10;

/// Something for each leaf: on the stack, for so many.
type PerLeaf<T> = SmallVec<[T; 8]>;

/// The right to write samples into a table.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Writer {
    cell: Arc<WriterCell>,
    /// Beside the cell, which the one who waits holds locked.
    canceller: Canceller,
    leaves: Arc<Leaves>,
    /// Of the samples seen last. A sample of another one that has the same leaves is as good.
    structure: Mutex<Option<Py<Structure>>>,
    /// Of calls that do not say how long they wait.
    timeout: Option<f64>,
}

/// What claims keep alive: the mapping.
pub(crate) struct WriterCell {
    /// Looked at before the lock: in a child, a thread of the parent's may hold it for ever.
    birthplace: Birthplace,
    state: Mutex<WriterState>,
}

pub(crate) struct WriterState {
    pub(crate) writer: Inner,
    /// The claim that is open, in `Claim`'s hands.
    pub(crate) open: Option<ClaimAside>,
    finished: bool,
}

/// Why nothing was written, or nothing more.
pub(crate) enum Stop {
    Failed(Error),
    Finished,
    Open,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Failed(error) => failure::of(py, error),
            Self::Finished => {
                failure::raise(py, "FinishedError", "this writer has finished: attach another", &[])
            }
            Self::Open => {
                let message = "a claim of this writer is open: commit or abort it first";
                failure::raise(py, "ClaimError", message, &[])
            }
        }
    }
}

impl WriterCell {
    /// The state. Nobody runs Python code or waits for the interpreter while holding it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, WriterState>, Stop> {
        match self.birthplace.is_elsewhere() {
            true => Err(Stop::Failed(Error::Forked)),
            false => Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, WriterState>> {
        if self.birthplace.is_elsewhere() { None } else { self.state.try_lock().ok() }
    }
}

impl WriterState {
    #[inline]
    pub(crate) fn usable(&mut self) -> Result<&mut Inner, Stop> {
        if self.finished {
            return Err(Stop::Finished);
        }
        if self.open.is_some() {
            return Err(Stop::Open);
        }
        Ok(&mut self.writer)
    }

    /// Writes samples, from `done` on, for as long as there is room.
    #[inline]
    fn write_at_once(
        &mut self,
        leaves: &Leaves,
        sources: &[Source],
        samples: usize,
        done: &mut usize,
    ) -> Result<(), Stop> {
        while *done < samples {
            // Without the clock, which costs as much as a small sample.
            let Some(claim) = self.usable()?.try_claim(at_most(samples - *done))? else { break };
            *done += fill(claim, leaves, sources, *done)?;
        }
        Ok(())
    }

    /// Writes a piece of the samples, from `done` on, waiting for room. How many.
    fn write_waiting(
        &mut self,
        leaves: &Leaves,
        sources: &[Source],
        samples: usize,
        done: usize,
        wait: Duration,
    ) -> Result<Option<usize>, Stop> {
        let writer = self.usable()?;
        writer.set_timeout(wait);
        match writer.claim(at_most(samples - done)) {
            Ok(claim) => Ok(Some(fill(claim, leaves, sources, done)?)),
            Err(Error::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn at_most(samples: usize) -> u32 {
    u32::try_from(samples).unwrap_or(u32::MAX)
}

/// Copies samples, from `first` on, into what was claimed for as many at most, and commits them. How many.
#[inline]
fn fill(
    mut claim: echo_client::Claim<'_>,
    leaves: &Leaves,
    sources: &[Source],
    first: usize,
) -> Result<usize, Error> {
    let samples = claim.len();
    for (i, (leaf, source)) in leaves.all.iter().zip(sources).enumerate() {
        let target = claim.array_mut(i);
        debug_assert_eq!(target.len(), leaf.bytes * samples);
        // SAFETY: the target is so many samples long, and ours alone (a claim); the source was checked against the
        // leaf and has at least `first + samples` of them, since no claim is larger than what was asked for.
        unsafe { leaf.copy(source, first, samples, target.as_mut_ptr()) };
    }
    claim.commit()?;
    Ok(samples)
}

impl Writer {
    pub(crate) fn new(
        py: Python<'_>,
        writer: Inner,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, writer.spec())?);
        let canceller = writer.canceller();
        let state = Mutex::new(WriterState { writer, open: None, finished: false });
        let cell = Arc::new(WriterCell { birthplace: Birthplace::here(), state });
        Ok(Self { cell, canceller, leaves, structure: Mutex::new(structure), timeout })
    }

    fn known(&self, py: Python<'_>) -> Option<Py<Structure>> {
        // Held for a moment only, and never while Python code runs.
        self.structure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|known| known.clone_ref(py))
    }

    /// The sample's leaves, in the order of the table.
    #[inline]
    fn take_apart<'py>(&self, sample: &Bound<'py, PyAny>) -> PyResult<PerLeaf<Option<Bound<'py, PyAny>>>> {
        let py = sample.py();
        let mut leaves: PerLeaf<_> = smallvec![None; self.leaves.all.len()];
        if let Some(known) = self.known(py)
            && known.get().leaves(sample, &mut leaves)?
        {
            return Ok(leaves);
        }
        self.learn(sample, &mut leaves)?;
        Ok(leaves)
    }

    /// Learns the structure of a sample whose leaves are the table's, in another structure or for the first time.
    #[cold]
    fn learn<'py>(
        &self,
        sample: &Bound<'py, PyAny>,
        leaves: &mut [Option<Bound<'py, PyAny>>],
    ) -> PyResult<()> {
        let py = sample.py();
        let learn = py.import("echod._tree")?.getattr("learn")?;
        let learnt = learn.call1((self.leaves.names(), sample))?.cast_into::<Structure>()?.unbind();
        if !learnt.get().leaves(sample, leaves)? {
            return Err(failure::raise(
                py,
                "StructureError",
                "the sample changes while it is looked at",
                &[],
            ));
        }
        let before = self.structure.lock().unwrap_or_else(PoisonError::into_inner).replace(learnt);
        drop(before);
        Ok(())
    }

    /// The structure for claims: the one that is known, else one made of the names.
    fn structure(&self, py: Python<'_>) -> PyResult<Py<Structure>> {
        match self.known(py) {
            Some(known) => Ok(known),
            None => derived(py, &self.leaves),
        }
    }

    fn write(
        &self,
        py: Python<'_>,
        sources: &[Source],
        samples: usize,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<()> {
        if samples == 0 {
            // Nothing to write is no reason to be silent about one who could not.
            let usable = || self.cell.lock()?.usable().map(drop);
            return py.detach(usable).map_err(|stop: Stop| stop.raise(py));
        }
        let mut done = 0;
        let written = if samples.saturating_mul(self.leaves.bytes) <= SMALL {
            // Who holds the state waits without the interpreter's lock, and is not to be waited for with it.
            match self.cell.try_lock() {
                Some(mut state) => state.write_at_once(&self.leaves, sources, samples, &mut done),
                None => Ok(()),
            }
        } else {
            py.detach(|| self.cell.lock()?.write_at_once(&self.leaves, sources, samples, &mut done))
        };
        match written {
            Ok(()) if done == samples => return Ok(()),
            Ok(()) => {}
            // Somebody cancels, but who says so by the token: it is looked at.
            Err(Stop::Failed(Error::Cancelled)) => look(py, token)?,
            Err(stop) => return Err(self.partly(py, stop, done, samples)),
        }
        self.write_waiting(py, sources, done, samples, timeout, token)
    }

    #[cold]
    fn write_waiting(
        &self,
        py: Python<'_>,
        sources: &[Source],
        mut done: usize,
        samples: usize,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<()> {
        let patience = Patience::new(timeout.or(self.timeout))?;
        while done < samples {
            // One look at least, also for a timeout of 0.
            let slice = patience.slice(SLICE);
            let wait = slice.unwrap_or_default();
            let written =
                py.detach(|| self.cell.lock()?.write_waiting(&self.leaves, sources, samples, done, wait));
            let stop = match written {
                Ok(Some(n)) => {
                    done += n;
                    continue;
                }
                Ok(None) if slice.is_none() => {
                    Stop::Failed(Error::TimedOut { what: "waiting for room", after: patience.total() })
                }
                Ok(None) | Err(Stop::Failed(Error::Cancelled)) => {
                    look(py, token)?;
                    continue;
                }
                Err(stop) => stop,
            };
            return Err(self.partly(py, stop, done, samples));
        }
        Ok(())
    }

    fn partly(&self, py: Python<'_>, stop: Stop, done: usize, of: usize) -> PyErr {
        match stop {
            Stop::Failed(source) if done > 0 => {
                failure::of(py, Error::Partly { done, of, source: Box::new(source) })
            }
            stop => stop.raise(py),
        }
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (client, table, structure=None, timeout=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        client.get().writer(py, table, structure, timeout)
    }

    /// Writes one sample: a pytree with the table's leaves. Waits for room if there is none.
    ///
    /// When it returns the sample will be delivered, whatever dies afterwards. If it raises, the sample was not written.
    /// `timeout` is in seconds, by default that of the writer; `math.inf` waits for ever.
    #[pyo3(signature = (sample, *, timeout=None, _token=None))]
    fn append(
        &self,
        sample: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<()> {
        let py = sample.py();
        let mut sources = PerLeaf::with_capacity(self.leaves.all.len());
        for (leaf, object) in self.leaves.all.iter().zip(self.take_apart(sample)?) {
            let object = object.ok_or_else(|| absent(py, &leaf.name))?;
            sources.push(leaf.source(object)?);
        }
        self.write(py, &sources, 1, timeout, _token.map(Bound::get))
    }

    /// Writes several samples: a pytree whose leaves have a leading axis, as a vectorised environment gives them.
    ///
    /// All leaves must have as many samples. They become neighbours in as few pieces as possible. `PartlyError.done` says
    /// how many were written if it fails in the middle.
    #[pyo3(signature = (samples, *, timeout=None, _token=None))]
    fn append_many(
        &self,
        samples: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<()> {
        let py = samples.py();
        let mut sources = PerLeaf::with_capacity(self.leaves.all.len());
        let mut count = None;
        for (leaf, object) in self.leaves.all.iter().zip(self.take_apart(samples)?) {
            let object = object.ok_or_else(|| absent(py, &leaf.name))?;
            sources.push(leaf.sources(object, &mut count)?);
        }
        self.write(py, &sources, count.unwrap_or(0), timeout, _token.map(Bound::get))
    }

    /// Room for a sample, to be filled in place: `with writer.claim() as slot: slot.data["obs"][:] = ...`.
    ///
    /// The block commits it at its end, and gives it up if it raises. With `n`, room for up to `n` samples in a row
    /// (`len(slot)` says how many): the arrays then have a leading axis. What is in them is left over from before.
    #[pyo3(signature = (n=None, *, timeout=None, _token=None))]
    fn claim(
        &self,
        py: Python<'_>,
        n: Option<i64>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<Claim> {
        if n.is_some_and(|n| n < 1) {
            return Err(PyValueError::new_err("a claim is for one sample at least"));
        }
        // More than that is no room anyway: a claim lies in one batch.
        let wanted = n.map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let structure = self.structure(py)?;
        let patience = Patience::new(timeout.or(self.timeout))?;
        loop {
            let slice = patience.slice(SLICE);
            let claimed = py.detach(|| -> Result<_, Stop> {
                let mut state = self.cell.lock()?;
                let writer = state.usable()?;
                writer.set_timeout(slice.unwrap_or_default());
                let mut claim = match writer.claim(wanted) {
                    Ok(claim) => claim,
                    Err(Error::TimedOut { .. }) => return Ok(None),
                    Err(error) => return Err(error.into()),
                };
                let samples = claim.len();
                let arrays = (0..self.leaves.all.len()).map(|i| claim.array_mut(i).as_mut_ptr() as usize);
                let arrays: Vec<usize> = arrays.collect();
                let aside = claim.put_aside();
                state.open = Some(aside);
                Ok(Some((samples, arrays, aside)))
            });
            match claimed {
                Ok(Some((samples, arrays, aside))) => {
                    let (cell, leaves) = (self.cell.clone(), self.leaves.clone());
                    return Claim::new(py, cell, aside, &leaves, structure, samples, n.is_some(), &arrays);
                }
                Ok(None) if slice.is_none() => {
                    let error = Error::TimedOut { what: "waiting for room", after: patience.total() };
                    return Err(failure::of(py, error));
                }
                Ok(None) | Err(Stop::Failed(Error::Cancelled)) => look(py, _token.map(Bound::get))?,
                Err(stop) => return Err(stop.raise(py)),
            }
        }
    }

    /// Says that this writer writes no more. When every writer of the table has said so, what is left is delivered and
    /// the table ends. Calling it again does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let cell = self.cell.clone();
        let finish = move || -> Result<(), Stop> {
            let mut state = cell.lock()?;
            if state.finished {
                return Ok(());
            }
            state.usable()?.say_finished()?;
            state.finished = true;
            Ok(())
        };
        interruptible(py, finish)?.map_err(|stop| stop.raise(py))
    }

    /// Samples written, and what it does, for people; no number where another thread is in it, or in a forked child.
    fn _said(&self) -> (Option<u64>, &'static str) {
        if self.cell.birthplace.is_elsewhere() {
            return (None, "of no use in a forked process");
        }
        match self.cell.try_lock() {
            None => (None, "in use by another thread"),
            Some(state) => {
                let does = match (state.finished, state.open.is_some()) {
                    (true, _) => "finished",
                    (false, true) => "a claim is open",
                    (false, false) => "open",
                };
                (Some(state.writer.committed()), does)
            }
        }
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.canceller.cancel();
    }

    /// Whether it has finished.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| Ok(self.cell.lock()?.finished)).map_err(|stop: Stop| stop.raise(py))
    }

    /// Samples written so far.
    #[getter]
    fn committed(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| Ok(self.cell.lock()?.writer.committed())).map_err(|stop: Stop| stop.raise(py))
    }

    /// How often it waited for room, counted anew at least four times a second.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| Ok(self.cell.lock()?.writer.waits())).map_err(|stop: Stop| stop.raise(py))
    }
}

/// A structure made of the leaves' names.
pub(crate) fn derived(py: Python<'_>, leaves: &Leaves) -> PyResult<Py<Structure>> {
    let derive = py.import("echod._tree")?.getattr("derived")?;
    Ok(derive.call1((leaves.names(),))?.cast_into::<Structure>()?.unbind())
}
