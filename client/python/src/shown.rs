//! What a reader took out of a table, as arrays over the memory where it was written: what batches and values have in
//! common.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array;
use crate::dlpack::DLPackArray;
use crate::failure;
use crate::leaf::Leaves;
use crate::lease::{Hold, Lease, Viewing};
use crate::pending::Pending;
use crate::structure::Structure;

/// Arrays that nobody writes any more, until they are given back.
pub(crate) struct Shown {
    /// None once it is released, or was copied.
    lease: Mutex<Option<Arc<Lease>>>,
    /// The tree, if it was copied.
    copied: Option<Py<PyAny>>,
    leaves: Arc<Leaves>,
    structure: Py<Structure>,
    pending: Py<Pending>,
    table: Arc<str>,
    noun: &'static str,
    number: u64,
    /// The length of each array's first axis, if it has one for samples.
    samples: Option<usize>,
}

impl Shown {
    pub(crate) fn new(
        lease: Arc<Lease>,
        leaves: Arc<Leaves>,
        structure: Py<Structure>,
        pending: Py<Pending>,
        table: Arc<str>,
    ) -> Self {
        let (noun, number, samples) = (lease.taken.noun(), lease.taken.number(), lease.taken.samples());
        let lease = Mutex::new(Some(lease));
        Self { lease, copied: None, leaves, structure, pending, table, noun, number, samples }
    }

    /// With arrays of its own, and given back.
    pub(crate) fn into_copy(mut self, py: Python<'_>) -> PyResult<Self> {
        let copied = self.copy(py).inspect_err(|_| {
            // Nobody has read it.
            self.put_back();
        })?;
        self.copied = Some(copied);
        self.lease.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        Ok(self)
    }

    /// Gives it to nobody, so that its reader has it once more. False if it cannot: it was copied, somebody looks at it, or
    /// it is of a kind that goes to one only.
    pub(crate) fn put_back(&self) -> bool {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        match lease.take().map(Arc::try_unwrap) {
            Some(Ok(alone)) => alone.put_back(),
            Some(Err(shared)) => {
                lease.replace(shared);
                false
            }
            None => false,
        }
    }

