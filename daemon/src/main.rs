//! The daemon's command.

use std::process::ExitCode;

fn main() -> ExitCode {
    echod::command::main(std::env::args_os()).into()
}
