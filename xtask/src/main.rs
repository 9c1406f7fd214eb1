//! Chores of this repository: `cargo xtask CHORE`.
//!
//! The continuous integration calls these and nothing else, so what passes here passes there.

mod manual;
mod pinned;
mod python;
mod sanitized;

use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask CHORE

  check   formatting, lints, documentation, the manual
  test    everything: check, the tests, the example with fake CUDA, the Python package, the protocol model, the
          ring under loom, a little fuzzing
  model   the protocol, state by state
  pinned  the example with page-locked memory, by a fake CUDA runtime
  python  the Python package, installed into an environment of its own, and its tests
  loom    the ring's code, under every order that memory allows
  cases   the core's property tests with 100,000 cases each, or so many, and the tests of a thousand million updates
  manual  writes the man pages and completions from the command lines; '--check' compares
  asan    the tests under AddressSanitizer
  fuzz    strangers' bytes, for 10 s each door; 'cargo xtask fuzz --help'
  soak    200 clients that come, work, crash and go, for ten minutes
  bench   measures echo beside the machine's limits; 'cargo xtask bench --help'";

/// A command line, and what is set in its environment.
struct Step<'a> {
    arguments: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
}

const fn step<'a>(arguments: &'a [&'a str]) -> Step<'a> {
    Step { arguments, environment: &[] }
}

const CHECK: [Step<'static>; 4] = [
    step(&["fmt", "--all", "--check"]),
    step(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    Step { arguments: &["doc", "--workspace", "--no-deps"], environment: &[("RUSTDOCFLAGS", "-D warnings")] },
    step(&["xtask", "manual", "--check"]),
];
const TEST: [Step<'static>; 1] = [step(&["test", "--workspace"])];
/// Millions of states: in a build with optimisation.
const MODEL: [Step<'static>; 1] = [step(&["test", "--release", "--test", "protocol_model"])];
/// The library by which the benchmark page-locks, since there may be no GPU; it looks beside itself. Not a dependency: a
/// library of its own name and kind, with the benchmark's optimisation.
const BENCH_LIBRARY: [&str; 5] = ["build", "--quiet", "--release", "--package", "echo-fake-cudart12"];
/// What follows the chore's name is the benchmark's.
const BENCH: [&str; 6] = ["run", "--quiet", "--release", "--package", "echo-bench", "--"];
/// Under a cfg of our own, since tokio reacts to `cfg(loom)`, and in a folder of its own, since that cfg rebuilds
/// everything.
const LOOM: [Step<'static>; 1] = [Step {
    arguments: &["test", "--release", "--test", "ring_loom"],
    environment: &[("RUSTFLAGS", "--cfg echo_loom"), ("CARGO_TARGET_DIR", "target/loom")],
}];

/// The number of cases is in the environment.
const CASES: [&[&str]; 2] = [
    &["test", "--release", "--package", "echo", "--lib"],
    &["test", "--release", "--package", "echo", "--lib", "a_thousand_million", "--", "--ignored"],
];

/// In a build with optimisation: it is the processes that are to be slow, not what they do.
const SOAK: [Step<'static>; 1] = [Step {
    arguments: &["test", "--release", "--test", "soak", "--", "--nocapture"],
    environment: &[("ECHO_SOAK_CLIENTS", "200"), ("ECHO_SOAK_SECONDS", "600")],
}];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((chore, rest)) = arguments.split_first() else { return usage() };
    match (chore.as_str(), rest) {
        ("check", []) => run_all(&[&CHECK]),
        ("test", []) => {
            // The shortest time in which each door sees more than its corpus.
            let fuzz = || sanitized::fuzz(&["--seconds".into(), "5".into()]);
            let chores: [&dyn Fn() -> ExitCode; 5] = [
                &|| run_all(&[&CHECK, &TEST]),
                &pinned::run,
                &|| python::test(&[]),
                &|| run_all(&[&MODEL, &LOOM]),
                &fuzz,
            ];
            let failed = chores.iter().map(|chore| chore()).find(|code| *code != ExitCode::SUCCESS);
            failed.unwrap_or(ExitCode::SUCCESS)
        }
        ("model", []) => run_all(&[&MODEL]),
        ("loom", []) => run_all(&[&LOOM]),
        ("pinned", []) => pinned::run(),
        ("python", rest) => python::test(rest),
        ("cases", []) => cases("100000"),
        ("cases", [number]) if number.parse::<u32>().is_ok() => cases(number),
        ("soak", []) => run_all(&[&SOAK]),
        ("asan", []) => sanitized::asan(),
        ("fuzz", rest) => sanitized::fuzz(rest),
        ("manual", rest) => manual::run(rest),
        ("bench", rest) => {
            let line: Vec<&str> = BENCH.into_iter().chain(rest.iter().map(String::as_str)).collect();
            run_all(&[&[step(&BENCH_LIBRARY), step(&line)]])
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(64)
}

fn cases(number: &str) -> ExitCode {
    let environment = [("PROPTEST_CASES", number)];
    run_all(&[&CASES.map(|arguments| Step { arguments, environment: &environment })])
}

/// Runs steps until one fails.
fn run_all(chores: &[&[Step<'_>]]) -> ExitCode {
    if chores.iter().copied().flatten().all(run) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(step: &Step<'_>) -> bool {
    let line = format!("cargo {}", step.arguments.join(" "));
    eprintln!("xtask: {line}");
    let started = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(step.arguments).envs(step.environment.iter().copied()).status();
    let seconds = started.elapsed().as_secs();
    match status {
        Ok(status) if status.success() => {
            eprintln!("xtask: {line}: done in {seconds} s");
            true
        }
        Ok(status) => {
            eprintln!("xtask: {line}: {status} after {seconds} s");
            false
        }
        Err(error) => {
            eprintln!("xtask: {line}: {error}");
            false
        }
    }
}
