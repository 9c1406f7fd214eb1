//! The command: parse, ask, print.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use echoctl::cli::Cli;
use echoctl::commands;
use echoctl::exit::Exit;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    match commands::run(&cli.command, &cli.connect, cli.json) {
        Ok(exit) => exit.into(),
        Err(failure) if failure.is_unread() => Exit::Done.into(),
        Err(failure) => {
            // As above.
            let _ = io::stderr().lock().write_all(failure.render(cli.json).as_bytes());
            failure.exit().into()
        }
    }
}
