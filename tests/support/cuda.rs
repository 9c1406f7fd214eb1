//! CUDA libraries that are loaded, fake or real: their functions with the types that they have.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// A library. It stays loaded, as it does in a client.
pub struct Loaded {
    library: Library,
}

impl Loaded {
    fn load(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: what a CUDA library runs when it is loaded asks nothing of us.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        Ok(Self { library })
    }

    /// A function by its name; each caller names its type as CUDA's headers do.
    pub fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller names the function's own type.
        *unsafe { self.library.get::<F>(name) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the symbol is looked for and not used.
        unsafe { self.library.get::<*const c_void>(name) }.is_ok()
    }

    /// Has a fake write down what lives in it.
    pub fn say_what_lives(&self) {
        let call: unsafe extern "C" fn() = self.function("echo_fake_live");
        // SAFETY: it takes nothing.
        unsafe { call() }
    }
}

/// `libcudart.so.N`.
pub struct Runtime {
    library: Loaded,
}

impl Runtime {
    pub fn load(path: &Path) -> Result<Self, libloading::Error> {
        Ok(Self { library: Loaded::load(path)? })
    }

    pub fn loaded(&self) -> &Loaded {
        &self.library
    }

    pub fn host_register(&self, start: usize, bytes: usize, flags: u32) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int =
            self.library.function("cudaHostRegister");
        // SAFETY: the library says what is wrong with memory. Tests unregister before they reuse it.
        unsafe { call(pointer(start), bytes, flags) }
    }

    pub fn host_unregister(&self, start: usize) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.library.function("cudaHostUnregister");
        // SAFETY: as above.
        unsafe { call(pointer(start)) }
    }

    /// The bytes at an address, as a device sees them where they are registered.
    ///
    /// # Safety
    /// The memory is readable, or was when it was registered.
    pub unsafe fn bytes(&self, start: usize, bytes: usize) -> Result<Vec<u8>, i32> {
        const DEFAULT: c_int = 4;
        let call: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int =
            self.library.function("cudaMemcpy");
        let mut copy = vec![0; bytes];
        // SAFETY: the copy has so many bytes, and the memory as well by our caller's promise.
        match unsafe { call(copy.as_mut_ptr().cast(), pointer(start), bytes, DEFAULT) } {
            0 => Ok(copy),
            code => Err(code),
        }
    }

    pub fn free_nothing(&self) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.library.function("cudaFree");
        // SAFETY: NULL may be freed.
        unsafe { call(std::ptr::null_mut()) }
    }

    pub fn get_last_error(&self) -> i32 {
        self.call_plain("cudaGetLastError")
    }

    pub fn peek_at_last_error(&self) -> i32 {
        self.call_plain("cudaPeekAtLastError")
    }

    fn call_plain(&self, name: &str) -> i32 {
        let call: unsafe extern "C" fn() -> c_int = self.library.function(name);
        // SAFETY: it takes nothing.
        unsafe { call() }
    }

    pub fn error_name(&self, code: i32) -> String {
        let call: unsafe extern "C" fn(c_int) -> *const c_char = self.library.function("cudaGetErrorName");
        // SAFETY: any number may be asked for.
        let name = unsafe { call(code) };
        // SAFETY: a text of the library's own, which is never NULL and stays.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned()
    }

    /// A call that says a number, such as `cudaDriverGetVersion`.
    pub fn number(&self, name: &str) -> Result<i32, i32> {
        let call: unsafe extern "C" fn(*mut c_int) -> c_int = self.library.function(name);
        let mut number = 0;
        // SAFETY: it writes one number.
        match unsafe { call(&raw mut number) } {
            0 => Ok(number),
            code => Err(code),
        }
    }

    pub fn attribute(&self, attribute: i32) -> Result<i32, i32> {
        let call: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
            self.library.function("cudaDeviceGetAttribute");
        let mut value = 0;
        // SAFETY: it writes one number.
        match unsafe { call(&raw mut value, attribute, 0) } {
            0 => Ok(value),
            code => Err(code),
        }
    }
}

/// `libcuda.so.1`.
pub struct Driver {
    library: Loaded,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    pub kind: c_int,
    pub id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    pub kind: c_int,
    pub handle_types: c_int,
    pub location: Location,
    pub metadata: usize,
    pub compression: u8,
    pub for_rdma: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

#[repr(C)]
struct AccessDescription {
    location: Location,
    flags: c_int,
}

const DEVICE: c_int = 1;
pub const POSIX_DESCRIPTOR: c_int = 1;

/// Memory of a device, for whom a descriptor may be asked for if `exportable`.
pub fn properties(device: c_int, exportable: bool) -> Properties {
    let handle_types = if exportable { POSIX_DESCRIPTOR } else { 0 };
    Properties {
        kind: 1,
        handle_types,
        location: Location { kind: DEVICE, id: device },
        ..Properties::default()
    }
}

impl Driver {
    pub fn load(path: &Path) -> Result<Self, libloading::Error> {
        Ok(Self { library: Loaded::load(path)? })
    }