    fn lease(&self, py: Python<'_>) -> PyResult<Arc<Lease>> {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lease = lease.ok_or_else(|| {
            let message = format!("{} {} of table {:?} was released", self.noun, self.number, self.table);
            failure::raise(py, "ReleasedError", &message, &[])
        })?;
        if lease.taken.is_elsewhere() {
            return Err(failure::forked(py));
        }
        Ok(lease)
    }

    /// The arrays, in the order of the table.
    fn views<'py>(&self, py: Python<'py>, writeable: bool) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let lease = self.lease(py)?;
        let hold = Bound::new(py, Hold::of_lease(lease.clone()))?.into_any();
        let view = |(i, leaf): (usize, &crate::leaf::Leaf)| {
            let view = lease.taken.array(i);
            let mut dims = [0; echo::spec::MAX_RANK + 1];
            let first = usize::from(self.samples.is_some());
            let rank = first + leaf.dims.len();
            dims[0] = self.samples.unwrap_or_default() as isize;
            dims[first..rank].copy_from_slice(&leaf.dims);
            debug_assert_eq!(view.bytes().len(), leaf.bytes * self.samples.unwrap_or(1));
            let (descr, start) = (leaf.descr.bind(py), view.as_ptr().cast_mut());
            // SAFETY: the view is so many samples of this leaf, one after the other, or one value's (the client's promise);
            // arrays begin on pages and slots are whole elements. `hold` keeps the lease and with it the mapping, and
            // nobody writes the block until the lease is back. `writeable` is for torch alone, which knows no array that is
            // read-only: who writes through it is stopped by the mapping, which is.
            unsafe { array::over(&hold, descr, &mut dims[..rank], start, writeable) }.map(Bound::into_any)
        };
        self.leaves.all.iter().enumerate().map(view).collect()
    }

    /// Bytes of its arrays.
    pub(crate) fn bytes(&self) -> usize {
        self.leaves.bytes * self.samples.unwrap_or(1)
    }

    /// The pytree of arrays over it.
    pub(crate) fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.copied {
            Some(copied) => Ok(copied.clone_ref(py)),
            None => Ok(self.structure.get().tree(py, self.views(py, false)?)?.unbind()),
        }
    }

    /// The pytree with arrays of the caller's own.
    pub(crate) fn copy(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let arrays = match &self.copied {
            Some(copied) => self.copied_arrays(copied.bind(py))?,
            None => self.views(py, false)?,
        };
        // numpy lets go of the interpreter's lock where an array is large.
        let own = |view: Bound<'_, PyAny>| Ok(view.call_method1("copy", ("C",))?.unbind());
        let copies: Vec<Py<PyAny>> = arrays.into_iter().map(own).collect::<PyResult<_>>()?;
        let copies = copies.into_iter().map(|copy| copy.into_bound(py)).collect();
        Ok(self.structure.get().tree(py, copies)?.unbind())
    }

    /// The pytree of arrays for `from_dlpack`.
    pub(crate) fn dlpack(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(copied) = &self.copied {
            return Ok(copied.clone_ref(py));
        }
        let viewing = Arc::new(Viewing::new(self.lease(py)?));
        let array = |leaf| {
            let array = DLPackArray::new(viewing.clone(), self.leaves.clone(), leaf);
            Ok(Bound::new(py, array)?.into_any())
        };
        let arrays = (0..self.leaves.all.len()).map(array).collect::<PyResult<_>>()?;
        Ok(self.structure.get().tree(py, arrays)?.unbind())
    }

    /// The arrays of a copied tree, in the order of the table.
    fn copied_arrays<'py>(&self, copied: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut leaves = vec![None; self.leaves.all.len()];
        self.structure.get().leaves(copied, &mut leaves)?;
        Ok(leaves.into_iter().flatten().collect())
    }

    /// The pytree of arrays of another framework, by the function of that name in `echod._frameworks`.
    pub(crate) fn converted(&self, py: Python<'_>, framework: &str) -> PyResult<Py<PyAny>> {
        let convert = py.import("echod._frameworks")?.getattr(framework)?;
        let views = match &self.copied {
            // Its arrays are nobody's but the caller's.
            Some(copied) => self.copied_arrays(copied.bind(py))?,
            None => self.views(py, framework == "torch")?,
        };
        let converted: Vec<Bound<'_, PyAny>> =
            views.into_iter().map(|view| convert.call1((view,))).collect::<PyResult<_>>()?;
        Ok(self.structure.get().tree(py, converted)?.unbind())
    }

    /// Gives it back, now or once the event has happened.
    pub(crate) fn release(&self, py: Python<'_>, after: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        // Asked before anything is taken: whatever this raises, nothing has been given back.
        if let Some(event) = &after
            && !event.hasattr("query")?
        {
            return Err(PyTypeError::new_err(
                "after= wants an event with a query(), such as torch.cuda.Event",
            ));
        }
        let taken = {
            let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
            match lease.as_ref().map(|lease| (lease.taken.is_elsewhere(), lease.views())) {
                None => return Ok(()),
                Some((true, _)) => Err(None),
                Some((false, 0)) => Ok(lease.take()),
                Some((false, views)) => Err(Some(views)),
            }
        };
        let lease = match taken {
            Ok(lease) => lease,
            Err(None) => return Err(failure::forked(py)),
            Err(Some(views)) => {
                let s = if views == 1 { "" } else { "s" };
                let message = format!(
                    "{} {} cannot be released: arrays over it are alive, of {views} look{s} at its data; delete them, or \
                     use copy()",
                    self.noun, self.number
                );
                let views = views.into_pyobject(py)?.into_any();
                return Err(failure::raise(py, "ViewsAliveError", &message, &[("views", views)]));
            }
        };
        let (Some(event), Some(lease)) = (after, lease) else { return Ok(()) };
        self.pending.get().add(event.unbind(), lease);
        let asked = self.pending.get().poll(py, false);
        // Also where a query failed: others are asked again, and so is this one.
        if !self.pending.get().is_empty() {
            py.import("echod._releaser")?.getattr("watch")?.call1((&self.pending,))?;
        }
        asked.map(drop)
    }

    /// Whether it was given back.
    pub(crate) fn released(&self) -> bool {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Its number: a batch's in its table, a value's version.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Samples in it, if it is of samples.
    pub(crate) fn samples(&self) -> usize {
        self.samples.unwrap_or_default()
    }

    /// What it says of itself, by the function in `echod._reprs`.
    pub(crate) fn repr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let views =
            self.lease.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|lease| lease.views());
        let leaves: Vec<String> = self.leaves.all.iter().map(|leaf| leaf.describe()).collect();
        let (number, samples, bytes) = (self.number, self.samples, self.bytes());
        let said = (self.noun, number, &*self.table, samples, bytes, views, self.copied.is_some(), leaves);
        py.import("echod._reprs")?.getattr("shown")?.call1(said)
    }
}
