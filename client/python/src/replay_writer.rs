//! The worker's side of a replay table: samples in, and what is said of each.
//!
//! It is a writer in other words, whose claims are marked before their commit. A priority that is none is refused before
//! anything is claimed.

use echo_client::ReplayWriter as Inner;
use pyo3::prelude::*;

use crate::connection::{Client, Described};
use crate::filling::{Filling, Samples, Wanted};
use crate::late::Whose;
use crate::marks;
use crate::replay_claim::ReplayClaim;
use crate::structure::Structure;
use crate::waiting::Token;

/// The right to write samples into a replay table.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct ReplayWriter {
    filling: Filling,
}

impl ReplayWriter {
    pub(crate) fn new(
        py: Python<'_>,
        writer: Inner,
        structure: Option<Py<Structure>>,
        timeout: (f64, Whose),
    ) -> PyResult<Self> {
        Ok(Self { filling: Filling::new(py, writer.into_writer(), "writer", structure, timeout)? })
    }
}

#[pymethods]
impl ReplayWriter {
    #[new]
    #[pyo3(signature = (client, table, structure=None, timeout=None, arrays=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Self> {
        client.get().replay_writer(py, table, structure, timeout, arrays)
    }

    /// Writes one sample: a pytree with the table's leaves. Waits where the rate limiter holds workers back.
    ///
    /// `priority` is finite and not negative (else `PriorityError`, and nothing is written); without one it is the largest of
    /// those that are there. `version` is that of the policy that made it. When it returns, the sample is or will be one of
    /// the table's items, whatever dies afterwards. `timeout` is in seconds, by default that of the writer; `math.inf` waits
    /// for ever.
    #[pyo3(signature = (sample, priority=None, version=None, *, timeout=None, _token=None))]
    fn append(
        &self,
        sample: &Bound<'_, PyAny>,
        priority: Option<f64>,
        version: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<()> {
        let mark = marks::of_one(sample.py(), priority, version)?;
        let sources = self.filling.source(sample)?;
        let marks = [mark];
        let samples = Samples::marked(&sources, 1, &marks);
        self.filling.write(sample.py(), &samples, 0, timeout, _token.map(Bound::get)).map(drop)
    }

    /// Writes several samples: a pytree whose leaves have a leading axis, as a vectorised environment gives them.
    ///
    /// `priorities` and `versions` are each one for all, or an array with one for each; a version of -1 is none. They are
    /// looked at before anything is written. `PartlyError.done` says how many were written if it fails in the middle.
    #[pyo3(signature = (samples, priorities=None, versions=None, *, timeout=None, _token=None, _done=0))]
    fn append_many(
        &self,
        samples: &Bound<'_, PyAny>,
        priorities: Option<&Bound<'_, PyAny>>,
        versions: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
        _done: usize,
    ) -> PyResult<()> {
        let py = samples.py();
        let (sources, count) = self.filling.sources(samples)?;
        let marks = marks::of_many(py, count, priorities, versions)?;
        let samples = Samples::marked(&sources, count, &marks);
        self.filling.write(py, &samples, _done, timeout, _token.map(Bound::get)).map(drop)
    }

    /// Room for a sample, to be filled in place: `with writer.claim() as slot: slot.data["obs"][:] = ...`, and
    /// `slot.priority = 2.0`.
    ///
    /// The block commits it at its end, and gives it up if it raises. With `n`, room for up to `n` samples in a row
    /// (`len(slot)` says how many): the arrays then have a leading axis. What is in them is left over from before.
    #[pyo3(signature = (n=None, *, timeout=None, _token=None, _whose=None))]
    fn claim(
        &self,
        py: Python<'_>,
        n: Option<i64>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
        _whose: Option<i32>,
    ) -> PyResult<ReplayClaim> {
        let wanted = Wanted::new(n)?;
        let room = self.filling.claim(py, wanted, timeout, _token.map(Bound::get), _whose)?;
        Ok(ReplayClaim::new(room, wanted.is_many()))
    }

    /// As `append`, if that can be done without waiting: whether it was.
    fn _append_at_once(
        &self,
        sample: &Bound<'_, PyAny>,
        priority: Option<f64>,
        version: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let marks = [marks::of_one(sample.py(), priority, version)?];
        let sources = self.filling.source(sample)?;
        let written =
            self.filling.write_without_waiting(sample.py(), &Samples::marked(&sources, 1, &marks))?;
        Ok(written.done == 1)
    }

    /// As `append_many`, as far as that can be done without waiting: how many samples were written.
    fn _append_many_at_once(
        &self,
        samples: &Bound<'_, PyAny>,
        priorities: Option<&Bound<'_, PyAny>>,
        versions: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let py = samples.py();
        let (sources, count) = self.filling.sources(samples)?;
        let marks = marks::of_many(py, count, priorities, versions)?;
        let written = self.filling.write_without_waiting(py, &Samples::marked(&sources, count, &marks))?;
        Ok(written.done)
    }

    /// As `claim`, if that can be done without waiting.
    #[pyo3(signature = (n=None))]
    fn _claim_at_once(&self, py: Python<'_>, n: Option<i64>) -> PyResult<Option<ReplayClaim>> {
        let wanted = Wanted::new(n)?;
        let room = self.filling.claim_without_waiting(py, wanted)?;
        Ok(room.map(|room| ReplayClaim::new(room, wanted.is_many())))
    }

    /// Says that this writer writes no more. The table goes on. Calling it again does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.filling.finish(py)
    }

    /// Samples written, and what it does, for people; no number in a forked child.
    fn _said(&self, py: Python<'_>) -> (Option<u64>, &'static str) {
        let (counts, does) = self.filling.said(py);
        (counts.map(|counts| counts.committed), does)
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.filling.wake();
    }

    /// Whether it has finished.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.filling.is_finished(py)
    }

    /// Samples written so far.
    #[getter]
    fn committed(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.filling.counts(py)?.committed)
    }

    /// How often it waited for room, counted anew at least ten times a second.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.filling.counts(py)?.waits)
    }
}
