//! The side that publishes: values into a latest table, each as the newest.
//!
//! It is a writer in other words: a value is a sample, and its commit publishes it.

use echo_client::Publisher as Inner;
use pyo3::prelude::*;

use crate::claim::ValueClaim;
use crate::connection::Client;
use crate::filling::Filling;
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
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        let writer = publisher.into_writer();
        Ok(Self { filling: Filling::new(py, writer, "publisher", structure, timeout)? })
    }
}

#[pymethods]
impl Publisher {
    #[new]
    #[pyo3(signature = (client, table, structure=None, timeout=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        timeout: Option<f64>,
    ) -> PyResult<Self> {
        client.get().publisher(py, table, structure, timeout)
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
        let written = self.filling.write(value.py(), &sources, 1, timeout, _token.map(Bound::get))?;
        Ok(written.version)
    }

    /// Room for the next value, to be filled in place: `with publisher.claim() as value: value.data["w"][:] = ...`.
    ///
    /// The block publishes it at its end, and nothing if it raises. What is in the arrays is left over from an older value.
    #[pyo3(signature = (*, timeout=None, _token=None))]
    fn claim(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<ValueClaim> {
        self.filling.claim(py, 1, false, timeout, _token.map(Bound::get)).map(ValueClaim::new)
    }

    /// Says that this publisher publishes no more, so that another one can attach. The table goes on. Calling it again
    /// does nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.filling.finish(py)
    }

    /// The version that it published last, and what it does, for people; as a writer's.
    fn _said(&self) -> (Option<u64>, &'static str) {
        self.filling.said(echo_client::Writer::version)
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

    /// The version that it published last; 0 before the first.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        self.filling.asked(py, |state| state.writer.version())
    }

    /// How often it waited for room, counted anew at least four times a second.
    #[getter]
    fn waits(&self, py: Python<'_>) -> PyResult<u64> {
        self.filling.asked(py, |state| state.writer.waits())
    }
}
