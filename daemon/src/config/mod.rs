//! What the daemon is told: flags, environment, one file, defaults, in this order of strength.
//!
//! Every value knows where it came from, and `--print-config` shows it. Values are checked here once, by
//! the same rules wherever they came from; the rest of the daemon takes them as they are. A value that a
//! stronger one replaces is not looked at.
//!
//! This does not open, create or listen on anything, and changes nothing after the start.

#[expect(clippy::result_large_err, reason = "a file is read once, at the start")]
mod document;
#[expect(clippy::result_large_err, reason = "a file is read once, at the start")]
mod file;
#[expect(clippy::result_large_err, reason = "a file is read once, at the start")]
mod groups;
mod key;
mod origin;
mod print;
#[expect(clippy::result_large_err, reason = "a file is read once, at the start")]
mod replay;
#[expect(clippy::result_large_err, reason = "a file is read once, at the start")]
mod tables;
#[cfg(test)]
mod tests;
mod value;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use self::document::{DocumentError, Hint};
pub use self::file::{FileError, SYSTEM_CONFIG};
pub use self::groups::DeclaredGroup;
pub use self::key::Key;
pub use self::origin::{Origin, Place, Valued};
pub use self::tables::{Declared, TableError};
pub use self::value::{LogFormat, MAX_TIMEOUT, MIN_BUDGET, ValueError};
use crate::bytes::Bytes;
use crate::cli::Cli;
use crate::exit::Exit;
use crate::socket_path::default_socket;
use crate::surroundings::Surroundings;

/// Everything that the daemon is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// The path of the socket that clients connect to.
    pub socket: Valued<PathBuf>,
    /// Bytes of host memory for all tables. Default: half of what the machine has or a control group allows.
    pub host_budget: Valued<Bytes>,
    /// Bytes of host memory for the tables of one uid. Default: the whole host budget.
    pub uid_budget: Valued<Bytes>,
    /// Clients of one uid at a time, 1 to 65,536. Default: 256.
    pub max_clients: Valued<u32>,
    /// Connections of one uid at a time that have not said hello yet, 1 to 65,536; others of it wait. Default: 64.
    pub max_pending: Valued<u32>,
    /// Calls a second of one uid, once it has made as many at once, 1 to 1,000,000; what is too early waits.
    /// Default: 5,000.
    pub max_calls: Valued<u32>,
    /// Tables of one uid at a time, 1 to 1,024. Default: 256.
    pub max_tables: Valued<u32>,
    /// Batches that may be granted ahead to the readers of one uid, the sum of their prefetch depths, 1 to 1,048,576.
    /// Default: 8,192.
    pub max_leases: Valued<u32>,
    /// Time that a connection has to say hello, 1 ms to a day. Default: 2 s.
    pub hello_timeout: Valued<Duration>,
    /// Time that clients have to finish when the daemon stops, 0 to a day. Default: 10 s.
    pub drain_timeout: Valued<Duration>,
    /// Threads that make the pages of a new table resident, 1 to 1,024. Default: one a core, at most 4.
    pub prefault_threads: Valued<u32>,
    /// A filter of `tracing`, such as `info` or `warn,echod=debug`. Default: `info`.
    pub log: Valued<String>,
    /// Where and how it is logged. Default: [`LogFormat::Auto`].
    pub log_format: Valued<LogFormat>,
    /// The tables that the file declares; valid, no two of one name.
    pub tables: Vec<Valued<Declared>>,
}

/// A configuration that the daemon cannot run with.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum ConfigError {
    #[error(transparent)]
    File(#[from] Box<FileError>),
    #[error("{}: {} cannot be {:?}", .told.origin, .key.name(), .told.value)]
    Value { key: Key, told: Box<Valued<String>>, source: ValueError },
    #[error("cannot tell how much memory there is: say how much to use, as in --host-budget \"16 GiB\"")]
    Memory { source: io::Error },
}

impl ConfigError {
    /// What the daemon exits with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Value { told, .. } => match told.origin {
                Origin::Flag(_) => Exit::Usage,
                Origin::Env(_) | Origin::File(_) | Origin::Default => Exit::Config,
            },
            Self::Memory { .. } => Exit::OsErr,
            Self::File(error) => match &**error {
                FileError::Named { source, .. } | FileError::Unnamed { source, .. } => {
                    Exit::of_io(source, Exit::Config)
                }
                FileError::Document(_) | FileError::Table(_) => Exit::Config,
            },
        }
    }
}

