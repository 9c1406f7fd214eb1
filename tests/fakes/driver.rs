//! The driver's library: its cases, and what takes several processes or dies.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use echo::wire::socket::{self, Received};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::cases::{DRIVER_CASES, Memory, PAGE};
use crate::cuda::{Driver, Runtime, properties};
use crate::fakes::{Tree, built};
use crate::support::{Actor, LONG, say};
use crate::window::Window;
use crate::{hold, in_child, say_whether, start};

/// The parts of these tests.
pub(crate) fn play(role: &[&str]) {
    let load = |library: &str| Driver::load(Path::new(library)).unwrap();
    match role[..] {
        ["case", index, library] => {
            say_whether(hold::driver_case(&DRIVER_CASES[index.parse::<usize>().unwrap()], &load(library)));
        }
        ["touch", library] => touch_before_access(&load(library)),
        ["export", library] => export(&load(library)),
        ["import", library] => import(&load(library)),
        ["forked", library] => fork_after(&load(library)),
        ["devices", library] => say_devices(&load(library)),
        ["contexts", library] => use_contexts(&load(library)),
        ["limits", library] => reach_limits(&load(library)),
        ["wants-context", library] => create_without_a_context(&load(library)),
        ["pinned", library] => copy_what_is_pinned(&load(library)),
        ["both", library, runtime] => {
            use_both(&load(library), &Runtime::load(Path::new(runtime)).unwrap());
        }
        _ => panic!("no such part: {role:?}"),
    }
}

fn start_driver(tree: &Tree, role: &str, knobs: &[(&str, &str)]) -> Actor {
    start(tree, &format!("driver {role} {}", tree.put_driver().display()), knobs)
}

fn play_driver(tree: &Tree, role: &str, knobs: &[(&str, &str)]) -> Vec<String> {
    crate::play(tree, &format!("driver {role} {}", tree.put_driver().display()), knobs)
}

/// All of them, a process each.
fn hold_cases(tree: &Tree, library: &Path) {
    let mut failed = Vec::new();
    for (index, case) in DRIVER_CASES.iter().enumerate() {
        let mut actor = start(tree, &format!("driver case {index} {}", library.display()), &[]);
        if actor.line().as_deref() != Some("held") {
            failed.push(case.name);
        }
        actor.wait();
    }
    assert_eq!(failed, Vec::<&str>::new());
}

#[test]
fn a_fake_driver_answers_as_the_table_says() {
    let tree = Tree::new("driver-cases");
    hold_cases(&tree, &tree.put_driver());
    for what in ["registrations", "handles", "reservations", "mappings", "memory", "contexts"] {
        assert_eq!(tree.journal().live("libcuda.so.1", what), Some(0), "{what}");
    }
}

#[test]
fn a_real_driver_answers_as_the_table_says() {
    match std::env::var_os("ECHO_TEST_CUDA") {
        Some(library) => hold_cases(&Tree::new("driver-real"), &PathBuf::from(library)),
        None => eprintln!("left out, since ECHO_TEST_CUDA names no driver's library of a machine with a GPU"),
    }
}

/// Enters the primary context of device 0, and maps so much of it. Nobody has access yet.
fn mapped(driver: &Driver, granules: usize) -> (u64, u64, usize) {
    assert_eq!(driver.init(0), 0);
    let context = driver.of_device("cuDevicePrimaryCtxRetain", 0).unwrap();
    assert_eq!(driver.with_context("cuCtxPushCurrent_v2", context), 0);
    let bytes = granules * driver.granularity(&properties(0, true)).unwrap();
    let handle = driver.create(bytes, &properties(0, true), 0).unwrap();
    let start = driver.reserve(bytes, 0).unwrap();
    assert_eq!(driver.map(start, bytes, 0, handle), 0);
    (start, handle, bytes)
}

fn touch_before_access(driver: &Driver) {
    let (start, _, bytes) = mapped(driver, 1);
    let at: *mut u8 = std::ptr::with_exposed_provenance_mut(start as usize);
    assert_eq!(driver.set_access(start, bytes, 0, 3), 0);
    // SAFETY: mapped, and it may be accessed.
    unsafe { at.write_volatile(1) };
    assert_eq!(driver.on_range("cuMemUnmap", start, bytes), 0);
    let handle = driver.create(bytes, &properties(0, true), 0).unwrap();
    assert_eq!(driver.map(start, bytes, 0, handle), 0);
    say("mapped");
    // SAFETY: no reference is made, and the process is to die of it.
    unsafe { at.write_volatile(2) };
    say("touched");
}

