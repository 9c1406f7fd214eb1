//! Room for samples of a replay table that Python fills in place, with what is to be said of them.

use echo_client::Mark;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::claim::Room;
use crate::marks;

/// Room for samples of a replay table: a context manager that commits them, or gives the room up if its block raises.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct ReplayClaim {
    room: Room,
    many: bool,
}

impl ReplayClaim {
    pub(crate) const fn new(room: Room, many: bool) -> Self {
        Self { room, many }
    }

    /// Changes what is to be said, if all of it can be said then.
    fn say(&self, py: Python<'_>, change: impl FnOnce(&mut [Mark]) -> PyResult<()>) -> PyResult<()> {
        let mut said = self.said();
        change(&mut said)?;
        marks::checked(py, &said)?;
        *self.room.marks() = said;
        Ok(())
    }

    fn said(&self) -> Vec<Mark> {
        let said = self.room.marks();
        if said.is_empty() { vec![Mark::default(); self.room.samples] } else { said.clone() }
    }
}

#[pymethods]
impl ReplayClaim {
    /// The pytree of writable arrays over the room.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyAny> {
        self.room.data.clone_ref(py)
    }

    /// The sample's priority, None before it is set. Of a claim of several an array, which is NaN where there is none; it is
    /// set by one for all or an array.
    #[getter]
    fn priority(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let said = self.said();
        if !self.many {
            return Ok(said[0].priority.into_pyobject(py)?.into_any().unbind());
        }
        let column: Vec<f64> = said.iter().map(|mark| mark.priority.unwrap_or(f64::NAN)).collect();
        Ok(PyArray1::from_vec(py, column).into_any().unbind())
    }

    #[setter]
    fn set_priority(&self, priority: &Bound<'_, PyAny>) -> PyResult<()> {
        self.say(priority.py(), |said| marks::set_priorities(said, priority))
    }

    /// The version of the policy that made the sample, None before it is set. Of a claim of several an array, which is -1
    /// where there is none; it is set by one for all or an array.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let said = self.said();
        if !self.many {
            return Ok(said[0].version.into_pyobject(py)?.into_any().unbind());
        }
        let column: Vec<i64> =
            said.iter().map(|mark| mark.version.map_or(-1, |version| version as i64)).collect();
        Ok(PyArray1::from_vec(py, column).into_any().unbind())
    }

    #[setter]
    fn set_version(&self, version: &Bound<'_, PyAny>) -> PyResult<()> {
        self.say(version.py(), |said| marks::set_versions(said, version))
    }

    /// Commits the samples. When this returns they are or will be among the table's items, whatever dies afterwards. Do not
    /// keep views of the arrays beyond it: the room is no longer yours.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.room.commit(py).map(drop)
    }

    /// Gives the room to others. Calling it again, or after a commit, does nothing.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.room.end(py, false).map(drop)
    }

    fn __len__(&self) -> usize {
        self.room.samples
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        class: Option<Bound<'_, PyType>>,
        _value: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        // One that was ended inside the block is done.
        self.room.end(py, class.is_none())?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let (samples, s) = (self.room.samples, if self.room.samples == 1 { "" } else { "s" });
        let state = if self.room.is_open() { "open" } else { "ended" };
        format!("<echod.ReplayClaim of {samples} sample{s}, {state}>")
    }
}
