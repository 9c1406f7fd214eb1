//! Page-locking with tables of functions in place of CUDA: what is called, in which order, and what is left after a
//! failure. No library is loaded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use echo::host_pinning::{
    CudaApi, MissingSymbol, Permission, PinError, Region, Registered, Registration, Unpinned, pin_all,
    unpin_all,
};
use echo::memory::layout::DataLayout;
use echo::memory::memfd::{Sealed, Unsealed};
use echo::memory::{Access, Account, HostBacking, MemoryGovernor, SharedBacking, VirtualBuffer};
use echo::ring::buf::{Pinned, Pinning, PytreeRingBuf};
use echo::spec::{ArraySpec, DType, TableSpec};

/// What the functions below were told, and what they are to say. A thread is a test, so each has its own.
#[derive(Default)]
struct Cuda {
    registered: BTreeMap<usize, (usize, c_uint)>,
    calls: Vec<String>,
    /// The address of the region that is refused, with what, and how often.
    refuse: Option<(usize, c_int, u32)>,
    refuse_unregister: Option<c_int>,
    last_error: c_int,
    reads_only: c_int,
}

thread_local! {
    static CUDA: RefCell<Cuda> = RefCell::default();
}

fn cuda<R>(look: impl FnOnce(&mut Cuda) -> R) -> R {
    CUDA.with_borrow_mut(look)
}

extern "C" fn register(address: *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    cuda(|cuda| {
        cuda.calls.push(format!("register {bytes} flags {flags}"));
        if let Some((refused, code, times)) = &mut cuda.refuse
            && *refused == address as usize
            && *times > 0
        {
            *times -= 1;
            cuda.last_error = *code;
            return cuda.last_error;
        }
        assert_eq!(cuda.registered.insert(address as usize, (bytes, flags)), None, "registered twice");
        0
    })
}

extern "C" fn unregister(address: *mut c_void) -> c_int {
    cuda(|cuda| {
        cuda.calls.push("unregister".into());
        if let Some(code) = cuda.refuse_unregister {
            cuda.last_error = code;
            return code;
        }
        if cuda.registered.remove(&(address as usize)).is_some() { 0 } else { 713 }
    })
}

extern "C" fn error_name(code: c_int) -> *const c_char {
    match code {
        1 => c"cudaErrorInvalidValue",
        2 => c"cudaErrorMemoryAllocation",
        713 => c"cudaErrorHostMemoryNotRegistered",
        _ => c"unrecognized error code",
    }
    .as_ptr()
}

extern "C" fn free(_: *mut c_void) -> c_int {
    0
}

extern "C" fn get_last_error() -> c_int {
    cuda(|cuda| {
        cuda.calls.push("get last error".into());
        std::mem::take(&mut cuda.last_error)
    })
}

extern "C" fn peek_at_last_error() -> c_int {
    cuda(|cuda| cuda.last_error)
}

extern "C" fn get_device(device: *mut c_int) -> c_int {
    // SAFETY: the caller's number.
    unsafe { device.write(7) };
    0
}

extern "C" fn device_attribute(value: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    assert_eq!(device, 7);
    let known = if attribute == 113 { cuda(|cuda| cuda.reads_only) } else { 0 };
    // SAFETY: the caller's number.
    unsafe { value.write(known) };
    0
}

fn all_functions(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cudaHostRegister" => register as *const c_void,
        b"cudaHostUnregister" => unregister as *const c_void,
        b"cudaGetErrorName" => error_name as *const c_void,
        b"cudaFree" => free as *const c_void,
        b"cudaGetLastError" => get_last_error as *const c_void,
        b"cudaPeekAtLastError" => peek_at_last_error as *const c_void,
        b"cudaGetDevice" => get_device as *const c_void,
        b"cudaDeviceGetAttribute" => device_attribute as *const c_void,
        _ => std::ptr::null(),
    }
}

fn api() -> CudaApi {
    // SAFETY: the functions above have the signatures of their names.
    unsafe { CudaApi::new("stub", all_functions) }.unwrap()
}

fn count(call: &str) -> usize {
    cuda(|cuda| cuda.calls.iter().filter(|told| told.starts_with(call)).count())
}

