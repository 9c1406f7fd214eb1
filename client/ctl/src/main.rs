//! The command: parse, ask, print.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use echoctl::cli::Cli;
use echoctl::commands;
use echoctl::exit::Exit;
use echoctl::failure::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    let answer = commands::run(&cli.command, &cli.connect).map(|answer| answer.render(cli.json));
    let printed = answer.and_then(|text| print(&text));
    match printed {
        Ok(()) => Exit::Done.into(),
        Err(failure) => {
            // As above.
            let _ = io::stderr().lock().write_all(failure.render(cli.json).as_bytes());
            failure.exit().into()
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader such as `head` may have seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Print(error)),
        _ => Ok(()),
    }
}
