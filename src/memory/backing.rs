//! What a range of addresses is made of.
//!
//! Growing, leasing and rounding are the same for private memory, shared memory and device memory, and live in
//! `VirtualBuffer`. What differs is here: how to reserve addresses, to put memory behind some of them, and to
//! take it away.

use crate::memory::error::MemoryError;
use crate::memory::mapping::Access;

/// Who answers to the governor for a backing's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhysicalMemoryAccounting {
    /// The buffer leases what it commits.
    Buffer,
    /// Somebody else does: the pool that the backing takes it from, or the process that owns it.
    Backing,
}

/// The operations that a [`VirtualBuffer`](super::VirtualBuffer) is built from.
///
/// # Safety
/// `base` is the same for the reservation's life. Between a successful `commit` of a range and its `release`,
/// the addresses `base + range` can be accessed as the backing says. An operation that fails changes nothing. Only
/// if undoing a part of it fails as well is something left: it stays charged and unused, and the reservation commits
/// nothing from then on.
pub unsafe trait VirtualBacking {
    /// Addresses, and what has to be known about their parts. Dropping it gives all of it back.
    type Reservation: Send;

    /// What offsets and lengths must be multiples of: a power of two.
    fn granularity(&self) -> usize;

    /// Reserves addresses. Nothing is committed.
    ///
    /// # Errors
    /// If there are none.
    fn reserve(&self, bytes: usize) -> Result<Self::Reservation, MemoryError>;

    /// The first address. A number and no pointer, since a device's address must never be dereferenced here.
    fn base(&self, reservation: &Self::Reservation) -> usize;

    /// Puts memory behind a part.
    ///
    /// # Errors
    /// If there is none; the part is then as before.
    ///
    /// # Safety
    /// The reservation is one that `reserve` of this backing made. Offset and length are multiples of the
    /// granularity, inside the reservation, and nothing of the part is committed.
    unsafe fn commit(
        &self,
        reservation: &mut Self::Reservation,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError>;

    /// Takes the memory of a part away.
    ///
    /// # Errors
    /// If it cannot be; the part is then as before.
    ///
    /// # Safety
    /// As for `commit`, but all of the part is committed, and nobody uses it any more.
    unsafe fn release(
        &self,
        reservation: &mut Self::Reservation,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError>;

    /// Who answers for the memory.
    fn physical_memory_accounting(&self) -> PhysicalMemoryAccounting;
}

/// A backing of memory that the CPU can access at its addresses; a device's own memory is none.
///
/// # Safety
/// What is committed can be read by this process, and written where `access` says so, until that is taken away by
/// [`VirtualBuffer::keep_reading_only`](super::VirtualBuffer::keep_reading_only).
pub unsafe trait HostMemory: VirtualBacking {
    /// What this process may do to it.
    fn access(&self) -> Access;
}
