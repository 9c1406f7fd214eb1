use std::os::fd::OwnedFd;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::memory::governor::MemoryGovernor;
use crate::memory::host::HostBacking;
use crate::memory::mapping::Access;
use crate::memory::memfd::Unsealed;
use crate::memory::pages;
use crate::memory::shared::{Filling, SharedBacking};
use crate::memory::syscalls::{Call, page_size, with_fault};
use crate::spec::Pin;

const PAGES: usize = 32;

fn account(budget: u64) -> (Arc<MemoryGovernor>, Account) {
    let governor = Arc::new(MemoryGovernor::new(budget, budget));
    (governor.clone(), Account::host(governor, 1, "a test"))
}

fn file(bytes: usize) -> Arc<OwnedFd> {
    Arc::new(Unsealed::create("echo-test", bytes as u64).unwrap().seal().unwrap().into_fd())
}

fn owner(file: &Arc<OwnedFd>, pin: Pin) -> SharedBacking {
    SharedBacking::owner(file.clone(), 0, None, Arc::new(Filling::new(2, pin, |_| ())))
}

fn allocated(file: &OwnedFd) -> usize {
    rustix::fs::fstat(file).unwrap().st_blocks as usize * 512
}

fn write(buffer: &VirtualBuffer<impl VirtualBacking>, offset: usize, value: u8) {
    assert!(offset < buffer.committed());
    // SAFETY: committed (checked above) and of this thread alone.
    unsafe { *((buffer.base() + offset) as *mut u8) = value };
}

fn read(buffer: &VirtualBuffer<impl VirtualBacking>, offset: usize) -> u8 {
    assert!(offset < buffer.committed());
    // SAFETY: as above.
    unsafe { *((buffer.base() + offset) as *const u8) }
}

/// Grows, shrinks and fails at random; a plain number says what must be there.
fn behaves_like_its_model<B: VirtualBacking>(
    backing: B,
    steps: &[(usize, Option<(Call, u32)>)],
    allocated: impl Fn() -> Option<usize>,
) {
    let budget = (PAGES - 4) * page_size();
    let (governor, account) = account(budget as u64);
    let mut buffer = VirtualBuffer::new(backing, PAGES * page_size(), account).unwrap();
    let base = buffer.base();
    let mut model = 0;
    for &(bytes, fault) in steps {
        let target = bytes.next_multiple_of(page_size());
        let mut run = || match target > model {
            true => buffer.grow_to(bytes),
            // SAFETY: nobody uses it.
            false => unsafe { buffer.shrink_to(bytes) },
        };
        let (result, hit) = match fault {
            Some((call, skip)) => with_fault(call, skip, Errno::NOMEM, run),
            None => (run(), false),
        };
        match result {
            Ok(()) => model = target,
            Err(MemoryError::Os { .. }) => assert!(hit),
            Err(MemoryError::Budget(_)) => assert!(target > budget),
            Err(MemoryError::Beyond { .. }) => assert!(target > PAGES * page_size()),
            Err(other) => panic!("{other}"),
        }
        assert_eq!((buffer.committed(), buffer.base()), (model, base));
        assert_eq!(governor.host_usage().used, model as u64);
        assert!(allocated().is_none_or(|allocated| allocated == model), "{:?} of {model}", allocated());
        if model > 0 {
            write(&buffer, model - 1, 7);
            write(&buffer, 0, 9);
            assert_eq!(read(&buffer, 0), 9);
        }
    }
    drop(buffer);
    assert_eq!(governor.host_usage().used, 0);
}

