//! The command.

use std::process::ExitCode;

fn main() -> ExitCode {
    echoctl::command::main(std::env::args_os()).into()
}
