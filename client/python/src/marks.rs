//! What is said of samples of a replay table, as Python says it: priorities and versions, one for all or an array.

use echo_client::{Mark, check_marks};
use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure;

/// Of one sample.
pub(crate) fn of_one(
    py: Python<'_>,
    priority: Option<f64>,
    version: Option<&Bound<'_, PyAny>>,
) -> PyResult<Mark> {
    let mark = Mark { priority, version: version.map(version_of).transpose()? };
    checked(py, &[mark])?;
    Ok(mark)
}

/// Of `samples` samples: of each, or of none.
pub(crate) fn of_many(
    py: Python<'_>,
    samples: usize,
    priorities: Option<&Bound<'_, PyAny>>,
    versions: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<Mark>> {
    if priorities.is_none() && versions.is_none() {
        return Ok(Vec::new());
    }
    let mut marks = vec![Mark::default(); samples];
    if let Some(priorities) = priorities {
        set_priorities(&mut marks, priorities)?;
    }
    if let Some(versions) = versions {
        set_versions(&mut marks, versions)?;
    }
    checked(py, &marks)?;
    Ok(marks)
}

/// Sets the priority of each.
pub(crate) fn set_priorities(marks: &mut [Mark], priorities: &Bound<'_, PyAny>) -> PyResult<()> {
    let column = column(priorities, "priorities", marks.len())?.extract::<PyReadonlyArray1<'_, f64>>()?;
    for (mark, &priority) in marks.iter_mut().zip(column.as_slice()?) {
        mark.priority = Some(priority);
    }
    Ok(())
}

/// Sets the version of each; -1 is none.
pub(crate) fn set_versions(marks: &mut [Mark], versions: &Bound<'_, PyAny>) -> PyResult<()> {
    let column = column(versions, "versions", marks.len())?.extract::<PyReadonlyArray1<'_, i64>>()?;
    for (mark, &version) in marks.iter_mut().zip(column.as_slice()?) {
        mark.version = u64::try_from(version).ok();
    }
    Ok(())
}

/// Refuses what is no priority, and says whose.
pub(crate) fn checked(py: Python<'_>, marks: &[Mark]) -> PyResult<()> {
    check_marks(marks).map_err(|error| failure::of(py, error))
}

/// A version: as large as fits into a column of `info.versions`.
pub(crate) fn version_of(version: &Bound<'_, PyAny>) -> PyResult<u64> {
    let found = version.extract::<i64>().ok().and_then(|version| u64::try_from(version).ok());
    found.ok_or_else(|| {
        PyValueError::new_err(format!("a version is a whole number of 0 to 2**63 - 1, not {version}"))
    })
}

/// The values as an array of that length, by the function of that name in `echod._columns`.
fn column<'py>(values: &Bound<'py, PyAny>, name: &str, length: usize) -> PyResult<Bound<'py, PyAny>> {
    values.py().import("echod._columns")?.getattr(name)?.call1((values, length))
}
