//! A trainer that asks for page-locked memory gets it, or an error that says exactly why: from the ladder, which finds
//! fake CUDA runtimes wherever real ones lie, to what such a runtime sees of the samples.

#[path = "support/cuda.rs"]
mod cuda;
#[path = "support/fakes.rs"]
mod fakes;
#[path = "support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use cuda::{Driver, Runtime};
use echo::host_pinning::{Search, resolve};
use echo_client::{
    ArraySpec, Client, DType, Error, LatestOptions, PinOptions, Pinned, Reader, ReaderOptions, TableSpec,
};
use fakes::{Tree, built};
use support::{Actor, Daemon, LONG, check_of, client_of_role, eventually, ids, numbers, said, say};

const TABLE: &str = "pinned";

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["climb", ref roots @ ..] => climb(roots),
        ["survey", ref roots @ ..] => {
            let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
            let found = echo::host_pinning::climb(&Search::of_this_process(None, &roots));
            say(&format!("{} libraries", found.filter(|step| step.api.is_some()).count()));
        }
        ["climb-after", library, ref roots @ ..] => {
            std::mem::forget(Runtime::load(Path::new(library)).unwrap());
            climb(roots);
        }
        ["climb-without-its-file", library] => {
            std::mem::forget(Runtime::load(Path::new(library)).unwrap());
            std::fs::remove_file(library).unwrap();
            climb(&[]);
        }
        ["worker", samples] => work(samples.parse().unwrap()),
        ["trainer", batches] => train(batches.parse().unwrap()),
        ["train-without"] => train_without(),
        ["actor"] => act(),
        ["pin"] => pin(&registrable(&client_of_role()), &PinOptions::default()),
        ["pin-again"] => pin_again(),
        ["pin-read-only"] => {
            let reader = client_of_role().attach_reader(TABLE, None, ReaderOptions::default()).unwrap();
            pin(&reader, &PinOptions::default());
        }
        ["pin-and-stay"] => {
            let reader = registrable(&client_of_role());
            pin(&reader, &PinOptions::default());
            std::thread::park();
        }
        ["pin-in-a-child"] => pin_in_a_child(),
        ["pin-by-the-driver"] => pin_by_the_driver(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// Says which library is used, or the error; then each step of the way.
fn climb(roots: &[&str]) {
    let roots: Vec<PathBuf> = roots.iter().map(PathBuf::from).collect();
    let (outcome, probes) = match resolve(&Search::of_this_process(None, &roots)) {
        Ok(resolved) => {
            // SAFETY: looks for a symbol among those that everybody in the process sees.
            let seen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"cudaHostRegister".as_ptr()) };
            assert!(seen.is_null(), "what was found is nobody else's business");
            (format!("uses {}", resolved.api.library()), resolved.probes)
        }
        Err(error) => {
            let probes = error.probes().to_vec();
            (error.to_string().replace('\n', " "), probes)
        }
    };
    say(&outcome);
    for probe in probes {
        say(&probe.to_string());
    }
    say("and no more");
}

/// A process that has a journal, and an environment that names no real library.
fn start(role: &str, socket: &Path, tree: &Tree, variables: &[(&str, &str)]) -> Actor {
    Actor::spawn(role, socket, |command| {
        for name in [
            "CUDA_HOME",
            "CUDA_PATH",
            "CONDA_PREFIX",
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "ECHO_CUDART",
            "ECHO_CUDA_VENDOR_ROOTS",
        ] {
            command.env_remove(name);
        }
        command.envs([tree.journal().variable()]).envs(variables.iter().copied());
    })
}

fn lines(mut actor: Actor) -> Vec<String> {
    let lines = std::iter::from_fn(|| actor.line()).take_while(|line| line != "and no more").collect();
    assert!(actor.wait().success(), "{lines:?}");
    lines
}

fn climbs(tree: &Tree, role: &str, variables: &[(&str, &str)]) -> Vec<String> {
    lines(start(role, Path::new("/nowhere"), tree, variables))
}

