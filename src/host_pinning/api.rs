//! The calls of CUDA that page-locking takes, as a table of function pointers.
//!
//! It is filled through a lookup, of which a library that was opened is one, and a test's own functions are another. Two
//! libraries can do it: the runtime (`libcudart`), and the driver's own library where a process has no runtime.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::driver::Driver;

/// What CUDA calls return: zero is success.
pub type Code = c_int;

type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Code;
type Unregister = unsafe extern "C" fn(*mut c_void) -> Code;
type ErrorName = unsafe extern "C" fn(Code) -> *const c_char;
type Free = unsafe extern "C" fn(*mut c_void) -> Code;
type LastError = unsafe extern "C" fn() -> Code;
type OneNumber = unsafe extern "C" fn(*mut c_int) -> Code;
type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Code;

/// `cudaHostRegisterPortable`: pinned for every device's context. It is the default where addresses are unified.
const PORTABLE: c_uint = 1;
/// `cudaHostRegisterReadOnly`: the device promises not to write, so the memory need not be writable.
const READ_ONLY: c_uint = 8;
/// `cudaDevAttrHostRegisterReadOnlySupported`. The driver has the same numbers.
const READ_ONLY_SUPPORTED: c_int = 113;
/// `cudaDevAttrPageableMemoryAccessUsesHostPageTables`.
const USES_HOST_PAGE_TABLES: c_int = 100;
/// `cudaDevAttrIntegrated`.
const INTEGRATED: c_int = 18;
const SUCCESS: Code = 0;

/// A library without one of the functions.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("it has no {0}")]
pub struct MissingSymbol(pub &'static str);

/// A CUDA library, as far as it is needed. Cloning gives another handle to the same one.
#[derive(Clone)]
pub struct CudaApi {
    calls: Arc<Calls>,
    library: Arc<str>,
}

enum Calls {
    Runtime(Runtime),
    Driver(Driver),
}

/// The entry points of a runtime.
struct Runtime {
    host_register: Register,
    host_unregister: Unregister,
    get_error_name: ErrorName,
    free: Free,
    get_last_error: Option<LastError>,
    peek_at_last_error: Option<LastError>,
    driver_get_version: Option<OneNumber>,
    runtime_get_version: Option<OneNumber>,
    get_device: Option<OneNumber>,
    device_get_attribute: Option<Attribute>,
}

/// Versions as CUDA counts them: 12090 is 12.9. None if it does not say.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Versions {
    /// The newest CUDA that the driver can do; 0 if there is no driver.
    pub driver: Option<c_int>,
    /// The runtime's.
    pub runtime: Option<c_int>,
}

/// Whether the device may only read what is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flag {
    Portable,
    ReadOnly,
}

