//! One leaf of a sample: what may be written into it, and from where.
//!
//! Nothing is converted: an array must have the leaf's dtype and shape. Only Python's own numbers have no size of their
//! own, so a float goes into any float leaf, an int into any integer leaf that holds it, a bool into a bool leaf. What is
//! no numpy array is made one by Python code (`echod._leaves`), once for each call.

use echo_client::{ArraySpec, DType, TableSpec};
use numpy::npyffi::PyArray_Descr;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyComplexMethods, PyFloat, PyInt, PyType};

use crate::strided::copy_strided;
use crate::{array, failure};

/// A leaf of the table's samples.
pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) descr: Py<PyArrayDescr>,
    /// The class of numpy's scalars of this dtype; None for dtypes that are not numpy's own.
    scalar: Option<Py<PyType>>,
    /// The shape of one sample's leaf.
    pub(crate) dims: Vec<isize>,
    /// Of one sample.
    pub(crate) bytes: usize,
    item: usize,
}

/// The leaves of a table's samples, in the order of its spec.
pub(crate) struct Leaves {
    pub(crate) all: Vec<Leaf>,
    /// Of one sample.
    pub(crate) bytes: usize,
}

/// How many samples were given at once, and by which leaf that is known.
#[derive(Clone, Copy)]
pub(crate) struct Several<'l> {
    pub(crate) samples: usize,
    of: &'l str,
}

/// Where a leaf's bytes are, and what keeps them there.
pub(crate) struct Source {
    place: Place,
    _keeps: Option<Py<PyAny>>,
}

enum Place {
    /// In a row.
    Row(*const u8),
    /// Anywhere.
    Strided(Box<Strided>),
    /// A number of Python's, or one of numpy's scalars.
    Inline([u8; 16]),
}

/// An array's elements: where they begin, how many there are along each axis, and how far apart.
struct Strided {
    from: *const u8,
    dims: Vec<isize>,
    strides: Vec<isize>,
}

// SAFETY: the addresses are of memory that the arrays in `_keeps` own, which can be read from any thread. (That another
// thread writes into an array while it is appended is the program's mistake, as it is with numpy's own copies.)
unsafe impl Send for Source {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Source {}

impl Leaves {
    /// Those of that spec. Its dtypes come from numpy, or from ml_dtypes.
    pub(crate) fn new(py: Python<'_>, spec: &TableSpec) -> PyResult<Self> {
        let dtypes = py.import("echod._dtypes")?.getattr("dtype")?;
        let leaf = |array: &ArraySpec| {
            let descr = dtypes.call1((array.dtype.name(),))?.cast_into::<PyArrayDescr>()?;
            let scalar = array::is_of_numpy(&descr).then(|| descr.typeobj().unbind());
            let dims = array.shape.iter().map(|&n| n as isize).collect();
            // The spec was validated when it was attached to.
            let bytes = array.slot_bytes().unwrap_or(0) as usize;
            let item = array.dtype.bytes() as usize;
            let (name, descr) = (array.path.clone(), descr.unbind());
            Ok(Leaf { name, dtype: array.dtype, descr, scalar, dims, bytes, item })
        };
        let all: Vec<Leaf> = spec.arrays.iter().map(leaf).collect::<PyResult<_>>()?;
        let bytes = all.iter().map(|leaf| leaf.bytes).sum();
        Ok(Self { all, bytes })
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.all.iter().map(|leaf| &leaf.name[..]).collect()
    }
}

impl Leaf {
    /// `obs float32[4]`
    pub(crate) fn describe(&self) -> String {
        format!("{} {}{:?}", self.name, self.dtype, self.dims)
    }

    /// Where the bytes of one sample are.
    #[inline]
    pub(crate) fn source(&self, object: Bound<'_, PyAny>) -> PyResult<Source> {
        if array::is_exact(&object) {
            // SAFETY: just looked.
            let array = unsafe { object.cast_into_unchecked::<PyUntypedArray>() };
            return self.of_array(array, None);
        }
        if self.dims.is_empty()
            && let Some(inline) =
                self.of_scalar(&object).map_or_else(|| self.of_number(&object), |it| Ok(Some(it)))?
        {
            return Ok(Source { place: Place::Inline(inline), _keeps: None });
        }
        self.of_array(self.made_array(object)?, None)
    }

    /// Where the bytes of several samples are, along a leading axis. All leaves must have as many.
    pub(crate) fn sources<'l>(
        &'l self,
        object: Bound<'_, PyAny>,
        samples: &mut Option<Several<'l>>,
    ) -> PyResult<Source> {
        let array = match array::is_exact(&object) {
            // SAFETY: just looked.
            true => unsafe { object.cast_into_unchecked::<PyUntypedArray>() },
            false => self.made_array(object)?,
        };
        self.of_array(array, Some(samples))
    }

