//! Learns to balance a pole on a cart: four rollout workers, a trainer and a daemon, each a process.
//!
//! ```text
//! cargo run --release --example cartpole [-- [--kill-workers] [--pin] [--socket PATH]]
//! ```
//!
//! Read `sample.rs` first: it says what travels from the workers to the trainer. `worker.rs` and `trainer.rs` are
//! the two ends of its way through the ring; `rollout.rs` makes samples, `learner.rs` learns from them, and
//! `weights.rs` is the way back. `env.rs` and `policy.rs` are the game and the network. `cast.rs` starts and ends
//! the processes, each of which is this executable again.

#![expect(
    unreachable_pub,
    reason = "a program has no public items; `pub` says what a module offers to the others"
)]

mod cast;
mod env;
#[cfg(test)]
mod in_process;
mod learner;
mod policy;
mod private_dir;
mod report;
mod rollout;
mod sample;
mod trainer;
mod weights;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Learns to balance a pole on a cart, through a daemon of its own or one that runs
#[derive(Parser, Clone, Debug)]
pub struct Arguments {
    /// Kill a random worker every second and start another
    #[arg(long)]
    kill_workers: bool,

    /// Page-lock what the trainer reads, with the CUDA runtime that is found
    #[arg(long)]
    pin: bool,

    /// Use the daemon that listens on this socket, and not one of its own
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// What the run's randomness is made from
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Which of the processes this is
    #[arg(long, hide = true, value_enum, default_value_t = Role::Director)]
    role: Role,

    /// Where the processes of a run meet
    #[arg(long, hide = true, default_value = ".")]
    directory: PathBuf,
}

/// The part that a process plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Starts the others.
    Director,
    Daemon,
    Worker,
    Trainer,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.role {
        Role::Director => cast::direct(&arguments),
        Role::Daemon => cast::with_its_parent().and_then(|()| cast::daemon(&arguments.directory)),
        Role::Worker => cast::with_its_parent().and_then(|()| worker::work(&arguments)),
        Role::Trainer => cast::with_its_parent().and_then(|()| trainer::train(&arguments)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cartpole: {error:#}");
            ExitCode::FAILURE
        }
    }
}
