//! The driver's calls for memory of a device: what they are given is checked here, and done in `virtual_memory`.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, IntoRawFd};

use crate::Code;
use crate::codes::{
    INVALID_DEVICE, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, OUT_OF_MEMORY, PEER_ACCESS_UNSUPPORTED,
};
use crate::devices::{self, POSIX_DESCRIPTORS, VIRTUAL_MEMORY};
use crate::driver::Driver;
use crate::library::State;
use crate::out::{Out, put};
use crate::physical::Physical;
use crate::virtual_memory::{Access, GRANULARITY};

const PINNED: c_int = 1;
const DEVICE: c_int = 1;
const HOST_NUMA_CURRENT: c_int = 4;
const POSIX_DESCRIPTOR: c_int = 1;
const FABRIC: c_int = 8;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    pub kind: c_int,
    pub id: c_int,
}

/// `CUmemAllocationProp`, with the flags in it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: Location,
    /// A pointer, for Windows.
    pub metadata: usize,
    pub compression: u8,
    pub for_rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AccessDescription {
    pub location: Location,
    pub flags: c_int,
}

const _: () = {
    assert!(size_of::<Properties>() == 32);
    assert!(std::mem::offset_of!(Properties, metadata) == 16);
    assert!(std::mem::offset_of!(Properties, usage) == 26);
    assert!(size_of::<AccessDescription>() == 12);
};

impl Driver {
    pub fn granularity(&self, out: Out<'_, usize>, properties: Option<&Properties>, option: c_int) -> Code {
        self.call("cuMemGetAllocationGranularity", format_args!("{option}"), |state| {
            check(state, properties)?;
            if ![0, 1].contains(&option) {
                return Err(INVALID_VALUE);
            }
            put(out, GRANULARITY)
        })
    }

    /// Where is the driver's choice, whatever is asked for.
    pub fn reserve(&self, out: Out<'_, u64>, bytes: usize, alignment: usize, hint: u64, flags: u64) -> Code {
        self.call("cuMemAddressReserve", format_args!("{bytes} {alignment} {hint:#x} {flags}"), |state| {
            ready(state)?;
            let out = out.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
            out.write(state.memory.reserve(bytes, alignment)? as u64);
            Ok(())
        })
    }

    pub fn address_free(&self, start: u64, bytes: usize) -> Code {
        self.call("cuMemAddressFree", format_args!("{start:#x} {bytes}"), |state| {
            ready(state)?;
            state.memory.free(start as usize, bytes)
        })
    }

