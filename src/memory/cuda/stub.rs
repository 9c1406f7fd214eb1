//! A driver for tests: books and no memory. It counts calls, fails the n-th of a kind, and is strict about what the
//! real one leaves undefined. Each thread has one of its own, since functions of a table cannot carry state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;

use crate::memory::cuda::api::{
    AccessDesc, AllocationProp, Code, CudaDriverApi, DeviceAddress, DeviceNumber, HAS_POSIX_FD,
    HAS_VIRTUAL_MEMORY, HandleNumber,
};
use crate::memory::cuda::error::CudaError;

pub(super) const GRANULARITY: usize = 2 << 20;
pub(super) const INVALID_VALUE: Code = 1;
pub(super) const OUT_OF_MEMORY: Code = 2;

/// UUIDs of the devices that there are, by ordinal.
pub(super) const UUIDS: [[u8; 16]; 2] = [[0xa0; 16], [0xb1; 16]];

struct Mapping {
    bytes: usize,
    memory: u64,
    accessible: bool,
}

#[derive(Default)]
struct Stub {
    calls: BTreeMap<&'static str, u32>,
    /// Calls, how many of each still succeed, and what comes then. Of two of a kind the first comes first.
    failing: Vec<(&'static str, u32, Code)>,
    lacking: Option<c_int>,
    described: Option<AllocationProp>,
    last: u64,
    /// Memory by handle.
    handles: BTreeMap<u64, u64>,
    properties: BTreeMap<u64, AllocationProp>,
    sizes: BTreeMap<u64, usize>,
    reserved: BTreeMap<u64, usize>,
    mapped: BTreeMap<u64, Mapping>,
}

/// What is left in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Left {
    pub(super) handles: usize,
    pub(super) mappings: usize,
    pub(super) reservations: usize,
}

thread_local! {
    static STUB: RefCell<Stub> = RefCell::default();
}

fn with<R>(run: impl FnOnce(&mut Stub) -> R) -> R {
    STUB.with_borrow_mut(run)
}

/// The table.
pub(super) fn api() -> CudaDriverApi {
    without("").unwrap()
}

/// The table, without that symbol.
pub(super) fn without(missing: &str) -> Result<CudaDriverApi, CudaError> {
    let lookup =
        |symbol: &'static str| if symbol == missing { None } else { NonNull::new(function(symbol)?) };
    // SAFETY: functions of this program, of the types that the driver's have.
    unsafe { CudaDriverApi::from_lookup("a stub", lookup) }
}

/// How often it was called.
pub(super) fn calls(symbol: &str) -> u32 {
    with(|stub| stub.calls.get(symbol).copied().unwrap_or(0))
}

/// Fails the call after `skip` more of them, once. Beside what is to fail already.
pub(super) fn fail(symbol: &'static str, skip: u32, code: Code) {
    with(|stub| stub.failing.push((symbol, skip, code)));
}

/// Whether all calls came that were to fail.
pub(super) fn has_failed() -> bool {
    with(|stub| stub.failing.is_empty())
}

/// Nothing is to fail any more.
pub(super) fn fail_no_more() {
    with(|stub| stub.failing.clear());
}

/// Forgets everything, as for a test that follows one which failed.
pub(super) fn reset() {
    with(|stub| *stub = Stub::default());
}

/// From now on no device has that attribute.
pub(super) fn lack(attribute: c_int) {
    with(|stub| stub.lacking = Some(attribute));
}

/// From now on memory is said to be this.
pub(super) fn describe(prop: AllocationProp) {
    with(|stub| stub.described = Some(prop));
}

pub(super) fn left() -> Left {
    with(|stub| Left {
        handles: stub.handles.len(),
        mappings: stub.mapped.len(),
        reservations: stub.reserved.len(),
    })
}

/// The memory that is behind an address and can be accessed.
pub(super) fn memory_at(address: usize) -> Option<u64> {
    with(|stub| {
        let (&start, mapping) = stub.mapped.range(..=address as u64).next_back()?;
        (mapping.accessible && address as u64 - start < mapping.bytes as u64).then_some(mapping.memory)
    })
}

fn enter(symbol: &'static str, run: impl FnOnce(&mut Stub) -> Result<(), Code>) -> Code {
    with(|stub| {
        *stub.calls.entry(symbol).or_default() += 1;
        if let Some(i) = stub.failing.iter().position(|(failing, ..)| *failing == symbol) {
            match stub.failing[i].1.checked_sub(1) {
                Some(skip) => stub.failing[i].1 = skip,
                None => return stub.failing.remove(i).2,
            }
        }
        run(stub).err().unwrap_or(0)
    })
}

impl Stub {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The mappings that fill the range, if they do.
    fn whole(&self, address: u64, bytes: usize) -> Result<Vec<u64>, Code> {
        check(bytes > 0)?;
        let (mut at, end) = (address, address + bytes as u64);
        let mut found = Vec::new();
        while at < end {
            let mapping = self.mapped.get(&at).ok_or(INVALID_VALUE)?;
            found.push(at);
            at += mapping.bytes as u64;
        }
        if at == end { Ok(found) } else { Err(INVALID_VALUE) }
    }
}

