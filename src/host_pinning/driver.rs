//! Registering with the driver's own library: for a process that uses a GPU without a runtime that could be found,
//! since its framework was linked to one statically.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::api::{Code, CudaApi, MissingSymbol};

/// `CUDA_ERROR_INVALID_CONTEXT`.
const NO_CONTEXT: Code = 201;
const SUCCESS: Code = 0;

type Context = *mut c_void;
type Device = c_int;

type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code;
type Unregister = unsafe extern "C" fn(*mut c_void) -> Code;
type ErrorName = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;
type OneNumber = unsafe extern "C" fn(*mut c_int) -> Code;
type DeviceGet = unsafe extern "C" fn(*mut Device, c_int) -> Code;
type Attribute = unsafe extern "C" fn(*mut c_int, c_int, Device) -> Code;
type State = unsafe extern "C" fn(Device, *mut c_uint, *mut c_int) -> Code;
type Retain = unsafe extern "C" fn(*mut Context, Device) -> Code;
type Release = unsafe extern "C" fn(Device) -> Code;
type GetContext = unsafe extern "C" fn(*mut Context) -> Code;
type Push = unsafe extern "C" fn(Context) -> Code;

/// The entry points.
pub(super) struct Driver {
    mem_host_register: Register,
    mem_host_unregister: Unregister,
    get_error_name: ErrorName,
    driver_get_version: OneNumber,
    device_get_count: OneNumber,
    device_get: DeviceGet,
    device_get_attribute: Attribute,
    primary_context_get_state: State,
    primary_context_retain: Retain,
    primary_context_release: Release,
    context_get_current: GetContext,
    context_push: Push,
    context_pop: GetContext,
    context_get_device: OneNumber,
}

impl Driver {
    /// # Safety
    /// As for [`CudaApi::driver`].
    pub(super) unsafe fn new(
        mut lookup: impl FnMut(&'static CStr) -> *const c_void,
    ) -> Result<Self, MissingSymbol> {
        macro_rules! symbol {
            ($name:literal as $signature:ty) => {{
                let address = lookup($name);
                if address.is_null() {
                    return Err(MissingSymbol(CudaApi::name_of($name)));
                }
                // SAFETY: not null, so by the caller's word a function of that name's signature; an address and a
                // function pointer are of one size on Linux.
                unsafe { std::mem::transmute::<*const c_void, $signature>(address) }
            }};
        }
        // Where a name has a `_v2`, the plain one is of an ABI with 32-bit sizes.
        Ok(Self {
            mem_host_register: symbol!(c"cuMemHostRegister_v2" as Register),
            mem_host_unregister: symbol!(c"cuMemHostUnregister" as Unregister),
            get_error_name: symbol!(c"cuGetErrorName" as ErrorName),
            driver_get_version: symbol!(c"cuDriverGetVersion" as OneNumber),
            device_get_count: symbol!(c"cuDeviceGetCount" as OneNumber),
            device_get: symbol!(c"cuDeviceGet" as DeviceGet),
            device_get_attribute: symbol!(c"cuDeviceGetAttribute" as Attribute),
            primary_context_get_state: symbol!(c"cuDevicePrimaryCtxGetState" as State),
            primary_context_retain: symbol!(c"cuDevicePrimaryCtxRetain" as Retain),
            primary_context_release: symbol!(c"cuDevicePrimaryCtxRelease_v2" as Release),
            context_get_current: symbol!(c"cuCtxGetCurrent" as GetContext),
            context_push: symbol!(c"cuCtxPushCurrent_v2" as Push),
            context_pop: symbol!(c"cuCtxPopCurrent_v2" as GetContext),
            context_get_device: symbol!(c"cuCtxGetDevice" as OneNumber),
        })
    }

    /// A context that exists, current in this thread until the guard is dropped: the one that is, or else the primary
    /// one of a device that this process uses. None is created.
    pub(super) fn context(&self) -> Result<Current<'_>, Code> {
        let mut current: Context = std::ptr::null_mut();
        // SAFETY: `new`'s caller vouches for the function; the value is ours, and written before it returns.
        succeeded(unsafe { (self.context_get_current)(&raw mut current) })?;
        if !current.is_null() {
            return Ok(Current { driver: self, retained: None });
        }
        for ordinal in 0..number(self.device_get_count).unwrap_or(0) {
            if let Some(device) = self.device(ordinal).filter(|&device| self.is_in_use(device)) {
                return self.enter(device);
            }
        }
        Err(NO_CONTEXT)
    }