fn steps() -> impl Strategy<Value = Vec<(usize, Option<(Call, u32)>)>> {
    let call = prop_oneof![Just(Call::Map), Just(Call::Populate), Just(Call::Lock), Just(Call::PunchHole),];
    let fault = proptest::option::weighted(0.4, (call, 0..2_u32));
    proptest::collection::vec((0..(PAGES + 2) * 4096, fault), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn private_memory_behaves_like_its_model(steps in steps()) {
        behaves_like_its_model(HostBacking, &steps, || None);
    }

    #[test]
    fn shared_memory_behaves_like_its_model(steps in steps()) {
        let file = file(PAGES * page_size());
        behaves_like_its_model(owner(&file, Pin::Required), &steps, || Some(allocated(&file)));
    }
}

#[test]
fn what_an_owner_commits_an_attacher_sees() {
    let file = file(PAGES * page_size());
    let (_, account) = account(1 << 30);
    let mut ours = VirtualBuffer::new(owner(&file, Pin::Off), PAGES * page_size(), account).unwrap();
    ours.grow_to(page_size() + 1).unwrap();
    let theirs = SharedBacking::attacher(file.clone(), 0, Access::ReadOnly);
    let mut theirs = VirtualBuffer::new(theirs, PAGES * page_size(), Account::nobody()).unwrap();
    theirs.grow_to(ours.committed()).unwrap();
    write(&ours, page_size(), 42);
    assert_eq!(read(&theirs, page_size()), 42);
    drop(theirs);
    assert_eq!(read(&ours, page_size()), 42, "an attacher takes nothing with it");
}

#[test]
fn committed_memory_is_resident_and_locked() {
    let file = file(PAGES * page_size());
    let (_, account) = account(1 << 30);
    let filling = Arc::new(Filling::new(1, Pin::BestEffort, |_| ()));
    let backing = SharedBacking::owner(file, 0, None, filling.clone());
    let mut buffer = VirtualBuffer::new(backing, PAGES * page_size(), account).unwrap();
    buffer.grow_to(4 * page_size()).unwrap();
    let got = pages::count(&[(buffer.base(), buffer.base() + buffer.reserved())]).unwrap();
    assert_eq!(got.resident, 4 * page_size() as u64);
    let locked = if filling.not_locked().is_some() { 0 } else { got.resident };
    assert_eq!(got.locked, locked, "{:?}", filling.not_locked());
}

#[test]
fn pages_that_cannot_be_locked_are_an_error_only_where_that_is_required() {
    let file = file(PAGES * page_size());
    let commit = |pin| {
        let (governor, account) = account(1 << 30);
        let filling = Arc::new(Filling::new(1, pin, |_| ()));
        let backing = SharedBacking::owner(file.clone(), 0, None, filling.clone());
        let mut buffer = VirtualBuffer::new(backing, PAGES * page_size(), account).unwrap();
        let (result, hit) = with_fault(Call::Lock, 0, Errno::NOMEM, || buffer.grow_to(1));
        (result, hit, filling.not_locked(), governor.host_usage().used)
    };
    let (result, hit, _, used) = commit(Pin::Required);
    let error = result.unwrap_err().to_string();
    assert!(hit && error.contains("RLIMIT_MEMLOCK is"), "{error}");
    assert_eq!((used, allocated(&file)), (0, 0), "nothing is left behind");
    let (result, hit, why, _) = commit(Pin::BestEffort);
    assert!(hit && result.is_ok() && why.is_some_and(|why| why.contains("RLIMIT_MEMLOCK")));
    let (result, hit, why, _) = commit(Pin::Off);
    assert!(!hit && result.is_ok() && why.is_none(), "it is not even tried");
}

#[test]
fn many_threads_populate_every_page_once() {
    let bytes = 200 << 20;
    let file = file(bytes);
    let done = Arc::new(std::sync::Mutex::new(0));
    let counter = done.clone();
    let filling = Filling::new(3, Pin::Off, move |bytes| *counter.lock().unwrap() += bytes);
    let (_, account) = account(1 << 30);
    let backing = SharedBacking::owner(file.clone(), 0, None, Arc::new(filling));
    let mut buffer = VirtualBuffer::new(backing, bytes, account).unwrap();
    buffer.grow_to(bytes).unwrap();
    assert_eq!((*done.lock().unwrap(), allocated(&file)), (bytes as u64, bytes));
    // SAFETY: nobody uses it.
    unsafe { buffer.shrink_to(0) }.unwrap();
    assert_eq!(allocated(&file), 0);
}

#[test]
fn a_buffer_of_nothing_needs_nothing() {
    let (_, account) = account(0);
    let mut buffer = VirtualBuffer::new(HostBacking, 0, account).unwrap();
    buffer.grow_to(0).unwrap();
    assert!(buffer.base().is_multiple_of(page_size()) && buffer.base() != 0);
    assert!(matches!(buffer.grow_to(1), Err(MemoryError::Beyond { .. })));
}

#[test]
fn dropping_unmaps_all_of_it() {
    let name = "echo-test-dropping";
    let file = Arc::new(Unsealed::create(name, 8192).unwrap().seal().unwrap().into_fd());
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().matches(name).count();
    let (_, account) = account(1 << 30);
    let mut buffer = VirtualBuffer::new(owner(&file, Pin::Off), 8192, account).unwrap();
    buffer.grow_to(8192).unwrap();
    assert_eq!(mappings(), 1);
    drop(buffer);
    assert_eq!(mappings(), 0);
}
