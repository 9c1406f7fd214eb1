//! What a replay table is asked to be: how it chooses, removes, limits and ages.
//!
//! Settings come from a client or from a file. [`ReplaySpec::validate`] refuses those that no table can have and those
//! with which somebody would wait for ever, and says what it computed; [`ReplaySpec::warning`] says what only works
//! if samples are taken while others are inserted. As text they are written as in the configuration file and on
//! the command line: `prioritized:0.6`, `ratio:4:100:50`.

use std::fmt;

use bincode::{Decode, Encode};
use thiserror::Error;

use crate::replay::limiter::Limiter;
use crate::spec::{MAX_BATCH, MAX_BLOCKS};

mod codec;
mod text;

pub use text::ParseError;

/// Most items that a replay table holds: what is removed while the table is full needs a slot, too.
pub const MAX_ITEMS: u32 = u32::MAX - 1;

/// Most samples in a block.
pub const MAX_BLOCK_SLOTS: u32 = 64;

/// A number that two parties must agree on to the letter: equal if the bits are.
#[derive(Clone, Copy, Debug, Encode, Decode)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl From<f64> for Real {
    fn from(number: f64) -> Self {
        Self(number)
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which item is chosen: by a sampler to be read, by a remover to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// The one that was inserted first.
    Fifo,
    /// The one that was inserted last. As a remover of a full table this is the new one itself.
    Lifo,
    /// Each as likely as another.
    Uniform,
    /// Each in proportion to its priority to the power of the exponent, one of priority 0 never; if all are never,
    /// each as likely as another.
    Prioritized {
        /// 0 makes all priorities but 0 equal.
        exponent: Real,
    },
    /// The one with the smallest priority; of several the one whose priority was set the longest ago.
    MinHeap,
    /// The one with the largest priority; of several the one whose priority was set the longest ago.
    MaxHeap,
}

/// How far from its aim the ratio of samples to inserts may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorBuffer {
    /// `spi * min_size` give or take so much.
    Around(Real),
    /// From the first to the second.
    Between(Real, Real),
}

/// When inserting or sampling has to wait for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateLimiter {
    /// Sampling waits until there are so many items.
    MinSize(u32),
    /// Each item is sampled so often on average, after the first `min_size`.
    SampleToInsertRatio {
        /// Samples per insert.
        ratio: Real,
        /// Sampling waits until there are so many items.
        min_size: u32,
        /// How much either side may be ahead.
        error_buffer: ErrorBuffer,
    },
    /// Each item is sampled once, in the order in which they came; inserting waits while there are so many.
    Queue(u32),
    /// Each item is sampled once, the last first; inserting waits while there are so many.
    Stack(u32),
}

/// What is done about items that were made by an old policy. Their lag is the trainer's version less theirs; a sample
/// without a version counts as of version 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct Staleness {
    /// Items with a larger lag are removed and never sampled.
    pub max: Option<u64>,
    /// What a weight is multiplied by for each version that the item lags behind another.
    pub decay: Option<Real>,
    /// Workers are only let in with what can still be consumed in time.
    pub admission: Option<Admission>,
}

/// How workers are kept from producing what would be stale when it is consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct Admission {
    /// Samples that the trainer consumes in one version.
    pub samples_per_version: u32,
    /// Samples that may be in the making at a time.
    pub max_running: u32,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ReplaySpec {
    /// Which items are sampled.
    pub sampler: Selector,
    /// Which items make room in a full table.
    pub remover: Selector,
    /// Items in a full table.
    pub max_size: u32,
    /// An item is removed when it was sampled so often; 0 is never.
    pub max_times_sampled: u32,
    /// Who waits for whom.
    pub limiter: RateLimiter,
    /// What is done about old items.
    pub staleness: Staleness,
    /// Items of a batch, unless a request says otherwise.
    pub batch_size: u32,
}

