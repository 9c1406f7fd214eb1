//! A CUDA runtime that needs no GPU: the functions by the names that a loader looks for.
//!
//! What they do is in `echo-fake-cuda`. The names are exported from shared objects alone, so that no test has a function
//! of CUDA's in it by accident. Pointers that may be NULL are options, and a caller in C keeps to what a reference asks.

#![allow(non_snake_case, reason = "CUDA's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use echo_fake_cuda::runtime::Runtime;
use echo_fake_cuda::{Code, Library, Out, codes};

static RUNTIME: Runtime = Runtime::new(Library::new(env!("FAKE_SONAME"), end), version());

extern "C" fn end() {
    RUNTIME.library().end();
}

const fn version() -> c_int {
    match c_int::from_str_radix(env!("FAKE_VERSION"), 10) {
        Ok(version) => version,
        Err(_) => panic!("the build script gives a number"),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostRegister(start: *mut c_void, bytes: usize, flags: c_uint) -> Code {
    RUNTIME.host_register(start.expose_provenance(), bytes, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostUnregister(start: *mut c_void) -> Code {
    RUNTIME.host_unregister(start.expose_provenance())
}

#[unsafe(no_mangle)]
extern "C" fn cudaHostGetFlags(flags: Out<'_, c_uint>, address: *mut c_void) -> Code {
    RUNTIME.host_get_flags(flags, address.expose_provenance())
}

#[unsafe(no_mangle)]
extern "C" fn cudaFree(address: *mut c_void) -> Code {
    RUNTIME.free(address.expose_provenance())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) -> Code {
    // SAFETY: the caller's promise: its memory is valid for so many bytes.
    unsafe { RUNTIME.memcpy(to.expose_provenance(), from.expose_provenance(), bytes, kind) }
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    RUNTIME.note("cudaGetErrorName", code);
    codes::runtime_name(code)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    RUNTIME.note("cudaGetErrorString", code);
    codes::runtime_text(code)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetLastError() -> Code {
    RUNTIME.get_last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaPeekAtLastError() -> Code {
    RUNTIME.peek_at_last_error()
}

#[unsafe(no_mangle)]
extern "C" fn cudaDriverGetVersion(version: Out<'_, c_int>) -> Code {
    RUNTIME.driver_get_version(version)
}

#[unsafe(no_mangle)]
extern "C" fn cudaRuntimeGetVersion(version: Out<'_, c_int>) -> Code {
    RUNTIME.runtime_get_version(version)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDeviceCount(count: Out<'_, c_int>) -> Code {
    RUNTIME.get_device_count(count)
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetDevice(device: Out<'_, c_int>) -> Code {
    RUNTIME.get_device(device)
}

#[unsafe(no_mangle)]
extern "C" fn cudaDeviceGetAttribute(value: Out<'_, c_int>, attribute: c_int, device: c_int) -> Code {
    RUNTIME.device_get_attribute(value, attribute, device)
}

/// Not CUDA's: writes down what is still registered.
#[unsafe(no_mangle)]
extern "C" fn echo_fake_live() {
    RUNTIME.library().say_what_lives();
}