fn displayed(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn wheels_are_found_beneath_the_vendor_directory_the_newest_first() {
    let tree = Tree::new("wheels");
    let [twelve, thirteen] = tree.put_wheels();
    let root = tree.path().join("nvidia");
    let said = climbs(&tree, &format!("climb {}", root.display()), &[]);
    assert_eq!(said[0], format!("uses {}", thirteen.display()));
    assert_eq!(said[1], "override: (none): nobody named a file (ECHO_CUDART)");
    assert_eq!(said[2], "already loaded: (none): this process has no CUDA runtime mapped");
    assert_eq!(said[3], format!("installed wheels: {}: used", thirteen.display()));
    assert_eq!(said.len(), 4);
    // By the environment too, and the older one where the driver is too old for the newer.
    let variables = [("ECHO_CUDA_VENDOR_ROOTS", displayed(&root)), ("ECHO_FAKE_CUDA_DRIVER", "12040")];
    let said = climbs(&tree, "climb", &variables);
    assert_eq!(said[0], format!("uses {}", twelve.display()));
    let newer = format!("{}: it does not start: cudaErrorInsufficientDriver (35)", thirteen.display());
    assert_eq!(said[3], format!("installed wheels: {newer}"));
}

#[test]
fn what_the_process_has_loaded_comes_before_what_is_installed() {
    let tree = Tree::new("loaded");
    tree.put_wheels();
    let bundled = tree.put_bundled();
    let stub = tree.put_stub();
    let root = tree.path().join("nvidia");
    let said = climbs(&tree, &format!("climb-after {} {}", bundled.display(), root.display()), &[]);
    assert_eq!(said[0], format!("uses {}", bundled.display()));
    assert_eq!(said[2], format!("already loaded: {} (if loaded): used", bundled.display()));
    // A library that is called alike is passed over, although it has all that a runtime has.
    let said = climbs(&tree, &format!("climb-after {} {}", stub.display(), root.display()), &[]);
    assert!(said[0].ends_with("nvidia/cu13/lib/libcudart.so.13"), "{said:?}");
}

#[test]
fn a_runtime_whose_file_is_gone_is_used_as_long_as_it_is_loaded() {
    let tree = Tree::new("unlinked");
    let library = tree.put(&built().cudart12, "torch/libcudart.so.12");
    let said = climbs(&tree, &format!("climb-without-its-file {}", library.display()), &[]);
    assert_eq!(said[0], format!("uses {}", library.display()));
}

#[test]
fn what_cannot_be_used_is_passed_over_and_says_why() {
    let tree = Tree::new("broken");
    tree.put_without(&built().cudart13, "cudaHostUnregister", "nvidia/cu13/lib/libcudart.so.13");
    tree.put_needy("nvidia/cuda_runtime/lib/libcudart.so.12");
    tree.put_truncated("conda/lib/libcudart.so.12");
    let good = tree.put(&built().cudart12, "toolkit/lib64/libcudart.so.12");
    let (conda, toolkit) = (tree.path().join("conda"), tree.path().join("toolkit"));
    let variables = [("CONDA_PREFIX", displayed(&conda)), ("CUDA_HOME", displayed(&toolkit))];
    let said = climbs(&tree, &format!("climb {}/nvidia", tree.path().display()), &variables);
    let line = |part: &str| {
        said.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {said:#?}"))
    };
    assert!(line("installed wheels: ").contains("it has no cudaHostUnregister"));
    assert!(line("cuda_runtime/lib/libcudart.so.12").contains("libx.so.6"));
    assert!(line("conda prefix: ").ends_with("cannot read file data"), "{said:#?}");
    assert!(
        line("loader: libcudart.so.12: ").contains("so.12: cannot open shared object file: No such file")
    );
    // The first of the two could be opened, and is still there under its name.
    assert!(line("loader: libcudart.so.13 (if loaded)").contains("it has no cudaHostUnregister"));
    assert_eq!(said[0], format!("uses {}", good.display()));
}

#[test]
fn looking_what_there_is_calls_nothing_in_it() {
    let tree = Tree::new("survey");
    tree.put_wheels();
    // Each of the two by its path, and then by its name, as it is loaded by then.
    assert_eq!(climbs(&tree, &format!("survey {}/nvidia", tree.path().display()), &[]), ["6 libraries"]);
    assert_eq!(tree.journal().entries(), []);
}

#[test]
fn the_loader_finds_it_by_name() {
    let tree = Tree::new("loader");
    let library = tree.put(&built().cudart12, "lib/libcudart.so.12");
    let path = tree.path().join("lib");
    let said = climbs(&tree, "climb", &[("LD_LIBRARY_PATH", displayed(&path))]);
    assert_eq!(said[0], format!("uses {}", library.display()));
    assert!(
        said.iter().any(|line| line == "loader: libcudart.so.12 (if loaded): it is not loaded"),
        "{said:#?}"
    );
}

#[test]
fn a_file_that_is_named_beats_what_is_loaded() {
    let tree = Tree::new("named");
    let [twelve, thirteen] = tree.put_wheels();
    let named = [("ECHO_CUDART", displayed(&thirteen))];
    let said = climbs(&tree, &format!("climb-after {}", twelve.display()), &named);
    assert_eq!(
        said,
        [format!("uses {}", thirteen.display()), format!("override: {}: used", thirteen.display())]
    );
    let said = climbs(&tree, "climb", &[("ECHO_CUDART", "/no/such/file.so")]).concat();
    assert!(said.contains("/no/such/file.so cannot be used, which ECHO_CUDART names"), "{said}");
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn where_there_is_nothing_every_rung_says_so() {
    let tree = Tree::new("nothing");
    let said = climbs(&tree, "climb", &[]);
    assert!(said[0].starts_with("no CUDA library was found that can page-lock memory: install"), "{said:?}");
    let rungs =
        ["override", "already loaded", "installed wheels", "conda prefix", "loader", "toolkit", "driver"];
    for rung in rungs {
        assert!(said[1..].iter().any(|line| line.starts_with(rung)), "{rung}: {said:#?}");
        assert!(said[0].contains(rung), "the error itself names every rung");
    }
    let told = said[0].split("; tried were").nth(1).unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(told), words(&said[1..].join(" ")), "and each step of each");
}

#[test]
fn a_start_that_fails_is_explained() {
    let tree = Tree::new("start");
    tree.put_wheels();
    let role = format!("climb {}/nvidia", tree.path().display());
    let error = |variables: &[(&str, &str)]| climbs(&tree, &role, variables).swap_remove(0);
    let said = error(&[("ECHO_FAKE_CUDA_DEVICES", "0")]);
    assert!(said.contains("cudaErrorNoDevice (100): no GPU is visible to this process"), "{said}");
    let said = error(&[("ECHO_FAKE_CUDA_DRIVER", "0")]);
    assert!(said.contains("cudaErrorInsufficientDriver (35): no NVIDIA driver was found"), "{said}");
    let said = error(&[("ECHO_FAKE_CUDA_DRIVER", "11080")]);
    assert!(said.contains("the driver can do CUDA 11.8, which is older than the runtime's 13.5"), "{said}");
    let said = error(&[("ECHO_FAKE_CUDA_INIT", "803")]);
    assert!(
        said.contains("(803): the driver's library and its kernel module are of different versions"),
        "{said}"
    );
}

fn registrable(client: &Client) -> Reader {
    client
        .attach_reader(TABLE, None, ReaderOptions { registrable: true, ..ReaderOptions::default() })
        .unwrap()
}

/// Pins, and says what came of it.
fn pin(reader: &Reader, options: &PinOptions) {
    say_pinned(reader.pin_host_memory(options));
}

fn say_pinned(pinned: echo_client::Result<Pinned>) {
    match pinned {
        Ok(pinned) => {
            say(&format!("{} bytes in {} pieces, {:?}", pinned.bytes, pinned.pieces, pinned.permission))
        }
        Err(error) => {
            let text = said(&error);
            say(text.split(probed_start()).next().unwrap());
        }
    }
}

/// Where the list of what was tried begins.
fn probed_start() -> &'static str {
    "; tried were"
}

fn pin_again() {
    let client = client_of_role();
    let reader = registrable(&client);
    pin(&reader, &PinOptions::default());
    pin(&reader, &PinOptions::default());
    drop(reader);
    // The memory of a reader that is gone is free to be registered anew.
    pin(&registrable(&client), &PinOptions::default());
}

fn pin_in_a_child() {
    let reader = registrable(&client_of_role());
    // SAFETY: the child asks one thing, which must say no before it touches anything of its parent's, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = matches!(reader.pin_host_memory(&PinOptions::default()), Err(Error::Forked));
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(i32::from(!forked)) };
    }
    let mut status = 0;
    // SAFETY: the child of this process, waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    pin(&reader, &PinOptions::default());
}