    pub fn create(
        &self,
        out: Out<'_, u64>,
        bytes: usize,
        properties: Option<&Properties>,
        flags: u64,
    ) -> Code {
        self.call("cuMemCreate", format_args!("{bytes} {flags}"), |state| {
            let properties = check(state, properties)?;
            let device = state.devices.uuid(properties.location.id)?;
            let out = out.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
            if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
                return Err(INVALID_VALUE);
            }
            if (state.memory.used() as u64).saturating_add(bytes as u64) > state.knobs.memory {
                return Err(OUT_OF_MEMORY);
            }
            let is_exportable = properties.handle_types == POSIX_DESCRIPTOR;
            let physical = Physical::create(bytes, device, is_exportable, properties.for_rdma != 0)?;
            out.write(state.memory.add(physical));
            Ok(())
        })
    }

    pub fn release(&self, handle: u64) -> Code {
        self.call("cuMemRelease", format_args!("{handle:#x}"), |state| {
            ready(state)?;
            state.memory.release(handle)
        })
    }

    pub fn map(&self, start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Code {
        self.call("cuMemMap", format_args!("{start:#x} {bytes} {offset} {handle:#x} {flags}"), |state| {
            ready(state)?;
            if offset != 0 || flags != 0 {
                return Err(INVALID_VALUE);
            }
            state.memory.map(start as usize, bytes, handle)
        })
    }

    pub fn unmap(&self, start: u64, bytes: usize) -> Code {
        self.call("cuMemUnmap", format_args!("{start:#x} {bytes}"), |state| {
            ready(state)?;
            state.memory.unmap(start as usize, bytes)
        })
    }

    /// All descriptions or none.
    pub fn set_access(&self, start: u64, bytes: usize, descriptions: &[AccessDescription]) -> Code {
        self.call("cuMemSetAccess", format_args!("{start:#x} {bytes} {}", descriptions.len()), |state| {
            ready(state)?;
            let start = start as usize;
            let mut wanted = None;
            for AccessDescription { location, flags } in descriptions {
                if location.kind != DEVICE {
                    return Err(NOT_SUPPORTED);
                }
                let device = state.devices.uuid(location.id)?;
                wanted = Some(match flags {
                    0 => Access::None,
                    1 => Access::Read,
                    3 => Access::ReadWrite,
                    _ => return Err(INVALID_VALUE),
                });
                // No device is another's peer.
                if state.memory.devices(start, bytes).any(|owner| owner != device) {
                    return Err(PEER_ACCESS_UNSUPPORTED);
                }
            }
            state.memory.set_access(start, bytes, wanted.ok_or(INVALID_VALUE)?)
        })
    }

    pub fn get_access(&self, out: Out<'_, u64>, location: Option<&Location>, address: u64) -> Code {
        self.call("cuMemGetAccess", format_args!("{address:#x}"), |state| {
            ready(state)?;
            let location = location.ok_or(INVALID_VALUE)?;
            if location.kind != DEVICE {
                return Err(NOT_SUPPORTED);
            }
            let device = state.devices.uuid(location.id)?;
            let (physical, access) = state.memory.at(address as usize)?;
            put(out, if physical.device == device { access as u64 } else { 0 })
        })
    }

    /// The descriptor is the caller's to close.
    pub fn export(&self, out: Out<'_, c_int>, handle: u64, kind: c_int, flags: u64) -> Code {
        self.call("cuMemExportToShareableHandle", format_args!("{handle:#x} {kind} {flags}"), |state| {
            ready(state)?;
            let out = out.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
            let physical = state.memory.get(handle)?;
            if kind != POSIX_DESCRIPTOR || !physical.is_exportable {
                return Err(INVALID_VALUE);
            }
            out.write(physical.export()?.into_raw_fd());
            Ok(())
        })
    }

    /// The descriptor stays the caller's.
    ///
    /// # Safety
    /// Nobody closes the descriptor meanwhile, if it is one.
    pub unsafe fn import(&self, out: Out<'_, u64>, descriptor: usize, kind: c_int) -> Code {
        self.call("cuMemImportFromShareableHandle", format_args!("{descriptor} {kind}"), |state| {
            ready(state)?;
            let out = out.ok_or(INVALID_VALUE)?;
            if kind == FABRIC {
                return Err(NOT_PERMITTED);
            }
            let descriptor = c_int::try_from(descriptor).map_err(|_| INVALID_VALUE)?;
            if kind != POSIX_DESCRIPTOR {
                return Err(INVALID_VALUE);
            }
            // SAFETY: not negative, and open for as long as the call lasts by our caller's promise. If it is none, the
            // kernel says so.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let physical = Physical::import(descriptor)?;
            state.devices.find(physical.device)?;
            out.write(state.memory.add(physical));
            Ok(())
        })
    }

    pub fn properties(&self, out: Out<'_, Properties>, handle: u64) -> Code {
        self.call("cuMemGetAllocationPropertiesFromHandle", format_args!("{handle:#x}"), |state| {
            ready(state)?;
            let physical = state.memory.get(handle)?;
            let properties = Properties {
                kind: PINNED,
                handle_types: if physical.is_exportable { POSIX_DESCRIPTOR } else { 0 },
                location: Location { kind: DEVICE, id: state.devices.find(physical.device)? },
                metadata: 0,
                compression: 0,
                for_rdma: physical.for_rdma.into(),
                usage: 0,
                reserved: [0; 4],
            };
            put(out, properties)
        })
    }

    pub fn retain(&self, out: Out<'_, u64>, address: usize) -> Code {
        self.call("cuMemRetainAllocationHandle", format_args!("{address:#x}"), |state| {
            ready(state)?;
            let out = out.ok_or(INVALID_VALUE)?;
            out.write(state.memory.retain(address)?);
            Ok(())
        })
    }

    /// # Safety
    /// The memory of the host is valid for so many bytes, and nobody else uses it meanwhile.
    pub unsafe fn copy_to_host(&self, to: usize, from: u64, bytes: usize) -> Code {
        self.call("cuMemcpyDtoH_v2", format_args!("{to:#x} {from:#x} {bytes}"), |state| {
            state.contexts.current()?;
            state.memory.check(from as usize, bytes, Access::Read)?;
            // SAFETY: the device's memory is mapped and readable: just checked. The rest is our caller's promise.
            unsafe { state.registrations.copy(to, from as usize, bytes) }
        })
    }

    /// # Safety
    /// As [`Driver::copy_to_host`].
    pub unsafe fn copy_to_device(&self, to: u64, from: usize, bytes: usize) -> Code {
        self.call("cuMemcpyHtoD_v2", format_args!("{to:#x} {from:#x} {bytes}"), |state| {
            state.contexts.current()?;
            state.memory.check(to as usize, bytes, Access::ReadWrite)?;
            // SAFETY: the device's memory is mapped and writable: just checked. The rest is our caller's promise.
            unsafe { state.registrations.copy(to as usize, from, bytes) }
        })
    }

    pub fn fill(&self, start: u64, byte: u8, bytes: usize) -> Code {
        self.call("cuMemsetD8_v2", format_args!("{start:#x} {byte} {bytes}"), |state| {
            state.contexts.current()?;
            state.memory.check(start as usize, bytes, Access::ReadWrite)?;
            let start = std::ptr::with_exposed_provenance_mut::<u8>(start as usize);
            // SAFETY: mapped and writable: just checked. No reference is made to a device's memory.
            unsafe { start.write_bytes(byte, bytes) };
            Ok(())
        })
    }
}

/// As far as the headers say, none of these calls wants a context. A knob has it otherwise, until a GPU has shown it.
fn ready(state: &State) -> Result<(), Code> {
    if state.knobs.vmm_context {
        state.contexts.current()?;
    }
    Ok(())
}

fn check<'a>(state: &State, properties: Option<&'a Properties>) -> Result<&'a Properties, Code> {
    ready(state)?;
    let properties = properties.ok_or(INVALID_VALUE)?;
    let has = |attribute| devices::attribute(&state.knobs, attribute) != 0;
    if properties.kind != PINNED
        || properties.metadata != 0
        || properties.usage != 0
        || properties.reserved != [0; 4]
        || properties.location.kind == HOST_NUMA_CURRENT
    {
        return Err(INVALID_VALUE);
    }
    // The host's memory is not modelled.
    if properties.location.kind != DEVICE || properties.compression != 0 || !has(VIRTUAL_MEMORY) {
        return Err(NOT_SUPPORTED);
    }
    state.devices.check(properties.location.id).map_err(|_| INVALID_DEVICE)?;
    match properties.handle_types {
        0 => Ok(properties),
        POSIX_DESCRIPTOR if has(POSIX_DESCRIPTORS) => Ok(properties),
        // Without the service that hands out channels.
        FABRIC => Err(NOT_PERMITTED),
        _ => Err(NOT_SUPPORTED),
    }
}
