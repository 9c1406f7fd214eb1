//! The CUDA driver's library that needs no GPU: the functions by the names that a loader looks for.
//!
//! What they do is in `echo-fake-cuda`. A context is a number here, as is an address of a device. Pointers that may be
//! NULL are options, and a caller in C keeps to what a reference asks.

#![allow(non_snake_case, reason = "CUDA's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use echo_fake_cuda::driver::Driver;
use echo_fake_cuda::{AccessDescription, Code, Library, Location, Out, Properties};

static DRIVER: Driver = Driver::new(Library::new(env!("FAKE_SONAME"), end));

extern "C" fn end() {
    DRIVER.library().end();
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: c_uint) -> Code {
    DRIVER.init(flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<'_, c_int>) -> Code {
    DRIVER.get_version(version)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: Code, name: Out<'_, *const c_char>) -> Code {
    DRIVER.get_error_name(code, name)
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: Code, text: Out<'_, *const c_char>) -> Code {
    DRIVER.get_error_string(code, text)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: Out<'_, c_int>) -> Code {
    DRIVER.device_get_count(count)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: Out<'_, c_int>, ordinal: c_int) -> Code {
    DRIVER.device_get(device, ordinal)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) -> Code {
    // SAFETY: the caller's promise: NULL, or so many bytes.
    unsafe { DRIVER.device_get_name(name, bytes, device) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(uuid: Out<'_, [u8; 16]>, device: c_int) -> Code {
    DRIVER.device_get_uuid("cuDeviceGetUuid", uuid, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: Out<'_, [u8; 16]>, device: c_int) -> Code {
    DRIVER.device_get_uuid("cuDeviceGetUuid_v2", uuid, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, device: c_int) -> Code {
    DRIVER.device_get_attribute(value, attribute, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: Out<'_, usize>, device: c_int) -> Code {
    DRIVER.device_total_memory(bytes, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxGetState(
    device: c_int,
    flags: Out<'_, c_uint>,
    active: Out<'_, c_int>,
) -> Code {
    DRIVER.primary_context_get_state(device, flags, active)
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: Out<'_, usize>, device: c_int) -> Code {
    DRIVER.primary_context_retain(context, device)
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Code {
    DRIVER.primary_context_release(device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: Out<'_, usize>) -> Code {
    DRIVER.context_get_current(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetDevice(device: Out<'_, c_int>) -> Code {
    DRIVER.context_get_device(device)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPushCurrent_v2(context: usize) -> Code {
    DRIVER.context_push(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxPopCurrent_v2(context: Out<'_, usize>) -> Code {
    DRIVER.context_pop(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> Code {
    DRIVER.context_set(context)
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    DRIVER.context_synchronize()
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint) -> Code {
    DRIVER.host_register(start.expose_provenance(), bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostUnregister(start: *mut c_void) -> Code {
    DRIVER.host_unregister(start.expose_provenance())
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    bytes: Out<'_, usize>,
    properties: Option<&Properties>,
    option: c_int,
) -> Code {
    DRIVER.granularity(bytes, properties, option)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    start: Out<'_, u64>,
    bytes: usize,
    alignment: usize,
    hint: u64,
    flags: u64,
) -> Code {
    DRIVER.reserve(start, bytes, alignment, hint, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(start: u64, bytes: usize) -> Code {
    DRIVER.address_free(start, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(
    handle: Out<'_, u64>,
    bytes: usize,
    properties: Option<&Properties>,
    flags: u64,
) -> Code {
    DRIVER.create(handle, bytes, properties, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> Code {
    DRIVER.release(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Code {
    DRIVER.map(start, bytes, offset, handle, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(start: u64, bytes: usize) -> Code {
    DRIVER.unmap(start, bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemSetAccess(
    start: u64,
    bytes: usize,
    descriptions: *const AccessDescription,
    count: usize,
) -> Code {
    let descriptions = if descriptions.is_null() {
        &[]
    } else {
        // SAFETY: not NULL, and so many of them by the caller's promise.
        unsafe { std::slice::from_raw_parts(descriptions, count) }
    };
    DRIVER.set_access(start, bytes, descriptions)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAccess(flags: Out<'_, u64>, location: Option<&Location>, address: u64) -> Code {
    DRIVER.get_access(flags, location, address)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemExportToShareableHandle(
    shareable: Out<'_, c_int>,
    handle: u64,
    kind: c_int,
    flags: u64,
) -> Code {
    DRIVER.export(shareable, handle, kind, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemImportFromShareableHandle(
    handle: Out<'_, u64>,
    shareable: *mut c_void,
    kind: c_int,
) -> Code {
    // SAFETY: the caller's promise: what it gives stays open.
    unsafe { DRIVER.import(handle, shareable.addr(), kind) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationPropertiesFromHandle(properties: Out<'_, Properties>, handle: u64) -> Code {
    DRIVER.properties(properties, handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRetainAllocationHandle(handle: Out<'_, u64>, address: *mut c_void) -> Code {
    DRIVER.retain(handle, address.addr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) -> Code {
    // SAFETY: the caller's promise: its memory is valid for so many bytes.
    unsafe { DRIVER.copy_to_host(to.expose_provenance(), from, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) -> Code {
    // SAFETY: the caller's promise: its memory is valid for so many bytes.
    unsafe { DRIVER.copy_to_device(to, from.expose_provenance(), bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(start: u64, byte: u8, bytes: usize) -> Code {
    DRIVER.fill(start, byte, bytes)
}

/// Not CUDA's: a runtime that is one of ours tells it.
#[unsafe(no_mangle)]
extern "C" fn echo_fake_runtime_made_a_context() {
    DRIVER.runtime_made_a_context();
}

/// Not CUDA's: writes down what is still there.
#[unsafe(no_mangle)]
extern "C" fn echo_fake_live() {
    DRIVER.library().say_what_lives();
}