/// Settings that no table can have.
#[derive(Clone, Copy, PartialEq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum SettingsError {
    #[error("max_size is {0}, it must be 1 to {MAX_ITEMS}")]
    MaxSize(u32),
    #[error("batch_size is {0}, it must be 1 to {MAX_BATCH}")]
    BatchSize(u32),
    #[error("a priority exponent is {0}, it must be finite and not negative")]
    Exponent(f64),
    #[error("min_size is 0, it must be at least 1")]
    NoMinSize,
    #[error(
        "min_size is {min_size}, more than the {max_size} items that the table holds: nothing could ever be sampled"
    )]
    MinSize { min_size: u32, max_size: u32 },
    #[error("the ratio of samples to inserts is {0}, it must be finite and more than 0")]
    Ratio(f64),
    #[error("the error buffer gives the interval [{min_diff}, {max_diff}], which must be finite")]
    Interval { min_diff: f64, max_diff: f64 },
    #[error(
        "the error buffer gives the interval [{min_diff}, {max_diff}], which is {} wide: less than {least} = 2 * max(1, \
             ratio), inserting and sampling could wait for each other for ever", max_diff - min_diff
    )]
    Narrow { min_diff: f64, max_diff: f64, least: f64 },
    #[error(
        "the error buffer gives the interval [{min_diff}, {max_diff}], which lies above ratio * min_size = {aim}: \
             nothing could be sampled when min_size items are there"
    )]
    Above { min_diff: f64, max_diff: f64, aim: f64 },
    #[error("a {0} of size 0 holds nothing")]
    NoRoom(&'static str),
    #[error(
        "a {kind} of {size} in a table of max_size {max_size} would drop items that nobody has seen: set max_size to \
             at least {size}"
    )]
    Room { kind: &'static str, size: u32, max_size: u32 },
    #[error("a {kind} needs {needed} as its sampler and its remover, and max_times_sampled 1")]
    Order { kind: &'static str, needed: Selector },
    #[error("staleness_decay is {0}, it must be more than 0 and at most 1")]
    Decay(f64),
    #[error(
        "staleness_decay is a factor of the weights of a prioritized sampler, and the sampler is {0}: use prioritized:0"
    )]
    DecayWithoutWeights(Selector),
    #[error(
        "max_size is {max_size}, and a table of these settings holds at most {most} items; one that drops the oldest item, and \
             holds workers back by nothing but min-size, holds more"
    )]
    Blocks { max_size: u32, most: u32 },
    #[error("admission needs max_staleness, which says how far ahead workers may be")]
    AdmissionWithoutMax,
    #[error(
        "admission lets in at most {most} = (max_staleness + 1) * samples_per_version samples before the trainer has a newer \
             version, and with all but one of the {step} that it takes at a time, min_size {min_size} cannot be there: \
             everybody would wait for ever"
    )]
    AdmissionTooLittle { most: u64, step: u32, min_size: u32 },
    #[error(
        "admission and a ratio of samples to inserts both say how far ahead workers may be, and together could keep everybody \
             waiting for ever, as when a trainer dies with what it was given: use min-size, queue or stack"
    )]
    AdmissionWithRatio,
    #[error("admission has {0} = 0: no worker would ever be let in")]
    Admission(&'static str),
}

impl ReplaySpec {
    /// A table that samples uniformly, drops the oldest, and never makes anybody wait but for the first item.
    pub fn new(max_size: u32, batch_size: u32) -> Self {
        Self {
            sampler: Selector::Uniform,
            remover: Selector::Fifo,
            max_size,
            max_times_sampled: 0,
            limiter: RateLimiter::MinSize(1),
            staleness: Staleness::default(),
            batch_size,
        }
    }

