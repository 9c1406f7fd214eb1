//! Room that Python fills in place: for samples, or for a value.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use echo_client::{ClaimAside, Mark};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array;
use crate::cell::WriterCell;
use crate::failure;
use crate::leaf::Leaves;
use crate::lease::Hold;
use crate::structure::Structure;

/// Writable arrays over what is claimed, until that is committed or given up.
pub(crate) struct Room {
    cell: Arc<WriterCell>,
    /// None once it is committed or given up.
    aside: Mutex<Option<ClaimAside>>,
    pub(crate) data: Py<PyAny>,
    /// The arrays in `data`, which are made read-only at the end.
    arrays: Vec<Py<PyUntypedArray>>,
    pub(crate) samples: usize,
    /// What is said of each sample at the commit, or nothing of any.
    marks: Mutex<Vec<Mark>>,
}

impl Room {
    /// Over the arrays that begin at these addresses.
    #[expect(clippy::too_many_arguments, reason = "what a claim is made of; called once")]
    pub(crate) fn new(
        py: Python<'_>,
        cell: Arc<WriterCell>,
        aside: ClaimAside,
        leaves: &Leaves,
        structure: &Py<Structure>,
        samples: usize,
        many: bool,
        addresses: &[usize],
    ) -> PyResult<Self> {
        // From here on a failure gives the claim up.
        let none = py.None();
        let (aside, marks) = (Mutex::new(Some(aside)), Mutex::default());
        let mut room = Self { cell, aside, data: none, arrays: Vec::new(), samples, marks };
        let hold = Bound::new(py, Hold::of_writer(room.cell.clone()))?.into_any();
        for (leaf, &address) in leaves.all.iter().zip(addresses) {
            let mut dims: Vec<isize> =
                many.then_some(samples as isize).into_iter().chain(leaf.dims.iter().copied()).collect();
            let (descr, start) = (leaf.descr.bind(py), std::ptr::with_exposed_provenance_mut(address));
            // SAFETY: so many elements of the writable mapping, which `hold` keeps; arrays begin on pages and slots
            // are whole elements. No other process writes them until the claim ends. Then these arrays are made read-only,
            // but views of them are not: who writes through one spoils samples, and no memory but the table's.
            let array = unsafe { array::over(&hold, descr, &mut dims, start, true) }?;
            room.arrays.push(array.unbind());
        }
        let arrays = room.arrays.iter().map(|array| array.bind(py).clone().into_any()).collect();
        room.data = structure.get().tree(py, arrays)?.unbind();
        Ok(room)
    }

    /// Ends it, once: by a commit, or by giving it up. If nobody had ended it, the version that was published, if it was one.
    pub(crate) fn end(&self, py: Python<'_>, commit: bool) -> PyResult<Option<u64>> {
        let Some(aside) = self.aside.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(None);
        };
        // What comes after this belongs to others.
        let locked = self
            .arrays
            .iter()
            .try_for_each(|array| array.bind(py).call_method1("setflags", (false,)).map(drop));
        if let Err(error) = locked {
            // The claim is nobody's now, so it has to end here.
            py.detach(|| self.cell.end(aside, &[], false)).map_err(|stop| stop.raise(py))?;
            return Err(error);
        }
        let marks = std::mem::take(&mut *self.marks());
        let counts = py.detach(|| self.cell.end(aside, &marks, commit)).map_err(|stop| stop.raise(py))?;
        Ok(Some(counts.version))
    }

    /// What is to be said of each sample, to be set before the end.
    pub(crate) fn marks(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Room::end`], for those who want to commit it and nothing else.
    pub(crate) fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        self.end(py, true)?.ok_or_else(|| {
            failure::raise(py, "ClaimError", "this claim was committed or given up before", &[])
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let aside = self.aside.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(aside) = aside {
            // In a forked child there is nothing to give up.
            let _ = self.cell.end(aside, &[], false);
        }
    }
}

/// Room for samples: a context manager that commits them, or gives the room up if its block raises.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct Claim {
    room: Room,
}

impl Claim {
    pub(crate) const fn new(room: Room) -> Self {
        Self { room }
    }
}

#[pymethods]
impl Claim {
    /// The pytree of arrays over the room, writable until the claim ends. Of their views see `commit`.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyAny> {
        self.room.data.clone_ref(py)
    }

    /// Commits the samples. When this returns they will be delivered, whatever dies afterwards.
    ///
    /// The arrays in `data` are read-only from then on. Views of them (slices, tensors) cannot be made so: write through none
    /// of them after it, since the room is no longer yours, and a batch that is being read would change.
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
        let samples = self.room.samples;
        let (s, state) =
            (if samples == 1 { "" } else { "s" }, if self.room.is_open() { "open" } else { "ended" });
        format!("<echod.Claim of {samples} sample{s}, {state}>")
    }
}

/// Room for a value: a context manager that publishes it, or nothing if its block raises.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct ValueClaim {
    room: Room,
    version: Mutex<Option<u64>>,
}

impl ValueClaim {
    pub(crate) const fn new(room: Room) -> Self {
        Self { room, version: Mutex::new(None) }
    }

    fn is_now(&self, version: u64) {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).replace(version);
    }
}

#[pymethods]
impl ValueClaim {
    /// The pytree of writable arrays over the room. What is in them is left over from an older value.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyAny> {
        self.room.data.clone_ref(py)
    }

    /// Publishes the value, and says its version. When this returns it is the newest, whatever dies afterwards. Do not keep
    /// views of the arrays beyond it: readers have the value.
    fn publish(&self, py: Python<'_>) -> PyResult<u64> {
        let version = self.room.commit(py)?;
        self.is_now(version);
        Ok(version)
    }

    /// Publishes nothing. Calling it again, or after it was published, does nothing.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.room.end(py, false).map(drop)
    }

    /// The version that it was published as; None if it was not.
    #[getter]
    fn version(&self) -> Option<u64> {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let (Some(version), None) = (self.room.end(py, class.is_none())?, class) {
            self.is_now(version);
        }
        Ok(false)
    }

    fn __repr__(&self) -> String {
        match self.version() {
            Some(version) => format!("<echod.ValueClaim, published as version {version}>"),
            None if self.room.is_open() => "<echod.ValueClaim, open>".into(),
            None => "<echod.ValueClaim, ended>".into(),
        }
    }
}
