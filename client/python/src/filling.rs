//! What writers and publishers have in common: samples and values are taken apart, checked, copied into a claim, committed.
//!
//! What is refused has claimed nothing. A small sample for which there is room goes without letting go of the interpreter's
//! lock, which costs as much as the copy; everything else goes without it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use echo_client::{Canceller, Error, Mark, Writer as Inner};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use smallvec::{SmallVec, smallvec};

use crate::cell::{Counts, Stop, Thread, WriterCell, WriterState};
use crate::claim::Room;
use crate::failure;
use crate::late::Whose;
use crate::leaf::{Leaves, Source, absent};
use crate::structure::Structure;
use crate::waiting::{Patience, SLICE, Token, interruptible, look};

/// More bytes are copied without the interpreter's lock.
pub(crate) const SMALL: usize = 8 << 10;

/// Something for each leaf: on the stack, for so many.
pub(crate) type PerLeaf<T> = SmallVec<[T; 8]>;

/// The way of samples into a table.
pub(crate) struct Filling {
    cell: Arc<WriterCell>,
    canceller: Canceller,
    leaves: Arc<Leaves>,
    /// Of the samples seen last. A sample of another one that has the same leaves is as good.
    structure: Mutex<Option<Py<Structure>>>,
    /// Of calls that do not say how long they wait.
    timeout: (f64, Whose),
}

impl WriterState {
    /// Writes samples, those that are not done, for as long as there is room and nobody else has the writer.
    #[inline]
    fn write_at_once(
        &mut self,
        leaves: &Leaves,
        samples: &Samples<'_>,
        so_far: &mut SoFar,
    ) -> Result<(), Stop> {
        let written = self.write_pieces(leaves, samples, so_far);
        self.count();
        so_far.version = self.counts().version;
        written
    }

    #[inline]
    fn write_pieces(
        &mut self,
        leaves: &Leaves,
        samples: &Samples<'_>,
        so_far: &mut SoFar,
    ) -> Result<(), Stop> {
        let Some(writer) = self.usable_now()? else { return Ok(()) };
        while so_far.done < samples.count {
            // Without the clock, which costs as much as a small sample.
            let Some(claim) = writer.try_claim(at_most(samples.count - so_far.done))? else { break };
            so_far.done += fill(claim, leaves, samples, so_far.done)?;
        }
        Ok(())
    }
}

/// What a call writes.
pub(crate) struct Samples<'a> {
    sources: &'a [Source],
    count: usize,
    /// What is said of each, or nothing of any.
    marks: &'a [Mark],
}

impl<'a> Samples<'a> {
    pub(crate) const fn new(sources: &'a [Source], count: usize) -> Self {
        Self { sources, count, marks: &[] }
    }

    /// With something that is said of each.
    pub(crate) const fn marked(sources: &'a [Source], count: usize, marks: &'a [Mark]) -> Self {
        Self { sources, count, marks }
    }
}

/// What a claim is for.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    samples: u32,
    /// Its arrays have an axis for samples.
    many: bool,
}

impl Wanted {
    /// One sample, or up to so many.
    pub(crate) fn new(n: Option<i64>) -> PyResult<Self> {
        if n.is_some_and(|n| n < 1) {
            return Err(PyValueError::new_err("a claim is for one sample at least"));
        }
        // More than that is no room anyway: a claim lies in one block.
        let samples = n.map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
        Ok(Self { samples, many: n.is_some() })
    }

    pub(crate) const fn is_many(&self) -> bool {
        self.many
    }
}

