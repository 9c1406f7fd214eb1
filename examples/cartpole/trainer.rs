//! The trainer: reads batches where they lie, learns from them, and publishes each new policy.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use echo_client::{PinOptions, ReaderOptions};

use crate::learner::Learner;
use crate::report::{Report, SOLVED};
use crate::sample::{Batch, TABLE, table_spec};
use crate::weights::{self, Published};
use crate::{Arguments, cast};

/// Samples after which a run gives up.
const MAX_SAMPLES: u64 = 2_000_000;
/// Time after which workers that fill no batch must have failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a run goes on at least in which workers are killed, so that some are; or how many samples.
const KILLING: (Duration, u64) = (Duration::from_secs(5), 1_500_000);

/// Trains until the task is solved or the samples are used up, and says what it took.
#[expect(clippy::print_stdout, reason = "its output is what it is for")]
pub fn train(arguments: &Arguments) -> Result<ExitCode> {
    let client = cast::connect(arguments)?;
    let spec = table_spec();
    let options = ReaderOptions { registrable: arguments.pin, ..ReaderOptions::with_prefetch(2) };
    let mut reader = client.attach_reader(TABLE, Some(&spec.arrays), options)?;
    if arguments.pin {
        let pinned = reader.pin_host_memory(&PinOptions::default())?;
        println!("page-locked {} bytes in {} pieces, by {}", pinned.bytes, pinned.pieces, pinned.library);
    }
    let mut published = Published::attach(&client)?;
    let mut learner = Learner::new(arguments.seed);
    // The workers wait for it.
    published.publish(learner.policy())?;
    let started = Instant::now();
    let mut report = Report::new(spec.sample_bytes(), started);
    let (at_least, or_samples) = if arguments.kill_workers { KILLING } else { (Duration::ZERO, 0) };
    let too_short = |samples| started.elapsed() < at_least && samples < or_samples;
    while (!report.reached(SOLVED) || too_short(report.samples())) && report.samples() < MAX_SAMPLES {
        let asked = Instant::now();
        let leased = reader.next_batch(PATIENCE)?;
        let waited = asked.elapsed();
        let batch = view(&leased)?;
        let learned = learner.learn(&batch);
        published.publish(learner.policy())?;
        if report.add(&batch, learned, waited, Instant::now()) {
            println!("{report}");
        }
    }
    drop((reader, published));
    let samples = client.show_table(TABLE)?.row.samples;
    // The workers hear of it, and end.
    client.drop_table(TABLE)?;
    client.drop_table(weights::TABLE)?;
    let (committed, delivered, pending) = (samples.committed, samples.delivered, samples.pending);
    println!("committed {committed} delivered {delivered} pending {pending}");
    println!("{}", report.summary());
    let accounted = committed == delivered + pending && delivered == report.samples();
    if !accounted {
        anyhow::bail!("the trainer read {} samples, and the daemon counted others", report.samples());
    }
    Ok(if report.reached(SOLVED) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arrays of a batch, as what they hold.
fn view(leased: &echo_client::Batch) -> Result<Batch<'_>, echo_client::Error> {
    let (observation, _) = leased.array(0).as_slice()?.as_chunks();
    Ok(Batch {
        observation,
        action: leased.array(1).as_slice()?,
        log_prob: leased.array(2).as_slice()?,
        advantage: leased.array(3).as_slice()?,
        value_target: leased.array(4).as_slice()?,
        episode_return: leased.array(5).as_slice()?,
        policy_version: leased.array(6).as_slice()?,
    })
}
