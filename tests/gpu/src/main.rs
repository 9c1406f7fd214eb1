//! What only a GPU shows: measured there, and held against what echo assumes.
//!
//! Each check runs in a process of its own, which is this executable in a hidden part: what CUDA keeps, and what it
//! breaks, is a process's. It prints a JSON object a line. A check is `held` or `differs` where echo relies on it,
//! `measured` where it only wants to know, and `left out` where the machine or the library lacks something. Without a GPU
//! nothing is checked and nothing passes: the exit code is 77.
//!
//! Reading order: [`items`] (what is checked), [`outcome`] (what comes of it), [`registering`], [`copying`], [`mapping`],
//! [`training`] (the checks), [`stage`] (their processes), [`library`] (what is called).

#![expect(
    unreachable_pub,
    reason = "a program has no public items; `pub` says what a module offers to the others"
)]
#![expect(clippy::print_stdout, reason = "it prints what it found")]

#[path = "../../fakes/cases.rs"]
mod cases;
mod copying;
#[path = "../../support/cuda.rs"]
mod cuda;
#[path = "../../fakes/hold.rs"]
mod hold;
mod items;
mod library;
mod mapping;
mod outcome;
mod registering;
mod stage;
mod training;
#[path = "../../fakes/window.rs"]
mod window;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;

use crate::library::Found;
use crate::outcome::{Outcome, Status};

/// There is no GPU: what test harnesses take for "left out".
const NO_GPU: u8 = 77;

/// Measures on a machine with a GPU what echo assumes of it
#[derive(Parser, Debug)]
#[command(name = "echo-gpu-check")]
struct Arguments {
    /// Only the checks whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,

    /// The CUDA runtime; otherwise it is searched for as a trainer does
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// Play a part of a check
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    part: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.part {
        Some(words) => stage::end_with_parent()
            .and_then(|()| items::play(words, arguments.library.as_deref()))
            .map(|()| ExitCode::SUCCESS),
        None => check(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("gpu-check: {error:#}");
        ExitCode::FAILURE
    })
}

fn check(arguments: &Arguments) -> Result<ExitCode> {
    let only = arguments.only.as_deref().unwrap_or("");
    let wanted: Vec<String> = items::names().into_iter().filter(|name| name.contains(only)).collect();
    ensure!(!wanted.is_empty(), "no check's name contains {only:?}; they are {}", items::names().join(", "));
    let runtime = match stage::look(arguments.library.as_deref())? {
        Found::NoGpu(reason) => {
            eprintln!("gpu-check: left out, there is no GPU: {reason}");
            return Ok(ExitCode::from(NO_GPU));
        }
        Found::Gpu { runtime } => runtime,
    };
    let mut differs = false;
    for name in wanted {
        let outcome = stage::outcome_of(&name, &runtime);
        println!("{}", outcome.line(&name));
        differs |= outcome.status == Status::Differs;
    }
    Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a part says that is a check.
fn say(outcome: &Outcome) {
    println!("{}", outcome.to_json());
}
