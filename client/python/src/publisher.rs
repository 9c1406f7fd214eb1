//! The side that publishes: values into a latest table, each as the newest.
//!
//! It is a writer in other words: a value is a sample, and its commit publishes it.

use echo_client::Publisher as Inner;
use pyo3::prelude::*;

use crate::claim::ValueClaim;
use crate::connection::{Client, Described};
use crate::filling::{Filling, Samples, Wanted};
use crate::late::Whose;
use crate::structure::Structure;
use crate::waiting::Token;

/// The right to publish values of a latest table.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct Publisher {
    filling: Filling,
}

impl Publisher {
    pub(crate) fn new(
        py: Python<'_>,
        publisher: Inner,
        structure: Option<Py<Structure>>,
        timeout: (f64, Whose),
    ) -> PyResult<Self> {
        let writer = publisher.into_writer();
        Ok(Self { filling: Filling::new(py, writer, "publisher", structure, timeout)? })
    }
}

#[pymethods]
impl Publisher {
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
        client.get().publisher(py, table, structure, timeout, arrays)
    }

    /// Publishes a value, a pytree with the table's leaves, and says its version. Waits for room if there is none: readers
    /// then hold every older value.
    ///
    /// When it returns the value is the newest, whatever dies afterwards. If it raises, nothing was published. `timeout` is
    /// in seconds, by default that of the publisher; `math.inf` waits for ever.
    #[pyo3(signature = (value, *, timeout=None, _token=None))]
    fn publish(
        &self,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<u64> {
        let sources = self.filling.source(value)?;
        let samples = Samples::new(&sources, 1);
        let written = self.filling.write(value.py(), &samples, 0, timeout, _token.map(Bound::get))?;
        Ok(written.version)
    }

    /// Room for the next value, to be filled in place: `with publisher.claim() as value: value.data["w"][:] = ...`.
    ///
    /// The block publishes it at its end, and nothing if it raises. What is in the arrays is left over from an older value.
    #[pyo3(signature = (*, timeout=None, _token=None, _whose=None))]
    fn claim(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
        _whose: Option<i32>,
    ) -> PyResult<ValueClaim> {
        let token = _token.map(Bound::get);
        self.filling.claim(py, Wanted::new(None)?, timeout, token, _whose).map(ValueClaim::new)
    }

    /// Says that this publisher publishes no more, so that another one can attach. The table goes on. Calling it again
    /// does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.filling.finish(py)
    }

    /// The version that it published last, and what it does, for people; no number in a forked child.
    fn _said(&self, py: Python<'_>) -> (Option<u64>, &'static str) {
        let (counts, does) = self.filling.said(py);
        (counts.map(|counts| counts.version), does)
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

    /// The version that it published last; 0 before the first.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.filling.counts(py)?.version)
    }

    /// How often it waited for room, counted anew at least ten times a second.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.filling.counts(py)?.waits)
    }
}
