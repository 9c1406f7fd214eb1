//! The worker's side: samples in.

use echo_client::Writer as Inner;
use pyo3::prelude::*;

use crate::claim::Claim;
use crate::connection::{Client, Described};
use crate::filling::{Filling, Samples, Wanted};
use crate::late::Whose;
use crate::structure::Structure;
use crate::waiting::Token;

/// The right to write samples into a table.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Writer {
    filling: Filling,
}

impl Writer {
    pub(crate) fn new(
        py: Python<'_>,
        writer: Inner,
        structure: Option<Py<Structure>>,
        timeout: (f64, Whose),
    ) -> PyResult<Self> {
        Ok(Self { filling: Filling::new(py, writer, "writer", structure, timeout)? })
    }
}

#[pymethods]
impl Writer {
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
        client.get().writer(py, table, structure, timeout, arrays)
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
        let sources = self.filling.source(sample)?;
        let samples = Samples::new(&sources, 1);
        self.filling.write(sample.py(), &samples, 0, timeout, _token.map(Bound::get)).map(drop)
    }

    /// Writes several samples: a pytree whose leaves have a leading axis, as a vectorised environment gives them.
    ///
    /// All leaves must have as many samples. They become neighbours in as few pieces as possible. `PartlyError.done` says
    /// how many were written if it fails in the middle.
    #[pyo3(signature = (samples, *, timeout=None, _token=None, _done=0))]
    fn append_many(
        &self,
        samples: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
        _done: usize,
    ) -> PyResult<()> {
        let (sources, count) = self.filling.sources(samples)?;
        let (py, samples) = (samples.py(), Samples::new(&sources, count));
        self.filling.write(py, &samples, _done, timeout, _token.map(Bound::get)).map(drop)
    }

    /// Room for a sample, to be filled in place: `with writer.claim() as slot: slot.data["obs"][:] = ...`.
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
    ) -> PyResult<Claim> {
        let token = _token.map(Bound::get);
        self.filling.claim(py, Wanted::new(n)?, timeout, token, _whose).map(Claim::new)
    }

    /// As `append` or `append_many`, as far as that can be done without waiting: how many samples were written.
    fn _append_at_once(&self, samples: &Bound<'_, PyAny>, many: bool) -> PyResult<usize> {
        let (sources, count) =
            if many { self.filling.sources(samples)? } else { (self.filling.source(samples)?, 1) };
        let written = self.filling.write_without_waiting(samples.py(), &Samples::new(&sources, count))?;
        Ok(written.done)
    }

    /// As `claim`, if that can be done without waiting.
    #[pyo3(signature = (n=None))]
    fn _claim_at_once(&self, py: Python<'_>, n: Option<i64>) -> PyResult<Option<Claim>> {
        Ok(self.filling.claim_without_waiting(py, Wanted::new(n)?)?.map(Claim::new))
    }

    /// Says that this writer writes no more. When every writer that is attached has said so, what is left is delivered and
    /// the table ends, also for workers that come later: a trainer keeps a writer of its own until all have started. Calling
    /// it again does nothing.
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
