//! A batch of samples that were chosen.

use std::fmt;
use std::sync::{Arc, Weak};

use echo::replay::settings::Real;
use echo::replay::weights::{self, Normalize};
use echo::wire::message::SampledItem;

use crate::batch::ArrayView;
use crate::inbox::Sampled;
use crate::sampler::Asking;
use crate::staging::Staging;

/// Samples of a replay table, and what is known of each. It can be sent to another thread.
///
/// Gathered ones lie in this process's own memory, one after the other in each array, as long as this lives, with or without
/// the sampler and the daemon. Dropping it lets the next batch be gathered there.
pub struct SampledBatch {
    lies: Lies,
    place: usize,
    chosen: Chosen,
}

/// What is known of a batch's samples, with or without the batch.
#[derive(Clone)]
pub struct Chosen {
    sampled: Sampled,
}

enum Lies {
    /// In a copy.
    Gathered { staging: Arc<Staging>, asking: Weak<Asking> },
    /// In the table, where they are leased.
    InPlace(Arc<Asking>),
}

/// By which weight of importance the others are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Largest {
    /// The largest of the batch: one of its samples has weight 1.
    OfBatch,
    /// The largest of the table: that of its least likely item, as it was when the batch was chosen.
    OfTable,
}

impl SampledBatch {
    pub(crate) fn new(asking: &Arc<Asking>, place: usize, sampled: Sampled) -> Self {
        let lies = match &asking.staging {
            Some(staging) => Lies::Gathered { staging: staging.clone(), asking: Arc::downgrade(asking) },
            None => Lies::InPlace(asking.clone()),
        };
        Self { lies, place, chosen: Chosen { sampled } }
    }

    /// Samples in it: as many as were asked for, unless the deadline came before.
    pub fn len(&self) -> usize {
        self.items().len()
    }

    /// Whether it has none, which does not happen: that is an error.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// Why there are fewer samples than were asked for.
    pub fn short(&self) -> Option<&str> {
        self.chosen.short()
    }

    /// What is known of each sample, as it was when it was chosen.
    pub fn items(&self) -> &[SampledItem] {
        self.chosen.items()
    }

    /// The keys of the samples, by which their priorities are set.
    pub fn keys(&self) -> impl Iterator<Item = u64> {
        self.items().iter().map(|item| item.key)
    }

    /// As [`Chosen::importance_weights`].
    pub fn importance_weights(&self, beta: f64, largest: Largest) -> Vec<f64> {
        self.chosen.importance_weights(beta, largest)
    }

    /// What is known of its samples, which stays when the batch goes.
    pub fn chosen(&self) -> Chosen {
        self.chosen.clone()
    }

    /// The number of the request that it answers: they are counted from 1, and batches come in that order.
    pub const fn number(&self) -> u64 {
        self.chosen.sampled.number
    }

    /// Whether this process was forked from the one that sampled, in which the batch is of no use.
    pub fn is_elsewhere(&self) -> bool {
        match &self.lies {
            Lies::Gathered { staging, .. } => staging.is_elsewhere(),
            Lies::InPlace(asking) => asking.member.is_elsewhere(),
        }
    }

    /// How many arrays a sample has.
    pub fn arrays(&self) -> usize {
        match &self.lies {
            Lies::Gathered { staging, .. } => staging.spec().arrays.len(),
            Lies::InPlace(asking) => asking.member.spec().arrays.len(),
        }
    }

    /// Whether it was gathered: otherwise there are only single samples.
    pub const fn is_gathered(&self) -> bool {
        matches!(self.lies, Lies::Gathered { .. })
    }

    /// Whether its memory is page-locked for CUDA, by [`Sampler::pin_host_memory`](crate::Sampler::pin_host_memory).
    pub fn is_pinned(&self) -> bool {
        matches!(&self.lies, Lies::Gathered { staging, .. } if staging.is_pinned())
    }

