//! The worker's side: samples in.

use echo_client::Writer as Inner;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::claim::Claim;
use crate::connection::{Client, Described};
use crate::filling::Filling;
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
        timeout: Option<f64>,
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
        self.filling.write(sample.py(), &sources, 1, timeout, _token.map(Bound::get)).map(drop)
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
        let (sources, count) = self.filling.sources(samples)?;
        self.filling.write(samples.py(), &sources, count, timeout, _token.map(Bound::get)).map(drop)
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
        let room = self.filling.claim(py, wanted, n.is_some(), timeout, _token.map(Bound::get))?;
        Ok(Claim::new(room))
    }

    /// Says that this writer writes no more. When every writer of the table has said so, what is left is delivered and
    /// the table ends. Calling it again does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.filling.finish(py)
    }

    /// Samples written, and what it does, for people; no number where another thread is in it, or in a forked child.
    fn _said(&self) -> (Option<u64>, &'static str) {
        self.filling.said(Inner::committed)
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