#[test]
fn memory_that_nobody_was_given_access_to_kills_who_touches_it() {
    let tree = Tree::new("driver-touch");
    let mut actor = start_driver(&tree, "touch", &[]);
    actor.expect("mapped");
    assert_eq!(actor.line(), None);
    let status = actor.wait();
    // AddressSanitizer catches the signal, says where, and exits.
    assert!(status.signal() == Some(libc::SIGSEGV) || cfg!(echo_asan) && !status.success(), "{status}");
}

fn send(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let sent = socket::send(std::io::stdin().as_fd(), bytes, descriptors).unwrap();
    assert!(matches!(sent, socket::Sent::Done));
}

/// What the other process says, and gives.
fn receive() -> (Vec<u8>, Vec<OwnedFd>) {
    let stdin = std::io::stdin();
    let mut bytes = vec![0; 64];
    assert!(socket::wait_readable(stdin.as_fd(), Instant::now() + LONG).unwrap());
    match socket::receive(stdin.as_fd(), &mut bytes).unwrap() {
        Received::Packet(packet) => (bytes[..packet.bytes].to_vec(), packet.descriptors),
        other => panic!("{other:?}"),
    }
}

/// Gives memory of the machine's second device to another process, which sees that alone, and ends.
fn export(driver: &Driver) {
    assert_eq!(driver.init(0), 0);
    let context = driver.of_device("cuDevicePrimaryCtxRetain", 1).unwrap();
    assert_eq!(driver.with_context("cuCtxPushCurrent_v2", context), 0);
    let bytes = 2 * driver.granularity(&properties(1, true)).unwrap();
    let handle = driver.create(bytes, &properties(1, true), 0).unwrap();
    let start = driver.reserve(bytes, 0).unwrap();
    assert_eq!(driver.map(start, bytes, 0, handle), 0);
    assert_eq!(driver.set_access(start, bytes, 0, 3), 217, "of a device that is no peer");
    assert_eq!(driver.set_access(start, bytes, 1, 3), 0);
    assert_eq!(driver.fill(start, b'A', bytes), 0);
    let descriptor = driver.export(handle).unwrap();
    let flags = rustix::io::fcntl_getfd(&descriptor).unwrap();
    assert!(flags.is_empty(), "who exports it closes it on exec");
    send(&handle.to_ne_bytes(), &[descriptor.as_fd()]);
    drop(descriptor);
    if receive().0 != b"written" {
        return;
    }
    assert_eq!(driver.read(start, 1).unwrap(), b"B");
    say("exported");
}

fn import(driver: &Driver) {
    let (other, mut descriptors) = receive();
    let descriptor = descriptors.pop().unwrap();
    assert_eq!(driver.init(0), 0);
    let handle = match driver.import(descriptor.as_fd()) {
        Ok(handle) => handle,
        Err(code) => {
            send(b"failed", &[]);
            return say(&format!("not imported: {code}"));
        }
    };
    assert_ne!(handle.to_ne_bytes()[..], other[..], "a number of its own");
    assert_ne!(driver.import(descriptor.as_fd()), Ok(handle), "each time");
    drop(descriptor);
    let found = driver.properties(handle).unwrap();
    assert_eq!(found, properties(0, true), "the number of the device is this process's");
    let context = driver.of_device("cuDevicePrimaryCtxRetain", 0).unwrap();
    assert_eq!(driver.with_context("cuCtxPushCurrent_v2", context), 0);
    let bytes = 2 * driver.granularity(&found).unwrap();
    let start = driver.reserve(bytes, 0).unwrap();
    assert_eq!(driver.map(start, bytes, 0, handle), 0);
    assert_eq!(driver.read(start, 1), Err(1), "without access");
    assert_eq!(driver.set_access(start, bytes, 0, 3), 0);
    assert_eq!(driver.release(handle), 0);
    assert!(driver.read(start, bytes).unwrap().iter().all(|&byte| byte == b'A'));
    assert_eq!(driver.fill(start, b'B', bytes), 0);
    send(b"written", &[]);
    say("imported");
    // Told by the test that the other process is gone.
    assert_eq!(receive().0, b"gone");
    assert!(driver.read(start, bytes).unwrap().iter().all(|&byte| byte == b'B'));
    say("read");
}

fn sockets() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn start_on(tree: &Tree, role: &str, visible: &str, stdin: &OwnedFd) -> Actor {
    let (name, file) = tree.journal().variable();
    let role = format!("driver {role} {}", tree.put_driver().display());
    Actor::spawn(&role, Path::new("/nowhere"), |command| {
        command.env(name, file).env("ECHO_FAKE_CUDA_DEVICES", "2").env("CUDA_VISIBLE_DEVICES", visible);
        command.stdin(stdin.try_clone().unwrap());
    })
}

