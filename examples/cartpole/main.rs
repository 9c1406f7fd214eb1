//! Learns to balance a pole on a cart, from the steps of four rollout workers.
//!
//! ```text
//! cargo run --release --example cartpole [SEED [MILLISECONDS_BETWEEN_DEATHS]]
//! ```
//!
//! Read `sample.rs` first: it says what travels from the workers to the trainer. `rollout.rs` makes it, `learner.rs`
//! learns from it, and `weights.rs` is the way back. `env.rs` and `policy.rs` are the game and the network.
//! With a second argument, workers die and are replaced about as often as it says.

#![expect(
    unreachable_pub,
    reason = "a program has no public items; `pub` says what a module offers to the others"
)]

mod env;
mod in_process;
mod learner;
mod policy;
mod private_dir;
mod report;
mod rollout;
mod sample;
mod weights;

use std::error::Error;
use std::time::Duration;

use crate::in_process::Setting;
use crate::private_dir::PrivateDir;
use crate::report::SOLVED;
use crate::weights::WeightsFile;

/// Samples after which a run gives up.
const MAX_SAMPLES: u64 = 2_000_000;

#[expect(clippy::print_stdout, reason = "its output is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let deaths: Option<u64> = arguments.next().map(|milliseconds| milliseconds.parse()).transpose()?;
    let setting = Setting {
        seed,
        death_every: deaths.map(Duration::from_millis),
        goal: SOLVED,
        max_samples: MAX_SAMPLES,
    };
    let directory = PrivateDir::new()?;
    let weights = WeightsFile::new(directory.path());
    let report = in_process::train(setting, &weights, |report| println!("{report}"))?;
    println!("{}", report.summary());
    if !report.reached(SOLVED) {
        return Err(format!("not solved within {MAX_SAMPLES} samples: try another seed").into());
    }
    Ok(())
}
