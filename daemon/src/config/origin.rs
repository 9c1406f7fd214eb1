//! Where a value came from, so that nobody has to guess which of four places won.

use std::fmt;
use std::path::{Path, PathBuf};

/// A value and where it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Valued<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Valued<T> {
    /// A value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}

/// The four places a value can come from, the strongest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A flag of the command line, such as `--socket`.
    Flag(&'static str),
    /// An environment variable, such as `ECHO_SOCKET`.
    Env(&'static str),
    /// A line of the configuration file.
    File(Place),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Env(name) => f.write_str(name),
            Self::File(place) => place.fmt(f),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A line of a file, and which table and array of it are meant, if any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// Such as `table "rollouts", array "obs"`; empty outside of tables.
    pub within: String,
}

impl fmt::Display for Place {
    /// `/etc/echo/echod.toml:7` or `/etc/echo/echod.toml:7: table "rollouts"`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", printable(&self.path), self.line)?;
        if !self.within.is_empty() {
            write!(f, ": {}", self.within)?;
        }
        Ok(())
    }
}

/// A path on one line, whatever characters it has.
pub(super) fn printable(path: &Path) -> String {
    path.display().to_string().chars().flat_map(escape).collect()
}

fn escape(c: char) -> impl Iterator<Item = char> {
    let plain = (!c.is_control()).then_some(c);
    plain.into_iter().chain(c.escape_default().filter(move |_| plain.is_none()))
}