    /// One array of all samples.
    ///
    /// # Panics
    /// If the table has no such array, or the batch was not gathered.
    pub fn array(&self, array: usize) -> ArrayView<'_> {
        let Lies::Gathered { staging, .. } = &self.lies else {
            panic!("this batch lies in the table, sample by sample: its sampler gathers with no thread")
        };
        self.gathered(staging, array, 0, self.len(), Some(self.len()))
    }

    /// The array of that path, if the table has it.
    ///
    /// # Panics
    /// If the batch was not gathered.
    pub fn array_named(&self, path: &str) -> Option<ArrayView<'_>> {
        let Lies::Gathered { staging, .. } = &self.lies else { return None };
        let index = staging.spec().arrays.iter().position(|array| array.path == path)?;
        Some(self.array(index))
    }

    /// One array of one sample.
    ///
    /// # Panics
    /// If there is no such sample or array; of samples that lie in the table, in a process that was forked from the one that
    /// reads.
    pub fn sample(&self, sample: usize, array: usize) -> ArrayView<'_> {
        let item = &self.items()[sample];
        match &self.lies {
            Lies::Gathered { staging, .. } => self.gathered(staging, array, sample, 1, None),
            Lies::InPlace(asking) => {
                assert!(!asking.member.is_elsewhere(), "the table is not mapped in a forked process");
                let table = asking.member.table();
                let (start, bytes) = table.arrays.range_ptr(array, table.slot(item.slot.into()), 1);
                // SAFETY: so many bytes of the mapping (checked by `range_ptr`), initialised, alive while `self` is. The
                // sample was committed, and is leased until `self` is dropped: no worker that keeps to the protocol writes
                // it. (One that does not can spoil its own table.)
                let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
                ArrayView::new(&table.spec.arrays[array], None, bytes)
            }
        }
    }

    fn gathered<'a>(
        &'a self,
        staging: &'a Staging,
        array: usize,
        first: usize,
        samples: usize,
        axis: Option<usize>,
    ) -> ArrayView<'a> {
        let (start, bytes) = staging.target(array, self.place, first as u32, samples as u32);
        // SAFETY: so many bytes of this process's own memory (checked by `target`), which the threads that gathered have
        // written and handed over; the place is this batch's until it is dropped.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast_const(), bytes) };
        ArrayView::new(&staging.spec().arrays[array], axis, bytes)
    }
}

impl Chosen {
    /// What is known of each sample, as it was when it was chosen.
    pub fn items(&self) -> &[SampledItem] {
        &self.sampled.items
    }

    /// Why there are fewer samples than were asked for.
    pub fn short(&self) -> Option<&str> {
        self.sampled.short.as_deref()
    }

    /// What each sample weighs to make up for how likely it was to be chosen: `(1 / (N P))^beta`, divided by the largest.
    pub fn importance_weights(&self, beta: f64, largest: Largest) -> Vec<f64> {
        let probabilities: Vec<f64> =
            self.sampled.items.iter().map(|&SampledItem { probability: Real(p), .. }| p).collect();
        let normalize = match (largest, self.sampled.least) {
            (Largest::OfTable, Some(least)) => Normalize::Table(least),
            _ => Normalize::Batch,
        };
        let mut weights = Vec::new();
        weights::importance_weights(&probabilities, beta, normalize, &mut weights);
        weights
    }
}

impl Drop for SampledBatch {
    fn drop(&mut self) {
        let asking = match &self.lies {
            Lies::Gathered { asking, .. } => asking.upgrade(),
            Lies::InPlace(asking) => Some(asking.clone()),
        };
        // In a forked child another thread of the parent's may hold a lock for ever.
        let Some(asking) = asking.filter(|asking| !asking.member.is_elsewhere()) else { return };
        if !self.is_gathered() {
            asking.give_back(self.number());
        }
        asking.free(self.place);
        asking.ask_now();
    }
}

impl fmt::Debug for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chosen").field("items", &self.items()).field("short", &self.short()).finish()
    }
}

impl fmt::Debug for SampledBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampledBatch").field("len", &self.len()).finish_non_exhaustive()
    }
}
