//! A replay table's settings, from Python and back: a dict of them by their names.

use std::fmt::Display;
use std::str::FromStr;

use echo_client::message::{ReplayDetails, TableDetails};
use echo_client::replay::{Admission, Real, ReplaySpec, Staleness};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure;

/// The settings that `echod._replay` has put together, with all their names.
pub(crate) fn settings_of(given: &Bound<'_, PyDict>) -> PyResult<ReplaySpec> {
    let mut settings = ReplaySpec::new(get(given, "max_size")?, get(given, "batch_size")?);
    settings.sampler = parse(given, "sampler")?;
    settings.remover = parse(given, "remover")?;
    settings.max_times_sampled = get(given, "max_times_sampled")?;
    settings.limiter = parse(given, "rate_limiter")?;
    let admission: Option<(u32, u32)> = get(given, "admission")?;
    settings.staleness = Staleness {
        max: get(given, "max_staleness")?,
        decay: get::<Option<f64>>(given, "staleness_decay")?.map(Real),
        admission: admission
            .map(|(samples_per_version, max_running)| Admission { samples_per_version, max_running }),
    };
    Ok(settings)
}

fn get<'py, T>(given: &Bound<'py, PyDict>, name: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    let value = given.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
    value.extract::<T>().map_err(Into::into)
}

fn parse<T: FromStr<Err: Display>>(given: &Bound<'_, PyDict>, name: &str) -> PyResult<T> {
    let text: String = get(given, name)?;
    text.parse().map_err(|error: T::Err| {
        let kind = "invalid_spec".into_pyobject(given.py()).expect("a text is one").into_any();
        failure::raise(given.py(), "InvalidSpecError", &format!("{name}: {error}"), &[("kind", kind)])
    })
}

/// What a replay table is asked to be, and what is known of it; None of another.
pub(crate) fn described<'py>(
    py: Python<'py>,
    details: &TableDetails,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let (Some(settings), Some(known)) = (&details.spec.replay, &details.replay) else { return Ok(None) };
    let shown = PyDict::new(py);
    shown.set_item("sampler", settings.sampler.to_string())?;
    shown.set_item("remover", settings.remover.to_string())?;
    shown.set_item("max_size", settings.max_size)?;
    shown.set_item("batch_size", settings.batch_size)?;
    shown.set_item("max_times_sampled", settings.max_times_sampled)?;
    shown.set_item("rate_limiter", settings.limiter.to_string())?;
    let Staleness { max, decay, admission } = settings.staleness;
    shown.set_item("max_staleness", max)?;
    shown.set_item("staleness_decay", decay.map(|decay| decay.0))?;
    shown.set_item("samples_per_version", admission.map(|it| it.samples_per_version))?;
    shown.set_item("max_running", admission.map(|it| it.max_running))?;
    known_of(&shown, known)?;
    Ok(Some(shown))
}

fn known_of(shown: &Bound<'_, PyDict>, known: &ReplayDetails) -> PyResult<()> {
    shown.set_item("size", known.size)?;
    shown.set_item("lingering", known.lingering)?;
    shown.set_item("leased", known.leased)?;
    shown.set_item("inserts", known.inserts)?;
    shown.set_item("samples", known.samples)?;
    shown.set_item("deletes", known.deletes)?;
    shown.set_item("evicted", known.evicted)?;
    shown.set_item("exhausted", known.exhausted)?;
    shown.set_item("deleted", known.deleted)?;
    shown.set_item("stale", known.stale)?;
    shown.set_item("refused", known.refused)?;
    shown.set_item("skipped", known.skipped)?;
    shown.set_item("version", known.version)?;
    shown.set_item("lags", &known.lags)?;
    shown.set_item("unversioned", known.unversioned)?;
    shown.set_item("waiting", known.waiting)?;
    shown.set_item("bytes_per_item", known.bytes_per_item.0)
}