    fn device(&self, ordinal: c_int) -> Option<Device> {
        let mut device = 0;
        // SAFETY: as above.
        (unsafe { (self.device_get)(&raw mut device, ordinal) } == SUCCESS).then_some(device)
    }

    fn is_in_use(&self, device: Device) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: as above.
        let code = unsafe { (self.primary_context_get_state)(device, &raw mut flags, &raw mut active) };
        code == SUCCESS && active != 0
    }

    fn enter(&self, device: Device) -> Result<Current<'_>, Code> {
        let mut context: Context = std::ptr::null_mut();
        // SAFETY: as above. It is active, so this counts one user more and creates nothing.
        succeeded(unsafe { (self.primary_context_retain)(&raw mut context, device) })?;
        // SAFETY: as above; the context was retained just now.
        if let Err(code) = succeeded(unsafe { (self.context_push)(context) }) {
            // SAFETY: as above; it gives back what was retained.
            let _ = unsafe { (self.primary_context_release)(device) };
            return Err(code);
        }
        Ok(Current { driver: self, retained: Some(device) })
    }

    /// # Safety
    /// The range is mapped, and stays so until it is unregistered.
    pub(super) unsafe fn register(
        &self,
        address: *mut c_void,
        bytes: usize,
        flags: c_uint,
    ) -> Result<(), Code> {
        let _current = self.context()?;
        // SAFETY: `new`'s caller vouches for the function, ours for the range; a context is current.
        succeeded(unsafe { (self.mem_host_register)(address, bytes, flags) })
    }

    pub(super) fn unregister(&self, address: *mut c_void) -> Result<(), Code> {
        // Without a context as well: the call finds the registration by its address.
        let _current = self.context().ok();
        // SAFETY: `new`'s caller vouches for the function, which refuses an address that is not registered.
        succeeded(unsafe { (self.mem_host_unregister)(address) })
    }

    /// Null for a code that it does not know.
    pub(super) fn error_name(&self, code: Code) -> *const c_char {
        let mut name = std::ptr::null();
        // SAFETY: `new`'s caller vouches for the function; the name is ours, and stays null if it fails.
        let _ = unsafe { (self.get_error_name)(code, &raw mut name) };
        name
    }

    pub(super) fn version(&self) -> Option<c_int> {
        number(self.driver_get_version)
    }

    /// An attribute of the context's device.
    pub(super) fn attribute(&self, attribute: c_int) -> Option<c_int> {
        let _current = self.context().ok()?;
        let device = number(self.context_get_device)?;
        let mut value = 0;
        // SAFETY: `new`'s caller vouches for the function; the value is ours, and written before it returns.
        let code = unsafe { (self.device_get_attribute)(&raw mut value, attribute, device) };
        (code == SUCCESS).then_some(value)
    }
}

/// The number that a function gives, if it does.
fn number(function: OneNumber) -> Option<c_int> {
    let mut value = 0;
    // SAFETY: `Driver::new`'s caller vouches for the function; the value is ours, and written before it returns.
    (unsafe { function(&raw mut value) } == SUCCESS).then_some(value)
}

fn succeeded(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// A context is current in this thread.
pub(super) struct Current<'a> {
    driver: &'a Driver,
    retained: Option<Device>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(device) = self.retained else { return };
        let mut popped: Context = std::ptr::null_mut();
        // SAFETY: `Driver::new`'s caller vouches for the function; `enter` pushed what this pops.
        let _ = unsafe { (self.driver.context_pop)(&raw mut popped) };
        // SAFETY: as above; it gives back what `enter` retained.
        let _ = unsafe { (self.driver.primary_context_release)(device) };
    }
}
