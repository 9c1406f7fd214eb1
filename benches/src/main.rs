//! Measures echo, and beside it the machine's limit, in the same run: `cargo xtask bench`.
//!
//! Every figure comes from separate processes, as a training has them: a writer or two, a reader, a daemon. Each
//! is this executable again, in a part of its own ([`part`]). A row ([`rows`]) measures echo and the limit in turn,
//! several times; what is printed are medians, and the median of the ratios of neighbours, since these machines
//! are noisy and noise hits both.
//!
//! Reading order: [`rows`] (what is measured), [`fifo`] (the row that matters most), [`plain_ring`] (its limit),
//! [`stage`] (how processes are started and told to go).

#![expect(
    unreachable_pub,
    reason = "a program has no public items; `pub` says what a module offers to the others"
)]
#![expect(clippy::print_stdout, reason = "it prints what it measured")]

mod attach;
mod clients;
mod clock;
mod fifo;
mod latency;
mod latest;
mod part;
mod patience;
mod pin;
mod plain_ring;
mod prefault;
mod report;
mod rows;
mod sample;
mod shared;
mod stage;
mod workload;

use std::process::ExitCode;

use clap::Parser;

/// Measures echo beside the machine's limits
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// Shorter, and three rounds instead of five: for a look, not for a record
    #[arg(long)]
    quick: bool,

    /// Only the rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,

    /// Print a JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// Play a part in a measurement
    #[arg(long, hide = true, num_args = 1.., allow_hyphen_values = true)]
    part: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.part {
        Some(words) => part::play(words),
        None => rows::run(arguments.quick, arguments.only.as_deref(), arguments.json),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