impl CudaApi {
    /// A CUDA runtime. `library` is what people call it: its path. `lookup` gives the address of a function by its
    /// name, null if there is none.
    ///
    /// # Errors
    /// If `cudaHostRegister`, `cudaHostUnregister`, `cudaGetErrorName` or `cudaFree` is missing. The others help to
    /// say more, and to leave no error behind.
    ///
    /// # Safety
    /// What `lookup` gives for the name of a function of the CUDA runtime is a function of that signature and meaning,
    /// which can be called from any thread for as long as the process lives.
    pub unsafe fn new(
        library: impl Into<Arc<str>>,
        mut lookup: impl FnMut(&'static CStr) -> *const c_void,
    ) -> Result<Self, MissingSymbol> {
        macro_rules! symbol {
            ($name:literal as $signature:ty) => {{
                let address = lookup($name);
                // SAFETY: not null, so by the caller's word a function of that name's signature; an address and a
                // function pointer are of one size on Linux.
                (!address.is_null()).then(|| unsafe { std::mem::transmute::<*const c_void, $signature>(address) })
            }};
            ($name:literal as $signature:ty, required) => {
                symbol!($name as $signature).ok_or(MissingSymbol(Self::name_of($name)))?
            };
        }
        let runtime = Runtime {
            host_register: symbol!(c"cudaHostRegister" as Register, required),
            host_unregister: symbol!(c"cudaHostUnregister" as Unregister, required),
            get_error_name: symbol!(c"cudaGetErrorName" as ErrorName, required),
            free: symbol!(c"cudaFree" as Free, required),
            get_last_error: symbol!(c"cudaGetLastError" as LastError),
            peek_at_last_error: symbol!(c"cudaPeekAtLastError" as LastError),
            driver_get_version: symbol!(c"cudaDriverGetVersion" as OneNumber),
            runtime_get_version: symbol!(c"cudaRuntimeGetVersion" as OneNumber),
            get_device: symbol!(c"cudaGetDevice" as OneNumber),
            device_get_attribute: symbol!(c"cudaDeviceGetAttribute" as Attribute),
        };
        Ok(Self { calls: Arc::new(Calls::Runtime(runtime)), library: library.into() })
    }

    /// The driver's library, which registers memory where a context exists and there is no runtime.
    ///
    /// # Errors
    /// If a function is missing.
    ///
    /// # Safety
    /// As for [`CudaApi::new`], for the names of the CUDA driver's functions.
    pub unsafe fn driver(
        library: impl Into<Arc<str>>,
        lookup: impl FnMut(&'static CStr) -> *const c_void,
    ) -> Result<Self, MissingSymbol> {
        // SAFETY: the caller's word is what it asks for.
        let driver = unsafe { Driver::new(lookup) }?;
        Ok(Self { calls: Arc::new(Calls::Driver(driver)), library: library.into() })
    }

    pub(super) fn name_of(symbol: &'static CStr) -> &'static str {
        symbol.to_str().expect("symbols are written in ASCII")
    }

    /// What the library is called.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Makes it ready. A runtime that no one has used in this process yet creates a context on this thread's current
    /// device, which costs some hundred MiB of its memory; so this is for a process that uses a GPU anyway.
    pub(super) fn initialise(&self) -> Result<(), Code> {
        match &*self.calls {
            Calls::Runtime(runtime) => runtime.call(|| {
                // SAFETY: `new`'s caller vouches for the function; freeing null does nothing but starting.
                unsafe { (runtime.free)(std::ptr::null_mut()) }
            }),
            Calls::Driver(driver) => driver.context().map(drop),
        }
    }

    /// Registers memory.
    ///
    /// # Safety
    /// The range is mapped, and stays so until it is unregistered.
    pub(super) unsafe fn register(&self, address: usize, bytes: usize, flag: Flag) -> Result<(), Code> {
        let flags = match flag {
            Flag::Portable => PORTABLE,
            Flag::ReadOnly => PORTABLE | READ_ONLY,
        };
        let address = address as *mut c_void;
        match &*self.calls {
            Calls::Runtime(runtime) => runtime.call(|| {
                // SAFETY: `new`'s caller vouches for the function, ours for the range.
                unsafe { (runtime.host_register)(address, bytes, flags) }
            }),
            Calls::Driver(driver) => {
                // SAFETY: the caller's word.
                unsafe { driver.register(address, bytes, flags) }
            }
        }
    }

    /// Unregisters what [`CudaApi::register`] registered, by its first address.
    pub(super) fn unregister(&self, address: usize) -> Result<(), Code> {
        let address = address as *mut c_void;
        match &*self.calls {
            Calls::Runtime(runtime) => runtime.call(|| {
                // SAFETY: `new`'s caller vouches for the function, which refuses an address that is not registered.
                unsafe { (runtime.host_unregister)(address) }
            }),
            Calls::Driver(driver) => driver.unregister(address),
        }
    }

    /// An error's symbol, such as `cudaErrorNoDevice`.
    pub(super) fn error_name(&self, code: Code) -> String {
        let name = match &*self.calls {
            // SAFETY: `new`'s caller vouches for the function.
            Calls::Runtime(runtime) => unsafe { (runtime.get_error_name)(code) },
            Calls::Driver(driver) => driver.error_name(code),
        };
        if name.is_null() {
            return "an error without a name".into();
        }
        // SAFETY: CUDA's names are strings that end with a zero and are never freed.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The versions, as far as the library says them.
    pub fn versions(&self) -> Versions {
        match &*self.calls {
            Calls::Runtime(runtime) => Versions {
                driver: runtime.version(runtime.driver_get_version),
                runtime: runtime.version(runtime.runtime_get_version),
            },
            Calls::Driver(driver) => Versions { driver: driver.version(), runtime: None },
        }
    }

    /// Whether this thread's device registers memory that this process can only read.
    pub fn registers_read_only(&self) -> bool {
        self.attribute(READ_ONLY_SUPPORTED) == Some(1)
    }

    /// Whether registering locks pages. A device that is no part of the machine's chip and uses its page tables reaches
    /// memory by these, and the pages stay where they are only as long as the kernel leaves them there.
    pub fn locks_pages(&self) -> bool {
        self.attribute(USES_HOST_PAGE_TABLES) != Some(1) || self.attribute(INTEGRATED) == Some(1)
    }

    /// An attribute of this thread's device, if the library says it.
    fn attribute(&self, attribute: c_int) -> Option<c_int> {
        match &*self.calls {
            Calls::Runtime(runtime) => {
                let (device, get) = (runtime.number(runtime.get_device)?, runtime.device_get_attribute?);
                let mut value = 0;
                let got = runtime.call(|| {
                    // SAFETY: `new`'s caller vouches for the function; the value is ours, and written before it returns.
                    unsafe { get(&raw mut value, attribute, device) }
                });
                got.ok().map(|()| value)
            }
            Calls::Driver(driver) => driver.attribute(attribute),
        }
    }
}

impl Runtime {
    /// Makes a call. Its failure is ours to handle: left behind, it would be taken for the framework's own by its next
    /// check. Where an error was there before, one stays: CUDA keeps but one, and by then it may be ours.
    fn call(&self, call: impl FnOnce() -> Code) -> Result<(), Code> {
        let pending = self.peek_at_last_error.is_some_and(|peek| {
            // SAFETY: `CudaApi::new`'s caller vouches for the function.
            unsafe { peek() != SUCCESS }
        });
        let code = call();
        if code == SUCCESS {
            return Ok(());
        }
        if let Some(take) = self.get_last_error
            && !pending
        {
            // Once only: a runtime that cannot start says the same every time.
            // SAFETY: as above.
            let _ = unsafe { take() };
        }
        Err(code)
    }

    /// A version. These calls start nothing, and looking for an earlier error might: who only asks for versions leaves the
    /// device alone. They fail where there is no driver, and then no earlier error is worth anything.
    fn version(&self, function: Option<OneNumber>) -> Option<c_int> {
        let function = function?;
        let mut value = 0;
        // SAFETY: `CudaApi::new`'s caller vouches for the function; the value is ours, and written before it returns.
        let code = unsafe { function(&raw mut value) };
        if code != SUCCESS
            && let Some(take) = self.get_last_error
        {
            // SAFETY: as above.
            let _ = unsafe { take() };
        }
        (code == SUCCESS).then_some(value)
    }

    /// The number that a function gives, if it is there and does.
    fn number(&self, function: Option<OneNumber>) -> Option<c_int> {
        let function = function?;
        let mut value = 0;
        let got = self.call(|| {
            // SAFETY: `CudaApi::new`'s caller vouches for the function; the value is ours, and written before it returns.
            unsafe { function(&raw mut value) }
        });
        got.ok().map(|()| value)
    }
}

impl fmt::Debug for CudaApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &*self.calls {
            Calls::Runtime(_) => "runtime",
            Calls::Driver(_) => "driver",
        };
        f.debug_struct("CudaApi").field("kind", &kind).field("library", &self.library).finish_non_exhaustive()
    }
}