/// As a process does whose framework was linked to a runtime of its own: the driver is loaded, and nothing else.
fn pin_by_the_driver() {
    let driver = Driver::load(Path::new(&std::env::var_os("DRIVER").unwrap())).unwrap();
    assert_eq!(driver.init(0), 0);
    let reader = registrable(&client_of_role());
    pin(&reader, &PinOptions::default());
    assert_eq!(driver.says::<usize>("cuCtxGetCurrent"), Ok(0), "the thread is left as it was");
    drop(reader);
}

fn work(samples: u64) {
    let mut writer = client_of_role().attach_writer(TABLE, None).unwrap();
    for id in 0..samples {
        writer.append(&[&id.to_le_bytes(), &check_of(id)]).unwrap();
    }
    writer.finish().unwrap();
}

/// Reads batches, and has the runtime read each once more, by what is pinned.
fn train(batches: u32) {
    let mut reader = registrable(&client_of_role());
    pin(&reader, &PinOptions { chunk_bytes: 4096, ..PinOptions::default() });
    let library = PathBuf::from(std::env::var_os("LIBRARY").unwrap());
    let runtime = Runtime::load(&library).unwrap();
    let mut seen = 0;
    for _ in 0..batches {
        let batch = reader.next_batch(LONG).unwrap();
        seen += ids(&batch).len();
        for array in 0..2 {
            let bytes = batch.array(array).bytes();
            // SAFETY: a batch's bytes are readable as long as it is there.
            let device = unsafe { runtime.bytes(bytes.as_ptr().expose_provenance(), bytes.len()) }.unwrap();
            assert_eq!(device, bytes, "the device sees what the worker wrote");
        }
    }
    drop(reader);
    runtime.loaded().say_what_lives();
    say(&format!("{seen} samples"));
}