    /// Copies `samples` samples, from that one on, to where they lie in a row.
    ///
    /// # Safety
    /// So many samples of this leaf can be written at `target`, and the source has so many. (They may overlap: an array may
    /// be of a claim that ended, whose slot is claimed once more.)
    #[inline]
    pub(crate) unsafe fn copy(&self, source: &Source, first: usize, samples: usize, target: *mut u8) {
        match &source.place {
            Place::Row(from) => {
                let from = from.wrapping_add(first * self.bytes);
                // SAFETY: the array is contiguous and has so many samples (the caller); so has the target.
                unsafe { std::ptr::copy(from, target, samples * self.bytes) };
            }
            Place::Strided(array) if array.dims.len() == self.dims.len() => {
                // SAFETY: numpy's array has these elements, and the target room for one sample.
                unsafe { copy_strided(array.from, &array.dims, &array.strides, self.item, target) };
            }
            Place::Strided(array) => {
                let from = array.from.wrapping_offset(first as isize * array.strides[0]);
                let mut dims = array.dims.clone();
                dims[0] = samples as isize;
                // SAFETY: a part of numpy's array, along its first axis; the target has room for as many samples.
                unsafe { copy_strided(from, &dims, &array.strides, self.item, target) };
            }
            Place::Inline(bytes) => {
                // SAFETY: a number is at most 16 bytes, and the target has room for one.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, self.item) };
            }
        }
    }