    /// Whether such a table can be, and everybody in it gets on.
    ///
    /// # Errors
    /// If not: the first thing that is wrong, with the numbers.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.max_size == 0 || self.max_size > MAX_ITEMS {
            return Err(SettingsError::MaxSize(self.max_size));
        }
        if self.batch_size == 0 || self.batch_size > MAX_BATCH {
            return Err(SettingsError::BatchSize(self.batch_size));
        }
        for selector in [self.sampler, self.remover] {
            if let Selector::Prioritized { exponent: Real(exponent) } = selector
                && !(exponent.is_finite() && exponent >= 0.0)
            {
                return Err(SettingsError::Exponent(exponent));
            }
        }
        self.validate_limiter()?;
        self.validate_staleness()?;
        if self.least_blocks() > MAX_BLOCKS {
            let most = self.block_slots().saturating_mul(MAX_BLOCKS - 2);
            return Err(SettingsError::Blocks { max_size: self.max_size, most });
        }
        Ok(())
    }

    fn validate_limiter(&self) -> Result<(), SettingsError> {
        match self.limiter {
            RateLimiter::MinSize(min_size) => self.validate_min_size(min_size),
            RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, .. } => {
                self.validate_min_size(min_size)?;
                if !(ratio.is_finite() && ratio > 0.0) {
                    return Err(SettingsError::Ratio(ratio));
                }
                let (min_diff, max_diff) = Limiter::new(&self.limiter).interval();
                if !(min_diff.is_finite() && max_diff.is_finite()) {
                    return Err(SettingsError::Interval { min_diff, max_diff });
                }
                let least = 2.0 * ratio.max(1.0);
                if max_diff - min_diff < least {
                    return Err(SettingsError::Narrow { min_diff, max_diff, least });
                }
                let aim = ratio * f64::from(min_size);
                if min_diff > aim {
                    return Err(SettingsError::Above { min_diff, max_diff, aim });
                }
                Ok(())
            }
            RateLimiter::Queue(size) => self.validate_order("queue", size, Selector::Fifo),
            RateLimiter::Stack(size) => self.validate_order("stack", size, Selector::Lifo),
        }
    }

    fn validate_min_size(&self, min_size: u32) -> Result<(), SettingsError> {
        match min_size {
            0 => Err(SettingsError::NoMinSize),
            _ if min_size > self.max_size => {
                Err(SettingsError::MinSize { min_size, max_size: self.max_size })
            }
            _ => Ok(()),
        }
    }

    fn validate_order(&self, kind: &'static str, size: u32, needed: Selector) -> Result<(), SettingsError> {
        if size == 0 {
            return Err(SettingsError::NoRoom(kind));
        }
        if size > self.max_size {
            return Err(SettingsError::Room { kind, size, max_size: self.max_size });
        }
        if self.sampler != needed || self.remover != needed || self.max_times_sampled != 1 {
            return Err(SettingsError::Order { kind, needed });
        }
        Ok(())
    }

    fn validate_staleness(&self) -> Result<(), SettingsError> {
        let Staleness { max, decay, admission } = self.staleness;
        if let Some(Real(decay)) = decay {
            if !(decay > 0.0 && decay <= 1.0) {
                return Err(SettingsError::Decay(decay));
            }
            if !matches!(self.sampler, Selector::Prioritized { .. }) {
                return Err(SettingsError::DecayWithoutWeights(self.sampler));
            }
        }
        match (admission, max) {
            (Some(_), None) => Err(SettingsError::AdmissionWithoutMax),
            (Some(Admission { samples_per_version: 0, .. }), _) => {
                Err(SettingsError::Admission("samples_per_version"))
            }
            (Some(Admission { max_running: 0, .. }), _) => Err(SettingsError::Admission("max_running")),
            (Some(admission), Some(max)) => self.validate_admission(admission, max),
            _ => Ok(()),
        }
    }

    fn validate_admission(&self, admission: Admission, max_staleness: u64) -> Result<(), SettingsError> {
        let most = max_staleness.saturating_add(1).saturating_mul(admission.samples_per_version.into());
        let min_size = match self.limiter {
            RateLimiter::MinSize(min_size) => min_size,
            RateLimiter::SampleToInsertRatio { .. } => return Err(SettingsError::AdmissionWithRatio),
            RateLimiter::Queue(_) | RateLimiter::Stack(_) => 1,
        };
        // What it has had of a version, or of a batch of items that leave by being sampled, it cannot have again.
        let step = match self.max_times_sampled {
            0 => admission.samples_per_version,
            _ => admission.samples_per_version.max(self.batch_size),
        };
        match u64::from(min_size) + u64::from(step) - 1 > most {
            true => Err(SettingsError::AdmissionTooLittle { most, step, min_size }),
            false => Ok(()),
        }
    }

    /// Samples in a block of the ring. A block is free again when none of its samples is there, so there are several in one
    /// only where they leave in the order in which they came; and a limiter that holds workers back does so by the block.
    pub fn block_slots(&self) -> u32 {
        let in_order = self.remover == Selector::Fifo && self.max_times_sampled == 0;
        let unlimited = matches!(self.limiter, RateLimiter::MinSize(_))
            && self.staleness.max.is_none()
            && self.staleness.admission.is_none();
        if in_order && unlimited { (self.max_size / MAX_BLOCK_SLOTS).clamp(1, MAX_BLOCK_SLOTS) } else { 1 }
    }

    /// Blocks of a table that is not to be short of room: those of `max_size` items, and a sixteenth more for what is being
    /// written, and for what was removed and is still read.
    pub fn blocks(&self) -> u32 {
        let spare = (self.max_size / 16).clamp(64, 1 << 16);
        let slots = self.block_slots();
        let blocks = self.max_size.saturating_add(spare).div_ceil(slots).saturating_add(u32::from(slots > 1));
        blocks.min(MAX_BLOCKS).max(self.least_blocks())
    }

    /// Blocks without which a table could not be full.
    pub fn least_blocks(&self) -> u32 {
        let slots = self.block_slots();
        // A slot for the item that makes room; where there are several in a block, one that is half left and one half full.
        (self.max_size / slots).saturating_add(2)
    }

    /// What to tell whoever asked for such a table, although it can be; the spec is valid.
    pub fn warning(&self) -> Option<String> {
        let RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, .. } = self.limiter else {
            return None;
        };
        let (min_diff, max_diff) = Limiter::new(&self.limiter).interval();
        let aim = ratio * f64::from(min_size);
        (max_diff < aim).then(|| {
            format!(
                "the error buffer gives the interval [{min_diff}, {max_diff}], which lies below ratio * min_size = \
                 {aim}: once {min_size} items are there, inserting waits until some are sampled"
            )
        })
    }
}

#[cfg(test)]
mod tests;