/// Private memory, in arrays of so many bytes a slot.
fn arrays(slot_bytes: &[usize], slots: u64) -> PytreeRingBuf<HostBacking> {
    let governor = Arc::new(MemoryGovernor::new(1 << 30, 1 << 30));
    let array = |&slot_bytes: &usize| {
        let account = Account::host(governor.clone(), 0, "test");
        let mut buffer = VirtualBuffer::new(HostBacking, slot_bytes * slots as usize, account).unwrap();
        buffer.grow_to(slot_bytes * slots as usize).unwrap();
        (buffer, slot_bytes)
    };
    PytreeRingBuf::new(slot_bytes.iter().map(array).collect(), slots)
}

fn base_of(arrays: &PytreeRingBuf<HostBacking>, array: usize) -> usize {
    arrays.address_ranges()[array].0
}

fn pin(arrays: &PytreeRingBuf<HostBacking>) -> Result<Pinned, PinError> {
    arrays.pin_host_memory(&api(), Pinning::of_rows(1, &mut |_| ()))
}

/// Registers regions to which nobody refers, and nothing is mapped there: the functions access none of it.
fn pin_regions(regions: &[Region]) -> Result<Registered, Box<Unpinned>> {
    // SAFETY: as above.
    unsafe { pin_all(&api(), regions, &mut Registration::new(&mut |_| ())) }
}

fn unpin(registered: &mut Registered) -> Result<(), PinError> {
    // SAFETY: nothing is mapped there.
    unsafe { unpin_all(registered) }
}

fn regions(lengths: &[usize]) -> Vec<Region> {
    let region = |(i, &bytes): (usize, &usize)| {
        let address = 0x10_0000 * (i + 1);
        Region { name: format!("region {i}"), address, bytes, row_bytes: 1 }
    };
    lengths.iter().enumerate().map(region).collect()
}

#[test]
fn a_third_region_that_fails_takes_the_first_two_with_it() {
    let regions = regions(&[4096, 8192, 4096, 4096]);
    cuda(|cuda| cuda.refuse = Some((regions[2].address, 2, 1)));
    let error = pin_regions(&regions).unwrap_err().error;
    assert_eq!(count("unregister"), 2);
    assert_eq!(count("register"), 3, "the fourth is not tried");
    assert!(cuda(|cuda| cuda.registered.is_empty()));
    let said = error.to_string();
    assert!(said.contains("region 2 (piece 1 of 1: 4096 bytes at 0x300000)"), "{said}");
    assert!(said.contains("cudaErrorMemoryAllocation (2): the driver has no memory left"), "{said}");
    assert_eq!(error.failure().map(|failure| failure.code), Some(2));
    assert_eq!(cuda(|cuda| cuda.last_error), 0, "the framework's next check finds no error of ours");
    assert_eq!(count("get last error"), 1);
}

#[test]
fn an_error_that_was_there_before_is_not_taken_away() {
    let regions = regions(&[4096]);
    cuda(|cuda| {
        cuda.last_error = 719;
        cuda.refuse = Some((regions[0].address, 2, 1));
    });
    pin_regions(&regions).unwrap_err();
    assert_eq!(count("get last error"), 0);
}

#[test]
fn pages_that_could_not_be_pinned_are_tried_once_more() {
    let regions = regions(&[4096]);
    cuda(|cuda| cuda.refuse = Some((regions[0].address, 1, 1)));
    let mut registered = pin_regions(&regions).unwrap();
    assert_eq!((registered.bytes(), registered.pieces()), (4096, 1));
    unpin(&mut registered).unwrap();
    cuda(|cuda| cuda.refuse = Some((regions[0].address, 1, 2)));
    pin_regions(&regions).unwrap_err();
    assert_eq!(count("register"), 4);
}

#[test]
fn empty_regions_are_skipped_and_large_ones_cut() {
    let regions = regions(&[0, 10_000, 0]);
    let mut told = Vec::new();
    let mut progress = |progress| told.push(progress);
    let mut how = Registration { chunk_bytes: 4096, ..Registration::new(&mut progress) };
    // SAFETY: the functions access none of it.
    let registered = unsafe { pin_all(&api(), &regions, &mut how) }.unwrap();
    assert_eq!(
        cuda(|cuda| cuda.registered.values().map(|&(bytes, _)| bytes).collect::<Vec<_>>()),
        [4096, 4096, 1808]
    );
    let done: Vec<u64> = told.iter().map(|progress| progress.done).collect();
    assert_eq!(done, [4096, 8192, 10_000]);
    assert!(told.iter().all(|progress| progress.of == 10_000));
    drop(registered);
    assert!(cuda(|cuda| cuda.registered.is_empty()));
}

