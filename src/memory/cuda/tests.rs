use std::sync::Arc;

use proptest::prelude::*;

use super::api::{AllocationProp, DeviceNumber, HAS_POSIX_FD, HAS_VIRTUAL_MEMORY, Location};
use super::stub::{self, GRANULARITY, INVALID_VALUE, Left, OUT_OF_MEMORY, UUIDS};
use super::*;
use crate::memory::error::MemoryError;
use crate::memory::governor::{Account, MemoryGovernor};
use crate::memory::virtual_buffer::VirtualBuffer;

const BLOCK: usize = 2 * GRANULARITY;
const MAX: usize = 16 * BLOCK;

struct Bench {
    governor: Arc<MemoryGovernor>,
    pool: CudaPool,
}

impl Bench {
    /// A pool that may hold and keep so many blocks.
    fn new(budget: usize, keep: usize) -> Self {
        let bytes = (budget * BLOCK) as u64;
        let governor = Arc::new(MemoryGovernor::new(0, bytes).with_device(bytes));
        let account = Account::device(governor.clone(), 1, "a pool");
        let options = PoolOptions { block_bytes: BLOCK - 1, keep_idle_bytes: keep * BLOCK };
        let pool = CudaPool::new(device(0), account, options);
        assert_eq!(pool.block_bytes(), BLOCK);
        Self { governor, pool }
    }

    fn buffer(&self) -> Result<VirtualBuffer<CudaBacking>, MemoryError> {
        VirtualBuffer::new(CudaBacking::new(self.pool.clone()), MAX, Account::nobody())
    }

    fn used(&self) -> usize {
        self.governor.device_usage().used as usize
    }
}

fn device(ordinal: usize) -> CudaDevice {
    CudaDevice::by_uuid(stub::api(), DeviceUuid::from_bytes(UUIDS[ordinal])).unwrap()
}

fn shrink(buffer: &mut VirtualBuffer<impl crate::memory::VirtualBacking>, bytes: usize) {
    // SAFETY: a stub's memory is used by nobody.
    unsafe { buffer.shrink_to(bytes) }.unwrap();
}

/// The memory behind each block.
fn memory(base: usize, committed: usize) -> Vec<u64> {
    (0..committed).step_by(BLOCK).map(|offset| stub::memory_at(base + offset).unwrap()).collect()
}

fn open_descriptors() -> usize {
    let named = stub::descriptor_name();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().contains(&format!("{named} "))).count()
}

#[test]
fn a_symbol_that_is_missing_is_named() {
    for symbol in ["cuInit", "cuMemMap", "cuMemGetAllocationPropertiesFromHandle"] {
        let error = stub::without(symbol).unwrap_err().to_string();
        assert!(error.starts_with(&format!("a stub has no {symbol}: ")), "{error}");
    }
    stub::without("cuDeviceGetUuid_v2").expect("older drivers have only the first");
}

