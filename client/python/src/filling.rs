//! What writers and publishers have in common: samples and values are taken apart, checked, copied into a claim, committed.
//!
//! What is refused has claimed nothing. A small sample for which there is room goes without letting go of the interpreter's
//! lock, which costs as much as the copy; everything else goes without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use echo::memory::fork::Birthplace;
use echo_client::{Canceller, ClaimAside, Error, Mark, Writer as Inner};
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

use crate::claim::Room;
use crate::failure;
use crate::leaf::{Leaves, Source, absent};
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, interruptible, look};

/// A sample of more bytes is copied without the interpreter's lock.
const SMALL: usize = 8 << 10;

/// Something for each leaf: on the stack, for so many.
pub(crate) type PerLeaf<T> = SmallVec<[T; 8]>;

/// The way of samples into a table.
pub(crate) struct Filling {
    cell: Arc<WriterCell>,
    /// Beside the cell, which the one who waits holds locked.
    pub(crate) canceller: Canceller,
    leaves: Arc<Leaves>,
    /// Of the samples seen last. A sample of another one that has the same leaves is as good.
    structure: Mutex<Option<Py<Structure>>>,
    /// Of calls that do not say how long they wait.
    timeout: Option<f64>,
}

/// What claims keep alive: the mapping.
pub(crate) struct WriterCell {
    /// Looked at before the lock: in a child, a thread of the parent's may hold it for ever.
    pub(crate) birthplace: Birthplace,
    state: Mutex<WriterState>,
}

pub(crate) struct WriterState {
    pub(crate) writer: Inner,
    /// The claim that is open, in the hands of a `Room`.
    pub(crate) open: Option<ClaimAside>,
    pub(crate) finished: bool,
    /// What it is called.
    noun: &'static str,
}