/// How far a call has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct SoFar {
    /// Samples that are committed.
    pub(crate) done: usize,
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
        timeout: (f64, Whose),
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, writer.spec())?);
        let canceller = writer.canceller();
        let cell = Arc::new(WriterCell::new(writer, noun));
        Ok(Self { cell, canceller, leaves, structure: Mutex::new(structure), timeout })
    }

    /// How long a call waits that says that, or nothing.
    fn patience(&self, timeout: Option<f64>) -> PyResult<Patience> {
        let (own, whose) = self.timeout;
        match timeout {
            Some(_) => Patience::new(timeout),
            None => Patience::of(Some(own), whose),
        }
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

    /// Writes samples, those that are not done, waiting for room.
    pub(crate) fn write(
        &self,
        py: Python<'_>,
        samples: &Samples<'_>,
        done: usize,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<SoFar> {
        expect_wanted(token).map_err(|stop| stop.raise(py))?;
        let so_far = self.write_at_once(py, samples, done)?;
        match so_far.done >= samples.count {
            true => Ok(so_far),
            false => self.write_waiting(py, samples, so_far, timeout, token),
        }
    }

    /// As [`Filling::write`], as far as that can be done without waiting, also for a claim that another task of this thread
    /// has open.
    pub(crate) fn write_without_waiting(&self, py: Python<'_>, samples: &Samples<'_>) -> PyResult<SoFar> {
        match self.is_claimed(py)? {
            true => Ok(SoFar::default()),
            false => self.write_at_once(py, samples, 0),
        }
    }

    /// Writes samples, those that are not done, for as long as there is room and no other thread has the writer.
    #[inline]
    fn write_at_once(&self, py: Python<'_>, samples: &Samples<'_>, done: usize) -> PyResult<SoFar> {
        let mut so_far = SoFar { done, version: 0 };
        let written = if samples.count == 0 {
            // Nothing to write is no reason to be silent about one who could not.
            py.detach(|| self.cell.lock()?.usable_now().map(drop))
        } else if samples.count.saturating_mul(self.leaves.bytes) <= SMALL {
            // Who holds the state is not to be waited for with the interpreter's lock.
            match self.cell.try_lock() {
                Some(mut state) => state.write_at_once(&self.leaves, samples, &mut so_far),
                None => Ok(()),
            }
        } else {
            py.detach(|| {
                let Some(mut out) = self.cell.line().take(Duration::ZERO)? else { return Ok(()) };
                while so_far.done < samples.count {
                    let Some(claim) = out.try_claim(at_most(samples.count - so_far.done))? else { break };
                    so_far.done += fill(claim, &self.leaves, samples, so_far.done)?;
                }
                so_far.version = out.counts().version;
                Ok(())
            })
        };
        match written {
            // Somebody cancels, but who says so by the token: it is looked at.
            Ok(()) | Err(Stop::Failed(Error::Cancelled)) => Ok(so_far),
            Err(stop) => Err(partly(py, stop, so_far.done, samples.count)),
        }
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
        let patience = self.patience(timeout)?;
        let mut line = self.cell.line();
        while so_far.done < samples.count {
            // One look at least, also for a timeout of 0.
            let slice = patience.slice(SLICE);
            let written = py.detach(|| {
                let deadline = Instant::now() + slice.unwrap_or_default();
                let Some(mut out) = line.take(slice.unwrap_or_default())? else { return Ok(false) };
                let left = deadline.saturating_duration_since(Instant::now());
                expect_wanted(token)?;
                let Some(claim) = out.claim(at_most(samples.count - so_far.done), left)? else {
                    return Ok(false);
                };
                // Room and the cancellation may have come together.
                expect_wanted(token)?;
                so_far.done += fill(claim, &self.leaves, samples, so_far.done)?;
                so_far.version = out.counts().version;
                Ok(true)
            });
            let stop = match written {
                Ok(true) => continue,
                Ok(false) if slice.is_none() => self.cell.late(patience),
                Ok(false) | Err(Stop::Failed(Error::Cancelled)) => {
                    let (done, of) = (so_far.done, samples.count);
                    look(py, token).map_err(|error| interrupted(py, error, done, of))?;
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
        Ok((sources, count.map_or(0, |several| several.samples)))
    }

    /// Room for samples, waiting for it, as that thread's.
    pub(crate) fn claim(
        &self,
        py: Python<'_>,
        wanted: Wanted,
        timeout: Option<f64>,
        token: Option<&Token>,
        whose: Option<i32>,
    ) -> PyResult<Room> {
        let patience = self.patience(timeout)?;
        let whose = whose.map_or_else(Thread::this, Thread);
        let room = self.claim_within(py, wanted, patience, token, whose)?;
        room.ok_or_else(|| self.cell.late(patience).raise(py))
    }

    /// Room for samples that is there now, and is not to be waited for, not even for a claim of this thread's.
    pub(crate) fn claim_without_waiting(&self, py: Python<'_>, wanted: Wanted) -> PyResult<Option<Room>> {
        match self.is_claimed(py)? {
            true => Ok(None),
            false => self.claim_within(py, wanted, Patience::new(Some(0.0))?, None, Thread::this()),
        }
    }

    /// None if there is no room in time.
    fn claim_within(
        &self,
        py: Python<'_>,
        wanted: Wanted,
        patience: Patience,
        token: Option<&Token>,
        whose: Thread,
    ) -> PyResult<Option<Room>> {
        let structure = self.structure(py)?;
        let mut line = self.cell.line();
        loop {
            let slice = patience.slice(SLICE);
            let claimed = py.detach(|| -> Result<_, Stop> {
                let deadline = Instant::now() + slice.unwrap_or_default();
                let Some(mut out) = line.take(slice.unwrap_or_default())? else { return Ok(None) };
                let left = deadline.saturating_duration_since(Instant::now());
                let Some(mut claim) = out.claim(wanted.samples, left)? else { return Ok(None) };
                let samples = claim.len();
                let arrays = (0..self.leaves.all.len()).map(|i| claim.array_mut(i).as_mut_ptr() as usize);
                let arrays: Vec<usize> = arrays.collect();
                let aside = claim.put_aside();
                out.keep_open(aside, whose);
                Ok(Some((samples, arrays, aside)))
            });
            match claimed {
                Ok(Some((samples, arrays, aside))) => {
                    let (cell, many) = (self.cell.clone(), wanted.many);
                    return Room::new(py, cell, aside, &self.leaves, &structure, samples, many, &arrays)
                        .map(Some);
                }
                Ok(None) if slice.is_none() => return Ok(None),
                Ok(None) | Err(Stop::Failed(Error::Cancelled)) => look(py, token)?,
                Err(stop) => return Err(stop.raise(py)),
            }
        }
    }

    /// Says that nothing more is written.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let (cell, patience, caller) = (self.cell.clone(), self.patience(None)?, Thread::this());
        let finish = move || -> Result<(), Stop> {
            if cell.lock()?.is_finished() {
                return Ok(());
            }
            let mut line = cell.line_of(caller);
            loop {
                let slice = patience.slice(Duration::MAX);
                match (line.take(slice.unwrap_or_default())?, slice) {
                    (Some(out), _) => return out.finish(),
                    (None, None) => return Err(cell.late(patience)),
                    (None, Some(_)) => {}
                }
            }
        };
        interruptible(py, finish)?.map_err(|stop| stop.raise(py))
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    pub(crate) fn wake(&self) {
        self.canceller.cancel();
        self.cell.wake();
    }

    fn is_claimed(&self, py: Python<'_>) -> PyResult<bool> {
        self.asked(py, WriterState::is_claimed)
    }

    /// Whether it has finished.
    pub(crate) fn is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.asked(py, WriterState::is_finished)
    }

    /// What it has counted.
    pub(crate) fn counts(&self, py: Python<'_>) -> PyResult<Counts> {
        self.asked(py, WriterState::counts)
    }

    fn asked<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&WriterState) -> T + Send) -> PyResult<T> {
        py.detach(|| Ok(ask(&*self.cell.lock()?))).map_err(|stop: Stop| stop.raise(py))
    }

    /// What it has counted and what it does, for people; no numbers in a forked child.
    pub(crate) fn said(&self, py: Python<'_>) -> (Option<Counts>, &'static str) {
        py.detach(|| match self.cell.lock() {
            Err(_) => (None, "of no use in a forked process"),
            Ok(state) => {
                let does = match (state.is_finished(), state.is_claimed(), state.is_waiting()) {
                    (true, ..) => "finished",
                    (_, true, _) => "a claim is open",
                    (_, _, true) => "waits for room",
                    _ => "open",
                };
                (Some(state.counts()), does)
            }
        })
    }
}

/// An interrupt in the middle of several samples, which says how many were written.
fn interrupted(py: Python<'_>, error: PyErr, done: usize, of: usize) -> PyErr {
    if of > 1 {
        let value = error.value(py);
        // Exceptions take attributes, and notes since Python 3.11. One that does not is told as it is.
        let _ = value.setattr("done", done);
        let _ = value.call_method1("add_note", (format!("{done} of {of} samples were written"),));
    }
    error
}

/// Nothing is written for one who has been cancelled.
fn expect_wanted(token: Option<&Token>) -> Result<(), Stop> {
    if token.is_some_and(Token::is_cancelled) { Err(Stop::Failed(Error::Cancelled)) } else { Ok(()) }
}

fn partly(py: Python<'_>, stop: Stop, done: usize, of: usize) -> PyErr {
    match stop {
        Stop::Failed(source) if done > 0 => {
            failure::of(py, Error::Partly { done, of, source: Box::new(source) })
        }
        Stop::Late(late) if done > 0 => {
            let message = format!("{done} of {of} samples were written, and then: {}", late.message);
            let number = |n: usize| n.into_pyobject(py).expect("a number is one").into_any();
            let error =
                failure::raise(py, "PartlyError", &message, &[("done", number(done)), ("of", number(of))]);
            error.set_cause(py, Some(late.raise(py)));
            error
        }
        stop => stop.raise(py),
    }
}

/// A structure made of the leaves' names.
pub(crate) fn derived(py: Python<'_>, leaves: &Leaves) -> PyResult<Py<Structure>> {
    let derive = py.import("echod._tree")?.getattr("derived")?;
    Ok(derive.call1((leaves.names(),))?.cast_into::<Structure>()?.unbind())
}
