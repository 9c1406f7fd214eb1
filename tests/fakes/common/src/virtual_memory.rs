//! Addresses, physical memory, and what is mapped where.
//!
//! ```text
//!   reserved (PROT_NONE) ──map──► mapped (PROT_NONE) ──set access──► accessible
//!            ▲                        │                                 │
//!            └─────────unmap──────────┴─────────────────────────────────┘
//! ```
//!
//! Addresses are of this process, so a touch that a GPU would answer with a fault is a SIGSEGV here.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::Code;
use crate::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::physical::Physical;

/// What sizes and addresses of physical memory are multiples of.
pub(crate) const GRANULARITY: usize = 2 << 20;

pub(crate) struct VirtualMemory {
    next: u64,
    handles: BTreeMap<u64, Handle>,
    reservations: BTreeMap<usize, usize>,
    mappings: BTreeMap<usize, Mapping>,
}

struct Handle {
    physical: Arc<Physical>,
    /// How many releases it takes.
    held: u32,
}

struct Mapping {
    bytes: usize,
    physical: Arc<Physical>,
    handle: u64,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    None = 0,
    Read = 1,
    ReadWrite = 3,
}

impl VirtualMemory {
    pub(crate) fn new() -> Self {
        // No number of one process is that of another by accident.
        let next = (u64::from(std::process::id()) << 20) + 1;
        Self { next, handles: BTreeMap::new(), reservations: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// Handles, reservations, mappings.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.handles.len(), self.reservations.len(), self.mappings.len()]
    }

    /// Bytes that this process has of devices' memory, without what others gave it.
    pub(crate) fn used(&self) -> usize {
        let by_handle = self.handles.values().map(|handle| &handle.physical);
        let by_mapping = self.mappings.values().map(|mapping| &mapping.physical);
        let all: BTreeMap<_, _> =
            by_handle.chain(by_mapping).map(|physical| (Arc::as_ptr(physical), physical)).collect();
        all.values().filter(|physical| !physical.is_imported).map(|physical| physical.bytes).sum()
    }

    pub(crate) fn add(&mut self, physical: Physical) -> u64 {
        self.next += 1;
        self.handles.insert(self.next, Handle { physical: Arc::new(physical), held: 1 });
        self.next
    }

    pub(crate) fn get(&self, handle: u64) -> Result<&Physical, Code> {
        self.handles.get(&handle).map(|handle| &*handle.physical).ok_or(INVALID_VALUE)
    }

    pub(crate) fn release(&mut self, handle: u64) -> Result<(), Code> {
        let found = self.handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
        found.held -= 1;
        if found.held == 0 {
            self.handles.remove(&handle);
        }
        Ok(())
    }

    /// The handle of what is mapped at an address. It takes one more release.
    pub(crate) fn retain(&mut self, address: usize) -> Result<u64, Code> {
        let (_, mapping) = self.mapping_at(address).ok_or(INVALID_VALUE)?;
        let (handle, physical) = (mapping.handle, mapping.physical.clone());
        self.handles.entry(handle).or_insert(Handle { physical, held: 0 }).held += 1;
        Ok(handle)
    }

    pub(crate) fn reserve(&mut self, bytes: usize, alignment: usize) -> Result<usize, Code> {
        let is_power = alignment == 0 || alignment.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(rustix::param::page_size()) || !is_power {
            return Err(INVALID_VALUE);
        }
        let alignment = alignment.max(GRANULARITY);
        let room = bytes.checked_add(alignment).ok_or(OUT_OF_MEMORY)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses where, so nothing of anybody's is there.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), flags) };
        let at = at.map_err(|_| OUT_OF_MEMORY)?.expose_provenance();
        let start = at.next_multiple_of(alignment);
        unmap_host(at, start - at);
        unmap_host(start + bytes, room - bytes - (start - at));
        self.reservations.insert(start, bytes);
        Ok(start)
    }

    /// All of a reservation in which nothing is mapped.
    pub(crate) fn free(&mut self, start: usize, bytes: usize) -> Result<(), Code> {
        let is_empty = || self.mappings.range(start..start.saturating_add(bytes)).next().is_none();
        if self.reservations.get(&start) != Some(&bytes) || !is_empty() {
            return Err(INVALID_VALUE);
        }
        self.reservations.remove(&start);
        unmap_host(start, bytes);
        Ok(())
    }

    /// Within one reservation, where nothing is mapped yet. Nobody may touch it until its access is set.
    pub(crate) fn map(&mut self, start: usize, bytes: usize, handle: u64) -> Result<(), Code> {
        let physical = self.handles.get(&handle).ok_or(INVALID_VALUE)?.physical.clone();
        let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let whole = |size: usize| size.is_multiple_of(GRANULARITY);
        if bytes == 0 || !whole(start) || !whole(bytes) || bytes > physical.bytes {
            return Err(INVALID_VALUE);
        }
        let (at, room) = self.reservations.range(..=start).next_back().ok_or(INVALID_VALUE)?;
        let before = self.mappings.range(..end).next_back();
        if end > at + room || before.is_some_and(|(at, mapping)| at + mapping.bytes > start) {
            return Err(INVALID_VALUE);
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: over a part of a reservation of ours, where nothing is mapped: checked above.
        let done =
            unsafe { rustix::mm::mmap(pointer(start), bytes, ProtFlags::empty(), flags, &physical.file, 0) };
        done.map_err(|_| OUT_OF_MEMORY)?;
        self.mappings.insert(start, Mapping { bytes, physical, handle, access: Access::None });
        Ok(())
    }

    /// One mapping or several in a row, whole.
    pub(crate) fn unmap(&mut self, start: usize, bytes: usize) -> Result<(), Code> {
        let whole = self.whole(start, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: over mappings of ours. Who still uses the addresses was told not to, as on a GPU.
        let done = unsafe { rustix::mm::mmap_anonymous(pointer(start), bytes, ProtFlags::empty(), flags) };
        done.map_err(|_| OUT_OF_MEMORY)?;
        for at in whole {
            self.mappings.remove(&at);
        }
        Ok(())
    }

    /// Of one mapping or several in a row, whole.
    pub(crate) fn set_access(&mut self, start: usize, bytes: usize, access: Access) -> Result<(), Code> {
        let whole = self.whole(start, bytes)?;
        let protection = match access {
            Access::None => MprotectFlags::empty(),
            Access::Read => MprotectFlags::READ,
            Access::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: over mappings of ours, to which no reference is made.
        unsafe { rustix::mm::mprotect(pointer(start), bytes, protection) }.map_err(|_| OUT_OF_MEMORY)?;
        for at in whole {
            self.mappings.get_mut(&at).expect("just found").access = access;
        }
        Ok(())
    }

    /// What is mapped at an address, and the access to it.
    pub(crate) fn at(&self, address: usize) -> Result<(&Physical, Access), Code> {
        let (_, mapping) = self.mapping_at(address).ok_or(INVALID_VALUE)?;
        Ok((&mapping.physical, mapping.access))
    }

    /// Whether all of a range may be used so.
    pub(crate) fn check(&self, start: usize, bytes: usize, access: Access) -> Result<(), Code> {
        let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
        let mut next = start;
        while next < end {
            let (at, mapping) = self.mapping_at(next).ok_or(INVALID_VALUE)?;
            if mapping.access < access {
                return Err(INVALID_VALUE);
            }
            next = at + mapping.bytes;
        }
        Ok(())
    }

    /// The devices of all that is mapped in a range.
    pub(crate) fn devices(&self, start: usize, bytes: usize) -> impl Iterator<Item = crate::devices::Uuid> {
        self.mappings.range(start..start.saturating_add(bytes)).map(|(_, mapping)| mapping.physical.device)
    }

    fn mapping_at(&self, address: usize) -> Option<(usize, &Mapping)> {
        let (&at, mapping) = self.mappings.range(..=address).next_back()?;
        (address < at + mapping.bytes).then_some((at, mapping))
    }

    /// Where the mappings begin that a range is made of, none of them in part and nothing beside them.
    fn whole(&self, start: usize, bytes: usize) -> Result<Vec<usize>, Code> {
        let end = start.checked_add(bytes).filter(|end| *end > start).ok_or(INVALID_VALUE)?;
        let mut whole = Vec::new();
        let mut next = start;
        while next < end {
            let mapping = self.mappings.get(&next).ok_or(INVALID_VALUE)?;
            whole.push(next);
            next += mapping.bytes;
        }
        if next == end { Ok(whole) } else { Err(INVALID_VALUE) }
    }
}

fn unmap_host(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: a part of a reservation of ours in which nothing is mapped, or that goes with it.
        let done = unsafe { rustix::mm::munmap(pointer(start), bytes) };
        done.expect("it was mapped");
    }
}

fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}
