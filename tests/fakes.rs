//! The fake CUDA libraries answer as real ones do, and show what a device would see.
//!
//! `ECHO_TEST_CUDART=/path/libcudart.so.N ECHO_TEST_CUDA=libcuda.so.1 cargo test --test fakes a_real -- --nocapture`
//! holds real libraries against the same cases, on a machine with a GPU.

#[path = "fakes/cases.rs"]
mod cases;
#[path = "support/cuda.rs"]
mod cuda;
#[path = "fakes/driver.rs"]
mod driver;
#[path = "support/fakes.rs"]
mod fakes;
#[path = "fakes/hold.rs"]
mod hold;
#[path = "support/kernel.rs"]
mod kernel;
#[path = "support/mod.rs"]
mod support;
#[path = "fakes/window.rs"]
mod window;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use cases::{CASES, Memory, PAGE, WINDOW};
use cuda::Runtime;
use fakes::{Tree, built};
use hold::Held;
use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use support::{Actor, eventually, say};
use window::{Window, memfd};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["case", index, library] => {
            say_whether(hold::runtime_case(&CASES[index.parse::<usize>().unwrap()], &load(library)));
        }
        ["punched", library] => lose_pages_by_a_punch(&load(library)),
        ["private", library] => map_privately(&load(library)),
        ["protected", library] => take_away_the_right_to_write(&load(library)),
        ["refused", library] => register_without_io_uring(&load(library)),
        ["forked", library] => fork_after(&load(library)),
        ["forked-before", library] => fork_before(&load(library)),
        ["two", one, other] => use_two(&load(one), &load(other)),
        ["codes", library] => say_codes(&load(library)),
        ["register", library] => register_shared(&load(library)),
        ["calls-at-exit", library] => call_at_exit(load(library)),
        ["loads", library] => say_whether_it_loads(library),
        ["driver", ref rest @ ..] => driver::play(rest),
        _ => panic!("no such part: {role:?}"),
    }
}

fn load(library: &str) -> Runtime {
    Runtime::load(Path::new(library)).unwrap()
}

/// A part, with a journal and knobs.
fn start(tree: &Tree, role: &str, knobs: &[(&str, &str)]) -> Actor {
    let (name, file) = tree.journal().variable();
    Actor::spawn(role, Path::new("/nowhere"), |command| {
        command.env_remove("CUDA_VISIBLE_DEVICES").env(name, file);
        for (knob, value) in knobs {
            command.env(format!("ECHO_FAKE_CUDA_{knob}"), value);
        }
    })
}

fn play(tree: &Tree, role: &str, knobs: &[(&str, &str)]) -> Vec<String> {
    let mut actor = start(tree, role, knobs);
    let said = std::iter::from_fn(|| actor.line()).collect();
    assert!(actor.wait().success(), "{role}");
    said
}

/// Nothing else is in the process, so a failure says which step of which case it is.
fn say_whether(held: Held) {
    match held {
        Held::Yes => say("held"),
        Held::LeftOut(why) => say(&format!("left out: {why}")),
        Held::No(why) => panic!("{why}"),
    }
}

/// All of them, a process each.
fn hold_cases(tree: &Tree, library: &Path) -> usize {
    let mut failed = Vec::new();
    let mut held = 0;
    for (index, case) in CASES.iter().enumerate() {
        let attributes: Vec<String> =
            case.attributes.iter().map(|(number, value)| format!("{number}={value}")).collect();
        let knobs = [("ATTRIBUTES", attributes.join(","))];
        let knobs = knobs.each_ref().map(|(knob, value)| (*knob, value.as_str()));
        let mut actor = start(tree, &format!("case {index} {}", library.display()), &knobs);
        match actor.line() {
            Some(said) if said == "held" => held += 1,
            Some(said) => eprintln!("{}: {said}", case.name),
            None => failed.push(case.name),
        }
        actor.wait();
    }
    assert_eq!(failed, Vec::<&str>::new());
    held
}

#[test]
fn a_fake_runtime_answers_as_the_table_says() {
    let tree = Tree::new("cases");
    for library in tree.put_wheels() {
        assert_eq!(hold_cases(&tree, &library), CASES.len());
    }
}

#[test]
fn a_real_runtime_answers_as_the_table_says() {
    let Some(library) = std::env::var_os("ECHO_TEST_CUDART") else {
        return eprintln!("left out, since ECHO_TEST_CUDART names no runtime of a machine with a GPU");
    };
    let held = hold_cases(&Tree::new("real"), &PathBuf::from(library));
    eprintln!("{held} of {} cases held", CASES.len());
}

