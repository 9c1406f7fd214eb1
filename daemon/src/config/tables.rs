//! The `[[table]]` declarations: tables that exist from the start, without a client that creates them.
//!
//! A declaration becomes a [`TableSpec`] that is valid, or an error that names the file, the line, the
//! table and the array.

use echo::access::{AccessList, MAX_RULES, RuleError};
use echo::spec::{
    ArraySpec, DType, HugePages, MAX_BATCH, MAX_BLOCKS, Pin, SpecError, TableKind, TableSpec, VALUES,
};
use thiserror::Error;
use toml::de::DeTable;

use super::document::{DocumentError, Item, Section, Source};
use super::groups::{self, DeclaredGroup};
use super::key::Form;
use super::origin::{Origin, Place, Valued};
use super::replay;
use super::value::{ValueError, number, quoted};

const TABLE_KEYS: [&str; 10] = [
    "name",
    "kind",
    "batch_size",
    "capacity",
    "max_capacity",
    "pin",
    "huge_pages",
    "access",
    "groups",
    "arrays",
];
/// Those and the ones that only a replay table has.
const ALL_KEYS: [&str; TABLE_KEYS.len() + replay::KEYS.len()] = {
    let mut all = [""; TABLE_KEYS.len() + replay::KEYS.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < TABLE_KEYS.len() { TABLE_KEYS[i] } else { replay::KEYS[i - TABLE_KEYS.len()] };
        i += 1;
    }
    all
};
const ARRAY_KEYS: [&str; 3] = ["path", "dtype", "shape"];

const PINS: [Pin; 3] = [Pin::Required, Pin::BestEffort, Pin::Off];
const HUGE_PAGES: [HugePages; 3] = [HugePages::Auto, HugePages::Required, HugePages::Off];

/// The word for a [`Pin`] in a file.
pub(super) const fn pin_word(pin: Pin) -> &'static str {
    match pin {
        Pin::Required => "required",
        Pin::BestEffort => "best-effort",
        Pin::Off => "off",
    }
}

/// The word for [`HugePages`] in a file.
pub(super) const fn huge_pages_word(huge_pages: HugePages) -> &'static str {
    match huge_pages {
        HugePages::Auto => "auto",
        HugePages::Required => "required",
        HugePages::Off => "off",
    }
}

/// What is wrong with the declaration of a table.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum TableError {
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error("{place}: {key} cannot be {text}")]
    Value { place: Place, key: String, text: String, source: ValueError },
    #[error("{place}: {key} {text:?} is unknown, it must be one of {}", quoted(.known))]
    Choice { place: Place, key: &'static str, text: String, known: Vec<&'static str> },
    #[error("{place}: {key} is {text}, it must be a whole number from 0 to 2^63 - 1")]
    Dimension { place: Place, key: String, text: String },
    #[error("{place}: {key}: {why}")]
    Setting { place: Place, key: String, why: String },
    #[error("{place}: {text:?} is no access rule")]
    Rule { place: Place, text: String, source: RuleError },
    #[error("{place}: access has {rules} rules, it may have {MAX_RULES}")]
    Rules { place: Place, rules: usize },
    #[error("{place}: no table can be like this")]
    Spec { place: Place, source: SpecError },
    #[error("{place}: this name is taken by the table of line {first}")]
    Duplicate { place: Place, first: usize },
}

/// A table that the configuration declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declared {
    /// What it is like.
    pub spec: TableSpec,
    /// Who may do what with it.
    pub access: AccessList,
    /// Of a queue table: the groups that read it.
    pub groups: Vec<DeclaredGroup>,
}

/// All tables that the value of `table` declares.
pub(super) fn tables(source: Source<'_>, item: &Item<'_>) -> Result<Vec<Valued<Declared>>, TableError> {
    let mut tables: Vec<Valued<Declared>> = Vec::new();
    let mut lines: Vec<usize> = Vec::new();
    let expected = "declared under a heading [[table]]";
    for (i, element) in item.elements(expected)?.iter().enumerate() {
        let entries = element.table(expected)?;
        let within = labelled("table", entries, "name", i);
        let place = Place { within, ..element.place.clone() };
        let section = Section::open(source, entries, place, &ALL_KEYS)?;
        let spec = table(source, &section)?;
        let groups = match spec.kind {
            TableKind::Queue => groups::groups(source, &section)?,
            TableKind::Latest | TableKind::Replay => {
                refuse(&section, &["groups"], "only a table of kind \"queue\" is read by groups")?;
                Vec::new()
            }
        };
        let declared = Declared { spec, access: access(&section)?, groups };
        let place = section.place().clone();
        if let Some(twin) = tables.iter().position(|other| other.value.spec.name == declared.spec.name) {
            return Err(TableError::Duplicate { place, first: lines[twin] });
        }
        lines.push(place.line);
        tables.push(Valued::new(declared, Origin::File(Place { within: String::new(), ..place })));
    }
    Ok(tables)
}

