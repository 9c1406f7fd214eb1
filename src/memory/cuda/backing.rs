//! Device addresses, with blocks of device memory behind them.
//!
//! The driver takes back whole mappings only. So what is committed is mapped block by block, and the granule of this
//! backing is the pool's block: then whatever part is released is made of whole mappings. Mappings of a whole growth
//! would be fewer calls, and a shrinking buffer could not give back a part of one without copying the rest.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::memory::backing::{PhysicalMemoryAccounting, VirtualBacking};
use crate::memory::cuda::api::DeviceAddress;
use crate::memory::cuda::device::CudaDevice;
use crate::memory::cuda::error::CudaError;
use crate::memory::cuda::handle::{ExportedBlock, PhysicalHandle};
use crate::memory::cuda::loan::Loan;
use crate::memory::cuda::pool::CudaPool;
use crate::memory::error::MemoryError;
use crate::memory::fork::Birthplace;
use crate::memory::virtual_buffer::VirtualBuffer;

/// Device memory out of a pool.
#[derive(Clone, Debug)]
pub struct CudaBacking {
    pool: CudaPool,
}

impl CudaBacking {
    /// Out of that pool.
    pub const fn new(pool: CudaPool) -> Self {
        Self { pool }
    }
}

impl VirtualBuffer<CudaBacking> {
    /// The blocks of a part for another process, in the order in which it has to import them, and what is lent with
    /// them. Nothing changes here, but that these blocks are never used for something else, and that they stay charged,
    /// released or not, until the loan is reclaimed.
    ///
    /// # Errors
    /// If the part is not made of whole blocks that are committed, or there are too many descriptors.
    pub fn export(&self, part: Range<usize>) -> Result<(Vec<ExportedBlock>, Loan), MemoryError> {
        match self.reservation() {
            Some(reservation) => Ok(reservation.export(part)?),
            None => Ok((Vec::new(), Loan::new(Vec::new()))),
        }
    }
}

/// Device addresses, and what is mapped where.
#[derive(Debug)]
pub struct CudaReservation {
    device: CudaDevice,
    start: DeviceAddress,
    bytes: usize,
    block: usize,
    /// By offset.
    mapped: BTreeMap<usize, PhysicalHandle>,
    /// Where blocks go that are not mapped any more. None: they are released.
    pool: Option<CudaPool>,
    /// Something is mapped that is not in `mapped`: a failure could not be undone.
    stuck: bool,
    birthplace: Birthplace,
}

impl CudaReservation {
    pub(super) fn new(
        device: &CudaDevice,
        bytes: usize,
        block: usize,
        pool: Option<CudaPool>,
    ) -> Result<Self, CudaError> {
        let start = device.api().reserve(bytes, device.granularity())?;
        let (device, mapped) = (device.clone(), BTreeMap::new());
        Ok(Self { device, start, bytes, block, mapped, pool, stuck: false, birthplace: Birthplace::here() })
    }

    /// Whether blocks can still be mapped here: not where one was left behind.
    pub(super) const fn check(&self) -> Result<(), CudaError> {
        if self.stuck { Err(CudaError::Stuck) } else { Ok(()) }
    }

    fn mapped_bytes(&self) -> usize {
        self.mapped.len() * self.block
    }

    /// The first address, on the device. A multiple of the device's granularity, which is all that mapping asks for,
    /// and not always of the block.
    pub(super) const fn start(&self) -> usize {
        self.start as usize
    }

    /// The address of a part.
    fn part(&self, offset: usize, bytes: usize) -> DeviceAddress {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let whole = offset.is_multiple_of(self.block) && bytes.is_multiple_of(self.block);
        assert!(inside && whole, "{offset} + {bytes} of {} in blocks of {}", self.bytes, self.block);
        self.start + offset as u64
    }

    /// Maps blocks one behind the other. On an error none of them is, and they are returned; but for those that could
    /// not be unmapped again, after which nothing can be mapped here any more (see `check`).
    ///
    /// # Safety
    /// Nothing of the part was mapped and not unmapped again.
    pub(super) unsafe fn map(
        &mut self,
        offset: usize,
        blocks: Vec<PhysicalHandle>,
    ) -> Result<(), (CudaError, Vec<PhysicalHandle>)> {
        if let Err(error) = self.check() {
            return Err((error, blocks));
        }
        let bytes = blocks.len() * self.block;
        let start = self.part(offset, bytes);
        let at = |i: usize| start + (i * self.block) as u64;
        let (mut mapped, mut failed) = (0, None);
        for (i, block) in blocks.iter().enumerate() {
            assert_eq!(block.bytes(), self.block, "all blocks are of one size");
            // SAFETY: part of our reservation (checked by `part`), where nothing is mapped: nothing that the caller
            // knows of, as it says, and nothing that was left behind (checked above). The handle is ours and not
            // released.
            if let Err(error) = unsafe { self.device.api().map(at(i), self.block, block.number()) } {
                failed = Some(error);
                break;
            }
            mapped = i + 1;
        }
        if failed.is_none() {
            // SAFETY: the blocks that were mapped just now fill these addresses.
            failed = unsafe { self.device.api().allow(start, bytes, self.device.number()) }.err();
        }
        let Some(error) = failed else {
            self.mapped.extend((offset..).step_by(self.block).zip(blocks));
            return Ok(());
        };
        let mut returned = Vec::with_capacity(blocks.len());
        for (i, block) in blocks.into_iter().enumerate() {
            // SAFETY: mapped above as a whole, and given to nobody.
            if i < mapped && unsafe { self.device.api().unmap(at(i), self.block) }.is_err() {
                block.abandon();
                self.stuck = true;
            } else {
                returned.push(block);
            }
        }
        Err((error, returned))
    }