/// Whether the kernel pins for us; if not, the part that asks says that it is left out.
fn is_pinned(runtime: &Runtime, window: &Window) -> bool {
    assert_eq!(runtime.host_register(window.base, WINDOW * PAGE, 0), 0);
    let notes = std::fs::read_to_string(std::env::var_os("ECHO_FAKE_CUDA_JOURNAL").unwrap()).unwrap();
    let unpinned = notes.lines().find(|line| line.contains("unpinned: "));
    if let Some(line) = unpinned {
        eprintln!("left out, since the kernel does not pin for this process: {line}");
    }
    unpinned.is_none()
}

fn lose_pages_by_a_punch(runtime: &Runtime) {
    let window = Window::new(Memory::Shared);
    window.write(b'A');
    if is_pinned(runtime, &window) {
        assert_eq!(window.seen_by(runtime), b'A');
        window.write_to_file(b'B');
        assert_eq!(window.seen_by(runtime), b'B', "the pages are the file's");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(window.file.as_ref().unwrap().as_fd(), punch, 0, (WINDOW * PAGE) as u64)
            .unwrap();
        window.write(b'C');
        assert_eq!(window.seen_by(runtime), b'B', "the device keeps the pages that were punched out");
        window.unmap();
        assert_eq!(window.seen_by(runtime), b'B', "and would after they are unmapped");
    }
    assert_eq!(runtime.host_unregister(window.base), 0);
}

fn map_privately(runtime: &Runtime) {
    let window = Window::new(Memory::Private);
    window.write_to_file(b'A');
    if is_pinned(runtime, &window) {
        assert_eq!(window.seen_by(runtime), b'A');
        window.write_to_file(b'B');
        assert_eq!(window.seen_by(runtime), b'A', "the device has a copy of its own");
    }
    assert_eq!(runtime.host_unregister(window.base), 0);
}

fn take_away_the_right_to_write(runtime: &Runtime) {
    let window = Window::new(Memory::Shared);
    window.write(b'A');
    if is_pinned(runtime, &window) {
        // SAFETY: only what may be done with the window changes.
        unsafe { rustix::mm::mprotect(window.pointer(0), WINDOW * PAGE, MprotectFlags::READ) }.unwrap();
        window.write_to_file(b'B');
        assert_eq!(window.seen_by(runtime), b'B', "the device follows the writer");
    }
    assert_eq!(runtime.host_unregister(window.base), 0);
}

#[test]
fn a_device_keeps_the_pages_that_a_punched_hole_took_away() {
    let tree = Tree::new("punched");
    play(&tree, &format!("punched {}", built().cudart12.display()), &[]);
    assert_eq!(tree.journal().live("libcudart.so.12", "registrations"), Some(0));
}

#[test]
fn a_device_sees_a_snapshot_of_a_private_mapping() {
    let tree = Tree::new("private");
    play(&tree, &format!("private {}", built().cudart12.display()), &[]);
}

#[test]
fn a_pin_outlives_the_right_to_write() {
    let tree = Tree::new("protected");
    play(&tree, &format!("protected {}", built().cudart13.display()), &[]);
}

fn register_without_io_uring(runtime: &Runtime) {
    let call = libc::SYS_io_uring_setup;
    kernel::refuse(&[kernel::Refused { call, when: Vec::new(), errno: libc::EPERM }], None);
    let window = Window::new(Memory::Shared);
    window.write(b'A');
    assert_eq!(runtime.host_register(window.base, WINDOW * PAGE, 0), 0);
    assert_eq!(window.seen_by(runtime), b'A', "by its address");
    assert_eq!(runtime.host_unregister(window.base), 0);
}

#[test]
fn where_the_kernel_does_not_pin_the_journal_says_so() {
    let tree = Tree::new("refused");
    play(&tree, &format!("refused {}", built().cudart12.display()), &[]);
    let entries = tree.journal().entries();
    assert!(entries.iter().any(|entry| entry.name == "unpinned:" && entry.code.is_none()), "{entries:?}");
}