#[test]
fn arrays_are_registered_and_unregistered_by_their_drop() {
    let arrays = arrays(&[3, 0, 4096], 100);
    let pinned = pin(&arrays).unwrap();
    assert_eq!((pinned.library.as_str(), pinned.bytes, pinned.pieces), ("stub", 300 + 409_600, 2));
    assert_eq!(cuda(|cuda| cuda.registered[&base_of(&arrays, 2)]), (409_600, 1), "portable, and writable");
    let again = pin(&arrays).unwrap_err();
    assert!(matches!(again, PinError::Already { .. }), "{again}");
    drop(arrays);
    assert!(cuda(|cuda| cuda.registered.is_empty()));
    assert_eq!(count("unregister"), 2);
}

#[test]
fn arrays_that_could_not_be_registered_can_be_tried_again() {
    let arrays = arrays(&[8, 8, 8], 1000);
    cuda(|cuda| cuda.refuse = Some((base_of(&arrays, 2), 712, 1)));
    pin(&arrays).unwrap_err();
    assert_eq!(count("unregister"), 2);
    pin(&arrays).unwrap();
    drop(arrays);
    assert!(cuda(|cuda| cuda.registered.is_empty()));
}

#[test]
fn arrays_that_cuda_does_not_let_go_of_stay_mapped() {
    let arrays = arrays(&[4096], 1);
    pin(&arrays).unwrap();
    let base = base_of(&arrays, 0);
    cuda(|cuda| cuda.refuse_unregister = Some(2));
    drop(arrays);
    // SAFETY: still mapped, since it is still registered: that is what is tested.
    assert_eq!(unsafe { (base as *const u8).read_volatile() }, 0);
}

#[test]
fn a_rollback_that_cuda_refuses_keeps_the_arrays_mapped() {
    let arrays = arrays(&[4096, 4096, 4096], 1);
    cuda(|cuda| {
        // After a kernel has failed, every call says so.
        cuda.refuse = Some((base_of(&arrays, 2), 719, 1));
        cuda.refuse_unregister = Some(719);
    });
    let error = pin(&arrays).unwrap_err().to_string();
    assert!(error.contains("; 2 pieces before it cannot be unregistered, and stay pinned"), "{error}");
    assert_eq!(arrays.pinned_by().as_deref(), Some("stub"));
    let bases: Vec<usize> = arrays.address_ranges().into_iter().map(|(base, _)| base).collect();
    drop(arrays);
    for base in bases {
        // SAFETY: still mapped, since parts are still registered: that is what is tested.
        assert_eq!(unsafe { (base as *const u8).read_volatile() }, 0);
    }
    // Whoever registers regions of its own has what is left.
    let regions = regions(&[4096, 8192]);
    cuda(|cuda| cuda.refuse = Some((regions[1].address, 719, 1)));
    let left = pin_regions(&regions).unwrap_err().left;
    assert_eq!((left.pieces(), left.bytes()), (1, 4096));
}

#[test]
fn an_error_of_another_context_does_not_unmap_what_is_registered() {
    let mut registered = pin_regions(&regions(&[4096])).unwrap();
    cuda(|cuda| cuda.refuse_unregister = Some(709));
    unpin(&mut registered).unwrap_err();
    assert_eq!((registered.pieces(), registered.bytes()), (1, 4096));
    // In the right thread it can be done.
    cuda(|cuda| cuda.refuse_unregister = None);
    unpin(&mut registered).unwrap();
    assert_eq!(registered.pieces(), 0);
}

#[test]
fn a_runtime_that_is_shutting_down_has_nothing_registered() {
    for code in [4, 713] {
        let mut registered = pin_regions(&regions(&[4096])).unwrap();
        cuda(|cuda| cuda.refuse_unregister = Some(code));
        unpin(&mut registered).unwrap();
        cuda(|cuda| *cuda = Cuda::default());
    }
}

