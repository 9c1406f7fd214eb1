//! The arrays of a table: slot `i` of an array lies at `base + i * slot_bytes`, without padding, so that any
//! range of slots is one piece of memory.
//!
//! It hands out pointers and never references: other processes write the same bytes. No synchronisation of its
//! own: that nobody else writes a slot meanwhile is what a claim says, and that nobody writes it any more, what
//! a complete block says.
//!
//! Page-locking them with CUDA is a call of its own on arrays that are there, and no part of making them: what a
//! constructor has registered when it fails is unregistered by nobody's `Drop`.

use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::host_pinning::{
    CHUNK_BYTES, CudaApi, Permission, PinError, Progress, Region, Registered, Registration, Unpinned,
    pin_all, unpin_all,
};
use crate::ids::SlotIndex;
use crate::memory::fork::Birthplace;
use crate::memory::governor::Account;
use crate::memory::layout::DataLayout;
use crate::memory::memfd::Sealed;
use crate::memory::shared::Filling;
use crate::memory::{Access, HostMemory, MemoryError, SharedBacking, VirtualBacking, VirtualBuffer};

/// One array.
struct ArrayBuf<B: VirtualBacking> {
    buffer: VirtualBuffer<B>,
    slot_bytes: usize,
}

/// The arrays.
pub struct PytreeRingBuf<B: VirtualBacking> {
    /// Not dropped, and so mapped for ever, where CUDA does not let go of them.
    arrays: ManuallyDrop<Vec<ArrayBuf<B>>>,
    slots: u64,
    pinned: Mutex<Option<Registered>>,
    birthplace: Birthplace,
}

/// How arrays are page-locked.
pub struct Pinning<'a> {
    /// Slots that are copied as one: those of a batch.
    pub row_slots: u32,
    /// Most bytes of one registration, if a row is not larger.
    pub chunk_bytes: usize,
    /// Called after each piece.
    pub progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Pinning<'a> {
    /// In rows of so many slots, and pieces of the usual size.
    pub fn of_rows(row_slots: u32, progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self { row_slots, chunk_bytes: CHUNK_BYTES, progress }
    }
}

/// What is page-locked, and by what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pinned {
    /// The library that it is registered with.
    pub library: String,
    /// Bytes that are registered.
    pub bytes: u64,
    /// In how many pieces.
    pub pieces: usize,
    /// What the device may do to it.
    pub permission: Permission,
    /// Whether the pages are locked. Not those of a device that uses this machine's page tables: they are registered.
    pub locked: bool,
}

impl<B: VirtualBacking> PytreeRingBuf<B> {
    /// Arrays of buffers in which so many slots are committed, with the bytes of a slot in each.
    ///
    /// # Panics
    /// If a buffer has not committed them.
    pub fn new(arrays: Vec<(VirtualBuffer<B>, usize)>, slots: u64) -> Self {
        let arrays: Vec<_> =
            arrays.into_iter().map(|(buffer, slot_bytes)| ArrayBuf { buffer, slot_bytes }).collect();
        for (i, array) in arrays.iter().enumerate() {
            let needed = usize::try_from(slots).ok().and_then(|slots| slots.checked_mul(array.slot_bytes));
            let committed = array.buffer.committed();
            assert!(needed.is_some_and(|needed| needed <= committed), "array {i} has {committed} bytes");
        }
        let arrays = ManuallyDrop::new(arrays);
        Self { arrays, slots, pinned: Mutex::default(), birthplace: Birthplace::here() }
    }

    /// How many arrays.
    pub fn arrays(&self) -> usize {
        self.arrays.len()
    }

    /// How many slots each has.
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// Bytes of a slot of one array.
    pub fn slot_bytes(&self, array: usize) -> usize {
        self.arrays[array].slot_bytes
    }

    /// Bytes that all arrays have committed.
    pub fn committed(&self) -> u64 {
        self.arrays.iter().map(|array| array.buffer.committed() as u64).sum()
    }

    /// The addresses that the arrays could ever have, `(start, end)` each.
    pub fn address_ranges(&self) -> Vec<(usize, usize)> {
        let range =
            |array: &ArrayBuf<B>| (array.buffer.base(), array.buffer.base() + array.buffer.reserved());
        self.arrays.iter().map(range).collect()
    }

