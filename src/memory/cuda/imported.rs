//! Device addresses, with blocks of another process behind them.
//!
//! Blocks wait in a queue until the buffer grows over them, in the order in which they were imported. This process
//! leases nothing: the exporter answers for them. What is unmapped is released at once, and has to be exported and
//! imported again to come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::backing::{PhysicalMemoryAccounting, VirtualBacking};
use crate::memory::cuda::backing::CudaReservation;
use crate::memory::cuda::device::CudaDevice;
use crate::memory::cuda::error::CudaError;
use crate::memory::cuda::handle::{ExportedBlock, PhysicalHandle};
use crate::memory::error::MemoryError;

/// More than a device has. What a peer says that it has is multiplied, and must not overflow.
const LARGEST_BLOCK: usize = 1 << 40;

/// Device memory that another process exported. Its clones have one queue: a buffer gets one, and another takes in
/// what arrives. One buffer has one queue.
#[derive(Clone, Debug)]
pub struct ImportedBacking {
    device: CudaDevice,
    block: usize,
    waiting: Arc<Mutex<VecDeque<PhysicalHandle>>>,
}

impl ImportedBacking {
    /// For blocks of that size (a TiB at most), on that device: what the exporter says about its blocks.
    ///
    /// # Errors
    /// If the device has no blocks of that size.
    pub fn new(device: CudaDevice, block_bytes: u64) -> Result<Self, CudaError> {
        let granularity = device.granularity();
        let fits = |block: &usize| block.is_power_of_two() && (granularity..=LARGEST_BLOCK).contains(block);
        match usize::try_from(block_bytes).ok().filter(fits) {
            Some(block) => Ok(Self { device, block, waiting: Arc::default() }),
            None => Err(CudaError::BlockSize { block: block_bytes, uuid: device.uuid(), granularity }),
        }
    }

    /// Takes in the exporter's next block. Its descriptor is closed, whatever comes of it.
    ///
    /// # Errors
    /// If it is on another device, of another size, or nothing that the driver can import.
    pub fn import(&self, block: ExportedBlock) -> Result<(), CudaError> {
        if block.bytes != self.block as u64 {
            return Err(CudaError::WrongSize { got: block.bytes, block: self.block });
        }
        let block = PhysicalHandle::import(&self.device, block)?;
        self.waiting().push_back(block);
        Ok(())
    }

    /// Bytes that were imported and that the buffer has not grown over.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting().len().saturating_mul(self.block)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<PhysicalHandle>> {
        // Blocks are moved in and out whole, so what a panicking thread leaves is whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: the base is the reservation's start, which does not move. `commit` maps blocks over the part, which the
// device can read and write; what fails is undone, and the blocks wait again in their order. If one cannot be unmapped
// again, its reservation never commits again. `release` unmaps the part in one call, which fails as a whole.
unsafe impl VirtualBacking for ImportedBacking {
    type Reservation = CudaReservation;

    fn granularity(&self) -> usize {
        self.block
    }

    fn reserve(&self, bytes: usize) -> Result<CudaReservation, MemoryError> {
        Ok(CudaReservation::new(&self.device, bytes, self.block, None)?)
    }

    fn base(&self, reservation: &CudaReservation) -> usize {
        reservation.start()
    }

    unsafe fn commit(
        &self,
        reservation: &mut CudaReservation,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        reservation.check()?;
        // The driver's time is spent without the lock: meanwhile others arrive, behind these.
        let blocks = {
            let mut waiting = self.waiting();
            let there = waiting.len().saturating_mul(self.block);
            if bytes > there {
                return Err(CudaError::NotImported { asked: bytes, there }.into());
            }
            waiting.drain(..bytes / self.block).collect()
        };
        // SAFETY: nothing of the part is committed, as the caller says.
        unsafe { reservation.map(offset, blocks) }.map_err(|(error, blocks)| {
            let mut waiting = self.waiting();
            if reservation.check().is_ok() {
                for block in blocks.into_iter().rev() {
                    waiting.push_front(block);
                }
            } else {
                // One is missing among them, so none that comes behind it is where its exporter has it.
                waiting.clear();
            }
            error.into()
        })
    }

    unsafe fn release(
        &self,
        reservation: &mut CudaReservation,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        // SAFETY: the caller's: committed, and nobody uses it.
        Ok(unsafe { reservation.unmap(offset, bytes) }?)
    }

    fn physical_memory_accounting(&self) -> PhysicalMemoryAccounting {
        PhysicalMemoryAccounting::Backing
    }
}