    /// Takes the blocks of a part away.
    ///
    /// # Safety
    /// All of the part is mapped, and nobody uses it, on any device.
    pub(super) unsafe fn unmap(&mut self, offset: usize, bytes: usize) -> Result<(), CudaError> {
        let at = self.part(offset, bytes);
        // In one call, so that a failure leaves all of it.
        // SAFETY: whole mappings, since each is one block and the part is made of blocks (checked by `part`); that they
        // are there and unused is the caller's.
        unsafe { self.device.api().unmap(at, bytes) }?;
        let mut rest = self.mapped.split_off(&offset);
        self.mapped.append(&mut rest.split_off(&(offset + bytes)));
        self.let_go(rest.into_values().collect());
        Ok(())
    }

    fn let_go(&self, blocks: Vec<PhysicalHandle>) {
        match &self.pool {
            Some(pool) => pool.recycle(blocks),
            None => drop(blocks),
        }
    }

    fn export(&self, part: Range<usize>) -> Result<(Vec<ExportedBlock>, Loan), CudaError> {
        let Range { start: from, end: to } = part;
        let wrong = || CudaError::NotCommitted { from, to, block: self.block };
        if from > to || !from.is_multiple_of(self.block) || !to.is_multiple_of(self.block) {
            return Err(wrong());
        }
        let (mut blocks, mut leases) = (Vec::new(), Vec::new());
        for offset in part.step_by(self.block) {
            let block = self.mapped.get(&offset).ok_or_else(wrong)?;
            blocks.push(block.export()?);
            leases.extend(block.lease());
        }
        Ok((blocks, Loan::new(leases)))
    }
}

impl Drop for CudaReservation {
    fn drop(&mut self) {
        if self.birthplace.is_elsewhere() {
            return;
        }
        let mut blocks = Vec::with_capacity(self.mapped.len());
        for (offset, block) in std::mem::take(&mut self.mapped) {
            // SAFETY: mapped as a whole by `map`; whoever took addresses of it holds it, and has synchronised with the
            // device, as the module says.
            match unsafe { self.device.api().unmap(self.start + offset as u64, self.block) } {
                Ok(()) => blocks.push(block),
                Err(_) => {
                    self.stuck = true;
                    block.abandon();
                }
            }
        }
        self.let_go(blocks);
        if !self.stuck {
            // SAFETY: reserved by `new` for so many bytes; everything that was ever mapped in it was unmapped, by
            // `unmap`, by `map` when it failed, or above. Should it fail, then addresses are lost, of which there are
            // plenty.
            let _ = unsafe { self.device.api().free(self.start, self.bytes) };
        }
    }
}

// SAFETY: the base is the reservation's start, which does not move. `commit` maps blocks over the part, which the
// device can read and write; what fails is undone. A block that cannot be unmapped again is never used for anything
// else, and its reservation never commits again. `release` unmaps the part in one call, which fails as a whole.
unsafe impl VirtualBacking for CudaBacking {
    type Reservation = CudaReservation;

    fn granularity(&self) -> usize {
        self.pool.block_bytes()
    }

    fn reserve(&self, bytes: usize) -> Result<CudaReservation, MemoryError> {
        // Where not even one block can ever be had, nothing is taken. How many bytes are reserved says nothing about
        // how many will be committed.
        self.pool.could_hold(self.pool.block_bytes())?;
        let (device, block) = (self.pool.device(), self.pool.block_bytes());
        Ok(CudaReservation::new(device, bytes, block, Some(self.pool.clone()))?)
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
        // Before blocks are created for it. What can never be is told apart from what somebody else has.
        reservation.check()?;
        self.pool.could_hold(reservation.mapped_bytes().saturating_add(bytes))?;
        let blocks = self.pool.take(bytes / self.pool.block_bytes())?;
        // SAFETY: nothing of the part is committed, as the caller says.
        unsafe { reservation.map(offset, blocks) }.map_err(|(error, blocks)| {
            self.pool.put_back(blocks);
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