/// Publishes values and takes them as an actor with a GPU does, and has the runtime read each by what is pinned.
fn act() {
    let client = client_of_role();
    let spec = TableSpec::latest("policy", vec![ArraySpec::new("weights", DType::U8, [8192])]);
    client.create_table(&spec).unwrap();
    let mut publisher = client.attach_publisher("policy", None).unwrap();
    let options = LatestOptions { registrable: true, ..LatestOptions::default() };
    let reader = client.attach_latest("policy", None, options).unwrap();
    say_pinned(reader.pin_host_memory(&PinOptions { chunk_bytes: 4096, ..PinOptions::default() }));
    let library = PathBuf::from(std::env::var_os("LIBRARY").unwrap());
    let runtime = Runtime::load(&library).unwrap();
    for version in 1..=20 {
        publisher.publish(&[&[version as u8; 8192]]).unwrap();
        let value = reader.newer_than(version - 1).unwrap().unwrap();
        let bytes = value.array(0).bytes();
        // SAFETY: a value's bytes are readable as long as it is there.
        let device = unsafe { runtime.bytes(bytes.as_ptr().expose_provenance(), bytes.len()) }.unwrap();
        assert!(device == bytes && device == [version as u8; 8192], "the device sees what was published");
    }
    drop((reader, publisher));
    runtime.loaded().say_what_lives();
    say("20 values");
}

/// Reads without asking for anything of CUDA.
fn train_without() {
    let mut reader = client_of_role().attach_reader(TABLE, None, ReaderOptions::default()).unwrap();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()).len(), 64);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    say(&format!("{} mappings of CUDA", maps.lines().filter(|line| line.contains("libcuda")).count()));
}

/// A daemon with a table, and a tree in which the loader finds a runtime.
struct Scene {
    daemon: Daemon,
    tree: Tree,
    library: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        let daemon = Daemon::start();
        daemon.client().create_table(&numbers(TABLE, 64, 64)).unwrap();
        let tree = Tree::new(name);
        let library = tree.put(&built().cudart12, "lib/libcudart.so.12");
        Self { daemon, tree, library }
    }

    fn start(&self, role: &str, variables: &[(&str, &str)]) -> Actor {
        let folder = self.library.parent().unwrap();
        let mut all = vec![("LD_LIBRARY_PATH", displayed(folder)), ("LIBRARY", displayed(&self.library))];
        all.extend(variables);
        start(role, &self.daemon.socket(), &self.tree, &all)
    }

    fn play(&self, role: &str, variables: &[(&str, &str)]) -> Vec<String> {
        lines(self.start(role, variables))
    }

    fn daemon_knows_nothing_of_cuda(&self) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.daemon.pid())).unwrap();
        assert!(!maps.contains("libcuda"));
    }

    /// What a library counted of its registrations at the end of the last process.
    fn registrations(&self) -> Option<u64> {
        self.tree.journal().live("libcudart.so.12", "registrations")
    }
}

