//! The worker's side of a replay table: samples in, and what is said of each.
//!
//! It is a writer in other words, whose claims are marked before their commit. A priority that is none is refused before
//! anything is claimed.

use echo_client::{ReplayWriter as Inner, Writer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::connection::Client;
use crate::filling::Filling;
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
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        Ok(Self { filling: Filling::new(py, writer.into_writer(), "writer", structure, timeout)? })
    }
}

#[pymethods]
impl ReplayWriter {
    #[new]
    #[pyo3(signature = (client, table, structure=None, timeout=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        client.get().replay_writer(py, table, structure, timeout)
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
        let token = _token.map(Bound::get);
        self.filling.write_marked(sample.py(), &sources, 1, &[mark], timeout, token).map(drop)
    }

    /// Writes several samples: a pytree whose leaves have a leading axis, as a vectorised environment gives them.
    ///
    /// `priorities` and `versions` are each one for all, or an array with one for each; a version of -1 is none. They are
    /// looked at before anything is written. `PartlyError.done` says how many were written if it fails in the middle.
    #[pyo3(signature = (samples, priorities=None, versions=None, *, timeout=None, _token=None))]
    fn append_many(
        &self,
        samples: &Bound<'_, PyAny>,
        priorities: Option<&Bound<'_, PyAny>>,
        versions: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<()> {
        let py = samples.py();
        let (sources, count) = self.filling.sources(samples)?;
        let marks = marks::of_many(py, count, priorities, versions)?;
        let token = _token.map(Bound::get);
        self.filling.write_marked(py, &sources, count, &marks, timeout, token).map(drop)
    }

    /// Room for a sample, to be filled in place: `with writer.claim() as slot: slot.data["obs"][:] = ...`, and
    /// `slot.priority = 2.0`.
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
    ) -> PyResult<ReplayClaim> {
        if n.is_some_and(|n| n < 1) {
            return Err(PyValueError::new_err("a claim is for one sample at least"));
        }
        // More than that is no room anyway: a claim lies in one block.
        let wanted = n.map_or(1, |n| u32::try_from(n).unwrap_or(u32::MAX));
        let room = self.filling.claim(py, wanted, n.is_some(), timeout, _token.map(Bound::get))?;
        Ok(ReplayClaim::new(room, n.is_some()))
    }

    /// Says that this writer writes no more. The table goes on. Calling it again does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.filling.finish(py)
    }

    /// Samples written, and what it does, for people; no number where another thread is in it, or in a forked child.
    fn _said(&self) -> (Option<u64>, &'static str) {
        self.filling.said(Writer::committed)
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.filling.canceller.cancel();
    }

    /// Whether it has finished.
    #[getter]
    fn finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.filling.asked(py, |state| state.finished)
    }

    /// Samples written so far.
    #[getter]
    fn committed(&self, py: Python<'_>) -> PyResult<u64> {
        self.filling.asked(py, |state| state.writer.committed())
    }

    /// How often it waited for room, counted anew at least four times a second.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<u64> {
        self.filling.asked(py, |state| state.writer.waits())
    }
}
