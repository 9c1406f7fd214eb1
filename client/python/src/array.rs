//! numpy's arrays: looking into them, and making them over memory of ours.

use std::ffi::{c_int, c_void};

use numpy::npyffi::{
    self, NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, NPY_TYPES, PY_ARRAY_API, npy_intp,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// What an array says of itself, while it is borrowed.
pub(crate) struct Fields<'a> {
    pub(crate) data: *const u8,
    pub(crate) dims: &'a [isize],
    pub(crate) strides: &'a [isize],
    pub(crate) descr: *mut npyffi::PyArray_Descr,
    pub(crate) is_contiguous: bool,
}

/// What the array says of itself.
pub(crate) fn fields<'a>(array: &'a Bound<'_, PyUntypedArray>) -> Fields<'a> {
    let object = array.as_array_ptr();
    // SAFETY: it is an array (its type), alive while it is borrowed; only the interpreter's lock changes it.
    let fields = unsafe { &(*object).fields };
    let rank = fields.nd as usize;
    let (dims, strides): (&[isize], &[isize]) = if rank == 0 {
        (&[], &[])
    } else {
        // SAFETY: an array of `nd` dimensions has so many lengths, which live as long as it has this shape; it is
        // not reshaped while we look, since that takes the interpreter's lock.
        let dims = unsafe { std::slice::from_raw_parts(fields.dimensions, rank) };
        // SAFETY: as above, of the strides.
        let strides = unsafe { std::slice::from_raw_parts(fields.strides, rank) };
        (dims, strides)
    };
    Fields {
        data: fields.data.cast(),
        dims,
        strides,
        descr: fields.descr,
        is_contiguous: fields.flags & NPY_ARRAY_C_CONTIGUOUS != 0,
    }
}

/// Whether it is an array of numpy's own class.
pub(crate) fn is_exact(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: it is an object, and the interpreter is attached, as the `Bound` says.
    (unsafe { npyffi::PyArray_CheckExact(object.py(), object.as_ptr()) }) != 0
}

/// Whether it is one of numpy's scalars.
pub(crate) fn is_scalar(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    static GENERIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    object.is_instance(GENERIC.import(object.py(), "numpy", "generic")?)
}

/// An array of one of numpy's scalars, such as `np.float32(1)`; None if it is none.
pub(crate) fn of_scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyUntypedArray>>> {
    let py = object.py();
    if !is_scalar(object)? {
        return Ok(None);
    }
    // SAFETY: it is one of numpy's scalars; no dtype asks for its own.
    let made = unsafe { PY_ARRAY_API.PyArray_FromScalar(py, object.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
    Ok(Some(made.cast_into()?))
}

/// Whether it is a number's dtype of numpy's own, and not one that another package has added.
pub(crate) fn is_of_numpy(descr: &Bound<'_, PyArrayDescr>) -> bool {
    descr.num() < NPY_TYPES::NPY_USERDEF as c_int
        && b"biufc".contains(&descr.kind())
        && descr.itemsize() <= 16
}

/// The bytes of one of numpy's scalars, without an array.
///
/// # Safety
/// It is an instance of the very class of numpy's scalars of a dtype that [`is_of_numpy`], which has at most 16 bytes.
#[inline]
pub(crate) unsafe fn bytes_of_scalar(object: &Bound<'_, PyAny>) -> [u8; 16] {
    let mut bytes = [0; 16];
    // SAFETY: one of numpy's scalars (the caller). Those of a number's dtype are copied, as many bytes as it has, which
    // there is room for.
    unsafe {
        PY_ARRAY_API.PyArray_ScalarAsCtype(object.py(), object.as_ptr(), bytes.as_mut_ptr().cast::<c_void>());
    };
    bytes
}

/// An array over memory of ours, that keeps `base` alive while it or a view of it is there.
///
/// # Safety
/// `data` is so many elements as `dims` says, aligned and valid while `base` is alive; for `writeable`, it is mapped to be
/// written, or the process is stopped that tries. That nobody else reads or writes it meanwhile is for the Python program to
/// see to, as with all arrays that share memory: this code makes no reference to what such an array may write.
pub(crate) unsafe fn over<'py>(
    base: &Bound<'py, PyAny>,
    descr: &Bound<'py, PyArrayDescr>,
    dims: &mut [npy_intp],
    data: *mut u8,
    writeable: bool,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = base.py();
    let flags = NPY_ARRAY_ALIGNED | NPY_ARRAY_C_CONTIGUOUS | if writeable { NPY_ARRAY_WRITEABLE } else { 0 };
    let subtype = PyUntypedArray::type_object_raw(py);
    let rank = dims.len() as c_int;
    let (lengths, strides) = (dims.as_mut_ptr(), std::ptr::null_mut());
    let (memory, none) = (data.cast::<c_void>(), std::ptr::null_mut());
    let descr = descr.clone().into_dtype_ptr();
    // SAFETY: numpy's class; a dtype whose reference it takes over; as many lengths as it is told; no strides, so
    // that the elements lie in a row, as the caller promises.
    let made = unsafe {
        PY_ARRAY_API.PyArray_NewFromDescr(py, subtype, descr, rank, lengths, strides, memory, flags, none)
    };
    // SAFETY: a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) }?;
    // SAFETY: the array is new and has no base; the reference to `base` is taken over.
    let set =
        unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, made.as_ptr().cast(), base.clone().into_ptr()) };
    if set != 0 {
        return Err(PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("an array has no owner")));
    }
    // SAFETY: numpy made it: an array.
    Ok(unsafe { made.cast_into_unchecked() })
}
