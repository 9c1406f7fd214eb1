//! Arrays of a batch or a value for other frameworks, by DLPack: `batch.dlpack()`.
//!
//! numpy's arrays speak it too, but say of everything that it lies on the CPU. These say that it is page-locked where it is,
//! so that a framework copies it to a GPU in one transfer and without a staging buffer. The structs are those of
//! `dlpack.h`, version 1.1.
//!
//! What always holds: the deleter may be called by any thread, with or without the interpreter; so what it drops is
//! none of Python's.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use echo::spec::MAX_RANK;
use echo_client::DType;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::failure;
use crate::leaf::Leaves;
use crate::lease::Viewing;

/// `kDLCPU`, and the device's number.
const CPU: (i32, i32) = (1, 0);
/// `kDLCUDAHost`: memory of the CPU that is page-locked for CUDA.
const CUDA_HOST: (i32, i32) = (3, 0);

/// What this module fills in; a later minor version adds names for dtypes, which are these already.
const VERSION: Version = Version { major: 1, minor: 1 };
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    rank: i32,
    dtype: DataType,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct ManagedLegacy {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// What a consumer gets, and what it must not see: the address of `managed` is that of all of it.
#[repr(C)]
struct Exported<M> {
    managed: M,
    /// The lengths, then the strides.
    lengths: [i64; 2 * (MAX_RANK + 1)],
    _keeps: Keeps,
}

enum Keeps {
    Taken(#[expect(dead_code, reason = "kept, so that its memory stays")] Arc<Viewing>),
    /// In elements whose alignment is enough for every dtype.
    Copy(#[expect(dead_code, reason = "kept, since it is the memory")] Vec<u128>),
}

/// One array of a batch or a value, for the `from_dlpack` of any framework: read-only, and a view as `data` is.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct DLPackArray {
    viewing: Arc<Viewing>,
    leaves: Arc<Leaves>,
    leaf: usize,
}

impl DLPackArray {
    pub(crate) const fn new(viewing: Arc<Viewing>, leaves: Arc<Leaves>, leaf: usize) -> Self {
        Self { viewing, leaves, leaf }
    }

    fn device(&self) -> (i32, i32) {
        if self.viewing.lease().taken.is_pinned() { CUDA_HOST } else { CPU }
    }

    /// The tensor on that device, and what it needs beside itself. Its pointers to lengths are set where it comes to lie.
    fn tensor(
        &self,
        py: Python<'_>,
        device: (i32, i32),
        copy: bool,
    ) -> (Tensor, [i64; 2 * (MAX_RANK + 1)], Keeps) {
        let (taken, leaf) = (&self.viewing.lease().taken, &self.leaves.all[self.leaf]);
        let bytes = taken.array(self.leaf).bytes();
        let mut lengths = [0; 2 * (MAX_RANK + 1)];
        let samples = taken.samples();
        let dims = samples.into_iter().chain(leaf.dims.iter().map(|&n| n as usize));
        for (i, n) in dims.enumerate() {
            lengths[i] = n as i64;
        }
        let rank = leaf.dims.len() + usize::from(samples.is_some());
        let mut stride = 1;
        for i in (0..rank).rev() {
            lengths[rank + i] = stride;
            // What has a zero in it has no elements, and any strides.
            stride *= lengths[i].max(1);
        }
        let (start, keeps) = if copy {
            // Without the interpreter's lock, as every copy that may be large.
            let mut own = py.detach(|| {
                let mut own = vec![0_u128; bytes.len().div_ceil(size_of::<u128>())];
                // SAFETY: `bytes.len()` bytes of what was taken, which nobody writes while it is viewed, into as many or a few
                // more that were allocated just now.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), own.as_mut_ptr().cast::<u8>(), bytes.len())
                };
                own
            });
            (own.as_mut_ptr().cast::<u8>(), Keeps::Copy(own))
        } else {
            (bytes.as_ptr().cast_mut(), Keeps::Taken(self.viewing.clone()))
        };
        let tensor = Tensor {
            // As the header wants it of what has no bytes.
            data: if bytes.is_empty() { std::ptr::null_mut() } else { start.cast() },
            device: [device.0, device.1],
            rank: rank as i32,
            dtype: data_type(leaf.dtype),
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        (tensor, lengths, keeps)
    }
}

#[pymethods]
impl DLPackArray {
    /// Where it lies: (3, 0), which is page-locked memory, or (1, 0), which is other memory of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        self.device()
    }

    /// The capsule that `from_dlpack` takes. Whoever cannot be told that it is read-only (`max_version` is before 1.0) gets
    /// a copy if it wants one, and nothing else.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.viewing.lease().taken.is_elsewhere() {
            return Err(failure::forked(py));
        }
        if stream.is_some() {
            return Err(PyBufferError::new_err("it lies in the memory of the CPU, which has no streams"));
        }
        let copy = copy.unwrap_or(false);
        let here = if copy { CPU } else { self.device() };
        let device = dl_device.unwrap_or(here);
        if device != here && device != CPU {
            let message =
                format!("it lies in the memory of the CPU, and is wanted on DLPack device {}", device.0);
            return Err(PyBufferError::new_err(message));
        }
        let (tensor, lengths, keeps) = self.tensor(py, device, copy);
        let rank = tensor.rank as usize;
        if max_version.is_some_and(|(major, _)| major >= VERSION.major) {
            let managed = ManagedVersioned {
                version: VERSION,
                context: std::ptr::null_mut(),
                deleter: Some(delete::<ManagedVersioned>),
                flags: if copy { IS_COPIED } else { READ_ONLY },
                tensor,
            };
            let mut exported = Box::new(Exported { managed, lengths, _keeps: keeps });
            exported.managed.tensor.shape = exported.lengths.as_ptr();
            exported.managed.tensor.strides = exported.lengths[rank..].as_ptr();
            return capsule(py, exported, VERSIONED, abandon_versioned);
        }
        if !copy {
            return Err(PyBufferError::new_err(
                "the array is read-only, which DLPack can say since its version 1.0: ask with max_version=(1, 0), or for a \
                 copy",
            ));
        }
        let managed =
            ManagedLegacy { tensor, context: std::ptr::null_mut(), deleter: Some(delete::<ManagedLegacy>) };
        let mut exported = Box::new(Exported { managed, lengths, _keeps: keeps });
        exported.managed.tensor.shape = exported.lengths.as_ptr();
        exported.managed.tensor.strides = exported.lengths[rank..].as_ptr();
        capsule(py, exported, LEGACY, abandon_legacy)
    }

    fn __repr__(&self) -> String {
        let (taken, leaf) = (&self.viewing.lease().taken, &self.leaves.all[self.leaf]);
        let pinned = if taken.is_pinned() { ", page-locked" } else { "" };
        let (noun, number) = (taken.noun(), taken.number());
        format!("<echod.DLPackArray of {noun} {number}: {}{pinned}>", leaf.describe())
    }
}

