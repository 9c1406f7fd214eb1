//! The pytree of a sample, as steps to its leaves: taken apart and put together without asking optree each time.
//!
//! Python (`echod._tree`) makes it from optree's own description. Trees with nodes that only optree knows (registered
//! classes) are left to optree as a whole.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyNone, PyString, PyTuple, PyType};

/// How the leaves hang together. Leaf numbers are those of the table's arrays.
#[pyclass(frozen, module = "echod._native")]
pub(crate) struct Structure {
    root: Option<Node>,
    /// optree's description, and the table's array for each of its leaves.
    treespec: Py<PyAny>,
    order: Vec<usize>,
}

enum Node {
    Leaf(usize),
    Dict(Vec<(Py<PyAny>, Node)>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    NamedTuple(Py<PyType>, Vec<Node>),
    Nothing,
}

#[pymethods]
impl Structure {
    /// Of a description `program`: `("leaf",)`, `("dict", keys, children)`, `("list", children)`,
    /// `("tuple", children)`, `("namedtuple", type, children)`, `("none",)`, or `None` where optree has to do it.
    #[new]
    fn new(program: &Bound<'_, PyAny>, treespec: Py<PyAny>, order: Vec<usize>) -> PyResult<Self> {
        let mut left = order.iter().copied();
        let root = match program.is_none() {
            true => None,
            false => Some(Node::new(program, &mut left)?),
        };
        if root.is_some() && left.next().is_some() {
            return Err(PyValueError::new_err("the program has fewer leaves than the order"));
        }
        let mut seen = vec![false; order.len()];
        for &leaf in &order {
            match seen.get_mut(leaf) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(PyValueError::new_err("the order must have each leaf once")),
            }
        }
        Ok(Self { root, treespec, order })
    }

    /// optree's description.
    #[getter]
    fn treespec(&self, py: Python<'_>) -> Py<PyAny> {
        self.treespec.clone_ref(py)
    }

    /// For each of optree's leaves, the table's array.
    #[getter]
    fn order(&self) -> Vec<usize> {
        self.order.clone()
    }
}

impl Structure {
    /// Takes a sample apart, by the table's arrays. False if it is not of this structure.
    #[inline]
    pub(crate) fn leaves<'py>(
        &self,
        sample: &Bound<'py, PyAny>,
        leaves: &mut [Option<Bound<'py, PyAny>>],
    ) -> PyResult<bool> {
        if leaves.len() != self.order.len() {
            return Ok(false);
        }
        match &self.root {
            Some(root) => root.leaves(sample, leaves),
            None => self.leaves_by_optree(sample, leaves),
        }
    }

    /// Puts leaves together, given by the table's arrays.
    pub(crate) fn tree<'py>(
        &self,
        py: Python<'py>,
        leaves: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match &self.root {
            Some(root) => root.tree(py, &leaves),
            None => {
                let ordered: Vec<_> = self.order.iter().map(|&leaf| &leaves[leaf]).collect();
                py.import("optree")?.getattr("tree_unflatten")?.call1((&self.treespec, ordered))
            }
        }
    }

    fn leaves_by_optree<'py>(
        &self,
        sample: &Bound<'py, PyAny>,
        leaves: &mut [Option<Bound<'py, PyAny>>],
    ) -> PyResult<bool> {
        let flat = sample.py().import("echod._tree")?.getattr("flatten")?.call1((sample,))?;
        let (found, treespec): (Vec<Bound<'py, PyAny>>, Bound<'py, PyAny>) = flat.extract()?;
        if !treespec.eq(&self.treespec)? || found.len() != self.order.len() {
            return Ok(false);
        }
        for (&leaf, found) in self.order.iter().zip(found) {
            leaves[leaf] = Some(found);
        }
        Ok(true)
    }
}

