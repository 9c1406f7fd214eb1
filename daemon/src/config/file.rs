//! Which file the daemon reads, and what it says.
//!
//! One file, not a chain of them: what a file says is then the whole of what files say. `--config`, then
//! `ECHO_CONFIG` name it, and one that is named must be there. Else it is the first that exists of the
//! user's own (not for root) and the machine's; neither needs to.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::document::{DocumentError, Section, Source};
use super::key::Key;
use super::origin::{Origin, Place, Valued, printable};
use super::tables::{Declared, TableError, tables};
use crate::surroundings::Surroundings;

/// The machine's configuration file.
pub const SYSTEM_CONFIG: &str = "/etc/echo/echod.toml";

/// The settings of a file, and the tables.
const KEYS: [&str; Key::ALL.len() + 1] = {
    let mut keys = ["table"; Key::ALL.len() + 1];
    let mut i = 0;
    while i < Key::ALL.len() {
        keys[i] = Key::ALL[i].name();
        i += 1;
    }
    keys
};

/// A file that cannot be read or understood.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum FileError {
    #[error("cannot read the configuration file {}, which {named_by} names", printable(.path))]
    Named { path: PathBuf, named_by: Origin, source: io::Error },
    #[error("cannot read the configuration file {}: name another one by --config", printable(.path))]
    Unnamed { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A file that was read: its settings as text, its tables complete.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) settings: BTreeMap<Key, Valued<String>>,
    pub(super) tables: Vec<Valued<Declared>>,
}

/// Finds and reads the file; `None` if none is named and there is none.
pub(super) fn read(
    flag: Option<PathBuf>,
    surroundings: &Surroundings<'_>,
) -> Result<Option<ConfigFile>, FileError> {
    let variable = || surroundings.var("ECHO_CONFIG").map(|path| (path.into(), Origin::Env("ECHO_CONFIG")));
    let named = flag.map(|path| (path, Origin::Flag("--config"))).or_else(variable);
    if let Some((path, named_by)) = named {
        return match surroundings.read(&path) {
            Ok(text) => parse(path, &text).map(Some),
            Err(source) => Err(FileError::Named { path, named_by, source }),
        };
    }
    for path in places(surroundings) {
        match surroundings.read(&path) {
            Ok(text) => return parse(path, &text).map(Some),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(source) => return Err(FileError::Unnamed { path, source }),
        }
    }
    Ok(None)
}

/// Where a file is looked for that nobody names.
fn places(surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    let home = || surroundings.directory("HOME").map(|home| home.join(".config"));
    let own =
        if surroundings.is_root() { None } else { surroundings.directory("XDG_CONFIG_HOME").or_else(home) };
    own.map(|directory| directory.join("echo/echod.toml")).into_iter().chain([SYSTEM_CONFIG.into()]).collect()
}

fn parse(path: PathBuf, text: &str) -> Result<ConfigFile, FileError> {
    let source = Source { path: &path, text };
    let document = source.parse()?;
    let start = Place { path: path.clone(), line: 1, within: String::new() };
    let section = Section::open(source, document.get_ref(), start, &KEYS)?;
    let mut settings = BTreeMap::new();
    for key in Key::ALL {
        if let Some(item) = section.get(key.name()) {
            settings.insert(key, Valued::new(item.text(key.form())?, Origin::File(item.place)));
        }
    }
    let tables = section.get("table").map_or(Ok(Vec::new()), |item| tables(source, &item))?;
    Ok(ConfigFile { path, settings, tables })
}
