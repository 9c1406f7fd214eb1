//! Room for samples that Python fills in place.

use std::sync::{Arc, Mutex, PoisonError};

use echo_client::ClaimAside;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array;
use crate::failure;
use crate::leaf::Leaves;
use crate::lease::Hold;
use crate::structure::Structure;
use crate::writer::{Stop, WriterCell};

/// Room for samples: a context manager that commits them, or gives the room up if its block raises.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct Claim {
    cell: Arc<WriterCell>,
    /// None once it is committed or given up.
    aside: Mutex<Option<ClaimAside>>,
    data: Py<PyAny>,
    /// The arrays in `data`, which are made read-only at the end.
    arrays: Vec<Py<PyUntypedArray>>,
    samples: usize,
}

impl Claim {
    /// Over the arrays that begin at these addresses.
    #[expect(clippy::too_many_arguments, reason = "what a claim is made of; called once")]
    pub(crate) fn new(
        py: Python<'_>,
        cell: Arc<WriterCell>,
        aside: ClaimAside,
        leaves: &Leaves,
        structure: Py<Structure>,
        samples: usize,
        many: bool,
        addresses: &[usize],
    ) -> PyResult<Self> {
        // From here on a failure gives the claim up.
        let none = py.None();
        let mut claim =
            Self { cell, aside: Mutex::new(Some(aside)), data: none, arrays: Vec::new(), samples };
        let hold = Bound::new(py, Hold::of_writer(claim.cell.clone()))?.into_any();
        for (leaf, &address) in leaves.all.iter().zip(addresses) {
            let mut dims: Vec<isize> =
                many.then_some(samples as isize).into_iter().chain(leaf.dims.iter().copied()).collect();
            let (descr, start) = (leaf.descr.bind(py), std::ptr::with_exposed_provenance_mut(address));
            // SAFETY: so many elements of the writable mapping, which `hold` keeps; arrays begin on pages and slots
            // are whole elements. The claim is ours alone until it ends, and then the arrays are made read-only.
            let array = unsafe { array::over(&hold, descr, &mut dims, start, true) }?;
            claim.arrays.push(array.unbind());
        }
        let arrays = claim.arrays.iter().map(|array| array.bind(py).clone().into_any()).collect();
        claim.data = structure.get().tree(py, arrays)?.unbind();
        Ok(claim)
    }

    /// Ends it, once: by a commit, or by giving it up.
    fn end(&self, py: Python<'_>, commit: bool) -> PyResult<bool> {
        let Some(aside) = self.aside.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(false);
        };
        for array in &self.arrays {
            // What comes after this belongs to others.
            array.bind(py).call_method1("setflags", (false,))?;
        }
        py.detach(|| end(&self.cell, aside, commit)).map_err(|stop| stop.raise(py))?;
        Ok(true)
    }
}

fn end(cell: &WriterCell, aside: ClaimAside, commit: bool) -> Result<(), Stop> {
    let mut state = cell.lock()?;
    state.open = None;
    match state.writer.resume(aside) {
        Some(claim) if commit => Ok(claim.commit()?),
        // Dropping it gives the room to others.
        Some(claim) => {
            drop(claim);
            Ok(())
        }
        None => Ok(()),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let aside = self.aside.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(aside) = aside {
            // In a forked child there is nothing to give up.
            let _ = end(&self.cell, aside, false);
        }
    }
}

#[pymethods]
impl Claim {
    /// The pytree of writable arrays over the room.
    #[getter]
    fn data(&self, py: Python<'_>) -> Py<PyAny> {
        self.data.clone_ref(py)
    }

    /// Commits the samples. When this returns they will be delivered, whatever dies afterwards. Do not keep views of the
    /// arrays beyond it: the room is no longer yours.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        match self.end(py, true)? {
            true => Ok(()),
            false => {
                Err(failure::raise(py, "ClaimError", "this claim was committed or given up before", &[]))
            }
        }
    }

    /// Gives the room to others. Calling it again, or after a commit, does nothing.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, false).map(drop)
    }

    fn __len__(&self) -> usize {
        self.samples
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
        self.end(py, class.is_none())?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let open = self.aside.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let (samples, s) = (self.samples, if self.samples == 1 { "" } else { "s" });
        format!("<echod.Claim of {samples} sample{s}, {}>", if open { "open" } else { "ended" })
    }
}
