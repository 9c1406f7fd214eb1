//! Chores of this repository: `cargo xtask CHORE`.
//!
//! The continuous integration calls these and nothing else, so what passes here passes there.

mod sanitized;

use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "\
usage: cargo xtask CHORE

  check   formatting, lints, documentation
  test    everything: check, the tests, the protocol model, the ring under loom, a little fuzzing
  model   the protocol, state by state
  loom    the ring's code, under every order that memory allows
  asan    the tests under AddressSanitizer
  fuzz    strangers' bytes, for 10 s each door; 'cargo xtask fuzz --help'
  bench   measures echo beside the machine's limits; 'cargo xtask bench --help'";

/// A command line, and what is set in its environment.
struct Step<'a> {
    arguments: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
}

const fn step<'a>(arguments: &'a [&'a str]) -> Step<'a> {
    Step { arguments, environment: &[] }
}

const CHECK: [Step<'static>; 3] = [
    step(&["fmt", "--all", "--check"]),
    step(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    Step { arguments: &["doc", "--workspace", "--no-deps"], environment: &[("RUSTDOCFLAGS", "-D warnings")] },
];
const TEST: [Step<'static>; 1] = [step(&["test", "--workspace"])];
/// Millions of states: in a build with optimisation.
const MODEL: [Step<'static>; 1] = [step(&["test", "--release", "--test", "protocol_model"])];
/// What follows the chore's name is the benchmark's.
const BENCH: [&str; 6] = ["run", "--quiet", "--release", "--package", "echo-bench", "--"];
/// Under a cfg of our own, since tokio reacts to `cfg(loom)`, and in a folder of its own, since that cfg rebuilds
/// everything.
const LOOM: [Step<'static>; 1] = [Step {
    arguments: &["test", "--release", "--test", "ring_loom"],
    environment: &[("RUSTFLAGS", "--cfg echo_loom"), ("CARGO_TARGET_DIR", "target/loom")],
}];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [chore, rest @ ..] = &arguments[..]
        && chore == "bench"
    {
        let line: Vec<&str> = BENCH.into_iter().chain(rest.iter().map(String::as_str)).collect();
        return if run(&Step { arguments: &line, environment: &[] }) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if let [chore, rest @ ..] = &arguments[..]
        && chore == "fuzz"
    {
        return sanitized::fuzz(rest);
    }
    let chores: &[&[Step<'_>]] = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => &[&CHECK],
        ["test"] => &[&CHECK, &TEST, &MODEL, &LOOM],
        ["model"] => &[&MODEL],
        ["loom"] => &[&LOOM],
        ["asan"] => return sanitized::asan(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    for step in chores.iter().copied().flatten() {
        if !run(step) {
            return ExitCode::FAILURE;
        }
    }
    // The shortest time in which each door sees more than its corpus.
    if arguments == ["test"] { sanitized::fuzz(&["--seconds".into(), "5".into()]) } else { ExitCode::SUCCESS }
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