/// One table.
fn table(source: Source<'_>, section: &Section<'_>) -> Result<TableSpec, TableError> {
    let name = section.need("name")?.text(Form::Text)?;
    let kind = choice(section, "kind", &TableKind::ALL, TableKind::name)?;
    // A latest table is of one value a block, and has a usual size.
    let pin = choice(section, "pin", &PINS, pin_word)?;
    let huge_pages = choice(section, "huge_pages", &HUGE_PAGES, huge_pages_word)?;

    let expected = "an array of { path = \"obs\", dtype = \"float32\", shape = [4] }";
    let mut arrays = Vec::new();
    for (i, element) in section.need("arrays")?.elements(expected)?.iter().enumerate() {
        let entries = element.table(expected)?;
        let within = format!("{}, {}", section.place().within, labelled("array", entries, "path", i));
        let place = Place { within, ..element.place.clone() };
        arrays.push(array(&Section::open(source, entries, place, &ARRAY_KEYS)?)?);
    }
    let sized = match kind {
        TableKind::Queue => blocks(section, TableSpec::new(name, arrays, 0, 0), [None, None])?,
        TableKind::Latest => blocks(section, TableSpec::latest(name, arrays), [Some(1), Some(VALUES)])?,
        TableKind::Replay => {
            refuse(section, &["capacity", "max_capacity"], "a replay table is as large as max_size says")?;
            TableSpec::replay(name, arrays, replay::settings(section)?)
        }
    };
    if kind != TableKind::Replay {
        refuse(section, &replay::KEYS, "only a table of kind \"replay\" has that")?;
    }
    let spec = TableSpec { pin, huge_pages, ..sized };
    spec.validate().map_err(|source| TableError::Spec { place: section.place().clone(), source })?;
    Ok(spec)
}

/// A table of that many batches of that many samples.
fn blocks(
    section: &Section<'_>,
    spec: TableSpec,
    defaults: [Option<u32>; 2],
) -> Result<TableSpec, TableError> {
    let [default_batch, default_capacity] = defaults;
    let batch_size = count_or(section, "batch_size", MAX_BATCH, default_batch)?;
    let capacity = count_or(section, "capacity", MAX_BLOCKS, default_capacity)?;
    let max_capacity = section.get("max_capacity").map_or(Ok(capacity), |item| count(&item, MAX_BLOCKS))?;
    Ok(TableSpec { batch_size, capacity, max_capacity, ..spec })
}

/// Refuses keys that make no sense in a table of this kind.
fn refuse(section: &Section<'_>, keys: &[&'static str], why: &str) -> Result<(), TableError> {
    match keys.iter().find_map(|key| section.get(key)) {
        Some(item) => Err(TableError::Setting { place: item.place, key: item.key, why: why.into() }),
        None => Ok(()),
    }
}

/// The access list, the open one where there is none.
fn access(section: &Section<'_>) -> Result<AccessList, TableError> {
    let Some(item) = section.get("access") else { return Ok(AccessList::open()) };
    let items = item.elements("an array of rules, such as [\"group:ml=read\", \"everyone=observe\"]")?;
    if items.len() > MAX_RULES {
        return Err(TableError::Rules { place: item.place, rules: items.len() });
    }
    let rule = |item: &Item<'_>| {
        let text = item.text(Form::Text)?;
        text.parse().map_err(|source| TableError::Rule { place: item.place.clone(), text, source })
    };
    Ok(AccessList(items.iter().map(rule).collect::<Result<_, _>>()?))
}

/// One array.
fn array(section: &Section<'_>) -> Result<ArraySpec, TableError> {
    let path = section.need("path")?.text(Form::Text)?;
    let item = section.need("dtype")?;
    let text = item.text(Form::Text)?;
    let Some(dtype) = DType::from_name(&text) else {
        let known = DType::ALL.map(DType::name).to_vec();
        return Err(TableError::Choice { place: item.place, key: "dtype", text, known });
    };
    let shape = section.need("shape")?.elements("an array of numbers, [] for a scalar")?;
    let shape: Vec<u64> = shape.iter().map(dimension).collect::<Result<_, _>>()?;
    Ok(ArraySpec { path, dtype, shape })
}

/// A number from 1 to `max`, which must be there if it has no default.
pub(super) fn count_or(
    section: &Section<'_>,
    key: &'static str,
    max: u32,
    default: Option<u32>,
) -> Result<u32, TableError> {
    match (section.get(key), default) {
        (None, Some(default)) => Ok(default),
        _ => count(&section.need(key)?, max),
    }
}

/// A number from 1 to `max`.
pub(super) fn count(item: &Item<'_>, max: u32) -> Result<u32, TableError> {
    let text = item.text(Form::Number)?;
    number(&text, 1, max).map_err(|source| TableError::Value {
        place: item.place.clone(),
        key: item.key.clone(),
        text,
        source,
    })
}

fn dimension(item: &Item<'_>) -> Result<u64, TableError> {
    let text = item.text(Form::Number)?;
    // TOML's integers end at 2^63 - 1, so that a larger one could not be printed again.
    match text.parse() {
        Ok(number) if number <= i64::MAX as u64 => Ok(number),
        _ => Err(TableError::Dimension { place: item.place.clone(), key: item.key.clone(), text }),
    }
}

/// The policy that a word stands for, the default where there is none.
fn choice<T: Copy + Default>(
    section: &Section<'_>,
    key: &'static str,
    policies: &[T],
    word: fn(T) -> &'static str,
) -> Result<T, TableError> {
    let Some(item) = section.get(key) else { return Ok(T::default()) };
    let text = item.text(Form::Text)?;
    policies.iter().copied().find(|&policy| word(policy) == text).ok_or_else(|| TableError::Choice {
        place: item.place,
        key,
        text,
        known: policies.iter().copied().map(word).collect(),
    })
}

/// `table "rollouts"`, or `table 2` if it has no name that could be shown.
fn labelled(what: &str, entries: &DeTable<'_>, key: &str, index: usize) -> String {
    match entries.get(key).and_then(|value| value.get_ref().as_str()) {
        Some(name) => format!("{what} {name:?}"),
        None => format!("{what} {}", index + 1),
    }
}
