//! A whole file, mapped and shared: control regions, client pages, private records.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, ProtFlags};

use crate::memory::error::MemoryError;
use crate::memory::fork::Birthplace;
use crate::memory::shared::Filling;
use crate::memory::syscalls;

/// What may be done to a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Loads. A store is a fault of the whole process.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

impl Access {
    pub(crate) fn prot(self) -> ProtFlags {
        match self {
            Self::ReadOnly => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// The mapping. It ends when it is dropped, and is not there in forked children.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    birthplace: Birthplace,
}

// SAFETY: addresses are good in every thread; what is behind them is accessed by atomics or system calls.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared borrow hands out an address alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first bytes of a file, of which it has at least so many.
    ///
    /// # Errors
    /// If the kernel refuses it, or `bytes` is 0.
    pub fn new(fd: &impl AsFd, bytes: usize, access: Access) -> Result<Self, MemoryError> {
        let address = syscalls::map_file(fd, bytes, access.prot())
            .map_err(MemoryError::os("map a memory file", bytes as u64))?;
        let base = NonNull::new(address as *mut u8).expect("the kernel maps nothing at 0 unasked");
        let mapping = Self { base, bytes, birthplace: Birthplace::here() };
        for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
            // SAFETY: mapped just now; neither changes content.
            unsafe { syscalls::advise(address, bytes, advice) }
                .map_err(MemoryError::os("keep a memory file from children", bytes as u64))?;
        }
        Ok(mapping)
    }

    /// Makes its pages resident, so that no touch of them can fail, and locks them as `filling` says. For the
    /// owner of a file, before it is shared.
    ///
    /// # Errors
    /// If the kernel has no memory, or does not lock it where that is required.
    pub fn make_resident(&self, filling: &Filling) -> Result<(), MemoryError> {
        let page = syscalls::page_size();
        let bytes = self.bytes.next_multiple_of(page);
        // SAFETY: mapped by `new`, in small pages; one that is not writable is refused by the kernel.
        unsafe { filling.fill(self.base.as_ptr() as usize, bytes, page, false) }
    }

    /// Its first byte; page-aligned.
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Never.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.birthplace.is_elsewhere() {
            return;
        }
        // SAFETY: mapped by `new` in this process, and whoever took the base borrowed the mapping.
        unsafe { syscalls::unmap(self.base.as_ptr() as usize, self.bytes) };
    }
}
