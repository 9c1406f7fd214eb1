//! A batch, as numpy arrays over the memory where it was written.

use pyo3::prelude::*;

use crate::shown::Shown;

/// Samples that nobody writes any more. `data` is the pytree of arrays, samples first.
///
/// The memory goes back to the workers when the batch and all arrays that show it are gone, or at `release()`.
#[pyclass(frozen, module = "echod", weakref)]
pub(crate) struct Batch {
    shown: Shown,
}

impl Batch {
    pub(crate) const fn new(shown: Shown) -> Self {
        Self { shown }
    }
}

#[pymethods]
impl Batch {
    /// The pytree of arrays over the batch, read-only. Each look makes new arrays over the same memory.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.data(py)
    }

    /// The pytree with arrays of your own, which stay when the batch is released.
    fn copy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.copy(py)
    }

    /// The pytree of torch tensors over the batch, without a copy. They are views as `data` is: they keep the batch, and
    /// must not be written to.
    fn torch(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.converted(py, "torch")
    }

    /// The pytree of arrays for the `from_dlpack` of any framework, without a copy. They are views as `data` is. Where the
    /// memory is page-locked for CUDA (`reader.pinned`) they say so, which numpy's arrays cannot.
    fn dlpack(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.dlpack(py)
    }

    /// The pytree of jax arrays: over the same memory where jax can, else copies.
    fn jax(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.converted(py, "jax")
    }

    /// Gives the memory back to the workers. Calling it again does nothing.
    ///
    /// Raises `ViewsAliveError` while arrays over the batch are alive, since they would show what comes next. With
    /// `after=event`, anything with a `query()` that says whether it has happened (such as `torch.cuda.Event`), the
    /// memory goes back once it has: events are asked at each later `next` of the reader, and every millisecond by a
    /// thread while there are any.
    #[pyo3(signature = (after=None))]
    fn release(&self, py: Python<'_>, after: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.shown.release(py, after)
    }

    /// Whether its memory went back.
    #[getter]
    fn released(&self) -> bool {
        self.shown.released()
    }

    /// Its number in the table. Ascending within one reader, but for batches that a reader which died held before.
    #[getter]
    const fn seq(&self) -> u64 {
        self.shown.number()
    }

    /// Bytes of its samples.
    #[getter]
    fn nbytes(&self) -> usize {
        self.shown.bytes()
    }

    /// Samples in it: the table's batch size, but for the last ones of a table that has ended.
    fn __len__(&self) -> usize {
        self.shown.samples()
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.shown.repr(py)
    }
}
