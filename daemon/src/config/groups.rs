//! The groups that read a declared queue table.

use std::fmt::{self, Write};

use echo::table::group::{DEFAULT_GROUP, GROUPS, check_name};

use super::document::{Item, Section, Source};
use super::key::Form;
use super::origin::Place;
use super::tables::TableError;
use super::value::quoted;
use crate::bytes::Bytes;

const GROUP_KEYS: [&str; 2] = ["name", "max_lag"];

/// A group that reads a declared table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredGroup {
    /// What it is called.
    pub name: String,
    /// By how much it may lag before it skips batches; none is by any number.
    pub max_lag: Option<Bytes>,
}

impl Default for DeclaredGroup {
    fn default() -> Self {
        Self { name: DEFAULT_GROUP.into(), max_lag: None }
    }
}

/// All of a table's groups: the default one, where none are named.
pub(super) fn groups(source: Source<'_>, section: &Section<'_>) -> Result<Vec<DeclaredGroup>, TableError> {
    let Some(item) = section.get("groups") else { return Ok(vec![DeclaredGroup::default()]) };
    let expected =
        "an array of { name = \"log\", max_lag = \"64 MiB\" }, max_lag where it may not hold workers up";
    let elements = item.elements(expected)?;
    if elements.is_empty() || elements.len() > GROUPS {
        let why = format!("{} are given, and a table has 1 to {GROUPS}", elements.len());
        return Err(invalid(&item, why));
    }
    let mut groups: Vec<DeclaredGroup> = Vec::new();
    for element in &elements {
        let entries = element.table(expected)?;
        let place = Place { within: section.place().within.clone(), ..element.place.clone() };
        let group = group(&Section::open(source, entries, place, &GROUP_KEYS)?)?;
        if groups.iter().any(|other| other.name == group.name) {
            return Err(invalid(element, format!("two are called {}", quoted(&[&group.name]))));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn group(section: &Section<'_>) -> Result<DeclaredGroup, TableError> {
    let item = section.need("name")?;
    let name = item.text(Form::Text)?;
    check_name(&name).map_err(|error| invalid(&item, error.to_string()))?;
    let max_lag = match section.get("max_lag") {
        Some(item) => {
            let text = item.text(Form::Size)?;
            Some(text.parse().map_err(|error: crate::bytes::BytesError| invalid(&item, error.to_string()))?)
        }
        None => None,
    };
    Ok(DeclaredGroup { name, max_lag })
}

fn invalid(item: &Item<'_>, why: String) -> TableError {
    TableError::Setting { place: item.place.clone(), key: item.key.clone(), why }
}

/// As they are written in a file.
pub(super) fn write(out: &mut String, groups: &[DeclaredGroup]) -> fmt::Result {
    let group = |DeclaredGroup { name, max_lag }: &DeclaredGroup| match max_lag {
        Some(max_lag) => format!("{{ name = \"{name}\", max_lag = \"{max_lag}\" }}"),
        None => format!("{{ name = \"{name}\" }}"),
    };
    let groups: Vec<String> = groups.iter().map(group).collect();
    writeln!(out, "groups = [{}]", groups.join(", "))
}
