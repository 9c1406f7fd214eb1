//! A range that grows and shrinks behind a base that stays.
//!
//! As many addresses are reserved as the buffer could ever need, which costs nothing, and memory is committed
//! behind as many of them as it needs now. So no pointer into it is ever wrong because it grew.
//!
//! What always holds: `committed` is a multiple of the granule and at most `reserved`; `lease.bytes() >= committed`, at
//! every instant, of a backing that leaves accounting to the buffer, and the lease is of nothing where the backing sees to
//! it; after an error everything is as it was, but for what a backing says of undoing that fails as well.

use std::fmt;

use crate::memory::backing::{HostMemory, PhysicalMemoryAccounting, VirtualBacking};
use crate::memory::error::MemoryError;
use crate::memory::governor::{Account, MemoryLease};
use crate::memory::mapping::Access;
use crate::memory::syscalls;

/// The buffer.
pub struct VirtualBuffer<B: VirtualBacking> {
    backing: B,
    /// None where there is nothing to reserve: an array without bytes.
    reservation: Option<B::Reservation>,
    reserved: usize,
    committed: usize,
    lease: MemoryLease,
}

impl<B: VirtualBacking> VirtualBuffer<B> {
    /// Reserves addresses for `max_bytes`, rounded up to the granule. Nothing is committed.
    ///
    /// # Errors
    /// If there are no addresses.
    pub fn new(backing: B, max_bytes: usize, account: Account) -> Result<Self, MemoryError> {
        let granule = backing.granularity();
        let reserved = max_bytes.checked_next_multiple_of(granule).unwrap_or(usize::MAX);
        let reservation = if reserved == 0 { None } else { Some(backing.reserve(reserved)?) };
        Ok(Self { backing, reservation, reserved, committed: 0, lease: account.lease() })
    }

    /// The first address: it never changes. Of a buffer without addresses, a number that is aligned no worse.
    pub fn base(&self) -> usize {
        match &self.reservation {
            Some(reservation) => self.backing.base(reservation),
            None => self.backing.granularity(),
        }
    }

    /// What the backing knows about the addresses. None of a buffer without any.
    pub const fn reservation(&self) -> Option<&B::Reservation> {
        self.reservation.as_ref()
    }

    /// Bytes that can be accessed.
    pub const fn committed(&self) -> usize {
        self.committed
    }

    /// Bytes that it can grow to.
    pub const fn reserved(&self) -> usize {
        self.reserved
    }

    /// Commits memory until at least `bytes` are, rounded up to the granule. Less than there is changes nothing.
    ///
    /// # Errors
    /// If a budget, the kernel or the reservation does not allow it; the buffer is then as it was.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), MemoryError> {
        let target = bytes.checked_next_multiple_of(self.backing.granularity()).unwrap_or(usize::MAX);
        if target > self.reserved {
            return Err(MemoryError::Beyond { asked: bytes as u64, reserved: self.reserved as u64 });
        }
        let Some(more) = target.checked_sub(self.committed).filter(|&more| more > 0) else { return Ok(()) };
        let Some(reservation) = &mut self.reservation else { return Ok(()) };
        let leased = match self.backing.physical_memory_accounting() {
            PhysicalMemoryAccounting::Buffer => more as u64,
            PhysicalMemoryAccounting::Backing => 0,
        };
        self.lease.grow(leased)?;
        // SAFETY: both are multiples of the granule (`committed` by induction), the end is inside of what was
        // reserved (checked above), and nothing behind `committed` is committed.
        if let Err(error) = unsafe { self.backing.commit(reservation, self.committed, more) } {
            self.lease.shrink(leased);
            return Err(error);
        }
        self.committed = target;
        Ok(())
    }

    /// Takes memory away until no more than `bytes` are committed, rounded up to the granule. Pointers behind
    /// that dangle.
    ///
    /// # Errors
    /// If the kernel does not take it back; the buffer is then as it was.
    ///
    /// # Safety
    /// Nobody uses what is behind `bytes`.
    pub unsafe fn shrink_to(&mut self, bytes: usize) -> Result<(), MemoryError> {
        let target = bytes.checked_next_multiple_of(self.backing.granularity()).unwrap_or(usize::MAX);
        let Some(less) = self.committed.checked_sub(target).filter(|&less| less > 0) else { return Ok(()) };
        let Some(reservation) = &mut self.reservation else { return Ok(()) };
        // SAFETY: multiples of the granule, committed, and the caller says that nobody uses them.
        unsafe { self.backing.release(reservation, target, less) }?;
        if self.backing.physical_memory_accounting() == PhysicalMemoryAccounting::Buffer {
            self.lease.shrink(less as u64);
        }
        self.committed = target;
        Ok(())
    }
}

impl<B: HostMemory> VirtualBuffer<B> {
    /// What this process was given to do with what is committed.
    pub fn access(&self) -> Access {
        self.backing.access()
    }

    /// Puts what is committed into this process's page tables, so that no touch and no pin has to.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn prefault(&self, threads: u32) -> Result<(), MemoryError> {
        if self.committed == 0 {
            return Ok(());
        }
        let page = syscalls::page_size();
        // SAFETY: committed, so mapped, and in pages at least so large.
        unsafe { syscalls::populate(self.base(), self.committed, self.access(), page, threads, &|_| ()) }
            .map_err(MemoryError::os("fill the page tables", self.committed as u64))
    }

    /// Takes this process's right to write away from what is committed, for as long as it stays so.
    ///
    /// # Errors
    /// If the kernel does not do it.
    ///
    /// # Safety
    /// Nobody in this process writes it until [`VirtualBuffer::write_again`].
    pub unsafe fn keep_reading_only(&self) -> Result<(), MemoryError> {
        // SAFETY: the caller says that nobody writes.
        unsafe { self.protect("make the mapping read-only", Access::ReadOnly) }
    }

    /// Gives back what [`VirtualBuffer::keep_reading_only`] took.
    ///
    /// # Errors
    /// If the kernel does not do it.
    pub fn write_again(&self) -> Result<(), MemoryError> {
        // SAFETY: what the process was given, so nothing that somebody does is forbidden by it.
        unsafe { self.protect("make the mapping writable", self.access()) }
    }

    /// # Safety
    /// Nobody does to what is committed what is forbidden from now on.
    unsafe fn protect(&self, doing: &'static str, access: Access) -> Result<(), MemoryError> {
        if self.committed == 0 {
            return Ok(());
        }
        // SAFETY: committed, so mapped by this buffer; the rest is the caller's word.
        unsafe { syscalls::protect(self.base(), self.committed, access) }
            .map_err(MemoryError::os(doing, self.committed as u64))
    }
}

impl<B: VirtualBacking> fmt::Debug for VirtualBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualBuffer")
            .field("base", &format_args!("{:#x}", self.base()))
            .field("committed", &self.committed)
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