    pub fn loaded(&self) -> &Loaded {
        &self.library
    }

    pub fn init(&self, flags: u32) -> i32 {
        let call: unsafe extern "C" fn(c_uint) -> c_int = self.library.function("cuInit");
        // SAFETY: any number may be given.
        unsafe { call(flags) }
    }

    /// A call that says something of a device, such as `cuDeviceGet` and its number.
    pub fn of_device<T: Default>(&self, name: &str, device: i32) -> Result<T, i32> {
        let call: unsafe extern "C" fn(*mut T, c_int) -> c_int = self.library.function(name);
        // SAFETY: the caller knows what the call writes, and it is no more than that.
        said(|out| unsafe { call(out, device) })
    }

    /// A call that says something of nothing, such as `cuDeviceGetCount`.
    pub fn says<T: Default>(&self, name: &str) -> Result<T, i32> {
        let call: unsafe extern "C" fn(*mut T) -> c_int = self.library.function(name);
        // SAFETY: as above.
        said(|out| unsafe { call(out) })
    }

    pub fn attribute(&self, attribute: i32, device: i32) -> Result<i32, i32> {
        let call: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
            self.library.function("cuDeviceGetAttribute");
        // SAFETY: it writes one number.
        said(|out| unsafe { call(out, attribute, device) })
    }

    /// None for a code that has no name.
    pub fn error_name(&self, code: i32) -> Option<String> {
        let call: unsafe extern "C" fn(c_int, *mut usize) -> c_int = self.library.function("cuGetErrorName");
        // SAFETY: it writes one pointer.
        let name: usize = said(|out| unsafe { call(code, out) }).ok()?;
        let name: *const c_char = std::ptr::with_exposed_provenance(name);
        // SAFETY: a text of the library's own, which stays.
        Some(unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned())
    }

    pub fn name(&self, device: i32) -> Result<String, i32> {
        let call: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
            self.library.function("cuDeviceGetName");
        let mut name = [0_u8; 100];
        // SAFETY: it writes a text within so many bytes.
        match unsafe { call(name.as_mut_ptr().cast(), 100, device) } {
            0 => Ok(CStr::from_bytes_until_nul(&name).unwrap().to_str().unwrap().to_owned()),
            code => Err(code),
        }
    }

    /// Whether a device's primary context is active.
    pub fn is_active(&self, device: i32) -> Result<bool, i32> {
        let call: unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int =
            self.library.function("cuDevicePrimaryCtxGetState");
        let mut flags = 0;
        // SAFETY: it writes two numbers.
        said(|active: *mut c_int| unsafe { call(device, &raw mut flags, active) }).map(|active| active != 0)
    }

    pub fn release_context(&self, device: i32) -> i32 {
        let call: unsafe extern "C" fn(c_int) -> c_int =
            self.library.function("cuDevicePrimaryCtxRelease_v2");
        // SAFETY: any number may be given.
        unsafe { call(device) }
    }

    /// `cuCtxPushCurrent_v2` and `cuCtxSetCurrent`.
    pub fn with_context(&self, name: &str, context: usize) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.library.function(name);
        // SAFETY: a context that a call gave, or one that the library knows to be none.
        unsafe { call(pointer(context)) }
    }

    pub fn synchronize(&self) -> i32 {
        let call: unsafe extern "C" fn() -> c_int = self.library.function("cuCtxSynchronize");
        // SAFETY: it takes nothing.
        unsafe { call() }
    }