    /// One slot of one array, to write. Valid for `slot_bytes` bytes while `self` lives, if the memory is
    /// writable to this process.
    #[inline]
    pub fn slot_mut(&self, array: usize, slot: SlotIndex) -> *mut u8 {
        self.range_ptr(array, slot, 1).0.cast_mut()
    }

    /// One slot of one array, to read.
    #[inline]
    pub fn slot_ref(&self, array: usize, slot: SlotIndex) -> *const u8 {
        self.range_ptr(array, slot, 1).0
    }

    /// A range of slots of one array: its address and its length in bytes. Of an array without bytes the address
    /// is one that is not null, aligned for any element, and not to be accessed.
    ///
    /// # Panics
    /// If there is no such array, or the range goes past its end.
    #[inline]
    pub fn range_ptr(&self, array: usize, first: SlotIndex, count: u32) -> (*const u8, usize) {
        let in_range = first.get().checked_add(count.into()).is_some_and(|end| end <= self.slots);
        assert!(in_range, "slots {} + {count} of {}", first.get(), self.slots);
        let array = &self.arrays[array];
        // No overflow: `slots * slot_bytes` fits (checked by `new`), and this is inside.
        let offset = first.get() as usize * array.slot_bytes;
        ((array.buffer.base() + offset) as *const u8, count as usize * array.slot_bytes)
    }
}

impl<B: HostMemory> PytreeRingBuf<B> {
    /// Puts what is committed into this process's page tables, with several threads. To be done before page-locking,
    /// which would do it a page at a time.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub fn prefault(&self) -> Result<(), MemoryError> {
        /// More threads than this wait for each other in the kernel.
        const MOST: usize = 8;
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST));
        self.arrays.iter().try_for_each(|array| array.buffer.prefault(threads as u32))
    }

    /// Whether they are page-locked.
    pub fn is_pinned(&self) -> bool {
        self.pinned().is_some()
    }

    /// What page-locks them, if something does.
    pub fn pinned_by(&self) -> Option<String> {
        self.pinned().as_ref().map(|registered| registered.library().into())
    }

    /// Page-locks all arrays with CUDA, or none of them. They stay so until they are dropped.
    ///
    /// # Errors
    /// If they are page-locked already, or are mapped read-only, or CUDA refuses a piece.
    pub fn pin_host_memory(&self, api: &CudaApi, how: Pinning<'_>) -> Result<Pinned, PinError> {
        self.pin(api, how, Permission::ReadWrite, &|| Ok(()))
    }

    /// As [`PytreeRingBuf::pin_host_memory`], for arrays that this process reads and no more.
    ///
    /// A device that registers read-only memory is given no more than that. For any other the mapping must be
    /// writable, and stops being so once it is registered: a pin outlives the right by which it was made.
    ///
    /// # Errors
    /// As [`PytreeRingBuf::pin_host_memory`], and if the mapping cannot be made read-only.
    ///
    /// # Safety
    /// Nobody writes these arrays by way of this process's mapping, from now on.
    pub unsafe fn pin_to_read(&self, api: &CudaApi, how: Pinning<'_>) -> Result<Pinned, PinError> {
        if api.registers_read_only() {
            return self.pin(api, how, Permission::ReadOnly, &|| Ok(()));
        }
        self.pin(api, how, Permission::ReadWrite, &|| {
            let done = self.arrays.iter().try_for_each(|array| {
                // SAFETY: the caller says that nobody writes.
                unsafe { array.buffer.keep_reading_only() }
            });
            if done.is_err() {
                // As it was. Where that fails as well, less is allowed than could be.
                let _ = self.arrays.iter().try_for_each(|array| array.buffer.write_again());
            }
            done
        })
    }

    /// `then` is part of it: if it fails, nothing is page-locked.
    fn pin(
        &self,
        api: &CudaApi,
        how: Pinning<'_>,
        permission: Permission,
        then: &dyn Fn() -> Result<(), MemoryError>,
    ) -> Result<Pinned, PinError> {
        // Before the lock, which another thread of the parent may hold for ever.
        if self.birthplace.is_elsewhere() {
            return Err(PinError::Forked);
        }
        let mut pinned = self.pinned();
        if let Some(registered) = &*pinned {
            return Err(PinError::Already { library: registered.library().into() });
        }
        let writable = self.arrays.iter().all(|array| array.buffer.access() == Access::ReadWrite);
        if permission == Permission::ReadWrite && !writable {
            return Err(PinError::ReadOnlyMapping { library: api.library().into() });
        }
        let mut registration =
            Registration { permission, chunk_bytes: how.chunk_bytes, progress: how.progress };
        // SAFETY: what is committed is mapped until the arrays are dropped, and `drop` does that after `unpin_all` or not
        // at all. What an error leaves is kept for it, like what is registered. Files are mapped shared.
        let registered = match unsafe { pin_all(api, &self.regions(how.row_slots), &mut registration) } {
            Ok(registered) => registered,
            Err(unpinned) => {
                let Unpinned { error, left } = *unpinned;
                *pinned = Some(left).filter(|left| left.pieces() > 0);
                return Err(error);
            }
        };
        let registered = pinned.insert(registered);
        if let Err(error) = then() {
            // SAFETY: what is left stays in `pinned`, and so mapped.
            if unsafe { unpin_all(registered) }.is_ok() {
                *pinned = None;
            }
            return Err(error.into());
        }
        Ok(Pinned {
            library: registered.library().into(),
            bytes: registered.bytes(),
            pieces: registered.pieces(),
            permission,
            locked: api.locks_pages(),
        })
    }

    fn pinned(&self) -> MutexGuard<'_, Option<Registered>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn regions(&self, row_slots: u32) -> Vec<Region> {
        let region = |(i, array): (usize, &ArrayBuf<B>)| Region {
            name: format!("array {i}"),
            address: array.buffer.base(),
            bytes: self.slots as usize * array.slot_bytes,
            row_bytes: row_slots as usize * array.slot_bytes,
        };
        self.arrays.iter().enumerate().map(region).collect()
    }
}

