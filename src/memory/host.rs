//! Private memory of this process.

use rustix::mm::ProtFlags;

use crate::memory::backing::{HostMemory, PhysicalMemoryAccounting, VirtualBacking};
use crate::memory::error::MemoryError;
use crate::memory::mapping::Access;
use crate::memory::reservation::AddressRange;
use crate::memory::syscalls;

/// Private memory, zeroed, made resident by touching it.
#[derive(Clone, Copy, Default, Debug)]
pub struct HostBacking;

// SAFETY: the base is the range's start, which does not move; `commit` maps readable and writable memory over
// the part, and a call of `mmap` that fails changes nothing.
unsafe impl VirtualBacking for HostBacking {
    type Reservation = AddressRange;

    fn granularity(&self) -> usize {
        syscalls::page_size()
    }

    fn reserve(&self, bytes: usize) -> Result<AddressRange, MemoryError> {
        AddressRange::reserve(bytes, syscalls::page_size())
    }

    fn base(&self, range: &AddressRange) -> usize {
        range.start()
    }

    unsafe fn commit(
        &self,
        range: &mut AddressRange,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        let (at, writable) = (range.part(offset, bytes), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: part of our reservation (checked by `part`); not committed, so nobody uses it.
        unsafe { syscalls::map_private_over(at, bytes, writable) }
            .map_err(MemoryError::os("map private memory", bytes as u64))
    }

    unsafe fn release(
        &self,
        range: &mut AddressRange,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        let at = range.part(offset, bytes);
        // SAFETY: part of our reservation (checked by `part`); the caller says that nobody uses it.
        unsafe { syscalls::map_private_over(at, bytes, ProtFlags::empty()) }
            .map_err(MemoryError::os("unmap private memory", bytes as u64))
    }

    fn physical_memory_accounting(&self) -> PhysicalMemoryAccounting {
        PhysicalMemoryAccounting::Buffer
    }
}

// SAFETY: what is committed is mapped into this process, readable and writable.
unsafe impl HostMemory for HostBacking {
    fn access(&self) -> Access {
        Access::ReadWrite
    }
}
