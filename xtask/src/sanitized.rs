//! What is built with AddressSanitizer: the tests, and the fuzz targets.
//!
//! Sanitizers are unstable in rustc, not in LLVM: `RUSTC_BOOTSTRAP` lets the stable compiler have them, so that what is
//! tested is what the stable compiler makes, and nobody needs another one. The fuzz targets are built here directly
//! and not by cargo-fuzz, which does little else than pass the same flags and would have to be built first; it can
//! drive them as well.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{fs, io};

use crate::{Step, run};

const USAGE: &str = "\
usage: cargo xtask fuzz [--seconds N] [TARGET]...
       cargo xtask fuzz TARGET --input FILE

Runs the fuzz targets (fuzz/fuzz_targets), all of them or those named, from the inputs in fuzz/corpus, for N seconds
each: 10 if not said. What is found goes to target/fuzz. With --input, runs one target with one input.";

/// What the fuzzer watches, and AddressSanitizer. As one unit, since in many the same code is instrumented many times.
const FUZZ_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
     -Ccodegen-units=1 -Zsanitizer=address";
const FUZZ_TARGET_DIR: &str = "target/fuzz";
/// Most memory that an input may take: a table of a few blocks takes some hundred KiB, the fuzzer itself the rest.
const RSS_LIMIT_MB: u32 = 2048;
/// Longest that one input may take. The slowest known takes half a second.
const INPUT_SECONDS: u32 = 20;

/// The workspace's tests under AddressSanitizer.
pub(crate) fn asan() -> ExitCode {
    let host = match host() {
        Ok(host) => host,
        Err(error) => return failed(&error),
    };
    let done = run(&Step {
        // Not the documentation's examples: rustdoc would need the flags in another way, and they add nothing.
        arguments: &[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--examples",
            "--no-fail-fast",
            "--target",
            &host,
        ],
        environment: &[
            ("RUSTC_BOOTSTRAP", "1"),
            // The cfg leaves out what limits the address space, of which the sanitizer takes terabytes.
            ("RUSTFLAGS", "-Zsanitizer=address --cfg echo_asan"),
            ("CARGO_TARGET_DIR", "target/asan"),
        ],
    });
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The fuzz targets, as the arguments say.
pub(crate) fn fuzz(arguments: &[String]) -> ExitCode {
    let wanted = match Wanted::parse(arguments) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(64);
        }
    };
    match wanted.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("xtask: {error}");
    ExitCode::FAILURE
}

/// What a fuzzing run is to do.
struct Wanted {
    seconds: u32,
    targets: Vec<String>,
    input: Option<PathBuf>,
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let known = targets().map_err(|error| format!("fuzz/fuzz_targets cannot be read: {error}"))?;
        let mut wanted = Self { seconds: 10, targets: Vec::new(), input: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} has no value\n{USAGE}"));
            match argument.as_str() {
                "--seconds" => {
                    let text = value()?;
                    wanted.seconds =
                        text.parse().map_err(|_| format!("--seconds {text:?} is no number\n{USAGE}"))?;
                }
                "--input" => wanted.input = Some(value()?.into()),
                name if known.iter().any(|target| target == name) => wanted.targets.push(name.to_owned()),
                "--help" => return Err(USAGE.into()),
                other => {
                    return Err(format!("there is no target {other:?}, but {}\n{USAGE}", known.join(", ")));
                }
            }
        }
        if wanted.input.is_some() && wanted.targets.len() != 1 {
            return Err(format!("--input is for one target, which is to be named\n{USAGE}"));
        }
        if wanted.targets.is_empty() {
            wanted.targets = known;
        }
        Ok(wanted)
    }

    fn run(&self) -> Result<bool, String> {
        let host = host()?;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let found =
            Command::new(&compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            let compiler = compiler.display();
            return Err(format!(
                "there is no C++ compiler {compiler}, of which the fuzzer's runtime is made: install one"
            ));
        }
        let built = run(&Step {
            arguments: &[
                "build",
                "--quiet",
                "--release",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--target",
                &host,
            ],
            environment: &[
                ("RUSTC_BOOTSTRAP", "1"),
                ("RUSTFLAGS", FUZZ_FLAGS),
                ("CARGO_TARGET_DIR", FUZZ_TARGET_DIR),
            ],
        });
        if !built {
            return Ok(false);
        }
        let binaries = Path::new(FUZZ_TARGET_DIR).join(host).join("release");
        for target in &self.targets {
            let held = match &self.input {
                Some(input) => once(&binaries.join(target), input),
                None => search(&binaries.join(target), target, self.seconds),
            };
            if !held.map_err(|error| format!("{target} cannot be run: {error}"))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// One input, with all that is said of it.
fn once(binary: &Path, input: &Path) -> io::Result<bool> {
    Ok(Command::new(binary).args(limits()).arg(input).status()?.success())
}

/// Looks for an input with which something does not hold. The committed corpus is read and not changed.
fn search(binary: &Path, target: &str, seconds: u32) -> io::Result<bool> {
    let folder = Path::new(FUZZ_TARGET_DIR);
    let (found, log) = (folder.join("corpus").join(target), folder.join(format!("{target}.log")));
    let artifacts = folder.join("artifacts").join(target);
    fs::create_dir_all(&found)?;
    fs::create_dir_all(&artifacts)?;
    eprintln!("xtask: fuzz {target} for {seconds} s");
    let status = Command::new(binary)
        .args(limits())
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([&found, &Path::new("fuzz/corpus").join(target)])
        // It says something of every new input: too much for a log of everything.
        .stderr(fs::File::create(&log)?)
        .status()?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        let done = said.lines().rfind(|line| line.contains("DONE"));
        eprintln!("xtask: fuzz {target}: {}", done.unwrap_or("done"));
        return Ok(true);
    }
    let lines: Vec<&str> = said.lines().collect();
    eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
    eprintln!("xtask: fuzz {target}: {status}; all that was said is in {}", log.display());
    let written =
        said.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path);
    if let Some(path) = written {
        eprintln!("xtask: the input is {path}; again: cargo xtask fuzz {target} --input {path}");
    }
    Ok(false)
}

fn limits() -> [String; 2] {
    [format!("-rss_limit_mb={RSS_LIMIT_MB}"), format!("-timeout={INPUT_SECONDS}")]
}

/// The targets that there are, by name.
fn targets() -> io::Result<Vec<String>> {
    let mut targets = Vec::new();
    for entry in fs::read_dir("fuzz/fuzz_targets")? {
        targets.extend(entry?.path().file_stem().and_then(OsStr::to_str).map(str::to_owned));
    }
    targets.sort();
    Ok(targets)
}

/// The triple of this machine. With `--target`, build scripts and macros are built without the flags.
fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output =
        Command::new(rustc).arg("-vV").output().map_err(|error| format!("rustc cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say for which machine it is".into())
}