impl<B: VirtualBacking> Drop for PytreeRingBuf<B> {
    fn drop(&mut self) {
        let pinned = self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(registered) = pinned {
            // SAFETY: after an error the arrays are never dropped, and so never unmapped.
            if unsafe { unpin_all(registered) }.is_err() {
                return;
            }
        }
        // SAFETY: dropped here alone, and not used any more.
        unsafe { ManuallyDrop::drop(&mut self.arrays) }
    }
}

impl PytreeRingBuf<SharedBacking> {
    /// The owner's side: commits `slots` slots of every array in the file, all or nothing. Large arrays are on
    /// huge pages of the given size.
    ///
    /// # Errors
    /// If a budget or the kernel refuses the memory.
    pub fn create(
        file: &Arc<OwnedFd>,
        layout: &DataLayout,
        slots: u64,
        account: &Account,
        huge_page: Option<usize>,
        filling: &Arc<Filling>,
    ) -> Result<Self, MemoryError> {
        Self::commit(layout, slots, account, |place| {
            let huge_page = huge_page.filter(|_| place.is_large());
            SharedBacking::owner(file.clone(), place.offset, huge_page, filling.clone())
        })
    }

    /// An attacher's side of a file that was received: maps the slots that the owner has committed.
    ///
    /// # Errors
    /// If the kernel refuses the addresses, or the file is smaller than its layout.
    pub fn attach(
        file: Sealed,
        layout: &DataLayout,
        slots: u64,
        access: Access,
    ) -> Result<Self, MemoryError> {
        if file.bytes() < layout.bytes() {
            let what = format!("has {} bytes, its layout {}", file.bytes(), layout.bytes());
            return Err(MemoryError::Descriptor(what));
        }
        let file = Arc::new(file.into_fd());
        Self::commit(layout, slots, &Account::nobody(), |place| {
            SharedBacking::attacher(file.clone(), place.offset, access)
        })
    }