#[test]
fn a_library_that_is_not_there_is_an_error_with_its_cause() {
    // SAFETY: there is nothing.
    let error = unsafe { CudaDriverApi::load_from("/nowhere/libcuda.so.1".as_ref()) }.unwrap_err();
    assert!(error.to_string().contains("/nowhere/libcuda.so.1"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    // A library that is there and is no driver: the one that every program has.
    // SAFETY: none of the driver's functions is in it, so none is called.
    let error = unsafe { CudaDriverApi::load_from("libc.so.6".as_ref()) }.unwrap_err();
    assert!(matches!(error, CudaError::MissingSymbol { symbol: "cuInit", .. }), "{error}");
}

#[test]
fn a_device_is_found_by_uuid_and_by_ordinal() {
    let uuid = DeviceUuid::from_bytes(UUIDS[1]);
    assert_eq!(CudaDevice::by_ordinal(stub::api(), 1).unwrap().uuid(), uuid);
    let device = CudaDevice::by_uuid(stub::api(), uuid).unwrap();
    assert_eq!((device.uuid(), device.name(), device.granularity()), (uuid, "Stub", GRANULARITY));
    let error = CudaDevice::by_ordinal(stub::api(), 2).unwrap_err().to_string();
    assert!(error.contains("no device 2") && error.contains(&uuid.to_string()), "{error}");
    let unknown = DeviceUuid::from_bytes([1; 16]);
    let error = CudaDevice::by_uuid(stub::api(), unknown).unwrap_err().to_string();
    assert!(error.contains(&unknown.to_string()) && error.contains("CUDA_VISIBLE_DEVICES"), "{error}");
}

#[test]
fn a_device_that_does_not_tell_its_uuid_hides_no_other() {
    let fail = || stub::fail("cuDeviceGetUuid_v2", 0, 999);
    let uuid = DeviceUuid::from_bytes(UUIDS[1]);
    fail();
    assert_eq!(CudaDevice::by_uuid(stub::api(), uuid).unwrap().uuid(), uuid);
    fail();
    assert_eq!(CudaDevice::by_ordinal(stub::api(), 1).unwrap().uuid(), uuid);
    fail();
    let error = CudaDevice::by_ordinal(stub::api(), 0).unwrap_err();
    assert!(matches!(&error, CudaError::Driver(driver) if driver.code() == 999), "{error}");
    fail();
    let error = CudaDevice::by_uuid(stub::api(), DeviceUuid::from_bytes(UUIDS[0])).unwrap_err();
    assert!(error.to_string().contains(&format!("there are one without a UUID, {uuid}")), "{error}");
}

#[test]
fn a_device_that_lacks_what_is_needed_is_refused_before_anything_is_reserved() {
    for attribute in [HAS_VIRTUAL_MEMORY, HAS_POSIX_FD] {
        stub::lack(attribute);
        let error = CudaDevice::by_ordinal(stub::api(), 0).unwrap_err();
        assert!(matches!(error, CudaError::Incapable { .. }), "{error}");
    }
    assert_eq!(stub::calls("cuMemAddressReserve"), 0);
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    for code in [100, 34, 3] {
        stub::fail("cuInit", 0, code);
        let error = CudaDevice::by_ordinal(stub::api(), 0).unwrap_err();
        assert!(matches!(&error, CudaError::Driver(driver) if driver.code() == code), "{error}");
        let said = error.to_string();
        assert!(said.starts_with(&format!("the CUDA driver does not start: error {code}: ")), "{said}");
    }
}

#[test]
fn a_buffer_grows_and_shrinks_behind_its_base() {
    let bench = Bench::new(16, 0);
    let mut buffer = bench.buffer().unwrap();
    let base = buffer.base();
    let mut before = Vec::new();
    for blocks in [1, 3, 8] {
        buffer.grow_to(blocks * BLOCK - 1).unwrap();
        assert_eq!((buffer.base(), buffer.committed(), bench.used()), (base, blocks * BLOCK, blocks * BLOCK));
        let now = memory(base, buffer.committed());
        assert!(now.starts_with(&before), "what was there stays where it was");
        before = now;
    }
    // Not where it grew.
    shrink(&mut buffer, 2 * BLOCK);
    assert_eq!((buffer.base(), bench.used()), (base, 2 * BLOCK));
    assert_eq!(memory(base, buffer.committed()), before[..2]);
    assert_eq!(stub::memory_at(base + 2 * BLOCK), None);
    assert_eq!(stub::left(), Left { handles: 2, mappings: 2, reservations: 1 });
    drop(buffer);
    assert_eq!((stub::left(), bench.used()), (Left::default(), 0));
}

#[test]
fn any_block_can_be_released_and_committed_again() {
    use crate::memory::VirtualBacking;
    let bench = Bench::new(16, 0);
    let backing = CudaBacking::new(bench.pool.clone());
    let mut reservation = backing.reserve(MAX).unwrap();
    let base = backing.base(&reservation);
    // SAFETY: whole blocks inside, where nothing is committed.
    unsafe { backing.commit(&mut reservation, 0, 4 * BLOCK) }.unwrap();
    let before = memory(base, 4 * BLOCK);
    // SAFETY: committed, and used by nobody.
    unsafe { backing.release(&mut reservation, BLOCK, BLOCK) }.unwrap();
    assert_eq!((stub::memory_at(base + BLOCK), bench.used()), (None, 3 * BLOCK));
    // SAFETY: as above.
    unsafe { backing.commit(&mut reservation, BLOCK, BLOCK) }.unwrap();
    let after = memory(base, 4 * BLOCK);
    assert_eq!((before[0], &before[2..]), (after[0], &after[2..]));
    drop(reservation);
    assert_eq!((stub::left(), bench.used()), (Left::default(), 0));
}

#[test]
fn a_growth_that_fails_leaves_everything_as_it_was() {
    for symbol in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        for skip in [0, 2] {
            let bench = Bench::new(16, 0);
            let mut buffer = bench.buffer().unwrap();
            buffer.grow_to(2 * BLOCK).unwrap();
            let (left, there) = (stub::left(), memory(buffer.base(), 2 * BLOCK));
            let skip = if symbol == "cuMemSetAccess" { 0 } else { skip };
            stub::fail(symbol, skip, OUT_OF_MEMORY);
            let error = buffer.grow_to(6 * BLOCK).unwrap_err();
            assert!(stub::has_failed());
            let is_memory = matches!(&error, MemoryError::Cuda(error) if error.is_out_of_memory());
            assert!(is_memory && error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
            assert_eq!((stub::left(), bench.used(), buffer.committed()), (left, 2 * BLOCK, 2 * BLOCK));
            buffer.grow_to(6 * BLOCK).expect("the second time");
            assert_eq!(memory(buffer.base(), 2 * BLOCK), there);
        }
    }
    assert_eq!(stub::left(), Left::default());
}

#[test]
fn a_failure_does_not_change_what_lies_idle() {
    let bench = Bench::new(16, 8);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(2 * BLOCK).unwrap();
    shrink(&mut buffer, 0);
    for symbol in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        stub::fail(symbol, 0, OUT_OF_MEMORY);
        buffer.grow_to(4 * BLOCK).unwrap_err();
        assert_eq!((bench.pool.idle_bytes(), bench.used()), (2 * BLOCK, 2 * BLOCK), "{symbol}");
        assert_eq!(stub::left(), Left { handles: 2, mappings: 0, reservations: 1 });
    }
}

#[test]
fn memory_that_cannot_be_unmapped_or_released_stays_charged() {
    let bench = Bench::new(16, 0);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(2 * BLOCK).unwrap();
    stub::fail("cuMemUnmap", 0, INVALID_VALUE);
    // SAFETY: used by nobody.
    unsafe { buffer.shrink_to(0) }.unwrap_err();
    assert_eq!((buffer.committed(), bench.used()), (2 * BLOCK, 2 * BLOCK), "as before");
    stub::fail("cuMemRelease", 0, INVALID_VALUE);
    shrink(&mut buffer, BLOCK);
    assert_eq!(bench.used(), 2 * BLOCK);
    stub::fail("cuMemUnmap", 0, INVALID_VALUE);
    drop(buffer);
    assert_eq!(bench.used(), 2 * BLOCK);
    assert_eq!(stub::left(), Left { handles: 2, mappings: 1, reservations: 1 });
}

/// What is mapped of it for good is not forgotten: its addresses are neither given back nor mapped over.
#[test]
fn a_buffer_whose_failure_could_not_be_undone_never_grows_again() {
    let bench = Bench::new(16, 4);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(2 * BLOCK).unwrap();
    let there = memory(buffer.base(), 2 * BLOCK);
    stub::fail("cuMemMap", 2, OUT_OF_MEMORY);
    stub::fail("cuMemUnmap", 0, INVALID_VALUE);
    let error = buffer.grow_to(6 * BLOCK).unwrap_err();
    assert!(stub::has_failed() && matches!(&error, MemoryError::Cuda(CudaError::Driver(_))), "{error}");
    // The third of the new ones is mapped for good, and charged.
    assert_eq!((buffer.committed(), bench.used()), (2 * BLOCK, 3 * BLOCK));
    let left = Left { handles: 3, mappings: 3, reservations: 1 };
    assert_eq!(stub::left(), left);
    let calls = stub::calls("cuMemMap");
    for blocks in [3, 6] {
        let error = buffer.grow_to(blocks * BLOCK).unwrap_err();
        assert!(matches!(&error, MemoryError::Cuda(CudaError::Stuck)), "{error}");
    }
    assert_eq!((stub::calls("cuMemMap"), stub::left(), bench.used()), (calls, left, 3 * BLOCK));
    assert_eq!(memory(buffer.base(), 2 * BLOCK), there, "what it had it has");
    shrink(&mut buffer, BLOCK);
    assert_eq!((bench.pool.idle_bytes(), bench.used()), (BLOCK, 3 * BLOCK));
    drop(buffer);
    assert_eq!(stub::calls("cuMemAddressFree"), 0);
    bench.pool.trim();
    assert_eq!((stub::left(), bench.used()), (Left { handles: 1, mappings: 1, reservations: 1 }, BLOCK));
    bench.buffer().unwrap().grow_to(2 * BLOCK).expect("another buffer");
}

#[test]
fn an_importer_whose_failure_could_not_be_undone_never_grows_again() {
    let bench = Bench::new(16, 0);
    let mut ours = bench.buffer().unwrap();
    ours.grow_to(5 * BLOCK).unwrap();
    let incoming = importer(0);
    let mut theirs = VirtualBuffer::new(incoming.clone(), MAX, Account::nobody()).unwrap();
    let mut blocks = ours.export(0..5 * BLOCK).unwrap().0.into_iter();
    let mut import = |count| blocks.by_ref().take(count).for_each(|block| incoming.import(block).unwrap());
    import(4);
    stub::fail("cuMemMap", 2, OUT_OF_MEMORY);
    stub::fail("cuMemUnmap", 0, INVALID_VALUE);
    theirs.grow_to(3 * BLOCK).unwrap_err();
    assert!(stub::has_failed());
    assert_eq!(incoming.waiting_bytes(), 0, "where one is missing, what follows is of no use");
    import(1);
    let error = theirs.grow_to(BLOCK).unwrap_err();
    assert!(matches!(&error, MemoryError::Cuda(CudaError::Stuck)), "{error}");
    drop((theirs, incoming));
    assert_eq!(stub::calls("cuMemAddressFree"), 0);
    assert_eq!(stub::left(), Left { handles: 6, mappings: 6, reservations: 2 });
}

#[test]
fn what_a_pool_keeps_is_used_again_and_charged_once() {
    let bench = Bench::new(16, 3);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(4 * BLOCK).unwrap();
    let first = memory(buffer.base(), 4 * BLOCK);
    drop(buffer);
    assert_eq!((bench.pool.idle_bytes(), bench.used()), (3 * BLOCK, 3 * BLOCK));
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(3 * BLOCK).unwrap();
    assert_eq!((stub::calls("cuMemCreate"), bench.used()), (4, 3 * BLOCK));
    assert!(memory(buffer.base(), 3 * BLOCK).iter().all(|memory| first.contains(memory)));
    shrink(&mut buffer, 0);
    stub::fail("cuMemRelease", 1, INVALID_VALUE);
    assert_eq!(bench.pool.trim(), 2 * BLOCK, "what the driver took");
    assert_eq!((stub::left().handles, bench.used()), (1, BLOCK), "the other is charged");
    assert_eq!((bench.pool.trim(), stub::calls("cuMemRelease")), (0, 4), "and not tried again");
}

#[test]
fn a_pool_that_is_dropped_leaves_nothing() {
    let Bench { governor, pool } = Bench::new(4, 4);
    let mut buffer = VirtualBuffer::new(CudaBacking::new(pool), MAX / 4, Account::nobody()).unwrap();
    buffer.grow_to(4 * BLOCK).unwrap();
    drop(buffer);
    assert_eq!((stub::left(), governor.device_usage().used), (Left::default(), 0));
}

#[test]
fn a_budget_refuses_before_anything_is_reserved_or_created() {
    let bench = Bench::new(0, 0);
    let error = bench.buffer().unwrap_err();
    assert!(matches!(error, MemoryError::Budget(_)), "{error}");
    assert_eq!(stub::calls("cuMemAddressReserve"), 0);
    // Addresses for more than the budget are no overcommitment.
    let bench = Bench::new(15, 0);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(BLOCK).unwrap();
    let error = buffer.grow_to(16 * BLOCK).unwrap_err();
    assert!(matches!(error, MemoryError::Budget(_)), "{error}");
    assert!(error.to_string().contains("not even if nothing else is used"), "{error}");
    assert_eq!((stub::calls("cuMemCreate"), bench.used()), (1, BLOCK));
    buffer.grow_to(15 * BLOCK).unwrap();
    drop(buffer);
    stub::reset();
    let bench = Bench::new(16, 0);
    let (mut one, mut other) = (bench.buffer().unwrap(), bench.buffer().unwrap());
    one.grow_to(10 * BLOCK).unwrap();
    let error = other.grow_to(7 * BLOCK).unwrap_err();
    assert!(matches!(error, MemoryError::Budget(_)), "{error}");
    assert_eq!((stub::calls("cuMemCreate"), bench.used()), (10, 10 * BLOCK));
    other.grow_to(6 * BLOCK).unwrap();
}

#[test]
fn two_reservations_of_one_backing_have_nothing_in_common() {
    use crate::memory::VirtualBacking;
    let bench = Bench::new(16, 0);
    let backing = CudaBacking::new(bench.pool.clone());
    let [mut one, mut other] = [(); 2].map(|()| backing.reserve(4 * BLOCK).unwrap());
    for reservation in [&mut one, &mut other] {
        // SAFETY: whole blocks inside, where nothing is committed.
        unsafe { backing.commit(reservation, BLOCK, 2 * BLOCK) }.unwrap();
    }
    let [first, second] =
        [&one, &other].map(|reservation| memory(backing.base(reservation) + BLOCK, 2 * BLOCK));
    assert!(first.iter().all(|memory| !second.contains(memory)));
    drop(one);
    assert_eq!((memory(backing.base(&other) + BLOCK, 2 * BLOCK), bench.used()), (second, 2 * BLOCK));
    drop(other);
    assert_eq!((stub::left(), bench.used()), (Left::default(), 0));
}

#[test]
fn addresses_that_are_not_to_be_had_cost_nothing() {
    let bench = Bench::new(16, 0);
    stub::fail("cuMemAddressReserve", 0, OUT_OF_MEMORY);
    let error = bench.buffer().unwrap_err().to_string();
    assert!(error.contains("does not reserve device addresses (67108864 bytes)"), "{error}");
    assert_eq!((stub::left(), bench.used()), (Left::default(), 0));
}

/// An importer on that device, of the bench's blocks.
fn importer(ordinal: usize) -> ImportedBacking {
    ImportedBacking::new(device(ordinal), BLOCK as u64).unwrap()
}

#[test]
fn an_importer_grows_over_the_exporters_memory_in_order() {
    let bench = Bench::new(16, 16);
    let mut ours = bench.buffer().unwrap();
    ours.grow_to(2 * BLOCK).unwrap();
    let incoming = importer(0);
    let mut theirs = VirtualBuffer::new(incoming.clone(), MAX, Account::nobody()).unwrap();
    let (base, mut loans) = (theirs.base(), Vec::new());
    for (from, to) in [(0, 2 * BLOCK), (2 * BLOCK, 5 * BLOCK)] {
        ours.grow_to(to).unwrap();
        let error = theirs.grow_to(to).unwrap_err();
        assert!(matches!(error, MemoryError::Cuda(CudaError::NotImported { there: 0, .. })), "{error}");
        let (blocks, loan) = ours.export(from..to).unwrap();
        assert_eq!(loan.bytes() as usize, to - from);
        loans.push(loan);
        for block in blocks {
            assert_eq!(rustix::io::fcntl_getfd(&block.fd), Ok(rustix::io::FdFlags::CLOEXEC));
            incoming.import(block).unwrap();
        }
        assert_eq!((incoming.waiting_bytes(), open_descriptors()), (to - from, 0));
        theirs.grow_to(to).unwrap();
        assert_eq!(memory(base, to), memory(ours.base(), to));
        assert_eq!((theirs.base(), bench.used()), (base, to), "an importer is not charged");
    }
    let there = memory(base, 5 * BLOCK);
    shrink(&mut ours, 0);
    assert_eq!(bench.pool.idle_bytes(), 0, "what was exported is never used for another");
    assert_eq!(memory(base, 5 * BLOCK), there, "an importer keeps what it has");
    assert_eq!(bench.used(), 5 * BLOCK, "and what it has stays charged");
    shrink(&mut theirs, 2 * BLOCK);
    loans.remove(1).reclaimed();
    assert_eq!((stub::left().handles, bench.used()), (2, 2 * BLOCK));
    drop((ours, theirs));
    assert_eq!((stub::left(), bench.used()), (Left::default(), 2 * BLOCK));
    loans.remove(0).reclaimed();
    assert_eq!(bench.used(), 0);
}

#[test]
fn what_is_lent_is_charged_once_until_its_owner_and_all_others_let_go() {
    let bench = Bench::new(16, 16);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(4 * BLOCK).unwrap();
    let lend = |part| buffer.export(part).unwrap().1;
    let (first, second, forgotten) = (lend(0..2 * BLOCK), lend(0..2 * BLOCK), lend(2 * BLOCK..3 * BLOCK));
    assert_eq!((first.bytes(), bench.used()), (2 * BLOCK as u64, 4 * BLOCK));
    first.reclaimed();
    assert_eq!(bench.used(), 4 * BLOCK, "the owner has it, and another");
    // Dropped, and so never reclaimed.
    drop(forgotten);
    shrink(&mut buffer, 0);
    assert_eq!((bench.pool.trim(), bench.used()), (BLOCK, 3 * BLOCK));
    second.reclaimed();
    assert_eq!((stub::left().handles, bench.used()), (0, BLOCK));
    // An exporting that fails lends nothing.
    buffer.grow_to(2 * BLOCK).unwrap();
    stub::fail("cuMemExportToShareableHandle", 1, OUT_OF_MEMORY);
    buffer.export(0..2 * BLOCK).unwrap_err();
    // Reclaimed before it is released: nothing to give back yet.
    let (_, loan) = buffer.export(0..BLOCK).unwrap();
    loan.reclaimed();
    assert_eq!(bench.used(), 3 * BLOCK);
    drop(buffer);
    assert_eq!(bench.used(), BLOCK);
}

#[test]
fn an_import_that_fails_to_be_mapped_waits_again_in_its_order() {
    let bench = Bench::new(16, 0);
    let mut ours = bench.buffer().unwrap();
    ours.grow_to(4 * BLOCK).unwrap();
    for (symbol, skip) in [("cuMemMap", 2), ("cuMemSetAccess", 0)] {
        let incoming = importer(0);
        let mut theirs = VirtualBuffer::new(incoming.clone(), MAX, Account::nobody()).unwrap();
        for block in ours.export(0..4 * BLOCK).unwrap().0 {
            incoming.import(block).unwrap();
        }
        stub::fail(symbol, skip, INVALID_VALUE);
        theirs.grow_to(3 * BLOCK).unwrap_err();
        assert_eq!((incoming.waiting_bytes(), theirs.committed()), (4 * BLOCK, 0));
        theirs.grow_to(4 * BLOCK).unwrap();
        assert_eq!(memory(theirs.base(), 4 * BLOCK), memory(ours.base(), 4 * BLOCK));
    }
}

#[test]
fn a_block_that_is_not_what_was_announced_is_refused_and_its_descriptor_closed() {
    let bench = Bench::new(16, 0);
    let mut ours = bench.buffer().unwrap();
    ours.grow_to(BLOCK).unwrap();
    let export = || ours.export(0..BLOCK).unwrap().0.remove(0);
    let left = stub::left();

    let error = importer(1).import(export()).unwrap_err();
    assert!(matches!(error, CudaError::OtherDevice { .. }), "{error}");
    assert_eq!(stub::calls("cuMemImportFromShareableHandle"), 0, "the driver is not even asked");
    let lie = ExportedBlock { device: DeviceUuid::from_bytes(UUIDS[1]), ..export() };
    let error = importer(1).import(lie).unwrap_err();
    assert!(matches!(error, CudaError::OtherDevice { .. }), "{error}");
    let error = importer(0).import(ExportedBlock { bytes: 1, ..export() }).unwrap_err();
    assert!(matches!(error, CudaError::WrongSize { got: 1, .. }), "{error}");
    let fd = std::fs::File::open("/dev/null").unwrap().into();
    let error = importer(0).import(ExportedBlock { fd, ..export() }).unwrap_err();
    assert!(matches!(error, CudaError::Driver(_)), "{error}");
    for symbol in ["cuMemImportFromShareableHandle", "cuMemGetAllocationPropertiesFromHandle"] {
        stub::fail(symbol, 0, 101);
        let error = importer(0).import(export()).unwrap_err().to_string();
        assert!(error.contains("error 101: this process cannot see that device"), "{error}");
    }
    // The driver's word is taken for where it is, and for what it is.
    let elsewhere = AllocationProp::exportable(DeviceNumber(1));
    let [mut managed, mut on_host] = [AllocationProp::exportable(DeviceNumber(0)); 2];
    managed.kind = 2;
    on_host.location = Location { kind: 3, id: DeviceNumber(0) };
    for (prop, said) in [
        (managed, "is on no device"),
        (on_host, "is on no device"),
        (elsewhere, "is on another device than it was said to be"),
    ] {
        stub::describe(prop);
        let error = importer(0).import(export()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!((stub::left(), open_descriptors()), (left, 0));
    ImportedBacking::new(device(0), 1 << 40).expect("as large as any");
    for block in [0, 3 * GRANULARITY as u64, GRANULARITY as u64 / 2, 1 << 41, 1 << 63, u64::MAX] {
        assert!(ImportedBacking::new(device(0), block).is_err(), "{block}");
    }
}

#[test]
fn only_whole_blocks_that_are_committed_are_exported_and_all_or_none() {
    let bench = Bench::new(16, 0);
    let mut buffer = bench.buffer().unwrap();
    buffer.grow_to(3 * BLOCK).unwrap();
    let backwards = std::ops::Range { start: 2 * BLOCK, end: BLOCK };
    for part in [0..1, 1..BLOCK, 2 * BLOCK..4 * BLOCK, backwards] {
        let error = buffer.export(part).unwrap_err();
        assert!(matches!(error, MemoryError::Cuda(CudaError::NotCommitted { .. })), "{error}");
    }
    assert_eq!(buffer.export(BLOCK..BLOCK).unwrap().0.len(), 0);
    stub::fail("cuMemExportToShareableHandle", 2, OUT_OF_MEMORY);
    buffer.export(0..3 * BLOCK).unwrap_err();
    assert_eq!(open_descriptors(), 0);
}

#[test]
fn a_forked_child_leaves_its_parents_device_memory_alone() {
    let bench = Bench::new(16, 4);
    // The buffer's own lease is empty, since its pool answers for the memory.
    let account = Account::device(bench.governor.clone(), 1, "a buffer");
    let mut buffer = VirtualBuffer::new(CudaBacking::new(bench.pool.clone()), MAX, account).unwrap();
    buffer.grow_to(4 * BLOCK).unwrap();
    shrink(&mut buffer, 2 * BLOCK);
    let (_, loan) = buffer.export(0..BLOCK).unwrap();
    let before = ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"].map(stub::calls);
    // As if another thread had it: a child whose parent's threads hold a lock finds it locked for good.
    let locked = bench.governor.locked();
    // SAFETY: the child drops what makes no call there but `free` and `alarm`, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes a number. Whoever waits for the lock for good is killed.
        unsafe { libc::alarm(20) };
        drop((buffer, bench.pool));
        loan.reclaimed();
        let quiet = ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"].map(stub::calls) == before;
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(i32::from(quiet)) };
    }
    let mut status = 0;
    // SAFETY: the child of this process, waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 1);
    drop(locked);
    drop((buffer, bench.pool));
    assert_eq!(bench.governor.device_usage().used as usize, BLOCK);
    loan.reclaimed();
    assert_eq!((stub::left(), bench.governor.device_usage().used), (Left::default(), 0));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    /// Grows, shrinks, trims and fails at random; a plain number says what must be there.
    #[test]
    fn device_memory_behaves_like_its_model(
        keep in 0..4_usize,
        steps in proptest::collection::vec((0..MAX + 2 * BLOCK, 0..8_usize, 0..4_u32), 1..24),
    ) {
        stub::reset();
        let bench = Bench::new(16, keep);
        let mut buffer = bench.buffer().unwrap();
        let (base, mut model) = (buffer.base(), 0);
        for (bytes, fault, skip) in steps {
            let kinds = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"];
            let fault = kinds.get(fault).copied();
            // What is undone is undone by one unmapping each, and no second failure is made here.
            if let Some(fault) = fault {
                stub::fail(fault, if fault == "cuMemUnmap" { 0 } else { skip }, OUT_OF_MEMORY);
            }
            let target = bytes.next_multiple_of(BLOCK);
            let result = match target > model {
                true => buffer.grow_to(bytes),
                // SAFETY: nobody uses it.
                false => unsafe { buffer.shrink_to(bytes) },
            };
            let hit = stub::has_failed();
            stub::fail_no_more();
            match result {
                Ok(()) => model = target,
                Err(MemoryError::Beyond { .. }) => prop_assert!(target > MAX),
                Err(MemoryError::Cuda(_)) => prop_assert!(hit),
                Err(other) => panic!("{other}"),
            }
            prop_assert_eq!((buffer.base(), buffer.committed()), (base, model));
            prop_assert_eq!(memory(base, model).len() * BLOCK, model);
            prop_assert_eq!(bench.used(), model + bench.pool.idle_bytes());
            prop_assert!(bench.pool.idle_bytes() <= keep * BLOCK);
            prop_assert_eq!(stub::left().mappings * BLOCK, model);
            prop_assert_eq!(stub::left().handles * BLOCK, bench.used());
            if skip == 3 {
                bench.pool.trim();
            }
        }
        drop((buffer, bench));
        prop_assert_eq!(stub::left(), Left::default());
    }
}