/// Both arrays of a sample are eight bytes.
const BYTES: u64 = 64 * 64 * 8 * 2;

#[test]
fn a_device_sees_what_workers_write_and_nothing_is_left_registered() {
    let scene = Scene::new("train");
    let mut worker = scene.start("worker 12800", &[]);
    let said = scene.play("trainer 200", &[]);
    assert!(worker.wait().success());
    assert_eq!(said, [&format!("{BYTES} bytes in 16 pieces, ReadWrite"), "12800 samples"]);
    assert_eq!(scene.registrations(), Some(0));
    let calls = scene.tree.journal().calls();
    let count = |call: &str| calls.iter().filter(|made| *made == call).count();
    assert_eq!((count("cudaHostRegister 0"), count("cudaHostUnregister 0")), (16, 16));
    // Without a pin the fake reads by the address, and would see the same in any case.
    let unpinned =
        scene.tree.journal().entries().into_iter().find(|entry| entry.name.starts_with("unpinned"));
    if let Some(entry) = unpinned {
        eprintln!(
            "what a device sees was not tested, since the kernel does not pin for this process: {entry:?}"
        );
    }
}

#[test]
fn a_device_sees_the_values_of_a_latest_table() {
    let scene = Scene::new("actor");
    let said = scene.play("actor", &[]);
    // Each value is a piece of its own: larger than a chunk, and never divided.
    assert_eq!(said, ["32768 bytes in 4 pieces, ReadWrite", "20 values"]);
    assert_eq!(scene.registrations(), Some(0));
}

#[test]
fn whoever_does_not_ask_for_it_loads_nothing() {
    let scene = Scene::new("without");
    let mut worker = scene.start("worker 64", &[]);
    assert_eq!(scene.play("train-without", &[]), ["0 mappings of CUDA"]);
    assert!(worker.wait().success());
    scene.daemon_knows_nothing_of_cuda();
    assert_eq!(scene.tree.journal().entries(), []);
}

#[test]
fn what_is_pinned_is_shown_and_forgotten_with_its_reader() {
    let scene = Scene::new("shown");
    let client = scene.daemon.client();
    let pins = || client.list_clients().unwrap().into_iter().flat_map(|row| row.pins).collect::<Vec<_>>();
    let mut trainer = scene.start("pin-and-stay", &[]);
    trainer.expect(&format!("{BYTES} bytes in 2 pieces, ReadWrite"));
    scene.daemon_knows_nothing_of_cuda();
    let shown = pins();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].report.bytes, shown[0].report.registrations), (BYTES, 2));
    assert_eq!(shown[0].report.library, format!("CUDA 12.9, {}", scene.library.display()));
    assert!(!shown[0].report.read_only);
    trainer.kill();
    eventually("the report is gone with the process", || pins().is_empty());
}

#[test]
fn a_failure_leaves_nothing_registered_and_the_turn_to_others() {
    let scene = Scene::new("failure");
    let refused = scene.play("pin", &[("ECHO_FAKE_CUDA_FAIL", "cudaHostRegister:2:2")]);
    let [said] = &refused[..] else { panic!("{refused:?}") };
    assert!(
        said.contains("libcudart.so.12 does not page-lock array 1 (piece 1 of 1: 32768 bytes at 0x"),
        "{said}"
    );
    assert!(said.contains("cudaErrorMemoryAllocation (2): the driver has no memory left"), "{said}");
    assert_eq!(scene.registrations(), Some(0));
    assert_eq!(scene.play("pin", &[]), [format!("{BYTES} bytes in 2 pieces, ReadWrite")]);
}

#[test]
fn pinning_twice_is_refused_and_a_new_reader_may() {
    let scene = Scene::new("twice");
    let said = scene.play("pin-again", &[]);
    assert_eq!(said[1], format!("it is page-locked already, through {}", scene.library.display()));
    assert_eq!((&said[0], said.len()), (&said[2], 3));
    assert_eq!(scene.registrations(), Some(0));
}

