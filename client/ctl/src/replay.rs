//! How a replay table that is to be made chooses, removes, limits and ages.

use clap::Args;
use echo_client::replay::{Admission, RateLimiter, Real, ReplaySpec, Selector, Staleness};

/// Samples in a batch, where nobody says.
const BATCH: u32 = 256;

/// Options of a replay table alone.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of a replay table")]
pub struct Replay {
    /// Items in a full table
    #[arg(long, value_name = "NUMBER")]
    pub max_size: Option<u32>,

    /// Which items are sampled: fifo, lifo, uniform, prioritized:EXPONENT, min-heap or max-heap [default: uniform]
    #[arg(long, value_name = "SELECTOR")]
    pub sampler: Option<Selector>,

    /// Which item makes room in a full table, likewise [default: fifo]
    #[arg(long, value_name = "SELECTOR")]
    pub remover: Option<Selector>,

    /// Remove an item when it was sampled so often [default: 0, which is never]
    #[arg(long, value_name = "NUMBER")]
    pub max_times_sampled: Option<u32>,

    /// Who waits for whom: min-size:ITEMS, ratio:SAMPLES_PER_INSERT:MIN_SIZE:BUFFER,
    /// ratio:SAMPLES_PER_INSERT:MIN_SIZE:MIN_DIFF:MAX_DIFF, queue:ITEMS or stack:ITEMS [default: min-size:1]
    #[arg(long, value_name = "LIMITER")]
    pub rate_limiter: Option<RateLimiter>,

    /// Remove items that lag behind the trainer's version by more [default: none]
    #[arg(long, value_name = "VERSIONS")]
    pub max_staleness: Option<u64>,

    /// What a weight is multiplied by for each version that an item lags behind another
    #[arg(long, value_name = "FACTOR")]
    pub staleness_decay: Option<f64>,

    /// Let workers in only with what can still be used in time: samples that the trainer uses in one version
    #[arg(long, value_name = "NUMBER", requires = "max_running", requires = "max_staleness")]
    pub samples_per_version: Option<u32>,

    /// And samples that may be in the making at a time
    #[arg(long, value_name = "NUMBER", requires = "samples_per_version")]
    pub max_running: Option<u32>,
}

impl Replay {
    /// An option that only a replay table has, if one is given.
    pub fn given(&self) -> Option<&'static str> {
        [
            (self.max_size.is_some(), "--max-size"),
            (self.sampler.is_some(), "--sampler"),
            (self.remover.is_some(), "--remover"),
            (self.max_times_sampled.is_some(), "--max-times-sampled"),
            (self.rate_limiter.is_some(), "--rate-limiter"),
            (self.max_staleness.is_some(), "--max-staleness"),
            (self.staleness_decay.is_some(), "--staleness-decay"),
            (self.samples_per_version.is_some(), "--samples-per-version"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// The settings, if the size is given.
    pub fn settings(&self, batch_size: Option<u32>) -> Option<ReplaySpec> {
        let mut settings = ReplaySpec::new(self.max_size?, batch_size.unwrap_or(BATCH));
        settings.sampler = self.sampler.unwrap_or(settings.sampler);
        settings.remover = self.remover.unwrap_or(settings.remover);
        settings.max_times_sampled = self.max_times_sampled.unwrap_or(0);
        settings.limiter = self.rate_limiter.unwrap_or(settings.limiter);
        let admission = self.samples_per_version.zip(self.max_running);
        settings.staleness = Staleness {
            max: self.max_staleness,
            decay: self.staleness_decay.map(Real),
            admission: admission
                .map(|(samples_per_version, max_running)| Admission { samples_per_version, max_running }),
        };
        Some(settings)
    }
}