    fn commit(
        layout: &DataLayout,
        slots: u64,
        account: &Account,
        backing: impl Fn(&crate::memory::layout::ArrayPlace) -> SharedBacking,
    ) -> Result<Self, MemoryError> {
        let mut arrays = Vec::with_capacity(layout.places().len());
        for place in layout.places() {
            // What was committed so far is given back when `arrays` is dropped.
            let mut buffer = VirtualBuffer::new(backing(place), place.max_bytes as usize, account.clone())?;
            buffer.grow_to((slots * place.slot_bytes) as usize)?;
            arrays.push((buffer, place.slot_bytes as usize));
        }
        Ok(Self::new(arrays, slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HostBacking;

    fn buf(slot_bytes: &[usize], slots: u64) -> PytreeRingBuf<HostBacking> {
        let array = |&slot_bytes: &usize| {
            let bytes = slot_bytes * slots as usize;
            let governor = Arc::new(crate::memory::MemoryGovernor::new(1 << 30, 1 << 30));
            let mut buffer =
                VirtualBuffer::new(HostBacking, bytes, Account::host(governor, 0, "test")).unwrap();
            buffer.grow_to(bytes).unwrap();
            (buffer, slot_bytes)
        };
        PytreeRingBuf::new(slot_bytes.iter().map(array).collect(), slots)
    }

    #[test]
    fn slots_are_neighbours_without_padding() {
        let buf = buf(&[3, 16], 100);
        let slot = |i| SlotIndex::new(i, 100).unwrap();
        for array in 0..2 {
            let (base, bytes) = buf.range_ptr(array, slot(0), 100);
            assert_eq!(bytes, buf.slot_bytes(array) * 100);
            for i in 0..100 {
                let expected = base as usize + i as usize * buf.slot_bytes(array);
                assert_eq!(buf.slot_mut(array, slot(i)) as usize, expected);
                assert_eq!(buf.slot_ref(array, slot(i)) as usize, expected);
            }
        }
    }

    #[test]
    fn arrays_that_cannot_be_made_read_only_are_not_page_locked_and_can_be_tried_again() {
        use std::ffi::{CStr, c_int, c_uint, c_void};
        extern "C" fn register(_: *mut c_void, _: usize, _: c_uint) -> c_int {
            0
        }
        extern "C" fn unregister(_: *mut c_void) -> c_int {
            0
        }
        fn lookup(name: &CStr) -> *const c_void {
            match name.to_bytes() {
                b"cudaHostRegister" => register as *const c_void,
                b"cudaHostUnregister" | b"cudaFree" | b"cudaGetErrorName" => unregister as *const c_void,
                _ => std::ptr::null(),
            }
        }
        // SAFETY: those that are called have the signatures of their names; an error is never asked for its name.
        let api = unsafe { CudaApi::new("stub", lookup) }.unwrap();
        let buf = buf(&[4096, 4096], 4);
        let pin = || {
            // SAFETY: nobody writes.
            unsafe { buf.pin_to_read(&api, Pinning::of_rows(1, &mut |_| ())) }
        };
        let call = crate::memory::syscalls::Call::Protect;
        let errno = rustix::io::Errno::NOMEM;
        let (result, failed) = crate::memory::syscalls::with_fault(call, 1, errno, pin);
        assert!(failed && matches!(result, Err(PinError::Memory(_))), "{result:?}");
        assert_eq!(buf.pinned_by(), None);
        // SAFETY: the first array's memory, which is writable again.
        unsafe { buf.slot_mut(0, SlotIndex::new(0, 4).unwrap()).write(1) };
        assert_eq!(pin().unwrap().bytes, 2 * 4 * 4096);
        assert_eq!(buf.pinned_by().as_deref(), Some("stub"));
    }

    #[test]
    fn an_array_without_bytes_has_an_address_all_the_same() {
        let buf = buf(&[0, 8], 4);
        let (address, bytes) = buf.range_ptr(0, SlotIndex::new(3, 4).unwrap(), 1);
        assert!(!address.is_null() && (address as usize).is_multiple_of(16) && bytes == 0);
    }

    #[test]
    #[should_panic(expected = "slots 3 + 2 of 4")]
    fn a_range_past_the_end_is_our_own_bug() {
        buf(&[8], 4).range_ptr(0, SlotIndex::new(3, 4).unwrap(), 2);
    }
}