/// In a child: ends it with what it says.
fn in_child(says: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls what allocates at most, which glibc allows after a fork, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let good = says();
        // SAFETY: ends the child without running what its parent registered.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = 0;
    // SAFETY: the child of this process, waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

fn fork_after(runtime: &Runtime) {
    let window = Window::new(Memory::Shared);
    assert_eq!(runtime.host_register(window.base, PAGE, 0), 0);
    assert!(in_child(|| {
        let calls = [
            runtime.host_register(window.base + PAGE, PAGE, 0),
            runtime.host_unregister(window.base),
            runtime.free_nothing(),
            runtime.get_last_error(),
            runtime.get_last_error(),
        ];
        calls == [3; 5]
    }));
    assert_eq!(runtime.get_last_error(), 0);
    assert_eq!(runtime.host_unregister(window.base), 0);
}

fn fork_before(runtime: &Runtime) {
    let window = Window::new(Memory::Shared);
    assert!(in_child(
        || runtime.host_register(window.base, PAGE, 0) == 0 && runtime.host_unregister(window.base) == 0
    ));
    assert_eq!(runtime.host_register(window.base, PAGE, 0), 0);
    assert_eq!(runtime.host_unregister(window.base), 0);
}

#[test]
fn a_forked_child_gets_nothing_but_an_error() {
    let tree = Tree::new("forked");
    for library in tree.put_wheels() {
        play(&tree, &format!("forked {}", library.display()), &[]);
        play(&tree, &format!("forked-before {}", library.display()), &[]);
    }
}

fn use_two(one: &Runtime, other: &Runtime) {
    assert_eq!(one.host_unregister(PAGE), 713);
    assert_eq!(other.peek_at_last_error(), 0, "of the other library");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(one.peek_at_last_error(), 0, "of another thread"));
    });
    assert_eq!(other.host_register(0, PAGE, 0), 1);
    assert_eq!(one.get_last_error(), 713);
    assert_eq!(other.get_last_error(), 1);
    assert_eq!([one.get_last_error(), other.get_last_error()], [0, 0]);
    let window = Window::new(Memory::Shared);
    assert_eq!(one.host_register(window.base, PAGE, 0), 0);
    assert_eq!(other.host_unregister(window.base), 713);
    say(&format!("{:?}", [one, other].map(|runtime| runtime.number("cudaRuntimeGetVersion").unwrap())));
}

#[test]
fn two_runtimes_in_a_process_know_nothing_of_each_other() {
    let tree = Tree::new("two");
    let [one, other] = tree.put_wheels();
    let said = play(&tree, &format!("two {} {}", one.display(), other.display()), &[]);
    assert_eq!(said, ["[12090, 13050]"]);
    // What the process did not unregister is told at its end.
    assert_eq!(tree.journal().live("libcudart.so.12", "registrations"), Some(1));
    assert_eq!(tree.journal().live("libcudart.so.12", "bytes"), Some(PAGE as u64));
    assert_eq!(tree.journal().live("libcudart.so.13", "registrations"), Some(0));
    // A copy that a framework bundles is a library of its own, although it is called the same.
    let said = play(&tree, &format!("two {} {}", one.display(), tree.put_bundled().display()), &[]);
    assert_eq!(said, ["[12090, 12090]"]);
}

fn say_codes(runtime: &Runtime) {
    let window = Window::new(Memory::Shared);
    let codes = [
        runtime.free_nothing(),
        runtime.host_register(window.base, PAGE, 0),
        runtime.host_register(window.base + PAGE, PAGE, 0),
        runtime.host_unregister(window.base),
        runtime.get_last_error(),
        runtime.get_last_error(),
        runtime.number("cudaDriverGetVersion").map_or_else(|code| code, |_| 0),
    ];
    say(&codes.map(|code| code.to_string()).join(" "));
}

#[test]
fn it_fails_how_and_when_a_test_asks_for_it() {
    let tree = Tree::new("knobs");
    let library = built().cudart13.display();
    let codes = |knobs: &[(&str, &str)]| play(&tree, &format!("codes {library}"), knobs).concat();
    assert_eq!(codes(&[]), "0 0 0 0 0 0 0");
    assert_eq!(codes(&[("FAIL", "cudaHostRegister:2:2")]), "0 0 2 0 2 0 0");
    assert_eq!(codes(&[("FAIL", "cudaHostRegister:*:1,cudaHostUnregister:1:713")]), "0 1 1 713 713 0 0");
    assert_eq!(codes(&[("REGISTERED", "4096")]), "0 0 2 0 2 0 0");
    // It never was ready, and forgets nothing.
    assert_eq!(codes(&[("DRIVER", "0")]), "35 35 35 35 35 35 0");
    assert_eq!(codes(&[("DRIVER", "12020")]), "35 35 35 35 35 35 0");
    assert_eq!(codes(&[("DEVICES", "0")]), "100 100 100 100 100 100 0");
    assert_eq!(codes(&[("INIT", "999")]), "999 999 999 999 999 999 0");
    // Nothing works after this, for good.
    assert_eq!(codes(&[("FAIL", "cudaHostRegister:2:700")]), "0 0 700 700 700 700 700");
    assert_eq!(codes(&[("ATTRIBUTES", "99=0")]), "0 801 801 713 713 0 0");
    assert_eq!(codes(&[("ATTRIBUTES", "100=1,88=1")]), "0 0 0 0 0 0 0");
    assert_eq!(codes(&[("PIN", "0")]), "0 0 0 0 0 0 0");
}