    pub fn host_register(&self, start: usize, bytes: usize, flags: u32) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> c_int =
            self.library.function("cuMemHostRegister_v2");
        // SAFETY: the library says what is wrong with memory. Tests unregister before they reuse it.
        unsafe { call(pointer(start), bytes, flags) }
    }

    pub fn host_unregister(&self, start: usize) -> i32 {
        let call: unsafe extern "C" fn(*mut c_void) -> c_int = self.library.function("cuMemHostUnregister");
        // SAFETY: as above.
        unsafe { call(pointer(start)) }
    }

    pub fn granularity(&self, properties: &Properties) -> Result<usize, i32> {
        let call: unsafe extern "C" fn(*mut usize, *const Properties, c_int) -> c_int =
            self.library.function("cuMemGetAllocationGranularity");
        // SAFETY: it reads the properties and writes one number.
        said(|out| unsafe { call(out, properties, 0) })
    }

    pub fn reserve(&self, bytes: usize, alignment: usize) -> Result<u64, i32> {
        let call: unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> c_int =
            self.library.function("cuMemAddressReserve");
        // SAFETY: it writes one number.
        said(|out| unsafe { call(out, bytes, alignment, 0, 0) })
    }

    pub fn create(&self, bytes: usize, properties: &Properties, flags: u64) -> Result<u64, i32> {
        let call: unsafe extern "C" fn(*mut u64, usize, *const Properties, u64) -> c_int =
            self.library.function("cuMemCreate");
        // SAFETY: it reads the properties and writes one number.
        said(|out| unsafe { call(out, bytes, properties, flags) })
    }

    pub fn release(&self, handle: u64) -> i32 {
        let call: unsafe extern "C" fn(u64) -> c_int = self.library.function("cuMemRelease");
        // SAFETY: a handle that a call gave.
        unsafe { call(handle) }
    }

    pub fn map(&self, start: u64, bytes: usize, offset: usize, handle: u64) -> i32 {
        let call: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> c_int =
            self.library.function("cuMemMap");
        // SAFETY: only what the library itself reserved is mapped over.
        unsafe { call(start, bytes, offset, handle, 0) }
    }

    /// `cuMemUnmap` and `cuMemAddressFree`.
    pub fn on_range(&self, name: &str, start: u64, bytes: usize) -> i32 {
        let call: unsafe extern "C" fn(u64, usize) -> c_int = self.library.function(name);
        // SAFETY: no reference is made to memory of a device, so none is left behind.
        unsafe { call(start, bytes) }
    }

    pub fn set_access(&self, start: u64, bytes: usize, device: i32, flags: i32) -> i32 {
        let call: unsafe extern "C" fn(u64, usize, *const AccessDescription, usize) -> c_int =
            self.library.function("cuMemSetAccess");
        let access = AccessDescription { location: Location { kind: DEVICE, id: device }, flags };
        // SAFETY: it reads one description.
        unsafe { call(start, bytes, &raw const access, 1) }
    }

    pub fn get_access(&self, device: i32, address: u64) -> Result<u64, i32> {
        let call: unsafe extern "C" fn(*mut u64, *const Location, u64) -> c_int =
            self.library.function("cuMemGetAccess");
        let location = Location { kind: DEVICE, id: device };
        // SAFETY: it reads a location and writes one number.
        said(|out| unsafe { call(out, &raw const location, address) })
    }

    pub fn export(&self, handle: u64) -> Result<OwnedFd, i32> {
        let call: unsafe extern "C" fn(*mut c_int, u64, c_int, u64) -> c_int =
            self.library.function("cuMemExportToShareableHandle");
        // SAFETY: it writes one number.
        let descriptor = said(|out| unsafe { call(out, handle, POSIX_DESCRIPTOR, 0) })?;
        // SAFETY: a descriptor that the call has made for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    pub fn import(&self, descriptor: BorrowedFd<'_>) -> Result<u64, i32> {
        let call: unsafe extern "C" fn(*mut u64, *mut c_void, c_int) -> c_int =
            self.library.function("cuMemImportFromShareableHandle");
        let number = std::ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: the descriptor is open for as long as it is borrowed; the call writes one number.
        said(|out| unsafe { call(out, number, POSIX_DESCRIPTOR) })
    }

    pub fn properties(&self, handle: u64) -> Result<Properties, i32> {
        let call: unsafe extern "C" fn(*mut Properties, u64) -> c_int =
            self.library.function("cuMemGetAllocationPropertiesFromHandle");
        // SAFETY: it writes properties.
        said(|out| unsafe { call(out, handle) })
    }

    pub fn retain(&self, address: u64) -> Result<u64, i32> {
        let call: unsafe extern "C" fn(*mut u64, *mut c_void) -> c_int =
            self.library.function("cuMemRetainAllocationHandle");
        // SAFETY: it writes one number.
        said(|out| unsafe { call(out, pointer(address as usize)) })
    }

    /// Bytes of a device.
    pub fn read(&self, start: u64, bytes: usize) -> Result<Vec<u8>, i32> {
        let call: unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int =
            self.library.function("cuMemcpyDtoH_v2");
        let mut copy = vec![0; bytes];
        // SAFETY: the copy has so many bytes; the library checks what the device has.
        match unsafe { call(copy.as_mut_ptr().cast(), start, bytes) } {
            0 => Ok(copy),
            code => Err(code),
        }
    }

    pub fn write(&self, start: u64, bytes: &[u8]) -> i32 {
        // SAFETY: borrowed, and so many.
        unsafe { self.copy_to_device(start, bytes.as_ptr().expose_provenance(), bytes.len()) }
    }

    /// # Safety
    /// The memory is readable, or was when it was registered.
    pub unsafe fn copy_to_device(&self, to: u64, from: usize, bytes: usize) -> i32 {
        let call: unsafe extern "C" fn(u64, *const c_void, usize) -> c_int =
            self.library.function("cuMemcpyHtoD_v2");
        // SAFETY: our caller's promise; the library checks what the device has.
        unsafe { call(to, pointer(from), bytes) }
    }

    pub fn fill(&self, start: u64, byte: u8, bytes: usize) -> i32 {
        let call: unsafe extern "C" fn(u64, u8, usize) -> c_int = self.library.function("cuMemsetD8_v2");
        // SAFETY: the library checks what the device has.
        unsafe { call(start, byte, bytes) }
    }
}

/// What a call writes, if it answers 0.
fn said<T: Default>(call: impl FnOnce(*mut T) -> c_int) -> Result<T, i32> {
    let mut said = T::default();
    match call(&raw mut said) {
        0 => Ok(said),
        code => Err(code),
    }
}
fn pointer(address: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address)
}