/// Why nothing was written, or nothing more.
pub(crate) enum Stop {
    Failed(Error),
    /// It has finished; it is called so.
    Finished(&'static str),
    /// A claim of it is open; it is called so.
    Open(&'static str),
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
            Self::Finished(noun) => {
                let message = format!("this {noun} has finished: attach another");
                failure::raise(py, "FinishedError", &message, &[])
            }
            Self::Open(noun) => {
                let message = format!("a claim of this {noun} is open: end it first");
                failure::raise(py, "ClaimError", &message, &[])
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

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, WriterState>> {
        if self.birthplace.is_elsewhere() { None } else { self.state.try_lock().ok() }
    }
}

impl WriterState {
    #[inline]
    pub(crate) fn usable(&mut self) -> Result<&mut Inner, Stop> {
        if self.finished {
            return Err(Stop::Finished(self.noun));
        }
        if self.open.is_some() {
            return Err(Stop::Open(self.noun));
        }
        Ok(&mut self.writer)
    }

    /// Writes samples, those that are not done, for as long as there is room.
    #[inline]
    fn write_at_once(
        &mut self,
        leaves: &Leaves,
        samples: &Samples<'_>,
        so_far: &mut SoFar,
    ) -> Result<(), Stop> {
        while so_far.done < samples.count {
            // Without the clock, which costs as much as a small sample.
            let Some(claim) = self.usable()?.try_claim(at_most(samples.count - so_far.done))? else { break };
            so_far.done += fill(claim, leaves, samples, so_far.done)?;
        }
        so_far.version = self.writer.version();
        Ok(())
    }

    /// Writes a piece of the samples, waiting for room. Whether there was any.
    fn write_waiting(
        &mut self,
        leaves: &Leaves,
        samples: &Samples<'_>,
        so_far: &mut SoFar,
        wait: Duration,
    ) -> Result<bool, Stop> {
        let writer = self.usable()?;
        writer.set_timeout(wait);
        match writer.claim(at_most(samples.count - so_far.done)) {
            Ok(claim) => so_far.done += fill(claim, leaves, samples, so_far.done)?,
            Err(Error::TimedOut { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        so_far.version = self.writer.version();
        Ok(true)
    }
}

/// What a call writes.
struct Samples<'a> {
    sources: &'a [Source],
    count: usize,
    /// What is said of each, or nothing of any.
    marks: &'a [Mark],
}

/// How far a call has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct SoFar {
    /// Samples that are committed.
    done: usize,
    /// Of a latest table: the version of the last.
    pub(crate) version: u64,
}

fn at_most(samples: usize) -> u32 {
    u32::try_from(samples).unwrap_or(u32::MAX)
}

/// Copies samples, from `first` on, into what was claimed for as many at most, and commits them. How many.
#[inline]
fn fill(
    mut claim: echo_client::Claim<'_>,
    leaves: &Leaves,
    of: &Samples<'_>,
    first: usize,
) -> Result<usize, Error> {
    let samples = claim.len();
    for (i, (leaf, source)) in leaves.all.iter().zip(of.sources).enumerate() {
        let target = claim.array_mut(i);
        debug_assert_eq!(target.len(), leaf.bytes * samples);
        // SAFETY: the target is so many samples long, and ours alone (a claim); the source was checked against the
        // leaf and has at least `first + samples` of them, since no claim is larger than what was asked for.
        unsafe { leaf.copy(source, first, samples, target.as_mut_ptr()) };
    }
    for (i, &mark) in of.marks.iter().skip(first).take(samples).enumerate() {
        claim.set_mark(i, mark)?;
    }
    claim.commit()?;
    Ok(samples)
}

impl Filling {
    /// By that writer, which is called `noun`.
    pub(crate) fn new(
        py: Python<'_>,
        writer: Inner,
        noun: &'static str,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, writer.spec())?);
        let canceller = writer.canceller();
        let state = Mutex::new(WriterState { writer, open: None, finished: false, noun });
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

    /// Writes samples.
    pub(crate) fn write(
        &self,
        py: Python<'_>,
        sources: &[Source],
        count: usize,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<SoFar> {
        self.write_marked(py, sources, count, &[], timeout, token)
    }

    /// Writes samples, and says something of each, or of none.
    pub(crate) fn write_marked(
        &self,
        py: Python<'_>,
        sources: &[Source],
        count: usize,
        marks: &[Mark],
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<SoFar> {
        let samples = Samples { sources, count, marks };
        if count == 0 {
            // Nothing to write is no reason to be silent about one who could not.
            let usable = || self.cell.lock()?.usable().map(drop);
            py.detach(usable).map_err(|stop: Stop| stop.raise(py))?;
            return Ok(SoFar::default());
        }
        let mut so_far = SoFar::default();
        let written = if count.saturating_mul(self.leaves.bytes) <= SMALL {
            // Who holds the state waits without the interpreter's lock, and is not to be waited for with it.
            match self.cell.try_lock() {
                Some(mut state) => state.write_at_once(&self.leaves, &samples, &mut so_far),
                None => Ok(()),
            }
        } else {
            py.detach(|| self.cell.lock()?.write_at_once(&self.leaves, &samples, &mut so_far))
        };
        match written {
            Ok(()) if so_far.done == count => return Ok(so_far),
            Ok(()) => {}
            // Somebody cancels, but who says so by the token: it is looked at.
            Err(Stop::Failed(Error::Cancelled)) => look(py, token)?,
            Err(stop) => return Err(partly(py, stop, so_far.done, count)),
        }
        self.write_waiting(py, &samples, so_far, timeout, token)
    }

    #[cold]
    fn write_waiting(
        &self,
        py: Python<'_>,
        samples: &Samples<'_>,
        mut so_far: SoFar,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<SoFar> {
        let patience = Patience::new(timeout.or(self.timeout))?;
        while so_far.done < samples.count {
            // One look at least, also for a timeout of 0.
            let slice = patience.slice(SLICE);
            let wait = slice.unwrap_or_default();
            let written =
                py.detach(|| self.cell.lock()?.write_waiting(&self.leaves, samples, &mut so_far, wait));
            let stop = match written {
                Ok(true) => continue,
                Ok(false) if slice.is_none() => {
                    Stop::Failed(Error::TimedOut { what: "waiting for room", after: patience.total() })
                }
                Ok(false) | Err(Stop::Failed(Error::Cancelled)) => {
                    look(py, token)?;
                    continue;
                }
                Err(stop) => stop,
            };
            return Err(partly(py, stop, so_far.done, samples.count));
        }
        Ok(so_far)
    }

    /// Where the leaves of one sample are.
    #[inline]
    pub(crate) fn source(&self, sample: &Bound<'_, PyAny>) -> PyResult<PerLeaf<Source>> {
        let py = sample.py();
        let mut sources = PerLeaf::with_capacity(self.leaves.all.len());
        for (leaf, object) in self.leaves.all.iter().zip(self.take_apart(sample)?) {
            let object = object.ok_or_else(|| absent(py, &leaf.name))?;
            sources.push(leaf.source(object)?);
        }
        Ok(sources)
    }

    /// Where those of several are, and how many these are.
    pub(crate) fn sources(&self, samples: &Bound<'_, PyAny>) -> PyResult<(PerLeaf<Source>, usize)> {
        let py = samples.py();
        let mut sources = PerLeaf::with_capacity(self.leaves.all.len());
        let mut count = None;
        for (leaf, object) in self.leaves.all.iter().zip(self.take_apart(samples)?) {
            let object = object.ok_or_else(|| absent(py, &leaf.name))?;
            sources.push(leaf.sources(object, &mut count)?);
        }
        Ok((sources, count.unwrap_or(0)))
    }

    /// Room for samples, waiting for it.
    pub(crate) fn claim(
        &self,
        py: Python<'_>,
        wanted: u32,
        many: bool,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<Room> {
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
                    let cell = self.cell.clone();
                    return Room::new(py, cell, aside, &self.leaves, &structure, samples, many, &arrays);
                }
                Ok(None) if slice.is_none() => {
                    let error = Error::TimedOut { what: "waiting for room", after: patience.total() };
                    return Err(failure::of(py, error));
                }
                Ok(None) | Err(Stop::Failed(Error::Cancelled)) => look(py, token)?,
                Err(stop) => return Err(stop.raise(py)),
            }
        }
    }

    /// Says that nothing more is written.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
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

    /// A number of its state's, waiting for whoever is in it.
    pub(crate) fn asked<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&WriterState) -> T + Send,
    ) -> PyResult<T> {
        py.detach(|| Ok(ask(&*self.cell.lock()?))).map_err(|stop: Stop| stop.raise(py))
    }

    /// A number and what it does, for people; no number where another thread is in it, or in a forked child.
    pub(crate) fn said(&self, number: impl FnOnce(&Inner) -> u64) -> (Option<u64>, &'static str) {
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
                (Some(number(&state.writer)), does)
            }
        }
    }
}

fn partly(py: Python<'_>, stop: Stop, done: usize, of: usize) -> PyErr {
    match stop {
        Stop::Failed(source) if done > 0 => {
            failure::of(py, Error::Partly { done, of, source: Box::new(source) })
        }
        stop => stop.raise(py),
    }
}

/// A structure made of the leaves' names.
pub(crate) fn derived(py: Python<'_>, leaves: &Leaves) -> PyResult<Py<Structure>> {
    let derive = py.import("echod._tree")?.getattr("derived")?;
    Ok(derive.call1((leaves.names(),))?.cast_into::<Structure>()?.unbind())
}
