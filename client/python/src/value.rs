//! A value of a latest table, as numpy arrays over the memory where it was published.

use pyo3::prelude::*;

use crate::shown::Shown;

/// A value that is not written again while this, or an array over it, lives. `data` is the pytree of arrays.
///
/// Its room is free for newer values when it and all arrays that show it are gone, or at `release()`.
#[pyclass(frozen, module = "echod", weakref)]
pub(crate) struct Value {
    shown: Shown,
}

impl Value {
    pub(crate) const fn new(shown: Shown) -> Self {
        Self { shown }
    }
}

#[pymethods]
impl Value {
    /// The pytree of arrays over the value, read-only; a number is an array without axes. Each look makes new arrays over the
    /// same memory.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.data(py)
    }

    /// The pytree with arrays of your own, which stay when the value is released.
    fn copy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.copy(py)
    }

    /// The pytree of torch tensors over the value, without a copy. They are views as `data` is: they hold the value, and
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

    /// Lets the value go, so that its room can be written again. Calling it again does nothing.
    ///
    /// Raises `ViewsAliveError` while arrays over the value are alive, since they would show what comes next. With
    /// `after=event`, anything with a `query()` that says whether it has happened (such as `torch.cuda.Event`), the
    /// value goes once it has: events are asked at each later call of the reader, and every millisecond by a thread
    /// while there are any.
    #[pyo3(signature = (after=None))]
    fn release(&self, py: Python<'_>, after: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.shown.release(py, after)
    }

    /// Whether it was let go.
    #[getter]
    fn released(&self) -> bool {
        self.shown.released()
    }

    /// 1 for the first value that was published in the table, and one more for each after it.
    #[getter]
    const fn version(&self) -> u64 {
        self.shown.number()
    }

    /// Bytes of its arrays.
    #[getter]
    fn nbytes(&self) -> usize {
        self.shown.bytes()
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.shown.repr(py)
    }
}
