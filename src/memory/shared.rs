//! Shared memory: a window on a memfd, in which each array of a table has its place.
//!
//! The *owner* (the daemon) gives the file's pages memory and takes it away; an *attacher* (a client) maps what
//! the owner has committed. Both map the same file offsets, at addresses that are as well aligned, so that huge
//! pages stay huge in both.
//!
//! `MADV_POPULATE_WRITE` and not `fallocate` makes the pages: it reports as an error what a touch would turn
//! into SIGBUS, and the kernel gives no huge pages to a file that was allocated before the advice.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{Advice, ProtFlags};

use crate::memory::backing::{HostMemory, PhysicalMemoryAccounting, VirtualBacking};
use crate::memory::error::{LOCK, MemoryError};
use crate::memory::mapping::Access;
use crate::memory::reservation::AddressRange;
use crate::memory::syscalls;
use crate::spec::Pin;

/// How an owner makes pages resident; one for all arrays of a table.
pub struct Filling {
    /// Threads that populate at the same time.
    pub threads: u32,
    /// What a failing `mlock` means.
    pub pin: Pin,
    /// Called with the bytes that became resident, from any of the threads.
    pub progress: Box<dyn Fn(u64) + Send + Sync>,
    not_locked: Mutex<Option<String>>,
}

impl Filling {
    /// With that many threads.
    pub fn new(threads: u32, pin: Pin, progress: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { threads, pin, progress: Box::new(progress), not_locked: Mutex::default() }
    }

    /// Why pages are not locked that should be, if locking was tried and failed.
    pub fn not_locked(&self) -> Option<String> {
        self.not_locked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes a part that is mapped resident, and locks it as the table asks.
    ///
    /// # Safety
    /// The part is mapped writable, in that granule.
    pub(crate) unsafe fn fill(
        &self,
        at: usize,
        bytes: usize,
        granule: usize,
        huge: bool,
    ) -> Result<(), MemoryError> {
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: mapped; the advice changes no content.
        let advised = unsafe { syscalls::advise(at, bytes, advice) };
        if huge {
            advised.map_err(MemoryError::os("give huge pages", bytes as u64))?;
        }
        // A kernel that has no huge pages refuses the advice not to use them: no matter.
        // SAFETY: mapped, in that granule.
        unsafe { syscalls::populate(at, bytes, Access::ReadWrite, granule, self.threads, &*self.progress) }
            .map_err(MemoryError::os("make shared memory resident", bytes as u64))?;
        if self.pin == Pin::Off {
            return Ok(());
        }
        // SAFETY: mapped.
        let locked = unsafe { syscalls::lock(at, bytes) }.map_err(MemoryError::os(LOCK, bytes as u64));
        match (locked, self.pin) {
            (Err(error), Pin::BestEffort) => {
                let mut not_locked = self.not_locked.lock().unwrap_or_else(PoisonError::into_inner);
                not_locked.get_or_insert_with(|| error.to_string());
                Ok(())
            }
            (result, _) => result,
        }
    }
}

enum Side {
    Owner { filling: Arc<Filling>, granule: usize, huge: bool },
    Attacher(Access),
}

/// The window of one array.
pub struct SharedBacking {
    file: Arc<OwnedFd>,
    offset: u64,
    side: Side,
}

impl SharedBacking {
    /// The owner's side, from that offset of the file on: on huge pages of that size, or on small ones.
    pub fn owner(file: Arc<OwnedFd>, offset: u64, huge_page: Option<usize>, filling: Arc<Filling>) -> Self {
        let granule = huge_page.unwrap_or_else(syscalls::page_size);
        Self { file, offset, side: Side::Owner { filling, granule, huge: huge_page.is_some() } }
    }

    /// An attacher's side.
    pub const fn attacher(file: Arc<OwnedFd>, offset: u64, access: Access) -> Self {
        Self { file, offset, side: Side::Attacher(access) }
    }

