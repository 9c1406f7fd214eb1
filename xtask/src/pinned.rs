//! The example with page-locked memory, by a fake CUDA runtime: it pins, trains, and leaves nothing registered.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// As the loader looks for it.
const SONAME: &str = "libcudart.so.12";
const FAKE: &str = "echo-fake-cudart12";
const BUILT: &str = "libcudart12.so";

/// Runs it, and reads what the fake wrote down.
pub(crate) fn run() -> ExitCode {
    match example() {
        Ok(said) => {
            eprintln!("xtask: {said}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn example() -> Result<String, String> {
    let release =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from).join("release");
    let folder = release.join("fake-cuda");
    let journal = folder.join("journal");
    cargo(&["build", "--release", "--package", FAKE], &[])?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let _ = std::fs::remove_file(&journal);
    let library = folder.join(SONAME);
    std::fs::copy(release.join(BUILT), &library)
        .map_err(|error| format!("{}: {error}", library.display()))?;

    let folder = folder.canonicalize().map_err(|error| error.to_string())?;
    let journal_variable = folder.join("journal");
    let variables = [("LD_LIBRARY_PATH", folder.as_path()), ("ECHO_FAKE_CUDA_JOURNAL", &journal_variable)];
    cargo(&["run", "--release", "--example", "cartpole", "--", "--pin"], &variables)?;

    let text = std::fs::read_to_string(&journal).map_err(|error| format!("nothing was pinned: {error}"))?;
    let registered =
        text.lines().filter(|line| line.contains("cudaHostRegister ") && line.ends_with("-> 0")).count();
    let left =
        text.lines().rev().find_map(|line| line.split_once(" live registrations=").map(|(_, rest)| rest));
    match left {
        Some(left) if registered > 0 && left.starts_with("0 ") => {
            Ok(format!("{registered} pieces of memory were registered, and none is left"))
        }
        left => Err(format!("{registered} pieces of memory were registered, and this is left: {left:?}")),
    }
}

fn cargo(arguments: &[&str], variables: &[(&str, &Path)]) -> Result<(), String> {
    let line = format!("cargo {}", arguments.join(" "));
    eprintln!("xtask: {line}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).envs(variables.iter().copied()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{line}: {status}")),
        Err(error) => Err(format!("{line}: {error}")),
    }
}
