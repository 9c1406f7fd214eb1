//! What a `[[table]]` of kind "replay" says beside what all tables do.

use std::fmt::{self, Write};
use std::str::FromStr;

use echo::replay::settings::{Admission, MAX_ITEMS, Real, ReplaySpec, Selector, Staleness};
use echo::spec::MAX_BATCH;

use super::document::{Item, Section};
use super::key::Form;
use super::tables::{TableError, count, count_or};

/// The keys that only such a table has.
pub(super) const KEYS: [&str; 9] = [
    "sampler",
    "remover",
    "max_size",
    "max_times_sampled",
    "rate_limiter",
    "max_staleness",
    "staleness_decay",
    "samples_per_version",
    "max_running",
];
/// Samples in a batch, where nobody says.
const BATCH: u32 = 256;

/// How it chooses, removes, limits and ages.
pub(super) fn settings(section: &Section<'_>) -> Result<ReplaySpec, TableError> {
    let max_size = count(&section.need("max_size")?, MAX_ITEMS)?;
    let batch_size = count_or(section, "batch_size", MAX_BATCH, Some(BATCH))?;
    let mut spec = ReplaySpec::new(max_size, batch_size);
    spec.sampler = setting(section, "sampler")?.unwrap_or(Selector::Uniform);
    spec.remover = setting(section, "remover")?.unwrap_or(Selector::Fifo);
    spec.limiter = setting(section, "rate_limiter")?.unwrap_or(spec.limiter);
    spec.max_times_sampled = whole(section, "max_times_sampled")?.unwrap_or(0);
    let admission = match (whole(section, "samples_per_version")?, whole(section, "max_running")?) {
        (None, None) => None,
        (Some(samples_per_version), Some(max_running)) => {
            Some(Admission { samples_per_version, max_running })
        }
        (said, _) => {
            let missing = if said.is_some() { "max_running" } else { "samples_per_version" };
            // One without the other: this says which is not there.
            section.need(missing)?;
            None
        }
    };
    spec.staleness = Staleness {
        max: whole(section, "max_staleness")?,
        decay: section.get("staleness_decay").map(|item| real(&item)).transpose()?,
        admission,
    };
    Ok(spec)
}

/// What a word stands for, if the key is there.
fn setting<T>(section: &Section<'_>, key: &'static str) -> Result<Option<T>, TableError>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    let Some(item) = section.get(key) else { return Ok(None) };
    let text = item.text(Form::Text)?;
    text.parse().map(Some).map_err(|error: T::Err| invalid(&item, error.to_string()))
}

fn whole<T>(section: &Section<'_>, key: &'static str) -> Result<Option<T>, TableError>
where
    T: TryFrom<u64>,
{
    let Some(item) = section.get(key) else { return Ok(None) };
    let text = item.text(Form::Number)?;
    let value: Option<T> = text.parse().ok().and_then(|number: u64| number.try_into().ok());
    value.map(Some).ok_or_else(|| invalid(&item, format!("{text} is no whole number of that size")))
}

fn real(item: &Item<'_>) -> Result<Real, TableError> {
    let text = item.text(Form::Real)?;
    text.parse().map(Real).map_err(|_| invalid(item, format!("{text} is no number")))
}

fn invalid(item: &Item<'_>, why: String) -> TableError {
    TableError::Setting { place: item.place.clone(), key: item.key.clone(), why }
}

/// As it is written in a file.
pub(super) fn write(out: &mut String, settings: &ReplaySpec) -> fmt::Result {
    let ReplaySpec { sampler, remover, max_size, max_times_sampled, limiter, staleness, batch_size } =
        settings;
    let Staleness { max, decay, admission } = staleness;
    writeln!(out, "batch_size = {batch_size}")?;
    writeln!(out, "max_size = {max_size}")?;
    writeln!(out, "sampler = \"{sampler}\"")?;
    writeln!(out, "remover = \"{remover}\"")?;
    writeln!(out, "max_times_sampled = {max_times_sampled}")?;
    writeln!(out, "rate_limiter = \"{limiter}\"")?;
    if let Some(max) = max {
        writeln!(out, "max_staleness = {max}")?;
    }
    if let Some(Real(decay)) = decay {
        writeln!(out, "staleness_decay = {decay:?}")?;
    }
    if let Some(Admission { samples_per_version, max_running }) = admission {
        writeln!(out, "samples_per_version = {samples_per_version}")?;
        writeln!(out, "max_running = {max_running}")?;
    }
    Ok(())
}