impl Config {
    /// Puts together what the command line, the environment, the file and the machine say.
    ///
    /// # Errors
    /// [`ConfigError`]: a file that cannot be read or understood, a value that its setting cannot have, or a
    /// machine that does not tell its memory although nobody says how much to use.
    pub fn load(cli: &Cli, surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let file = file::read(cli.config.clone(), surroundings).map_err(Box::new)?;
        let told = Told { cli, surroundings, file: file.as_ref() };
        let host_budget = match told.value(Key::HostBudget, value::budget)? {
            Some(told) => told,
            None => Valued::new(half_of_memory(surroundings)?, Origin::Default),
        };
        let uid_budget = told
            .value(Key::UidBudget, value::budget)?
            .unwrap_or(Valued::new(host_budget.value, Origin::Default));
        Ok(Self {
            socket: told.socket()?,
            host_budget,
            uid_budget,
            max_clients: told.or(Key::MaxClients, |text| value::number(text, 1, 1 << 16), || 256)?,
            max_pending: told.or(Key::MaxPending, |text| value::number(text, 1, 1 << 16), || 64)?,
            max_calls: told.or(Key::MaxCalls, |text| value::number(text, 1, 1_000_000), || 5000)?,
            max_tables: told.or(Key::MaxTables, |text| value::number(text, 1, 1024), || 256)?,
            max_leases: told.or(Key::MaxLeases, |text| value::number(text, 1, 1 << 20), || 8192)?,
            hello_timeout: told.or(
                Key::HelloTimeout,
                |text| value::timeout(text, Duration::from_millis(1)),
                || Duration::from_secs(2),
            )?,
            drain_timeout: told.or(
                Key::DrainTimeout,
                |text| value::timeout(text, Duration::ZERO),
                || Duration::from_secs(10),
            )?,
            prefault_threads: told.or(
                Key::PrefaultThreads,
                |text| value::number(text, 1, 1024),
                || surroundings.cores().min(4),
            )?,
            log: told.or(Key::Log, value::filter, || "info".to_owned())?,
            log_format: told.or(Key::LogFormat, str::parse, LogFormat::default)?,
            tables: file.as_ref().map(|file| file.tables.clone()).unwrap_or_default(),
            file: file.map(|file| file.path),
        })
    }
}

/// The three places where somebody can say something.
struct Told<'a> {
    cli: &'a Cli,
    surroundings: &'a Surroundings<'a>,
    file: Option<&'a file::ConfigFile>,
}

impl Told<'_> {
    /// The strongest text for a setting.
    fn text(&self, key: Key) -> Result<Option<Valued<String>>, ConfigError> {
        let flag = self.cli.setting(key).map(|text| Valued::new(text.to_owned(), Origin::Flag(key.flag())));
        let variable =
            || self.surroundings.var(key.env()).map(|text| Valued::new(text, Origin::Env(key.env())));
        let Some(told) = flag.or_else(variable) else {
            return Ok(self.file.and_then(|file| file.settings.get(&key)).cloned());
        };
        match told.value.into_string() {
            Ok(text) => Ok(Some(Valued::new(text, told.origin))),
            Err(text) => {
                let told = Valued::new(text.to_string_lossy().into_owned(), told.origin);
                Err(bad(key, told, ValueError::NotUtf8))
            }
        }
    }

    /// The value that somebody gave a setting, if anybody did.
    fn value<T>(
        &self,
        key: Key,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<Option<Valued<T>>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match parse(&text.value) {
            Ok(value) => Ok(Some(Valued::new(value, text.origin))),
            Err(source) => Err(bad(key, text, source)),
        }
    }

    /// The socket; its default is checked too, since it comes from the environment.
    fn socket(&self) -> Result<Valued<PathBuf>, ConfigError> {
        if let Some(told) = self.value(Key::Socket, value::socket)? {
            return Ok(told);
        }
        let path = default_socket(self.surroundings);
        let text = Valued::new(path.to_string_lossy().into_owned(), Origin::Default);
        let checked =
            if path.to_str().is_none() { Err(ValueError::NotUtf8) } else { value::socket(&text.value) };
        match checked {
            Ok(path) => Ok(Valued::new(path, Origin::Default)),
            Err(source) => Err(bad(Key::Socket, text, source)),
        }
    }

    /// The value that somebody gave a setting, or its default.
    fn or<T>(
        &self,
        key: Key,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
        default: impl FnOnce() -> T,
    ) -> Result<Valued<T>, ConfigError> {
        Ok(self.value(key, parse)?.unwrap_or_else(|| Valued::new(default(), Origin::Default)))
    }
}

fn bad(key: Key, told: Valued<String>, source: ValueError) -> ConfigError {
    ConfigError::Value { key, told: Box::new(told), source }
}

/// Half of the machine's memory, in whole MiB so that it reads well.
fn half_of_memory(surroundings: &Surroundings<'_>) -> Result<Bytes, ConfigError> {
    let memory = surroundings.memory().map_err(|source| ConfigError::Memory { source })?;
    let mib = 1 << 20;
    Ok(Bytes((memory / 2 / mib * mib).max(MIN_BUDGET.0)))
}