#[test]
fn memory_goes_from_process_to_process_and_outlives_who_made_it() {
    let tree = Tree::new("driver-export");
    let (one, other) = sockets();
    let mut exporter = start_on(&tree, "export", "0,1", &one);
    let mut importer = start_on(&tree, "import", "1", &other);
    importer.expect("imported");
    exporter.expect("exported");
    assert!(exporter.wait().success());
    socket::send(one.as_fd(), b"gone", &[]).unwrap();
    importer.expect("read");
    assert!(importer.wait().success());
}

#[test]
fn who_does_not_see_the_device_does_not_get_its_memory() {
    let tree = Tree::new("driver-blind");
    let (one, other) = sockets();
    let _exporter = start_on(&tree, "export", "0,1", &one);
    drop(one);
    start_on(&tree, "import", "0", &other).expect("not imported: 101");
}

fn fork_after(driver: &Driver) {
    let (start, handle, bytes) = mapped(driver, 1);
    assert!(in_child(|| {
        let codes = [
            driver.init(0),
            driver.release(handle),
            driver.on_range("cuMemUnmap", start, bytes),
            driver.host_register(PAGE, PAGE, 0),
            driver.synchronize(),
        ];
        codes == [3; 5]
    }));
    assert_eq!(driver.on_range("cuMemUnmap", start, bytes), 0);
}

#[test]
fn a_forked_child_has_no_driver() {
    play_driver(&Tree::new("driver-forked"), "forked", &[]);
}

fn say_devices(driver: &Driver) {
    let names = [0, 712, 12345].map(|code| driver.error_name(code));
    let names = names.map(|name| name.unwrap_or("none".to_owned())).join(", ");
    let version: i32 = driver.says("cuDriverGetVersion").unwrap();
    say(&format!("version {version}, names {names}"));
    let code = driver.init(0);
    let count: i32 = match driver.says("cuDeviceGetCount") {
        Ok(count) => count,
        Err(then) => return say(&format!("{code} {then}")),
    };
    for device in 0..count {
        let uuid: u128 = driver.of_device("cuDeviceGetUuid_v2", device).unwrap();
        assert_eq!(driver.of_device("cuDeviceGetUuid", device), Ok(uuid));
        assert_eq!(driver.of_device("cuDeviceGet", device), Ok(device));
        let bytes: usize = driver.of_device("cuDeviceTotalMem_v2", device).unwrap();
        let attribute = driver.attribute(113, device).unwrap();
        say(&format!("{} {} {bytes} {attribute}", driver.name(device).unwrap(), uuid.to_ne_bytes()[15]));
    }
    assert_eq!(driver.of_device::<i32>("cuDeviceGet", count), Err(101));
}

#[test]
fn devices_are_those_that_a_test_asks_for() {
    let tree = Tree::new("driver-devices");
    let first = |version| {
        format!("version {version}, names CUDA_SUCCESS, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, none")
    };
    let card = |number, bytes: u64, attribute| format!("a fake GPU of echo's {number} {bytes} {attribute}");
    let said = |knobs: &[(&str, &str)]| play_driver(&tree, "devices", knobs);
    assert_eq!(said(&[]), [first(13000), card(0, 16 << 30, 0)]);
    let knobs = [("DEVICES", "2"), ("MEMORY", "4096"), ("ATTRIBUTES", "113=1"), ("DRIVER", "12080")];
    assert_eq!(said(&knobs), [first(12080), card(0, 4096, 1), card(1, 4096, 1)]);
    assert_eq!(said(&[("DEVICES", "0")]), [first(13000), "100 3".to_owned()]);
    assert_eq!(said(&[("INIT", "999")]), [first(13000), "999 3".to_owned()]);
}

fn use_contexts(driver: &Driver) {
    let window = Window::new(Memory::Shared);
    assert_eq!(driver.init(0), 0);
    assert_eq!(driver.is_active(0), Ok(false));
    assert_eq!(driver.says::<usize>("cuCtxGetCurrent"), Ok(0));
    assert_eq!(driver.says::<usize>("cuCtxPopCurrent_v2"), Err(201));
    assert_eq!(driver.release_context(0), 201);
    let context: usize = driver.of_device("cuDevicePrimaryCtxRetain", 0).unwrap();
    assert_eq!(driver.is_active(0), Ok(true));
    assert_eq!(driver.with_context("cuCtxSetCurrent", context), 0);
    assert_eq!(driver.says::<usize>("cuCtxGetCurrent"), Ok(context));
    assert_eq!(driver.host_register(window.base, PAGE, 0), 0);
    std::thread::scope(|scope| {
        // Current is a thread's own; unregistering needs none.
        scope.spawn(|| assert_eq!(driver.host_register(window.base + PAGE, PAGE, 0), 201));
    });
    // With the context goes what was registered in it.
    assert_eq!(driver.release_context(0), 0);
    assert_eq!(driver.is_active(0), Ok(false));
    assert_eq!(driver.synchronize(), 709);
    assert_eq!(driver.with_context("cuCtxSetCurrent", 0), 0);
    assert_eq!(driver.host_unregister(window.base), 201);
    assert_ne!(driver.of_device("cuDevicePrimaryCtxRetain", 0), Ok(context), "another one");
}