    #[inline]
    fn of_array<'l>(
        &'l self,
        array: Bound<'_, PyUntypedArray>,
        samples: Option<&mut Option<Several<'l>>>,
    ) -> PyResult<Source> {
        let py = array.py();
        let fields = array::fields(&array);
        let expected: *const PyArray_Descr = self.descr.as_ptr().cast();
        if !std::ptr::eq(fields.descr, expected) && !self.is_equivalent(py, &array) {
            return Err(self.other_dtype(&array));
        }
        let dims = match samples {
            None => fields.dims,
            Some(samples) => match fields.dims.split_first() {
                Some((&n, dims)) if samples.is_none_or(|several| several.samples == n as usize) => {
                    samples.get_or_insert(Several { samples: n as usize, of: &self.name });
                    dims
                }
                _ => return Err(self.other_shape(&array, Some(*samples))),
            },
        };
        if dims != &self.dims[..] {
            return Err(self.other_shape(&array, (dims.len() < fields.dims.len()).then_some(None)));
        }
        let place = match fields.is_contiguous {
            true => Place::Row(fields.data),
            false => {
                let (dims, strides) = (fields.dims.to_vec(), fields.strides.to_vec());
                Place::Strided(Box::new(Strided { from: fields.data, dims, strides }))
            }
        };
        Ok(Source { place, _keeps: Some(array.into_any().unbind()) })
    }

    #[cold]
    fn is_equivalent(&self, py: Python<'_>, array: &Bound<'_, PyUntypedArray>) -> bool {
        use numpy::PyUntypedArrayMethods;
        array.dtype().is_equiv_to(self.descr.bind(py))
    }

    fn made_array<'py>(&self, object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
        if let Some(array) = array::of_scalar(&object)? {
            return Ok(array);
        }
        self.made_array_by_python(object)
    }

    #[cold]
    fn made_array_by_python<'py>(&self, object: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let make = object.py().import("echod._leaves")?.getattr("as_array")?;
        Ok(make.call1((&self.name, object))?.cast_into()?)
    }

    #[cold]
    fn other_dtype(&self, array: &Bound<'_, PyUntypedArray>) -> PyErr {
        self.complain(array.py(), "other_dtype", array, None)
    }

    #[cold]
    fn other_shape(&self, array: &Bound<'_, PyUntypedArray>, samples: Option<Option<Several<'_>>>) -> PyErr {
        self.complain(array.py(), "other_shape", array, samples)
    }

    /// The sentence is made in Python, beside the other ones about samples.
    fn complain(
        &self,
        py: Python<'_>,
        how: &str,
        array: &Bound<'_, PyUntypedArray>,
        samples: Option<Option<Several<'_>>>,
    ) -> PyErr {
        let made = || -> PyResult<PyErr> {
            let complain = py.import("echod._leaves")?.getattr(how)?;
            let many = samples.is_some();
            let several = samples.flatten().map(|several| (several.samples, several.of));
            let arguments = (&self.name, self.descr.bind(py), &self.dims, array, many, several);
            Ok(PyErr::from_value(complain.call1(arguments)?))
        };
        made().unwrap_or_else(|error| error)
    }

    /// One of numpy's scalars of this very dtype, as its bytes. None if it is something else.
    #[inline]
    fn of_scalar(&self, object: &Bound<'_, PyAny>) -> Option<[u8; 16]> {
        let is_one = self.scalar.as_ref().is_some_and(|class| object.get_type_ptr() == class.as_ptr().cast());
        // SAFETY: it is one of numpy's scalars, of a dtype of numpy's own (both just seen), which has at most 16 bytes.
        is_one.then(|| unsafe { array::bytes_of_scalar(object) })
    }

    /// A number of Python's own, as bytes of this leaf. None if it is something else.
    fn of_number(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<[u8; 16]>> {
        let mut bytes = [0; 16];
        if object.is_exact_instance_of::<PyFloat>() {
            let value: f64 = object.extract()?;
            match self.dtype {
                DType::F64 => bytes[..8].copy_from_slice(&value.to_ne_bytes()),
                // Rounded, as everybody expects of 0.1; but what is finite stays so.
                DType::F32 if (value as f32).is_finite() || !value.is_finite() => {
                    bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes());
                }
                DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 | DType::F32 => {
                    return self.of_small_number(object).map(Some);
                }
                _ => return Err(self.other_number(object)),
            }
            return Ok(Some(bytes));
        }
        if object.is_exact_instance_of::<PyInt>() {
            macro_rules! integer {
                ($($dtype:ident = $type:ty),+) => {
                    match self.dtype {
                        $(DType::$dtype => {
                            let value: $type = object.extract().map_err(|_| self.other_number(object))?;
                            bytes[..size_of::<$type>()].copy_from_slice(&value.to_ne_bytes());
                        })+
                        _ => return Err(self.other_number(object)),
                    }
                };
            }
            integer!(U8 = u8, U16 = u16, U32 = u32, U64 = u64, I8 = i8, I16 = i16, I32 = i32, I64 = i64);
            return Ok(Some(bytes));
        }
        if object.is_exact_instance_of::<PyBool>() {
            if self.dtype != DType::Bool {
                return Err(self.other_number(object));
            }
            bytes[0] = u8::from(object.is_truthy()?);
            return Ok(Some(bytes));
        }
        if let Ok(value) = object.cast_exact::<PyComplex>() {
            let (real, imag) = (value.real(), value.imag());
            match self.dtype {
                DType::Complex64 => {
                    // As a float: what is finite stays so.
                    let [real, imag] = [real, imag].map(|part| (part as f32, part.is_finite()));
                    if [real, imag].iter().any(|(part, was_finite)| *was_finite && !part.is_finite()) {
                        return Err(self.other_number(object));
                    }
                    bytes[..4].copy_from_slice(&real.0.to_ne_bytes());
                    bytes[4..8].copy_from_slice(&imag.0.to_ne_bytes());
                }
                DType::Complex128 => {
                    bytes[..8].copy_from_slice(&real.to_ne_bytes());
                    bytes[8..].copy_from_slice(&imag.to_ne_bytes());
                }
                _ => return Err(self.other_number(object)),
            }
            return Ok(Some(bytes));
        }
        self.of_number_of_a_class(object)
    }

    /// A number of a class of its own, such as an IntEnum's, by its value; but numpy's float64 and complex128, which are of
    /// Python's classes too, have a size of their own.
    #[cold]
    fn of_number_of_a_class(&self, object: &Bound<'_, PyAny>) -> PyResult<Option<[u8; 16]>> {
        let py = object.py();
        if object.is_instance_of::<PyInt>() {
            return self.of_number(&py.get_type::<PyInt>().call1((object,))?);
        }
        if array::is_scalar(object)? {
            return Ok(None);
        }
        if object.is_instance_of::<PyFloat>() {
            return self.of_number(&PyFloat::new(py, object.extract()?));
        }
        if let Ok(value) = object.cast::<PyComplex>() {
            return self.of_number(&PyComplex::from_doubles(py, value.real(), value.imag()));
        }
        Ok(None)
    }

    /// By the dtype's own rounding.
    #[cold]
    fn of_small_number(&self, object: &Bound<'_, PyAny>) -> PyResult<[u8; 16]> {
        let py = object.py();
        let make = py.import("echod._leaves")?.getattr("small_number")?;
        let made: Vec<u8> = make.call1((&self.name, self.descr.bind(py), object))?.extract()?;
        let mut bytes = [0; 16];
        bytes[..self.item].copy_from_slice(&made);
        Ok(bytes)
    }

    #[cold]
    fn other_number(&self, object: &Bound<'_, PyAny>) -> PyErr {
        let py = object.py();
        let made = || -> PyResult<PyErr> {
            let complain = py.import("echod._leaves")?.getattr("other_number")?;
            Ok(PyErr::from_value(complain.call1((&self.name, self.descr.bind(py), object))?))
        };
        made().unwrap_or_else(|error| error)
    }
}

/// A leaf that the sample does not have, though its structure said so. Our own mistake.
pub(crate) fn absent(py: Python<'_>, name: &str) -> PyErr {
    failure::raise(py, "Error", &format!("the structure of the sample has no leaf {name:?}"), &[])
}