#[test]
fn what_could_not_be_unregistered_is_said() {
    let mut registered = pin_regions(&regions(&[4096, 4096])).unwrap();
    cuda(|cuda| cuda.refuse_unregister = Some(1));
    let error = unpin(&mut registered).unwrap_err().to_string();
    assert!(
        error.contains("does not unregister 2 pieces") && error.contains("cudaErrorInvalidValue"),
        "{error}"
    );
    assert_eq!(count("unregister"), 2);
}

#[test]
fn a_missing_function_is_named() {
    for missing in [c"cudaHostRegister", c"cudaHostUnregister", c"cudaGetErrorName", c"cudaFree"] {
        let lookup = |name: &CStr| if name == missing { std::ptr::null() } else { all_functions(name) };
        // SAFETY: the functions above have the signatures of their names.
        let error = unsafe { CudaApi::new("stub", lookup) }.unwrap_err();
        assert_eq!(error, MissingSymbol(missing.to_str().unwrap()));
    }
    let four_alone = |name: &CStr| {
        if name.to_bytes().starts_with(b"cudaHost") || [c"cudaGetErrorName", c"cudaFree"].contains(&name) {
            all_functions(name)
        } else {
            std::ptr::null()
        }
    };
    // SAFETY: the functions above have the signatures of their names.
    let api = unsafe { CudaApi::new("stub", four_alone) }.unwrap();
    assert!(!api.registers_read_only());
    let regions = regions(&[4096]);
    cuda(|cuda| cuda.refuse = Some((regions[0].address, 2, 1)));
    // SAFETY: the functions access none of it.
    unsafe { pin_all(&api, &regions, &mut Registration::new(&mut |_| ())) }.unwrap_err();
    assert_eq!(count("get last error"), 0);
}

/// A table's data file, attached with those rights.
fn attached(access: Access) -> (PytreeRingBuf<SharedBacking>, TableSpec) {
    let arrays = vec![ArraySpec::new("a", DType::U8, [64]), ArraySpec::new("b", DType::F32, [])];
    let spec = TableSpec::new("t", arrays, 16, 4);
    let layout = DataLayout::of(&spec).unwrap();
    let file = Unsealed::create("echo/test", layout.bytes()).unwrap().seal().unwrap();
    let descriptor = match access {
        Access::ReadWrite => file.into_fd(),
        Access::ReadOnly => file.read_only().unwrap(),
    };
    let file = Sealed::received(descriptor, layout.bytes(), access).unwrap();
    (PytreeRingBuf::attach(file, &layout, spec.max_slots(), access).unwrap(), spec)
}

fn pin_to_read(arrays: &PytreeRingBuf<SharedBacking>, spec: &TableSpec) -> Result<Pinned, PinError> {
    // SAFETY: nobody writes.
    unsafe { arrays.pin_to_read(&api(), Pinning::of_rows(spec.batch_size, &mut |_| ())) }
}

/// The permissions of the mapping at an address, by the kernel's word.
fn permissions(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.starts_with(&format!("{address:x}-"))).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn a_reader_that_has_registered_cannot_write_any_more() {
    let (arrays, spec) = attached(Access::ReadWrite);
    let bases: Vec<usize> = arrays.address_ranges().into_iter().map(|(base, _)| base).collect();
    assert!(bases.iter().all(|&base| permissions(base) == "rw-s"));
    let pinned = pin_to_read(&arrays, &spec).unwrap();
    assert_eq!(pinned.permission, Permission::ReadWrite);
    assert!(bases.iter().all(|&base| permissions(base) == "r--s"));
    drop(arrays);
    assert!(cuda(|cuda| cuda.registered.is_empty()));
}

#[test]
fn a_read_only_mapping_is_registered_where_the_device_can() {
    let (arrays, spec) = attached(Access::ReadOnly);
    let error = pin_to_read(&arrays, &spec).unwrap_err();
    assert!(matches!(error, PinError::ReadOnlyMapping { .. }), "{error}");
    assert!(error.to_string().contains("ReaderOptions::registrable"));
    assert_eq!(count("register"), 0);
    cuda(|cuda| cuda.reads_only = 1);
    let pinned = pin_to_read(&arrays, &spec).unwrap();
    assert_eq!(pinned.permission, Permission::ReadOnly);
    assert!(cuda(|cuda| cuda.registered.values().all(|&(_, flags)| flags == 9)));
}
