//! From text to a value: the same rules for a flag, a variable and a line of the file.

use std::fmt;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use humantime::format_duration;
use thiserror::Error;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, ParseError};

use crate::bytes::{Bytes, BytesError};
use crate::socket_path::{SocketPathError, check_socket};

/// The least that a budget can be. Less is a unit forgotten, not a budget.
pub const MIN_BUDGET: Bytes = Bytes(64 << 10);
/// The longest that a timeout can be.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a text is not a value of its setting.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum ValueError {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it must be a whole number from {min} to {max}")]
    Number { min: u32, max: u32, source: ParseIntError },
    #[error("it must be from {min} to {max}")]
    Range { min: u32, max: u32 },
    #[error("it is not a size")]
    Bytes(#[from] BytesError),
    #[error("it is {0}, a budget has at least {MIN_BUDGET}: is a unit missing, as in \"64 GiB\"?")]
    Budget(Bytes),
    #[error("it is not a duration, such as \"2s\", \"500ms\" or \"1m 30s\"")]
    Duration(#[from] humantime::DurationError),
    #[error("it must be from {} to {}", format_duration(*.0), format_duration(MAX_TIMEOUT))]
    Timeout(Duration),
    #[error("it cannot be the path of a socket")]
    Socket(#[from] SocketPathError),
    #[error(
        "it is not a level: use off, error, warn, info, debug or trace, and TARGET=LEVEL for a part, \
         such as \"info,echod=debug\""
    )]
    Level,
    #[error("it is not a filter, such as \"info\" or \"warn,echod=debug\"")]
    Filter(#[from] ParseError),
    #[error("it must be one of {}", quoted(.0))]
    Choice(&'static [&'static str]),
}

/// Where and how the daemon logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Into the journal if standard error is connected to it, else as text.
    #[default]
    Auto,
    /// As text on standard error; in colours if that is a terminal.
    Text,
    /// Into the journal, with fields; the daemon does not start without one.
    Journal,
}

impl LogFormat {
    /// Every format's name, in the order of the variants.
    pub const NAMES: [&'static str; 3] = ["auto", "text", "journal"];
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize])
    }
}

impl FromStr for LogFormat {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let formats = [Self::Auto, Self::Text, Self::Journal];
        let found = formats.into_iter().find(|format| Self::NAMES[*format as usize] == text);
        found.ok_or(ValueError::Choice(&Self::NAMES))
    }
}

/// `"a", "b" or "c"`
pub(super) fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

pub(super) fn number(text: &str, min: u32, max: u32) -> Result<u32, ValueError> {
    let number = text.trim().parse().map_err(|source| ValueError::Number { min, max, source })?;
    if (min..=max).contains(&number) { Ok(number) } else { Err(ValueError::Range { min, max }) }
}

pub(super) fn budget(text: &str) -> Result<Bytes, ValueError> {
    let bytes = text.parse()?;
    if bytes < MIN_BUDGET { Err(ValueError::Budget(bytes)) } else { Ok(bytes) }
}

pub(super) fn timeout(text: &str, min: Duration) -> Result<Duration, ValueError> {
    let duration = humantime::parse_duration(text.trim())?;
    if (min..=MAX_TIMEOUT).contains(&duration) { Ok(duration) } else { Err(ValueError::Timeout(min)) }
}

pub(super) fn socket(text: &str) -> Result<PathBuf, ValueError> {
    let path = PathBuf::from(text);
    check_socket(&path)?;
    Ok(path)
}

/// The text of a filter that can be parsed. A lone word must be a level: the filter's own grammar takes
/// "debgu" for the name of a module, and then logs next to nothing.
pub(super) fn filter(text: &str) -> Result<String, ValueError> {
    let lone_word = text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ' ');
    if lone_word && text.trim().parse::<LevelFilter>().is_err() {
        return Err(ValueError::Level);
    }
    EnvFilter::builder().parse(text)?;
    Ok(text.to_owned())
}
