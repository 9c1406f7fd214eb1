//! The command: parse, ask, print. Here, so that another program can be `echoctl` too: the Python package's console
//! script is.

use std::ffi::OsString;
use std::io::{self, Write};

use crate::cli::Cli;
use crate::commands;
use crate::exit::Exit;

/// Does what a command line asks, whose first word is the program's name; what went wrong was said on standard error.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::of(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Done };
        }
    };
    match commands::run(&cli.command, &cli.connect, cli.json) {
        Ok(exit) => exit,
        Err(failure) if failure.is_unread() => Exit::Done,
        Err(failure) => {
            // As above.
            let _ = io::stderr().lock().write_all(failure.render(cli.json).as_bytes());
            failure.exit()
        }
    }
}
