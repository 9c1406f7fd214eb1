//! A batch of samples that were chosen, as numpy arrays over the memory where they were gathered.

use echo_client::message::SampledItem;
use echo_client::{Chosen, Largest};
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::shown::Shown;

/// Samples of a replay table. `data` is the pytree of arrays, samples first, and `info` what is known of each.
///
/// The memory is this process's own: it is gathered into anew when the batch and all arrays that show it are gone, or at
/// `release()`.
#[pyclass(frozen, module = "echod", weakref)]
pub(crate) struct SampledBatch {
    shown: Shown,
    chosen: Chosen,
    info: PyOnceLock<Py<PyAny>>,
}

impl SampledBatch {
    pub(crate) const fn new(shown: Shown, chosen: Chosen) -> Self {
        Self { shown, chosen, info: PyOnceLock::new() }
    }

    fn column<'py, T: numpy::Element>(
        &self,
        py: Python<'py>,
        of: impl Fn(&SampledItem) -> T,
    ) -> Bound<'py, PyAny> {
        PyArray1::from_iter(py, self.chosen.items().iter().map(of)).into_any()
    }
}

#[pymethods]
impl SampledBatch {
    /// The pytree of arrays over the batch, read-only. Each look makes new arrays over the same memory.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.shown.data(py)
    }

    /// What is known of each sample, as it was when it was chosen: a `SampleInfo`, whose arrays are in the order of `data`
    /// and stay when the batch is released.
    #[getter]
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let info = self.info.get_or_try_init(py, || {
            let version =
                |item: &SampledItem| item.version.map_or(-1, |it| i64::try_from(it).unwrap_or(i64::MAX));
            let columns = (
                self.column(py, |item| item.key),
                self.column(py, |item| item.probability.0),
                self.column(py, |item| item.priority.0),
                self.column(py, |item| i64::from(item.times_sampled)),
                self.column(py, |item| i64::from(item.table_size)),
                self.column(py, |item| item.age_us as f64 * 1e-6),
                self.column(py, version),
            );
            py.import("echod._columns")?.getattr("SampleInfo")?.call1(columns).map(Bound::unbind)
        })?;
        Ok(info.clone_ref(py))
    }

    /// What each sample weighs to make up for how likely it was to be chosen: `(1 / (N * P)) ** beta`, divided by the largest
    /// of the batch, or of the table (that of its least likely item).
    #[pyo3(signature = (beta, largest="batch"))]
    fn weights<'py>(&self, py: Python<'py>, beta: f64, largest: &str) -> PyResult<Bound<'py, PyArray1<f64>>> {
        if !(beta.is_finite() && beta >= 0.0) {
            return Err(PyValueError::new_err(format!("beta is finite and not negative, and is {beta}")));
        }
        let largest = match largest {
            "batch" => Largest::OfBatch,
            "table" => Largest::OfTable,
            other => {
                return Err(PyValueError::new_err(format!("largest is 'batch' or 'table', not {other:?}")));
            }
        };
        Ok(PyArray1::from_vec(py, self.chosen.importance_weights(beta, largest)))
    }

    /// Why there are fewer samples than were asked for: the inequality of the rate limiter. None if there are as many.
    #[getter]
    fn short(&self) -> Option<&str> {
        self.chosen.short()
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

    /// Lets the memory be gathered into anew. Calling it again does nothing.
    ///
    /// Raises `ViewsAliveError` while arrays over the batch are alive, since they would show what comes next. With
    /// `after=event`, anything with a `query()` that says whether it has happened (such as `torch.cuda.Event`), the
    /// memory goes back once it has: events are asked at each later `next` of the reader, and every millisecond by a
    /// thread while there are any.
    #[pyo3(signature = (after=None))]
    fn release(&self, py: Python<'_>, after: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        self.shown.release(py, after)
    }

    /// Whether it was released.
    #[getter]
    fn released(&self) -> bool {
        self.shown.released()
    }

    /// Its number among those of its reader.
    #[getter]
    const fn number(&self) -> u64 {
        self.shown.number()
    }

    /// Bytes of its samples.
    #[getter]
    fn nbytes(&self) -> usize {
        self.shown.bytes()
    }

    /// Samples in it: as many as were asked for, unless `short` says why not.
    fn __len__(&self) -> usize {
        self.shown.samples()
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.shown.repr(py)
    }
}