fn check(so: bool) -> Result<(), Code> {
    if so { Ok(()) } else { Err(INVALID_VALUE) }
}

fn put<T>(to: *mut T, value: T) {
    // SAFETY: a test's caller gives the address of a local of that type.
    unsafe { to.write(value) };
}

fn get<T: Copy>(from: *const T) -> T {
    // SAFETY: as above.
    unsafe { from.read() }
}

fn good_size(bytes: usize) -> Result<(), Code> {
    check(bytes > 0 && bytes.is_multiple_of(GRANULARITY))
}

extern "C" fn init(flags: c_uint) -> Code {
    enter("cuInit", |_| check(flags == 0))
}

extern "C" fn driver_version(version: *mut c_int) -> Code {
    enter("cuDriverGetVersion", |_| {
        put(version, 12020);
        Ok(())
    })
}

extern "C" fn error_name(code: Code, name: *mut *const c_char) -> Code {
    let found = match code {
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        _ => {
            put(name, std::ptr::null());
            return INVALID_VALUE;
        }
    };
    put(name, found.as_ptr());
    0
}

extern "C" fn device_count(count: *mut c_int) -> Code {
    enter("cuDeviceGetCount", |_| {
        put(count, UUIDS.len() as c_int);
        Ok(())
    })
}

extern "C" fn device_get(device: *mut DeviceNumber, ordinal: c_int) -> Code {
    enter("cuDeviceGet", |_| {
        put(device, DeviceNumber(ordinal));
        Ok(())
    })
}

extern "C" fn device_uuid(uuid: *mut [u8; 16], device: DeviceNumber) -> Code {
    enter("cuDeviceGetUuid_v2", |_| {
        put(uuid, UUIDS[device.0 as usize]);
        Ok(())
    })
}

extern "C" fn device_attribute(value: *mut c_int, attribute: c_int, _: DeviceNumber) -> Code {
    enter("cuDeviceGetAttribute", |stub| {
        let there = [HAS_VIRTUAL_MEMORY, HAS_POSIX_FD].contains(&attribute);
        put(value, c_int::from(there && stub.lacking != Some(attribute)));
        Ok(())
    })
}

extern "C" fn device_name(name: *mut c_char, bytes: c_int, _: DeviceNumber) -> Code {
    enter("cuDeviceGetName", |_| {
        check(bytes as usize > c"Stub".count_bytes())?;
        put(name.cast::<[u8; 5]>(), *b"Stub\0");
        Ok(())
    })
}

fn good_prop(prop: *const AllocationProp) -> Result<AllocationProp, Code> {
    let prop = get(prop);
    check(prop == AllocationProp::exportable(prop.location.id))?;
    Ok(prop)
}

extern "C" fn granularity(bytes: *mut usize, prop: *const AllocationProp, _: c_int) -> Code {
    enter("cuMemGetAllocationGranularity", |_| {
        good_prop(prop)?;
        put(bytes, GRANULARITY);
        Ok(())
    })
}

extern "C" fn reserve(
    address: *mut DeviceAddress,
    bytes: usize,
    align: usize,
    at: DeviceAddress,
    flags: c_ulonglong,
) -> Code {
    enter("cuMemAddressReserve", |stub| {
        good_size(bytes)?;
        check(align == GRANULARITY && at == 0 && flags == 0)?;
        // Never the same twice, so that what dangles is seen.
        let start = stub.next() << 40;
        stub.reserved.insert(start, bytes);
        put(address, start);
        Ok(())
    })
}

extern "C" fn free(address: DeviceAddress, bytes: usize) -> Code {
    enter("cuMemAddressFree", |stub| {
        check(stub.reserved.get(&address) == Some(&bytes))?;
        check(stub.mapped.range(address..address + bytes as u64).next().is_none())?;
        stub.reserved.remove(&address);
        Ok(())
    })
}

extern "C" fn create(
    handle: *mut HandleNumber,
    bytes: usize,
    prop: *const AllocationProp,
    flags: c_ulonglong,
) -> Code {
    enter("cuMemCreate", |stub| {
        good_size(bytes)?;
        let prop = good_prop(prop)?;
        check(flags == 0)?;
        let (number, memory) = (stub.next(), stub.next());
        stub.handles.insert(number, memory);
        stub.properties.insert(memory, prop);
        stub.sizes.insert(memory, bytes);
        put(handle, HandleNumber(number));
        Ok(())
    })
}

extern "C" fn release(handle: HandleNumber) -> Code {
    enter("cuMemRelease", |stub| {
        // The real one leaves it undefined, so nothing may come of it here: this ends the process.
        assert!(stub.handles.remove(&handle.0).is_some(), "{handle:?} is none, or was released before");
        Ok(())
    })
}