/// Its code and bits. Every dtype of a table has one.
const fn data_type(dtype: DType) -> DataType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Complex64 | DType::Complex128 => 5,
        DType::Bool => 6,
        DType::F8E4M3 => 10,
        DType::F8E5M2 => 12,
    };
    DataType { code, bits: (dtype.bytes() * 8) as u8, lanes: 1 }
}

/// A capsule of that name around it. If nobody takes it, it goes with the capsule, by `abandon`.
fn capsule<'py, M>(
    py: Python<'py>,
    exported: Box<Exported<M>>,
    name: &'static CStr,
    abandon: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    let exported = Box::into_raw(exported);
    // SAFETY: the interpreter is attached; the pointer is not null; the name is for ever.
    let made = unsafe { ffi::PyCapsule_New(exported.cast(), name.as_ptr(), Some(abandon)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }.inspect_err(|_| {
        // SAFETY: made by a box just now, and nobody else has it.
        drop(unsafe { Box::from_raw(exported) });
    })
}

/// What a consumer calls when it is done.
///
/// # Safety
/// Once, with what was exported as an `Exported<M>`.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    // SAFETY: the caller's promise; `managed` is the first field.
    drop(unsafe { Box::from_raw(managed.cast::<Exported<M>>()) });
}

/// # Safety
/// Called by the interpreter, with a capsule of ours.
unsafe extern "C" fn abandon_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as the caller promises; one that was taken has another name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } != 0 {
        // SAFETY: as was just seen.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()) };
        // SAFETY: nobody has taken it, so nobody deletes it.
        unsafe { delete::<ManagedVersioned>(managed.cast()) };
    }
}

/// # Safety
/// As [`abandon_versioned`].
unsafe extern "C" fn abandon_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: as the caller promises; one that was taken has another name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) } != 0 {
        // SAFETY: as was just seen.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()) };
        // SAFETY: nobody has taken it, so nobody deletes it.
        unsafe { delete::<ManagedLegacy>(managed.cast()) };
    }
}