fn register_shared(runtime: &Runtime) {
    // Descriptor 0 is the file that both of the test's processes have.
    let mut window = Window::new(Memory::Reserved);
    let file = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    window.map_file(file, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    say(&runtime.host_register(window.base, PAGE, 0).to_string());
}

#[test]
fn two_processes_that_register_one_file_at_once_are_one_too_many() {
    let tree = Tree::new("concurrent");
    let exclusive = tree.path().join("exclusive");
    std::fs::create_dir(&exclusive).unwrap();
    let gate = tree.path().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let (file, other_file) = (memfd(), memfd());
    let start = |file: &OwnedFd, hold: bool| {
        let file = file.try_clone().unwrap();
        let role = format!("register {}", built().cudart12.display());
        let (name, journal) = tree.journal().variable();
        Actor::spawn(&role, Path::new("/nowhere"), |command| {
            command.stdin(file).env(name, journal).env("ECHO_FAKE_CUDA_EXCLUSIVE", &exclusive);
            if hold {
                command.env("ECHO_FAKE_CUDA_HOLD", &gate);
            }
        })
    };
    let mut first = start(&file, true);
    eventually("the first registers", || tree.journal().entries().iter().any(|entry| entry.name == "held"));
    start(&file, false).expect("1");
    start(&other_file, false).expect("0");
    // The first goes on, and others may again.
    drop(File::options().write(true).open(&gate).unwrap());
    first.expect("0");
    start(&file, false).expect("0");
}

static AT_EXIT: std::sync::OnceLock<Runtime> = std::sync::OnceLock::new();

extern "C" fn unregister_at_exit() {
    let code = AT_EXIT.get().unwrap().host_unregister(PAGE);
    say(&code.to_string());
}

fn call_at_exit(runtime: Runtime) {
    // Before the library's own, so that it runs after that.
    // SAFETY: the function is this program's.
    assert_eq!(unsafe { libc::atexit(unregister_at_exit) }, 0);
    assert_eq!(runtime.free_nothing(), 0);
    assert!(AT_EXIT.set(runtime).is_ok());
}

#[test]
fn at_the_end_of_a_process_the_runtime_is_gone_before_its_users() {
    let tree = Tree::new("exit");
    assert_eq!(play(&tree, &format!("calls-at-exit {}", built().cudart12.display()), &[]), ["4"]);
    assert_eq!(tree.journal().calls(), ["cudaFree 0", "cudaHostUnregister 4"]);
}

fn say_whether_it_loads(library: &str) {
    match Runtime::load(Path::new(library)) {
        Ok(runtime) => {
            let functions =
                ["cudaHostRegister", "cudaHostUnregister", "cudaGetErrorName", "cudaGetLastError"];
            let missing: Vec<&str> =
                functions.into_iter().filter(|name| !runtime.loaded().has(name)).collect();
            say(&format!("loads without {missing:?}"));
            if runtime.loaded().has("cudaGetErrorName") {
                say(&[0, 712, 12345].map(|code| runtime.error_name(code)).join(", "));
            }
        }
        Err(error) => say(&support::said(&error)),
    }
}

#[test]
fn libraries_can_be_had_that_lack_something() {
    let tree = Tree::new("broken");
    let built = built();
    let loads = |library: PathBuf| play(&tree, &format!("loads {}", library.display()), &[]);
    let names = "cudaSuccess, cudaErrorHostMemoryAlreadyRegistered, unrecognized error code";
    assert_eq!(loads(tree.put_stub()), ["loads without []", names]);
    let without = tree.put_without(&built.cudart13, "cudaHostUnregister", "without/libcudart.so.13");
    assert_eq!(loads(without), [r#"loads without ["cudaHostUnregister"]"#, names]);
    let said = loads(tree.put_needy("needy/libcudart.so.12")).concat();
    assert!(said.contains("libx.so.6"), "{said}");
    let said = loads(tree.put_truncated("truncated/libcudart.so.12")).concat();
    assert!(said.contains("truncated/libcudart.so.12"), "{said}");
    assert_eq!(tree.journal().calls(), ["cudaGetErrorName 0"; 6], "nothing else was called");
}