extern "C" fn map(
    address: DeviceAddress,
    bytes: usize,
    offset: usize,
    handle: HandleNumber,
    flags: c_ulonglong,
) -> Code {
    enter("cuMemMap", |stub| {
        good_size(bytes)?;
        check(address.is_multiple_of(GRANULARITY as u64) && offset == 0 && flags == 0)?;
        let end = address + bytes as u64;
        let (start, reserved) = stub.reserved.range(..=address).next_back().ok_or(INVALID_VALUE)?;
        check(end <= start + *reserved as u64)?;
        let before = stub.mapped.range(..end).next_back();
        check(before.is_none_or(|(start, mapping)| start + mapping.bytes as u64 <= address))?;
        let memory = *stub.handles.get(&handle.0).ok_or(INVALID_VALUE)?;
        check(bytes <= stub.sizes[&memory])?;
        stub.mapped.insert(address, Mapping { bytes, memory, accessible: false });
        Ok(())
    })
}

extern "C" fn unmap(address: DeviceAddress, bytes: usize) -> Code {
    enter("cuMemUnmap", |stub| {
        for at in stub.whole(address, bytes)? {
            stub.mapped.remove(&at);
        }
        Ok(())
    })
}

extern "C" fn set_access(
    address: DeviceAddress,
    bytes: usize,
    access: *const AccessDesc,
    count: usize,
) -> Code {
    enter("cuMemSetAccess", |stub| {
        let access = get(access);
        check(count == 1 && access.flags == 3)?;
        for at in stub.whole(address, bytes)? {
            let mapping = stub.mapped.get_mut(&at).ok_or(INVALID_VALUE)?;
            check(stub.properties[&mapping.memory].location == access.location)?;
            mapping.accessible = true;
        }
        Ok(())
    })
}

/// The name of this thread's descriptors.
pub(super) fn descriptor_name() -> String {
    format!("echo-stub-{}", rustix::thread::gettid().as_raw_nonzero())
}

extern "C" fn export(to: *mut c_void, handle: HandleNumber, kind: c_int, flags: c_ulonglong) -> Code {
    enter("cuMemExportToShareableHandle", |stub| {
        check(kind == 1 && flags == 0)?;
        let memory = *stub.handles.get(&handle.0).ok_or(INVALID_VALUE)?;
        // Not closed on exec, as nothing promises that the driver's are.
        let fd = rustix::fs::memfd_create(descriptor_name(), MemfdFlags::empty()).unwrap();
        rustix::io::write(&fd, &memory.to_ne_bytes()).unwrap();
        put(to.cast::<c_int>(), fd.into_raw_fd());
        Ok(())
    })
}

extern "C" fn import(handle: *mut HandleNumber, from: *mut c_void, kind: c_int) -> Code {
    enter("cuMemImportFromShareableHandle", |stub| {
        check(kind == 1)?;
        // SAFETY: the caller borrows a descriptor for the call.
        let fd = unsafe { BorrowedFd::borrow_raw(from as usize as c_int) };
        let mut memory = [0; 8];
        check(rustix::io::pread(fd, &mut memory, 0) == Ok(8) && fd.as_raw_fd() > 2)?;
        let memory = u64::from_ne_bytes(memory);
        check(stub.properties.contains_key(&memory))?;
        let number = stub.next();
        stub.handles.insert(number, memory);
        put(handle, HandleNumber(number));
        Ok(())
    })
}

extern "C" fn properties(prop: *mut AllocationProp, handle: HandleNumber) -> Code {
    enter("cuMemGetAllocationPropertiesFromHandle", |stub| {
        let memory = stub.handles.get(&handle.0).ok_or(INVALID_VALUE)?;
        put(prop, stub.described.unwrap_or(stub.properties[memory]));
        Ok(())
    })
}

fn function(symbol: &str) -> Option<*mut c_void> {
    Some(match symbol {
        "cuInit" => init as *mut c_void,
        "cuDriverGetVersion" => driver_version as *mut c_void,
        "cuGetErrorName" => error_name as *mut c_void,
        "cuDeviceGetCount" => device_count as *mut c_void,
        "cuDeviceGet" => device_get as *mut c_void,
        "cuDeviceGetUuid" | "cuDeviceGetUuid_v2" => device_uuid as *mut c_void,
        "cuDeviceGetAttribute" => device_attribute as *mut c_void,
        "cuDeviceGetName" => device_name as *mut c_void,
        "cuMemGetAllocationGranularity" => granularity as *mut c_void,
        "cuMemAddressReserve" => reserve as *mut c_void,
        "cuMemAddressFree" => free as *mut c_void,
        "cuMemCreate" => create as *mut c_void,
        "cuMemRelease" => release as *mut c_void,
        "cuMemMap" => map as *mut c_void,
        "cuMemUnmap" => unmap as *mut c_void,
        "cuMemSetAccess" => set_access as *mut c_void,
        "cuMemExportToShareableHandle" => export as *mut c_void,
        "cuMemImportFromShareableHandle" => import as *mut c_void,
        "cuMemGetAllocationPropertiesFromHandle" => properties as *mut c_void,
        _ => return None,
    })
}
