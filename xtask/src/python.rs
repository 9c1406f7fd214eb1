//! The Python package, as a person installs it: into an environment of its own, and tested there.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// What is installed, and what its tests need beside it.
const PACKAGE: &str = "./client/python[test]";

/// Makes the environment if there is none, installs the package into it and runs its tests. `rest` is pytest's.
pub(crate) fn test(rest: &[String]) -> ExitCode {
    match install().and_then(|python| {
        let mut pytest = Command::new(python);
        pytest.args(["-m", "pytest", "-q", "client/python/tests"]).args(rest);
        run(&mut pytest)
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The environment's interpreter, with the package as it is in the tree.
fn install() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let environment = target.join("python");
    let python = environment.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]);
    run(&mut pip)?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let line = format!("{command:?}").replace('"', "");
    eprintln!("xtask: {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}