#[test]
fn a_read_only_mapping_takes_a_device_that_can() {
    let scene = Scene::new("read-only");
    let refused = scene.play("pin-read-only", &[]).concat();
    assert!(refused.contains("attach with ReaderOptions::registrable"), "{refused}");
    assert!(!scene.tree.journal().calls().iter().any(|call| call.starts_with("cudaHostRegister")));
    let done = scene.play("pin-read-only", &[("ECHO_FAKE_CUDA_ATTRIBUTES", "113=1")]);
    assert_eq!(done, [format!("{BYTES} bytes in 2 pieces, ReadOnly")]);
}

#[test]
fn the_driver_registers_where_there_is_a_context_and_no_runtime() {
    let scene = Scene::new("driver");
    let driver = scene.tree.put_driver();
    let variables = |more| [("DRIVER", displayed(&driver)), ("LD_LIBRARY_PATH", ""), more];
    let said = scene.play("pin-by-the-driver", &variables(("ECHO_FAKE_CUDA_CONTEXT", "0"))).concat();
    assert!(
        said.contains("/libcuda.so.1: CUDA_ERROR_INVALID_CONTEXT (201): this process has no CUDA context"),
        "{said}"
    );
    let said = scene.play("pin-by-the-driver", &variables(("ECHO_FAKE_CUDA_CONTEXT", "1")));
    assert_eq!(said, [format!("{BYTES} bytes in 2 pieces, ReadWrite")]);
    let journal = scene.tree.journal();
    assert_eq!(journal.live("libcuda.so.1", "registrations"), Some(0));
    let calls = journal.calls();
    let count = |call: &str| calls.iter().filter(|made| *made == call).count();
    assert_eq!((count("cuMemHostRegister_v2 0"), count("cuMemHostUnregister 0")), (2, 2));
    assert_eq!(count("cuDevicePrimaryCtxRetain 0"), count("cuDevicePrimaryCtxRelease_v2 0"));
}

#[test]
fn a_device_that_uses_this_machines_page_tables_is_said_to_lock_nothing() {
    let scene = Scene::new("tables");
    let mut trainer = scene.start("pin-and-stay", &[("ECHO_FAKE_CUDA_ATTRIBUTES", "100=1,88=1,18=0")]);
    trainer.expect(&format!("{BYTES} bytes in 2 pieces, ReadWrite"));
    let rows = scene.daemon.client().list_clients().unwrap();
    let shown: Vec<&str> =
        rows.iter().flat_map(|row| &row.pins).map(|pin| pin.report.library.as_str()).collect();
    let notice = "registered and not locked (the device uses this machine's page tables)";
    assert_eq!(shown, [format!("CUDA 12.9, {notice}, {}", scene.library.display())]);
}

#[test]
fn a_forked_child_is_told_and_its_parent_can_still_pin() {
    let scene = Scene::new("child");
    assert_eq!(scene.play("pin-in-a-child", &[]), [format!("{BYTES} bytes in 2 pieces, ReadWrite")]);
}

#[test]
fn readers_that_pin_at_once_wait_for_each_other() {
    let scene = Scene::new("at-once");
    let exclusive = scene.tree.path().join("exclusive");
    std::fs::create_dir(&exclusive).unwrap();
    let gate = scene.tree.path().join("gate");
    rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let variables =
        [("ECHO_FAKE_CUDA_EXCLUSIVE", displayed(&exclusive)), ("ECHO_FAKE_CUDA_HOLD", displayed(&gate))];
    // Each would fail if another one registered the same file meanwhile.
    let mut readers: Vec<Actor> = (0..4).map(|_| scene.start("pin", &variables)).collect();
    let held = || scene.tree.journal().entries().iter().filter(|entry| entry.name == "held").count();
    let why = || scene.daemon.client().why(TABLE).unwrap();
    eventually("three wait for the one that registers", || {
        why().iter().filter(|wait| wait.waits_for.contains("turn to page-lock")).count() == 3
    });
    eventually("one registers", || held() == 1);
    // From now on nobody is held.
    let _open = std::fs::File::options().read(true).write(true).open(&gate).unwrap();
    for reader in &mut readers {
        reader.expect(&format!("{BYTES} bytes in 2 pieces, ReadWrite"));
    }
}