    fn map(&self, at: usize, offset: usize, bytes: usize, access: Access) -> Result<(), MemoryError> {
        let from = self.offset + offset as u64;
        // SAFETY: part of our reservation (checked by `part`), and nobody uses it: it is not committed, or is
        // put back as it was.
        unsafe { syscalls::map_file_over(at, bytes, access.prot(), self.file.as_fd(), from) }
            .map_err(MemoryError::os("map shared memory", bytes as u64))?;
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: mapped just now; neither changes content.
            unsafe { syscalls::advise(at, bytes, advice) }
                .map_err(MemoryError::os("keep shared memory from children", bytes as u64))?;
        }
        Ok(())
    }

    fn unmap(at: usize, bytes: usize) -> Result<(), MemoryError> {
        // SAFETY: part of our reservation (checked by `part`); nobody uses what is being taken back.
        unsafe { syscalls::map_private_over(at, bytes, ProtFlags::empty()) }
            .map_err(MemoryError::os("unmap shared memory", bytes as u64))
    }

    fn punch(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        syscalls::punch_hole(self.file.as_fd(), self.offset + offset as u64, bytes as u64)
            .map_err(MemoryError::os("free shared memory", bytes as u64))
    }
}

// SAFETY: the base is the range's start, which does not move. `commit` maps the file over the part, writable or
// read-only as the side says. What fails is undone; should the undoing fail too (the kernel has no memory left
// for its own books), addresses stay mapped that nobody was given, and the next commit maps over them.
unsafe impl VirtualBacking for SharedBacking {
    type Reservation = AddressRange;

    fn granularity(&self) -> usize {
        match &self.side {
            Side::Owner { granule, .. } => *granule,
            Side::Attacher(_) => syscalls::page_size(),
        }
    }

    fn reserve(&self, bytes: usize) -> Result<AddressRange, MemoryError> {
        let page = syscalls::page_size();
        let huge = syscalls::huge_page_size().filter(|&huge| bytes >= huge);
        let align = huge.filter(|&huge| self.offset.is_multiple_of(huge as u64)).unwrap_or(page);
        AddressRange::reserve(bytes, align)
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
        let at = range.part(offset, bytes);
        let result = match &self.side {
            Side::Attacher(access) => self.map(at, offset, bytes, *access),
            Side::Owner { filling, granule, huge } => {
                self.map(at, offset, bytes, Access::ReadWrite).and_then(|()| {
                    // SAFETY: mapped just now, writable, in that granule.
                    unsafe { filling.fill(at, bytes, *granule, *huge) }
                })
            }
        };
        if result.is_err() {
            // See above: what fails here has no consequence that somebody could see.
            let _ = Self::unmap(at, bytes);
            if matches!(self.side, Side::Owner { .. }) {
                let _ = self.punch(offset, bytes);
            }
        }
        result
    }

    unsafe fn release(
        &self,
        range: &mut AddressRange,
        offset: usize,
        bytes: usize,
    ) -> Result<(), MemoryError> {
        let at = range.part(offset, bytes);
        Self::unmap(at, bytes)?;
        if matches!(self.side, Side::Owner { .. })
            && let Err(error) = self.punch(offset, bytes)
        {
            // The pages are still there, and locked no more: what the owner has afterwards is what it had.
            let _ = self.map(at, offset, bytes, Access::ReadWrite);
            return Err(error);
        }
        Ok(())
    }

    fn physical_memory_accounting(&self) -> PhysicalMemoryAccounting {
        match self.side {
            Side::Owner { .. } => PhysicalMemoryAccounting::Buffer,
            Side::Attacher(_) => PhysicalMemoryAccounting::Backing,
        }
    }
}

// SAFETY: what is committed is mapped into this process, readable, and writable where `access` says so.
unsafe impl HostMemory for SharedBacking {
    fn access(&self) -> Access {
        match self.side {
            Side::Owner { .. } => Access::ReadWrite,
            Side::Attacher(access) => access,
        }
    }
}
