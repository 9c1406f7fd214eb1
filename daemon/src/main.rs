//! The daemon's command: parse, configure, set up the log, run.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use echod::cli::{self, Cli};
use echod::config::Config;
use echod::exit::Exit;
use echod::logging;
use echod::run;
use echod::surroundings::Surroundings;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return cli::exit_of(&error).into();
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
            _ => Exit::Ok.into(),
        };
    }
    if let Err(error) = logging::init(&config, &surroundings) {
        return fail(error.exit(), error);
    }
    match run::run(&config) {
        Ok(()) => Exit::Ok.into(),
        Err(error) => fail(error.exit(), error),
    }
}

/// Says why on standard error, with all causes on one line.
fn fail(exit: Exit, error: impl Into<anyhow::Error>) -> ExitCode {
    // Nobody is left to tell if this cannot be printed.
    let _ = writeln!(io::stderr(), "echod: {:#}", error.into());
    exit.into()
}
