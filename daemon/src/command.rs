//! The daemon's command: parse, configure, set up the log, run. Here, so that another program can be `echod` too: the
//! Python package's console script is.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

use crate::cli::{self, Cli};
use crate::config::Config;
use crate::exit::Exit;
use crate::logging;
use crate::run;
use crate::surroundings::Surroundings;

/// Does what a command line asks, whose first word is the program's name. Returns when it is done, or the daemon has
/// ended; what went wrong was said on standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return cli::exit_of(&error);
        }
    };
    let surroundings = Surroundings::of_this_process();
    let config = match Config::load(&cli, &surroundings) {
        Ok(config) => config,
        Err(error) => return fail(error.exit(), error),
    };
    if cli.print_config {
        return match io::stdout().lock().write_all(config.to_toml().as_bytes()) {
            // A reader such as `head` may have seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                fail(Exit::IoErr, anyhow::Error::from(error).context("cannot print the configuration"))
            }
            _ => Exit::Ok,
        };
    }
    if let Err(error) = logging::init(&config, &surroundings) {
        return fail(error.exit(), error);
    }
    match run::run(&config) {
        Ok(()) => Exit::Ok,
        Err(error) => fail(error.exit(), error),
    }
}

/// Says why on standard error, with all causes on one line.
fn fail(exit: Exit, error: impl Into<anyhow::Error>) -> Exit {
    // Nobody is left to tell if this cannot be printed.
    let _ = writeln!(io::stderr(), "echod: {:#}", error.into());
    exit
}
