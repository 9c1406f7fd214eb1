//! The configuration file.
//!
//! Any bytes are a configuration or an error. What `--print-config` prints of a good one is a file that says the
//! same, and is printed alike.

use std::io;
use std::path::Path;

use clap::Parser;
use echod::cli::Cli;
use echod::config::{Config, ConfigError};
use echod::surroundings::Surroundings;

const FILE: &str = "/echod.toml";

/// Any bytes, as the file that `--config` names.
///
/// # Panics
/// If something does not hold.
pub fn holds(bytes: &[u8]) {
    let config = match load(bytes) {
        Ok(config) => config,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            return;
        }
    };
    let printed = config.to_toml();
    let again =
        load(printed.as_bytes()).unwrap_or_else(|error| panic!("{error}, in what was printed:\n{printed}"));
    assert_eq!(said(&again.to_toml()), said(&printed));
    assert_eq!(again.socket.value, config.socket.value);
    assert_eq!(again.hello_timeout.value, config.hello_timeout.value);
    assert_eq!(again.drain_timeout.value, config.drain_timeout.value);
    assert_eq!(again.log.value, config.log.value);
    let tables = |config: &Config| config.tables.iter().map(|table| table.value.clone()).collect::<Vec<_>>();
    assert_eq!(tables(&again), tables(&config));
}

/// On a machine that has nothing else to say.
fn load(bytes: &[u8]) -> Result<Config, ConfigError> {
    let cli = Cli::try_parse_from(["echod", "--config", FILE]).expect("this flag exists");
    let read = |path: &Path| match path.to_str() {
        // As `std::fs::read_to_string` has it.
        Some(FILE) => String::from_utf8(bytes.to_vec()).map_err(|_| io::ErrorKind::InvalidData.into()),
        Some("/proc/meminfo") => Ok("MemTotal: 33554432 kB\n".to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Config::load(&cli, &Surroundings::new(|_| None, read, false, 8))
}

/// The lines without the comments that begin in their column and say where each value came from.
fn said(printed: &str) -> Vec<&str> {
    printed.lines().map(|line| line.rsplit_once(" # ").map_or(line, |(said, _)| said.trim_end())).collect()
}
