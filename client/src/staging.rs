//! The memory that batches are gathered into: this process's own, and page-locked for CUDA if that is wanted.

use std::sync::{Arc, Mutex, PoisonError};

use echo::host_pinning::{CudaApi, PinError, Search, resolve};
use echo::ids::SlotIndex;
use echo::memory::fork::Birthplace;
use echo::memory::{Account, HostBacking, MemoryGovernor, VirtualBuffer};
use echo::ring::buf::{Pinned, Pinning, PytreeRingBuf};
use echo::spec::TableSpec;

use crate::pinning::PinOptions;
use crate::table::Table;
use crate::{Error, Result};

/// Places for batches, one after the other in each array.
pub(crate) struct Staging {
    spec: Arc<TableSpec>,
    arrays: PytreeRingBuf<HostBacking>,
    batch: u32,
    birthplace: Birthplace,
    pinning: Mutex<()>,
}

impl Staging {
    /// Of a table's samples: so many places of so many samples each.
    pub(crate) fn new(table: &Table, batch: u32, places: usize) -> Result<Self> {
        let slots = u64::from(batch) * places as u64;
        // Nobody counts what a process takes of its own memory.
        let governor = Arc::new(MemoryGovernor::new(u64::MAX, u64::MAX));
        let account = Account::host(governor, 0, "the batches of a sampler");
        let mut arrays = Vec::with_capacity(table.arrays.arrays());
        for array in 0..table.arrays.arrays() {
            let slot_bytes = table.arrays.slot_bytes(array);
            let bytes = usize::try_from(slots).ok().and_then(|slots| slots.checked_mul(slot_bytes));
            let bytes =
                bytes.ok_or(Error::BatchTooLarge { batch, most: u64::MAX / slot_bytes.max(1) as u64 })?;
            let mut buffer = VirtualBuffer::new(HostBacking, bytes.max(1), account.clone())?;
            buffer.grow_to(bytes)?;
            arrays.push((buffer, slot_bytes));
        }
        let (spec, arrays) = (table.spec.clone(), PytreeRingBuf::new(arrays, slots));
        let birthplace = Birthplace::here();
        Ok(Self { spec, arrays, batch, birthplace, pinning: Mutex::default() })
    }

    pub(crate) fn spec(&self) -> &TableSpec {
        &self.spec
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birthplace.is_elsewhere()
    }

    pub(crate) fn sample_bytes(&self) -> usize {
        (0..self.arrays.arrays()).map(|array| self.arrays.slot_bytes(array)).sum()
    }

    /// Where the samples of a place begin in one array, from one of them on.
    pub(crate) fn target(&self, array: usize, place: usize, first: u32, samples: u32) -> (*mut u8, usize) {
        assert!(u64::from(first) + u64::from(samples) <= u64::from(self.batch), "of one place");
        let slot = place as u64 * u64::from(self.batch) + u64::from(first);
        let slot = SlotIndex::new(slot, self.arrays.slots()).expect("a place that there is");
        let (start, bytes) = self.arrays.range_ptr(array, slot, samples);
        (start.cast_mut(), bytes)
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.arrays.is_pinned()
    }

    pub(crate) fn pin_host_memory(&self, options: &PinOptions) -> Result<Pinned> {
        let (api, probes): (CudaApi, _) = match &options.api {
            Some(api) => (api.clone(), Vec::new()),
            None => {
                let search = Search::of_this_process(options.library.as_deref(), &options.vendor_roots);
                let resolved = resolve(&search)?;
                (resolved.api, resolved.probes)
            }
        };
        let _alone = self.pinning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = self.arrays.pinned_by() {
            return Err(PinError::Already { library }.into());
        }
        self.arrays.prefault()?;
        let mut progress = |progress| options.progress.iter().for_each(|told| told(progress));
        let how = Pinning { chunk_bytes: options.chunk_bytes, ..Pinning::of_rows(self.batch, &mut progress) };
        self.arrays.pin_host_memory(&api, how).map_err(|error| error.after(&probes).into())
    }
}
