//! Where the daemon tells what it does: the journal, or text on standard error.
//!
//! Under systemd standard error is a stream into the journal, and `JOURNAL_STREAM` names it by device and
//! inode. Only if that is still the file behind descriptor 2 do events go to the journal itself, with their
//! fields; somebody who redirects standard error to a file has it in the file.
//!
//! There is no JSON here: the journal exports it (`journalctl -o json`).

use std::io::{self, IsTerminal};
use std::str::FromStr;

use thiserror::Error;
use tracing_subscriber::filter::{EnvFilter, ParseError};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{Config, LogFormat};
use crate::exit::Exit;
use crate::surroundings::Surroundings;

/// Why nothing can be logged.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum LoggingError {
    #[error("the log filter {filter:?} cannot be parsed")]
    Filter { filter: String, source: ParseError },
    #[error("cannot reach the journal, which log_format = \"journal\" asks for: try \"auto\" or \"text\"")]
    Journal { source: io::Error },
    #[error("a log has been set up in this process before")]
    Twice { source: TryInitError },
}

impl LoggingError {
    /// What the daemon exits with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Filter { .. } => Exit::Config,
            Self::Journal { .. } => Exit::Unavailable,
            Self::Twice { .. } => Exit::OsErr,
        }
    }
}

/// Where events go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sink {
    /// Into the journal, with their fields.
    Journal,
    /// Onto standard error.
    Text {
        /// With colours.
        ansi: bool,
    },
}

/// What `JOURNAL_STREAM` says: which file the stream into the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamId {
    /// The device number, as `fstat` gives it.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
}

impl FromStr for StreamId {
    type Err = std::num::ParseIntError;

    /// `DEVICE:INODE`, both decimal.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Without a colon the inode is empty, which is no number.
        let (dev, ino) = text.split_once(':').unwrap_or((text, ""));
        Ok(Self { dev: dev.parse()?, ino: ino.parse()? })
    }
}

/// What standard error is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stderr {
    /// Which file; `None` if it cannot be told (it is closed, for one).
    pub id: Option<StreamId>,
    /// Whether it is a terminal.
    pub terminal: bool,
}

impl Stderr {
    /// That of this process.
    pub fn of_this_process() -> Self {
        let stat = rustix::fs::fstat(io::stderr()).ok();
        let id = stat.map(|stat| StreamId { dev: stat.st_dev, ino: stat.st_ino });
        Self { id, terminal: io::stderr().is_terminal() }
    }

    /// Whether it is the stream that `JOURNAL_STREAM` names. What cannot be parsed names none.
    pub fn is_journal(&self, journal_stream: Option<&str>) -> bool {
        let named = journal_stream.and_then(|text| text.parse().ok());
        named.is_some() && named == self.id
    }
}

/// Where events go. `no_color` is whether the user set `NO_COLOR` to anything.
pub fn choose(format: LogFormat, stderr: Stderr, journal_stream: Option<&str>, no_color: bool) -> Sink {
    match format {
        LogFormat::Journal => Sink::Journal,
        LogFormat::Auto if stderr.is_journal(journal_stream) => Sink::Journal,
        LogFormat::Auto | LogFormat::Text => Sink::Text { ansi: stderr.terminal && !no_color },
    }
}

/// Sets up the log of this process; once.
///
/// # Errors
/// [`LoggingError`]: a journal that was asked for and is not there, or a log that is set up already. With
/// [`LogFormat::Auto`] a journal that cannot be reached is a warning, and the log is text.
pub fn init(config: &Config, surroundings: &Surroundings<'_>) -> Result<Sink, LoggingError> {
    let format = config.log_format.value;
    let stream = surroundings.var("JOURNAL_STREAM");
    let stream = stream.as_deref().and_then(|text| text.to_str());
    let no_color = surroundings.var("NO_COLOR").is_some();
    let wanted = choose(format, Stderr::of_this_process(), stream, no_color);

    let filter = &config.log.value;
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| LoggingError::Filter { filter: filter.clone(), source })?;
    let (layer, sink, refused) = match wanted {
        Sink::Text { ansi } => (text(ansi), wanted, None),
        Sink::Journal => match tracing_journald::layer() {
            // Fields as ECHO_TABLE=, ECHO_SEQ=: their names are ours in a journal that all services share.
            Ok(layer) => (layer.with_field_prefix(Some("ECHO".to_owned())).boxed(), wanted, None),
            Err(source) if format == LogFormat::Journal => return Err(LoggingError::Journal { source }),
            Err(source) => (text(false), Sink::Text { ansi: false }, Some(source)),
        },
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
        .map_err(|source| LoggingError::Twice { source })?;
    if let Some(error) = refused {
        tracing::warn!(%error, "cannot reach the journal, logging as text");
    }
    Ok(sink)
}

/// Text on standard error.
fn text(ansi: bool) -> Box<dyn Layer<Registry> + Send + Sync> {
    tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(ansi).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId { dev: 9, ino: 1234 };
    const FILE: Stderr = Stderr { id: Some(STREAM), terminal: false };
    const TERMINAL: Stderr = Stderr { id: Some(STREAM), terminal: true };

    #[test]
    fn a_stream_is_named_by_device_and_inode() {
        assert_eq!("9:1234".parse(), Ok(STREAM));
        for bad in ["", "9", ":", "9:", ":1234", "9:1234:5", "x:1", "-9:1234", "9 : 1234"] {
            assert!(bad.parse::<StreamId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_very_stream_that_is_named_is_the_journal() {
        assert!(FILE.is_journal(Some("9:1234")));
        for other in [Some("9:1235"), Some("8:1234"), Some("nonsense"), None] {
            assert!(!FILE.is_journal(other), "{other:?}");
        }
        let closed = Stderr { id: None, terminal: false };
        assert!(!closed.is_journal(None));
        assert!(!closed.is_journal(Some("9:1234")));
    }

    #[test]
    fn the_journal_is_used_if_it_is_connected_or_asked_for() {
        let text = Sink::Text { ansi: false };
        assert_eq!(choose(LogFormat::Auto, FILE, Some("9:1234"), false), Sink::Journal);
        assert_eq!(choose(LogFormat::Auto, FILE, Some("9:1"), false), text);
        assert_eq!(choose(LogFormat::Auto, FILE, None, false), text);
        assert_eq!(choose(LogFormat::Text, FILE, Some("9:1234"), false), text);
        assert_eq!(choose(LogFormat::Journal, FILE, None, false), Sink::Journal);
    }

    #[test]
    fn colours_are_for_terminals_of_people_who_want_them() {
        assert_eq!(choose(LogFormat::Text, TERMINAL, None, false), Sink::Text { ansi: true });
        assert_eq!(choose(LogFormat::Text, TERMINAL, None, true), Sink::Text { ansi: false });
        assert_eq!(choose(LogFormat::Text, FILE, None, false), Sink::Text { ansi: false });
    }

    #[test]
    fn standard_error_of_a_test_can_be_told() {
        let stderr = Stderr::of_this_process();
        let id = stderr.id.expect("cargo leaves standard error open");
        assert!(stderr.is_journal(Some(&format!("{}:{}", id.dev, id.ino))));
    }
}
