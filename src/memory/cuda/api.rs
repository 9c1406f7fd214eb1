//! The CUDA driver's calls, as a table of function pointers that is filled at run time.
//!
//! Nothing is linked: where there is no driver, nothing needs one. The table is a plain struct, so a test fills it
//! with functions of its own and sees every call.
//!
//! The methods turn codes into errors that say what was being done. They decide nothing; what their arguments have to
//! be is in their safety sections.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::mem::{ManuallyDrop, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::memory::cuda::error::{CudaError, DriverError};

/// Never `libcuda.so`, which is the toolkit's stub.
const DRIVER: &str = "libcuda.so.1";

/// A device, as the driver names it in this process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(super) struct DeviceNumber(pub(super) c_int);

/// Physical memory, as the driver names it in this process. Two imports of the same memory have two names.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(super) struct HandleNumber(pub(super) c_ulonglong);

/// An address on a device.
pub(super) type DeviceAddress = c_ulonglong;
pub(super) type Code = c_int;

/// `CUmemLocation`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: c_int,
    pub(super) id: DeviceNumber,
}

/// `CUmemAllocationProp`. Every byte of it belongs to a field, so that `default` zeroes all of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(super) struct AllocationProp {
    pub(super) kind: c_int,
    pub(super) handle_types: c_int,
    pub(super) location: Location,
    win32_meta: u64,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(super) struct AccessDesc {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

const _: () = {
    assert!(size_of::<Location>() == 8 && offset_of!(Location, id) == 4);
    assert!(size_of::<AllocationProp>() == 32 && align_of::<AllocationProp>() == 8);
    assert!(offset_of!(AllocationProp, handle_types) == 4 && offset_of!(AllocationProp, location) == 8);
    assert!(offset_of!(AllocationProp, win32_meta) == 16 && offset_of!(AllocationProp, compression) == 24);
    assert!(offset_of!(AllocationProp, rdma) == 25 && offset_of!(AllocationProp, usage) == 26);
    assert!(offset_of!(AllocationProp, reserved) == 28);
    assert!(size_of::<AccessDesc>() == 12 && offset_of!(AccessDesc, flags) == 8);
    assert!(size_of::<HandleNumber>() == 8 && size_of::<DeviceNumber>() == 4);
    assert!(size_of::<usize>() == 8, "a device's address fits into a usize");
};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(super) const PINNED: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(super) const ON_DEVICE: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const POSIX_FD: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
const MINIMUM: c_int = 0;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
pub(super) const HAS_VIRTUAL_MEMORY: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
pub(super) const HAS_POSIX_FD: c_int = 103;

impl Location {
    pub(super) const fn on(device: DeviceNumber) -> Self {
        Self { kind: ON_DEVICE, id: device }
    }
}

impl AllocationProp {
    /// Memory of that device that can be exported: what granularity is asked for and what is created.
    pub(super) fn exportable(device: DeviceNumber) -> Self {
        let location = Location::on(device);
        Self { kind: PINNED, handle_types: POSIX_FD, location, ..Self::default() }
    }
}

macro_rules! entry_points {
    ($($field:ident = [$($symbol:literal),+] ($($argument:ty),*);)+) => {
        /// The driver's calls. Copies of it are as good as it is: the library is never unloaded.
        #[derive(Clone, Copy, Debug)]
        pub struct CudaDriverApi {
            $($field: unsafe extern "C" fn($($argument),*) -> Code,)+
        }

        impl CudaDriverApi {
            /// The table, by a lookup that knows a function for each symbol. `library` is for messages.
            ///
            /// # Errors
            /// If it knows none for a symbol, which is named.
            ///
            /// # Safety
            /// What it finds is valid for the rest of the process, and does what the driver's function of that name
            /// does, with the driver's types.
            pub unsafe fn from_lookup(
                library: &str,
                mut lookup: impl FnMut(&'static str) -> Option<NonNull<c_void>>,
            ) -> Result<Self, CudaError> {
                $(
                    let symbols = [$($symbol),+];
                    let Some($field) = symbols.into_iter().find_map(&mut lookup) else {
                        return Err(CudaError::MissingSymbol { library: library.to_owned(), symbol: symbols[0] });
                    };
                    // SAFETY: a pointer to a function is a pointer here; the caller says that what was found is
                    // the function of that name, and the types are those of its declaration in cuda.h.
                    let $field = unsafe {
                        std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> Code>($field)
                    };
                )+
                Ok(Self { $($field),+ })
            }
        }
    };
}

entry_points! {
    init = ["cuInit"] (c_uint);
    driver_version = ["cuDriverGetVersion"] (*mut c_int);
    error_name = ["cuGetErrorName"] (Code, *mut *const c_char);
    device_count = ["cuDeviceGetCount"] (*mut c_int);
    device_get = ["cuDeviceGet"] (*mut DeviceNumber, c_int);
    // The second one tells parts of a device (MIG) apart, and is missing before CUDA 11.4.
    device_uuid = ["cuDeviceGetUuid_v2", "cuDeviceGetUuid"] (*mut [u8; 16], DeviceNumber);
    device_attribute = ["cuDeviceGetAttribute"] (*mut c_int, c_int, DeviceNumber);
    device_name = ["cuDeviceGetName"] (*mut c_char, c_int, DeviceNumber);
    granularity = ["cuMemGetAllocationGranularity"] (*mut usize, *const AllocationProp, c_int);
    reserve = ["cuMemAddressReserve"] (*mut DeviceAddress, usize, usize, DeviceAddress, c_ulonglong);
    free = ["cuMemAddressFree"] (DeviceAddress, usize);
    create = ["cuMemCreate"] (*mut HandleNumber, usize, *const AllocationProp, c_ulonglong);
    release = ["cuMemRelease"] (HandleNumber);
    map = ["cuMemMap"] (DeviceAddress, usize, usize, HandleNumber, c_ulonglong);
    unmap = ["cuMemUnmap"] (DeviceAddress, usize);
    set_access = ["cuMemSetAccess"] (DeviceAddress, usize, *const AccessDesc, usize);
    export = ["cuMemExportToShareableHandle"] (*mut c_void, HandleNumber, c_int, c_ulonglong);
    import = ["cuMemImportFromShareableHandle"] (*mut HandleNumber, *mut c_void, c_int);
    properties = ["cuMemGetAllocationPropertiesFromHandle"] (*mut AllocationProp, HandleNumber);
}

impl CudaDriverApi {
    /// Loads the driver, `libcuda.so.1`, from where the system looks for libraries. It is not started, and stays
    /// loaded, since its threads outlive everybody's interest in it.
    ///
    /// # Errors
    /// If there is none, or it lacks a call.
    pub fn load() -> Result<Self, CudaError> {
        // SAFETY: what goes by that name where the system looks is the driver; who has it look elsewhere (as by
        // `LD_LIBRARY_PATH`) answers for what is there.
        unsafe { Self::load_from(Path::new(DRIVER)) }
    }

    /// Loads the driver from that path.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    ///
    /// # Safety
    /// If there is a library at the path, then it is CUDA's driver, or does what that does, with its types.
    pub unsafe fn load_from(path: &Path) -> Result<Self, CudaError> {
        let named = path.display().to_string();
        // SAFETY: what a driver does while it is loaded is its maker's business; that it is one, the caller says.
        let opened = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = match opened {
            Ok(library) => ManuallyDrop::new(library),
            Err(source) => return Err(CudaError::Library { library: named, source }),
        };
        let lookup = |symbol: &'static str| {
            // SAFETY: the symbol is only looked up, as a pointer; what it points to is not touched here.
            let found = unsafe { library.get::<*mut c_void>(symbol) }.ok()?;
            NonNull::new(found.as_raw_ptr())
        };
        // SAFETY: the library is never closed, and is the driver, as the caller says: these names are its functions'.
        unsafe { Self::from_lookup(&named, lookup) }
    }

    fn check(&self, code: Code, doing: &'static str, bytes: usize) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        Err(DriverError { doing, bytes: bytes as u64, code, name: self.name_of(code) }.into())
    }

    fn name_of(&self, code: Code) -> Option<String> {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a local; a code that is unknown leaves NULL.
        let result = unsafe { (self.error_name)(code, &raw mut name) };
        if result != 0 || name.is_null() {
            return None;
        }
        // SAFETY: not NULL (checked above), and the driver's names are constants with a NUL behind them.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Starts it, once or again, and says its version: 12020 is 12.2.
    pub(super) fn start(&self) -> Result<i32, CudaError> {
        // SAFETY: takes flags, of which there are none.
        let code = unsafe { (self.init)(0) };
        self.check(code, "start", 0)?;
        let mut version = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.driver_version)(&raw mut version) };
        self.check(code, "tell its version", 0)?;
        Ok(version)
    }

    pub(super) fn devices(&self) -> Result<Vec<DeviceNumber>, CudaError> {
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.device_count)(&raw mut count) };
        self.check(code, "count devices", 0)?;
        let device = |ordinal| {
            let mut device = DeviceNumber::default();
            // SAFETY: the pointer is to a local.
            let code = unsafe { (self.device_get)(&raw mut device, ordinal) };
            self.check(code, "name a device", 0).map(|()| device)
        };
        (0..count).map(device).collect()
    }

    pub(super) fn uuid(&self, device: DeviceNumber) -> Result<[u8; 16], CudaError> {
        let mut uuid = [0; 16];
        // SAFETY: the pointer is to a local of the 16 bytes that a CUuuid has.
        let code = unsafe { (self.device_uuid)(&raw mut uuid, device) };
        self.check(code, "tell a device's UUID", 0)?;
        Ok(uuid)
    }

    pub(super) fn name(&self, device: DeviceNumber) -> Result<String, CudaError> {
        let mut name: [u8; 256] = [0; 256];
        // SAFETY: the pointer is to a local of as many bytes as are said, which live past the call.
        let code =
            unsafe { (self.device_name)((&raw mut name).cast::<c_char>(), name.len() as c_int, device) };
        self.check(code, "tell a device's name", 0)?;
        Ok(name.split(|&byte| byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default().into_owned())
    }

    pub(super) fn has(&self, device: DeviceNumber, attribute: c_int) -> Result<bool, CudaError> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        let code = unsafe { (self.device_attribute)(&raw mut value, attribute, device) };
        self.check(code, "tell a device's attribute", 0)?;
        Ok(value != 0)
    }

    pub(super) fn granularity(&self, prop: &AllocationProp) -> Result<usize, CudaError> {
        let mut bytes = 0;
        // SAFETY: the pointers are to a local and a borrowed struct of the layout asserted above.
        let code = unsafe { (self.granularity)(&raw mut bytes, prop, MINIMUM) };
        self.check(code, "tell a device's granularity", 0)?;
        Ok(bytes)
    }

    pub(super) fn reserve(&self, bytes: usize, align: usize) -> Result<DeviceAddress, CudaError> {
        let mut address = 0;
        // SAFETY: the pointer is to a local; no address is asked for, so nobody's is taken.
        let code = unsafe { (self.reserve)(&raw mut address, bytes, align, 0, 0) };
        self.check(code, "reserve device addresses", bytes)?;
        Ok(address)
    }

    /// # Safety
    /// `reserve` returned the address for so many bytes, nothing is mapped there, and nobody uses it again.
    pub(super) unsafe fn free(&self, address: DeviceAddress, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        let code = unsafe { (self.free)(address, bytes) };
        self.check(code, "free device addresses", bytes)
    }

    pub(super) fn create(&self, bytes: usize, prop: &AllocationProp) -> Result<HandleNumber, CudaError> {
        let mut handle = HandleNumber::default();
        // SAFETY: the pointers are to a local and a borrowed struct of the layout asserted above.
        let code = unsafe { (self.create)(&raw mut handle, bytes, prop, 0) };
        self.check(code, "create device memory", bytes)?;
        Ok(handle)
    }

    /// # Safety
    /// `create` or `import` returned the handle, and it is released for the first time.
    pub(super) unsafe fn release(&self, handle: HandleNumber) -> Result<(), CudaError> {
        // SAFETY: the caller's: a handle that is none would be undefined behaviour.
        let code = unsafe { (self.release)(handle) };
        self.check(code, "release device memory", 0)
    }

    /// # Safety
    /// The addresses are of one reservation and nothing is mapped there; the handle is not released.
    pub(super) unsafe fn map(
        &self,
        address: DeviceAddress,
        bytes: usize,
        handle: HandleNumber,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's; the offset has to be 0, and there are no flags.
        let code = unsafe { (self.map)(address, bytes, 0, handle, 0) };
        self.check(code, "map device memory", bytes)
    }

    /// # Safety
    /// Whole mappings fill the addresses, and nobody uses them, on any device.
    pub(super) unsafe fn unmap(&self, address: DeviceAddress, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: the caller's.
        let code = unsafe { (self.unmap)(address, bytes) };
        self.check(code, "unmap device memory", bytes)
    }

    /// Lets the device read and write.
    ///
    /// # Safety
    /// Whole mappings fill the addresses.
    pub(super) unsafe fn allow(
        &self,
        address: DeviceAddress,
        bytes: usize,
        device: DeviceNumber,
    ) -> Result<(), CudaError> {
        let access = AccessDesc { location: Location::on(device), flags: READ_WRITE };
        // SAFETY: the addresses are the caller's; the pointer is to one local struct of the layout asserted above.
        let code = unsafe { (self.set_access)(address, bytes, &raw const access, 1) };
        self.check(code, "give access to device memory", bytes)
    }

    /// # Safety
    /// The handle is not released, and was created to be exported as a descriptor.
    pub(super) unsafe fn export(&self, handle: HandleNumber, bytes: usize) -> Result<OwnedFd, CudaError> {
        let mut fd: c_int = -1;
        // SAFETY: the handle is the caller's; of this type the driver writes an int, which a local takes.
        let code = unsafe { (self.export)((&raw mut fd).cast(), handle, POSIX_FD, 0) };
        self.check(code, "export device memory", bytes)?;
        assert!(fd >= 0, "a driver that succeeds gives a descriptor");
        // SAFETY: open, and made for this call: nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Nothing says that the driver did, and it takes no flag for it: a program that another thread starts between
        // the two calls inherits the descriptor, and holds the memory for as long as it runs.
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|errno| CudaError::Descriptor(errno.into()))?;
        Ok(fd)
    }

    pub(super) fn import(&self, fd: BorrowedFd<'_>, bytes: usize) -> Result<HandleNumber, CudaError> {
        let mut handle = HandleNumber::default();
        let fd = fd.as_raw_fd() as usize as *mut c_void;
        // SAFETY: the pointer is to a local; of this type the driver takes the descriptor's number in place of a
        // pointer, and does not keep it.
        let code = unsafe { (self.import)(&raw mut handle, fd, POSIX_FD) };
        self.check(code, "import device memory", bytes)?;
        Ok(handle)
    }

    /// # Safety
    /// The handle is not released.
    pub(super) unsafe fn properties(&self, handle: HandleNumber) -> Result<AllocationProp, CudaError> {
        let mut prop = AllocationProp::default();
        // SAFETY: the handle is the caller's; the pointer is to a local of the layout asserted above.
        let code = unsafe { (self.properties)(&raw mut prop, handle) };
        self.check(code, "describe device memory", 0)?;
        Ok(prop)
    }
}
