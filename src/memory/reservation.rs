//! A range of addresses, reserved without memory and filled in parts.

use crate::memory::error::MemoryError;
use crate::memory::fork::Birthplace;
use crate::memory::syscalls;

/// The range. Whatever is mapped into it goes when it is dropped.
#[derive(Debug)]
pub struct AddressRange {
    start: usize,
    bytes: usize,
    birthplace: Birthplace,
}

impl AddressRange {
    /// Reserves addresses that begin at a multiple of `align`, a power of two of at least a page.
    ///
    /// # Errors
    /// If there are none.
    pub fn reserve(bytes: usize, align: usize) -> Result<Self, MemoryError> {
        let page = syscalls::page_size();
        let refused = || MemoryError::os("reserve addresses", bytes as u64);
        let bytes = bytes.max(1).checked_next_multiple_of(page);
        let padded = bytes.and_then(|bytes| bytes.checked_add(align - page));
        let (Some(bytes), Some(padded)) = (bytes, padded) else {
            return Err(refused()(rustix::io::Errno::NOMEM));
        };
        let got = syscalls::reserve(padded).map_err(refused())?;
        let start = got.next_multiple_of(align);
        let (before, after) = (start - got, got + padded - (start + bytes));
        if before > 0 {
            // SAFETY: the padding of the range that was reserved just now.
            unsafe { syscalls::unmap(got, before) };
        }
        if after > 0 {
            // SAFETY: as above.
            unsafe { syscalls::unmap(start + bytes, after) };
        }
        Ok(Self { start, bytes, birthplace: Birthplace::here() })
    }

    /// Its first address.
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Its length in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a part.
    ///
    /// # Panics
    /// If the part is not inside, which only our own arithmetic can cause.
    pub fn part(&self, offset: usize, bytes: usize) -> usize {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(inside, "{offset} + {bytes} of {}", self.bytes);
        self.start + offset
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        if self.birthplace.is_elsewhere() {
            return;
        }
        // SAFETY: reserved by `reserve` in this process; whoever took addresses of it holds it.
        unsafe { syscalls::unmap(self.start, self.bytes) };
    }
}