impl Node {
    fn new(program: &Bound<'_, PyAny>, order: &mut impl Iterator<Item = usize>) -> PyResult<Self> {
        let kind: String = program.get_item(0)?.extract()?;
        let mut children = |at: usize| -> PyResult<Vec<Self>> {
            program.get_item(at)?.try_iter()?.map(|child| Self::new(&child?, order)).collect()
        };
        Ok(match &kind[..] {
            "leaf" => {
                Self::Leaf(order.next().ok_or_else(|| PyValueError::new_err("more leaves than the order"))?)
            }
            "dict" => {
                // Interned, as those that a program writes out are: equal keys are then the same object mostly.
                let intern = program.py().import("sys")?.getattr("intern")?;
                let keys: Vec<Py<PyAny>> = program
                    .get_item(1)?
                    .try_iter()?
                    .map(|key| {
                        let key = key?;
                        let is_text = key.is_exact_instance_of::<PyString>();
                        Ok(if is_text { intern.call1((key,))? } else { key }.unbind())
                    })
                    .collect::<PyResult<_>>()?;
                Self::Dict(keys.into_iter().zip(children(2)?).collect())
            }
            "list" => Self::List(children(1)?),
            "tuple" => Self::Tuple(children(1)?),
            "namedtuple" => {
                let class = program.get_item(1)?.cast_into::<PyType>()?.unbind();
                Self::NamedTuple(class, children(2)?)
            }
            "none" => Self::Nothing,
            other => return Err(PyValueError::new_err(format!("{other:?} is no kind of node"))),
        })
    }

    fn leaves<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        leaves: &mut [Option<Bound<'py, PyAny>>],
    ) -> PyResult<bool> {
        let each = |children: &[Self], tuple: &Bound<'py, PyTuple>, leaves: &mut [Option<_>]| {
            if tuple.len() != children.len() {
                return Ok(false);
            }
            for (child, object) in children.iter().zip(tuple.iter()) {
                if !child.leaves(&object, leaves)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match self {
            Self::Leaf(leaf) => leaves[*leaf] = Some(object.clone()),
            Self::Dict(children) => {
                let Ok(dict) = object.cast::<PyDict>() else { return Ok(false) };
                if dict.len() != children.len() {
                    return Ok(false);
                }
                for (key, child) in children {
                    match dict.get_item(key)? {
                        Some(object) if child.leaves(&object, leaves)? => {}
                        _ => return Ok(false),
                    }
                }
            }
            Self::List(children) => {
                let Ok(list) = object.cast_exact::<PyList>() else { return Ok(false) };
                if list.len() != children.len() {
                    return Ok(false);
                }
                for (child, object) in children.iter().zip(list.iter()) {
                    if !child.leaves(&object, leaves)? {
                        return Ok(false);
                    }
                }
            }
            Self::Tuple(children) => match object.cast_exact::<PyTuple>() {
                Ok(tuple) => return each(children, tuple, leaves),
                Err(_) => return Ok(false),
            },
            Self::NamedTuple(class, children) => match object.cast::<PyTuple>() {
                Ok(tuple) if object.get_type().is(class) => return each(children, tuple, leaves),
                _ => return Ok(false),
            },
            Self::Nothing => return Ok(object.is_none()),
        }
        Ok(true)
    }

    fn tree<'py>(&self, py: Python<'py>, leaves: &[Bound<'py, PyAny>]) -> PyResult<Bound<'py, PyAny>> {
        let each = |children: &[Self]| -> PyResult<Vec<_>> {
            children.iter().map(|child| child.tree(py, leaves)).collect()
        };
        Ok(match self {
            Self::Leaf(leaf) => leaves[*leaf].clone(),
            Self::Dict(children) => {
                let dict = PyDict::new(py);
                for (key, child) in children {
                    dict.set_item(key, child.tree(py, leaves)?)?;
                }
                dict.into_any()
            }
            Self::List(children) => PyList::new(py, each(children)?)?.into_any(),
            Self::Tuple(children) => PyTuple::new(py, each(children)?)?.into_any(),
            Self::NamedTuple(class, children) => class.bind(py).call1(PyTuple::new(py, each(children)?)?)?,
            Self::Nothing => PyNone::get(py).to_owned().into_any(),
        })
    }
}