#[test]
fn contexts_are_retained_and_current_on_threads() {
    play_driver(&Tree::new("driver-contexts"), "contexts", &[]);
}

fn reach_limits(driver: &Driver) {
    let (start, handle, bytes) = mapped(driver, 1);
    let create = || driver.create(bytes, &properties(0, true), 0);
    let second = create().unwrap();
    assert_eq!(create(), Err(2));
    assert_eq!(driver.release(second), 0);
    assert_eq!(driver.release(handle), 0);
    // The mapping still has it; what is imported is another's.
    let third = create().unwrap();
    let descriptor = driver.export(third).unwrap();
    assert!(driver.import(descriptor.as_fd()).is_ok());
    assert_eq!(create(), Err(2));
    assert_eq!(driver.on_range("cuMemUnmap", start, bytes), 0);
    // The sixth that creates, which is to fail; the next is not.
    assert_eq!(create(), Err(999));
    assert!(create().is_ok());
}

#[test]
fn a_device_has_no_more_memory_than_a_test_gives_it() {
    play_driver(
        &Tree::new("driver-limits"),
        "limits",
        &[("MEMORY", "4194304"), ("FAIL", "cuMemCreate:6:999")],
    );
}

fn create_without_a_context(driver: &Driver) {
    assert_eq!(driver.init(0), 0);
    assert_eq!(driver.is_active(0), Ok(true), "somebody else has it");
    assert_eq!(driver.reserve(PAGE, 0), Err(201));
    let context = driver.of_device("cuDevicePrimaryCtxRetain", 0).unwrap();
    assert_eq!(driver.with_context("cuCtxPushCurrent_v2", context), 0);
    assert!(driver.reserve(PAGE, 0).is_ok());
}

#[test]
fn calls_for_memory_want_a_context_where_a_test_asks_for_it() {
    play_driver(&Tree::new("driver-wants"), "wants-context", &[("VMM_CONTEXT", "1"), ("CONTEXT", "1")]);
}

/// A device is given what is in the pages that were pinned, as by the runtime.
fn copy_what_is_pinned(driver: &Driver) {
    let (start, _, bytes) = mapped(driver, 1);
    assert_eq!(driver.set_access(start, bytes, 0, 3), 0);
    assert_eq!(driver.write(start, b"abc"), 0);
    assert_eq!(driver.read(start, 3).unwrap(), b"abc");
    let window = Window::new(Memory::Private);
    window.write_to_file(b'A');
    assert_eq!(driver.host_register(window.base, PAGE, 0), 0);
    let journal = std::fs::read_to_string(std::env::var_os("ECHO_FAKE_CUDA_JOURNAL").unwrap()).unwrap();
    if let Some(line) = journal.lines().find(|line| line.contains("unpinned: ")) {
        return eprintln!("left out, since the kernel does not pin for this process: {line}");
    }
    window.write_to_file(b'B');
    // SAFETY: a page of the window.
    assert_eq!(unsafe { driver.copy_to_device(start, window.base, PAGE) }, 0);
    assert_eq!(driver.read(start, 1).unwrap(), b"A", "a snapshot");
    assert_eq!(driver.host_unregister(window.base), 0);
}

#[test]
fn a_device_is_given_what_was_pinned() {
    play_driver(&Tree::new("driver-pinned"), "pinned", &[]);
}

fn use_both(driver: &Driver, runtime: &Runtime) {
    assert_eq!(driver.init(0), 0);
    assert_eq!(driver.is_active(0), Ok(false));
    assert_eq!(runtime.number("cudaGetDeviceCount"), Ok(1));
    assert_eq!(driver.is_active(0), Ok(false));
    assert_eq!(runtime.free_nothing(), 0);
    assert_eq!(runtime.free_nothing(), 0);
    assert_eq!(driver.is_active(0), Ok(true));
    assert_eq!(driver.release_context(0), 0, "it was retained once");
    assert_eq!(driver.is_active(0), Ok(false));
}

#[test]
fn a_runtime_makes_the_primary_context_that_the_driver_sees() {
    let tree = Tree::new("driver-both");
    let driver = tree.put_driver();
    let role = format!("driver both {} {}", driver.display(), built().cudart13.display());
    crate::play(&tree, &role, &[]);
}
