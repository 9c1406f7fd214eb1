//! Device memory between two processes, through the fake driver: one creates and exports, the other imports, each can
//! be killed, and no handle, descriptor or byte is left.
//!
//! The fake's device memory is files that the host can map, so both sides really read what the other wrote, and the
//! kernel keeps them for as long as somebody has them.

#[path = "support/cuda.rs"]
mod cuda;
#[path = "support/fakes.rs"]
mod fakes;
#[path = "support/mod.rs"]
mod support;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use echo::memory::cuda::{
    CudaDevice, CudaDriverApi, CudaError, CudaPool, DeviceUuid, ExportedBlock, ImportedBacking, Loan,
    PoolOptions,
};
use echo::memory::{Account, CudaBacking, MemoryError, MemoryGovernor, VirtualBacking, VirtualBuffer};
use echo::wire::message::MAX_DESCRIPTORS;
use echo::wire::socket::{self, Received, Sent};
use fakes::Tree;
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use support::{Actor, LONG, eventually, say};

const BLOCK: usize = 2 << 20;
const MAX: usize = 8 * BLOCK;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["exporter", library] => export_until_all_is_done(&load(library)),
        ["importer", library] => import_until_all_is_done(&load(library)),
        ["survived-exporter", library] => lose_the_exporter(&load(library)),
        ["survived-importer", library] => lose_the_importer(&load(library)),
        ["holder", library] => hold(&load(library)),
        ["giver", library] => give(&load(library)),
        ["blind", library] => see_another_device(&load(library)),
        ["liar", library] => announce_too_much(&load(library)),
        ["believer", library] => believe(&load(library)),
        ["modest", library] => announce_too_little(&load(library)),
        ["content", library] => take_what_is_announced(&load(library)),
        ["sleeper", library] => map_and_sleep(&load(library)),
        ["system"] => use_the_systems_driver(),
        ["context", library] => want_a_context(library),
        ["threads", library] => share_a_pool(&load(library)),
        _ => panic!("no such part: {role:?}"),
    }
}

/// Two parts with a socket between them, each on its standard input, and what each sees of two devices.
fn start(tree: &Tree, [one, other]: [(&str, &str); 2]) -> [Actor; 2] {
    let library = tree.put_driver();
    let flags = SocketFlags::CLOEXEC;
    let (here, there) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let spawn = |(role, visible): (&str, &str), end: OwnedFd| {
        let role = format!("{role} {}", library.display());
        Actor::spawn(&role, Path::new("/nowhere"), |command| {
            let (name, file) = tree.journal().variable();
            command.env(name, file).env("ECHO_FAKE_CUDA_DEVICES", "2").env("CUDA_VISIBLE_DEVICES", visible);
            command.stdin(Stdio::from(end));
        })
    };
    [spawn(one, here), spawn(other, there)]
}

/// A part that is alone, on a machine of two devices.
fn start_alone(tree: &Tree, role: &str, change: impl FnOnce(&mut Command)) -> Actor {
    Actor::spawn(role, Path::new("/nowhere"), |command| {
        let (name, file) = tree.journal().variable();
        command.env(name, file).env("ECHO_FAKE_CUDA_DEVICES", "2").env_remove("CUDA_VISIBLE_DEVICES");
        change(command);
    })
}

/// Whether all that a process had in the driver was gone when it ended, and nothing was given back that it had not: the
/// fake says so, and CUDA leaves undefined what comes of it.
fn left_nothing(tree: &Tree, pid: u32) -> bool {
    let entries = tree.journal().entries();
    let refused = entries.iter().find(|entry| {
        entry.pid == pid
            && ["cuMemRelease", "cuMemUnmap", "cuMemAddressFree"].contains(&entry.name.as_str())
            && entry.code != Some(0)
    });
    assert_eq!(refused, None);
    let live = entries.iter().rev().find(|entry| entry.pid == pid && entry.name == "live").expect("a count");
    ["handles=0", "reservations=0", "mappings=0", "memory=0"]
        .iter()
        .all(|nothing| live.arguments.iter().any(|count| count == nothing))
}

/// Files of device memory that a process has open or mapped.
fn files(pid: u32) -> [usize; 2] {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let open = open.filter(|target| target.to_string_lossy().contains("echo-fake-gpu:")).count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    [open, maps.lines().filter(|line| line.contains("echo-fake-gpu:")).count()]
}

fn own_files() -> [usize; 2] {
    files(std::process::id())
}

fn load(library: &str) -> CudaDriverApi {
    // SAFETY: the fake driver, which has the driver's functions and types.
    unsafe { CudaDriverApi::load_from(Path::new(library)) }.unwrap()
}

/// The exporter's end of things.
struct Exporter {
    governor: Arc<MemoryGovernor>,
    buffer: VirtualBuffer<CudaBacking>,
    loans: Vec<Loan>,
    uuid: DeviceUuid,
}

impl Exporter {
    /// On the second device of the machine, with a budget for one buffer and a pool that would keep all of it.
    fn new(api: &CudaDriverApi) -> Self {
        Self::with_blocks(api, BLOCK)
    }

    fn with_blocks(api: &CudaDriverApi, block_bytes: usize) -> Self {
        let device = CudaDevice::by_ordinal(*api, 1).unwrap();
        let uuid = device.uuid();
        let (governor, pool) = pool(device, PoolOptions { block_bytes, keep_idle_bytes: MAX });
        let buffer = VirtualBuffer::new(CudaBacking::new(pool), MAX, Account::nobody()).unwrap();
        Self { governor, buffer, loans: Vec::new(), uuid }
    }

    /// Grows to so many blocks, writes each new one's number into it, and sends them.
    fn send(&mut self, blocks: Range<usize>) {
        self.buffer.grow_to(blocks.end * BLOCK).unwrap();
        for block in blocks.clone() {
            write(&self.buffer, block * BLOCK, block as u64);
        }
        let (exported, loan) = self.buffer.export(blocks.start * BLOCK..blocks.end * BLOCK).unwrap();
        for block in &exported {
            let flags = rustix::io::fcntl_getfd(&block.fd).unwrap();
            assert!(flags.contains(FdFlags::CLOEXEC), "no program inherits it");
        }
        send(self.uuid, &exported);
        self.loans.push(loan);
    }

    /// Nobody else has anything of it any more.
    fn reclaim(&mut self) {
        self.loans.drain(..).for_each(Loan::reclaimed);
    }

    fn used(&self) -> usize {
        self.governor.device_usage().used as usize
    }
}

/// A pool that may have so much as one buffer, and who knows how much it has.
fn pool(device: CudaDevice, options: PoolOptions) -> (Arc<MemoryGovernor>, CudaPool) {
    let governor = Arc::new(MemoryGovernor::new(0, MAX as u64).with_device(MAX as u64));
    let account = Account::device(governor.clone(), 1, "a test");
    (governor, CudaPool::new(device, account, options))
}

fn write(buffer: &VirtualBuffer<impl VirtualBacking>, offset: usize, value: u64) {
    assert!(offset < buffer.committed());
    // SAFETY: committed (checked above); the fake's device memory is the host's, and the sides take turns.
    unsafe { ((buffer.base() + offset) as *mut u64).write_volatile(value) };
}

fn read(buffer: &VirtualBuffer<impl VirtualBacking>, offset: usize) -> u64 {
    assert!(offset < buffer.committed());
    // SAFETY: as above.
    unsafe { ((buffer.base() + offset) as *const u64).read_volatile() }
}

/// In packets of as many descriptors as one has room for, each of which says whether another belongs to it.
fn send(uuid: DeviceUuid, blocks: &[ExportedBlock]) {
    let bytes = blocks.first().map_or(0, |block| block.bytes);
    let (mut rest, mut is_first) = (blocks, true);
    while is_first || !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(MAX_DESCRIPTORS));
        let message = [&uuid.to_bytes()[..], &bytes.to_le_bytes(), &[u8::from(!later.is_empty())]].concat();
        let fds: Vec<BorrowedFd<'_>> = now.iter().map(|block| block.fd.as_fd()).collect();
        assert_eq!(socket::send(std::io::stdin().as_fd(), &message, &fds).unwrap(), Sent::Done);
        (rest, is_first) = (later, false);
    }
}

/// What the other side sent; None if it is gone.
fn receive() -> Option<(DeviceUuid, Vec<ExportedBlock>)> {
    let (deadline, mut buffer, mut blocks) = (Instant::now() + LONG, [0; 64], Vec::new());
    loop {
        assert!(
            socket::wait_readable(std::io::stdin().as_fd(), deadline).unwrap(),
            "the other side says nothing"
        );
        let packet = match socket::receive(std::io::stdin().as_fd(), &mut buffer).unwrap() {
            Received::Packet(packet) => packet,
            Received::Closed => return None,
            Received::WouldBlock => panic!("it was readable"),
        };
        assert!(!packet.descriptors_lost, "there is room for as many as are sent");
        let device = DeviceUuid::from_bytes(buffer[..16].try_into().unwrap());
        let bytes = u64::from_le_bytes(buffer[16..24].try_into().unwrap());
        blocks.extend(packet.descriptors.into_iter().map(|fd| ExportedBlock { fd, bytes, device }));
        if buffer[24] == 0 {
            return Some((device, blocks));
        }
    }
}

/// Says to the other side that it is its turn.
fn pass(uuid: DeviceUuid) {
    send(uuid, &[]);
}

/// The importer's end of things.
struct Importer {
    incoming: ImportedBacking,
    buffer: VirtualBuffer<ImportedBacking>,
    uuid: DeviceUuid,
}

impl Importer {
    /// With the first blocks that come.
    fn new(api: &CudaDriverApi) -> Self {
        let (uuid, blocks) = receive().unwrap();
        let device = CudaDevice::by_uuid(*api, uuid).unwrap();
        let incoming = ImportedBacking::new(device, blocks[0].bytes).unwrap();
        let buffer = VirtualBuffer::new(incoming.clone(), MAX, Account::nobody()).unwrap();
        let mut importer = Self { incoming, buffer, uuid };
        importer.take_in(blocks);
        importer
    }

    /// Grows over blocks, each of which has its number in it.
    fn take_in(&mut self, blocks: Vec<ExportedBlock>) {
        let (before, base) = (self.buffer.committed(), self.buffer.base());
        for block in blocks {
            self.incoming.import(block).unwrap();
        }
        self.buffer.grow_to(before + self.incoming.waiting_bytes()).unwrap();
        assert_eq!((self.buffer.base(), self.incoming.waiting_bytes()), (base, 0));
        let all = self.buffer.committed() / BLOCK;
        for block in before / BLOCK..all {
            assert_eq!(read(&self.buffer, block * BLOCK), block as u64);
        }
        assert_eq!(own_files(), [all, all], "none but the driver's own descriptor of each block");
    }
}

#[test]
fn an_importer_reads_and_writes_what_the_exporter_has_and_grows_with_it() {
    let tree = Tree::new("device-memory");
    // The device is the second of the machine for one, and the only one for the other.
    let mut actors = start(&tree, [("exporter", "0,1"), ("importer", "1")]);
    for actor in &mut actors {
        actor.expect("nothing is left");
        assert!(actor.wait().success());
        assert!(left_nothing(&tree, actor.pid()));
    }
}

fn export_until_all_is_done(api: &CudaDriverApi) {
    let mut exporter = Exporter::new(api);
    let base = exporter.buffer.base();
    exporter.send(0..2);
    receive().expect("it has written");
    assert_eq!(read(&exporter.buffer, BLOCK + 8), 77, "what the importer wrote is here");
    exporter.send(2..5);
    receive().expect("it has unmapped");
    assert_eq!((exporter.buffer.base(), exporter.used()), (base, 5 * BLOCK));
    assert_eq!(own_files(), [5, 5], "what was exported is closed");
    // SAFETY: the other side has unmapped it, and nobody reads it here.
    unsafe { exporter.buffer.shrink_to(0) }.unwrap();
    assert_eq!(own_files(), [0, 0], "a pool keeps nothing that another process had");
    assert_eq!(exporter.used(), 5 * BLOCK);
    exporter.reclaim();
    assert_eq!(exporter.used(), 0);
    drop(exporter);
    say("nothing is left");
}

fn import_until_all_is_done(api: &CudaDriverApi) {
    let mut importer = Importer::new(api);
    write(&importer.buffer, BLOCK + 8, 77);
    pass(importer.uuid);
    let (_, blocks) = receive().unwrap();
    importer.take_in(blocks);
    assert_eq!(read(&importer.buffer, BLOCK + 8), 77);
    let uuid = importer.uuid;
    drop(importer);
    assert_eq!(own_files(), [0, 0]);
    pass(uuid);
    say("nothing is left");
}

#[test]
fn an_importer_outlives_its_exporter_and_then_nothing_is_left() {
    let tree = Tree::new("exporter-dies");
    let [mut exporter, mut importer] = start(&tree, [("holder", "0,1"), ("survived-exporter", "0,1")]);
    exporter.expect("sent");
    importer.expect("has it");
    exporter.signal(Signal::KILL);
    exporter.wait();
    importer.expect("nothing is left");
    assert!(importer.wait().success());
    assert!(left_nothing(&tree, importer.pid()));
}

/// Sends and sends again, and is killed.
fn hold(api: &CudaDriverApi) {
    let mut exporter = Exporter::new(api);
    exporter.send(0..3);
    receive().expect("it has them");
    exporter.send(3..5);
    say("sent");
    std::thread::sleep(LONG);
}

fn lose_the_exporter(api: &CudaDriverApi) {
    let importer = Importer::new(api);
    pass(importer.uuid);
    let (_, unused) = receive().unwrap();
    assert_eq!((unused.len(), own_files()), (2, [5, 3]));
    say("has it");
    assert!(receive().is_none());
    for block in 0..3 {
        assert_eq!(read(&importer.buffer, block * BLOCK), block as u64, "what is mapped stays");
        write(&importer.buffer, block * BLOCK, 5);
    }
    // What was not yet imported can be still: the descriptor holds it.
    for block in unused {
        importer.incoming.import(block).unwrap();
    }
    assert_eq!(own_files(), [5, 3]);
    drop(importer);
    assert_eq!(own_files(), [0, 0], "with the last one that has it, the memory is gone");
    say("nothing is left");
}

#[test]
fn an_exporter_outlives_its_importer_and_then_nothing_is_left() {
    let tree = Tree::new("importer-dies");
    let [mut exporter, mut importer] = start(&tree, [("survived-importer", "0,1"), ("sleeper", "0,1")]);
    exporter.expect("sent");
    eventually("the importer has mapped what it got", || files(importer.pid())[1] == 3);
    // With descriptors on their way to it that it never took.
    importer.signal(Signal::KILL);
    importer.wait();
    exporter.expect("nothing is left");
    assert!(exporter.wait().success());
    assert!(left_nothing(&tree, exporter.pid()));
}

fn lose_the_importer(api: &CudaDriverApi) {
    let mut exporter = Exporter::new(api);
    exporter.send(0..3);
    exporter.send(3..5);
    assert_eq!((own_files(), exporter.used()), ([5, 5], 5 * BLOCK));
    say("sent");
    assert!(receive().is_none());
    assert_eq!(
        (read(&exporter.buffer, 2 * BLOCK), exporter.used()),
        (2, 5 * BLOCK),
        "it is still the exporter's"
    );
    // SAFETY: the other side is gone, and nobody reads it here.
    unsafe { exporter.buffer.shrink_to(0) }.unwrap();
    assert_eq!((own_files(), exporter.used()), ([0, 0], 5 * BLOCK), "until its end is known");
    exporter.reclaim();
    assert_eq!(exporter.used(), 0);
    exporter.buffer.grow_to(MAX).expect("all of the budget is there again");
    assert_eq!(exporter.used(), MAX);
    let Exporter { governor, buffer, .. } = exporter;
    drop(buffer);
    assert_eq!(
        (own_files(), governor.device_usage().used),
        ([0, 0], 0),
        "the pool went with its last buffer"
    );
    say("nothing is left");
}

/// Maps the first blocks, and never takes the next.
fn map_and_sleep(api: &CudaDriverApi) {
    let _importer = Importer::new(api);
    std::thread::sleep(LONG);
}

#[test]
fn an_importer_that_cannot_see_the_device_says_so_and_keeps_nothing() {
    let tree = Tree::new("another-device");
    let [mut exporter, mut importer] = start(&tree, [("giver", "0,1"), ("blind", "0")]);
    importer.expect("refused");
    assert!(importer.wait().success());
    assert!(left_nothing(&tree, importer.pid()));
    exporter.kill();
}

fn give(api: &CudaDriverApi) {
    let mut exporter = Exporter::new(api);
    exporter.send(0..2);
    std::thread::sleep(LONG);
}

fn see_another_device(api: &CudaDriverApi) {
    let (uuid, blocks) = receive().unwrap();
    let error = CudaDevice::by_uuid(*api, uuid).unwrap_err();
    assert!(error.to_string().contains(&uuid.to_string()), "{error}");
    // To take it for a block of the device that is there does not help.
    let device = CudaDevice::by_ordinal(*api, 0).unwrap();
    let incoming = ImportedBacking::new(device.clone(), BLOCK as u64).unwrap();
    for block in blocks {
        let error = incoming.import(ExportedBlock { device: device.uuid(), ..block }).unwrap_err();
        assert!(error.to_string().contains("this process cannot see that device"), "{error}");
    }
    assert_eq!((own_files(), incoming.waiting_bytes()), ([0, 0], 0));
    say("refused");
}

#[test]
fn a_block_that_is_smaller_than_announced_is_not_mapped() {
    let tree = Tree::new("too-much");
    let [mut liar, mut importer] = start(&tree, [("liar", "0,1"), ("believer", "0,1")]);
    importer.expect("refused");
    assert!(importer.wait().success());
    assert!(left_nothing(&tree, importer.pid()));
    liar.kill();
}

fn announce_too_much(api: &CudaDriverApi) {
    let mut exporter = Exporter::new(api);
    exporter.buffer.grow_to(BLOCK).unwrap();
    let (mut blocks, _loan) = exporter.buffer.export(0..BLOCK).unwrap();
    blocks[0].bytes *= 2;
    send(exporter.uuid, &blocks);
    std::thread::sleep(LONG);
}

fn believe(api: &CudaDriverApi) {
    let (uuid, mut blocks) = receive().unwrap();
    let device = CudaDevice::by_uuid(*api, uuid).unwrap();
    let incoming = ImportedBacking::new(device, blocks[0].bytes).unwrap();
    let mut buffer = VirtualBuffer::new(incoming.clone(), 2 * MAX, Account::nobody()).unwrap();
    incoming.import(blocks.remove(0)).unwrap();
    let error = buffer.grow_to(2 * BLOCK).unwrap_err();
    let is_size = matches!(&error, MemoryError::Cuda(CudaError::Driver(error)) if error.code() == 1);
    assert!(is_size && error.to_string().contains("not what was announced"), "{error}");
    assert_eq!((buffer.committed(), incoming.waiting_bytes()), (0, 2 * BLOCK), "as it was");
    drop((buffer, incoming));
    assert_eq!(own_files(), [0, 0]);
    say("refused");
}

/// The driver does not tell how large a block is, so that nobody can refuse it.
#[test]
fn a_block_that_is_larger_than_announced_is_mapped_in_part() {
    let tree = Tree::new("too-little");
    let [mut liar, mut importer] = start(&tree, [("modest", "0,1"), ("content", "0,1")]);
    importer.expect("has a part");
    assert!(importer.wait().success());
    assert!(left_nothing(&tree, importer.pid()));
    liar.kill();
}

fn announce_too_little(api: &CudaDriverApi) {
    let mut exporter = Exporter::with_blocks(api, 2 * BLOCK);
    exporter.buffer.grow_to(2 * BLOCK).unwrap();
    write(&exporter.buffer, BLOCK - 8, 77);
    let (mut blocks, _loan) = exporter.buffer.export(0..2 * BLOCK).unwrap();
    blocks[0].bytes /= 2;
    send(exporter.uuid, &blocks);
    std::thread::sleep(LONG);
}

fn take_what_is_announced(api: &CudaDriverApi) {
    let (uuid, mut blocks) = receive().unwrap();
    let device = CudaDevice::by_uuid(*api, uuid).unwrap();
    let incoming = ImportedBacking::new(device, blocks[0].bytes).unwrap();
    let mut buffer = VirtualBuffer::new(incoming.clone(), MAX, Account::nobody()).unwrap();
    incoming.import(blocks.remove(0)).unwrap();
    buffer.grow_to(BLOCK).unwrap();
    assert_eq!(read(&buffer, BLOCK - 8), 77);
    let error = buffer.grow_to(2 * BLOCK).unwrap_err();
    assert!(matches!(&error, MemoryError::Cuda(CudaError::NotImported { .. })), "{error}");
    assert_eq!((buffer.committed(), own_files()), (BLOCK, [1, 1]));
    drop((buffer, incoming));
    assert_eq!(own_files(), [0, 0]);
    say("has a part");
}

/// A process that finds what is in the tree where the system looks for libraries.
fn start_with_a_system(tree: &Tree) -> Actor {
    start_alone(tree, "system", |command| {
        let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let all = std::iter::once(tree.path().join("driver")).chain(std::env::split_paths(&others));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(all).unwrap());
    })
}

#[test]
fn the_driver_is_found_where_the_system_looks_for_libraries() {
    let tree = Tree::new("system");
    tree.put_driver();
    let mut actor = start_with_a_system(&tree);
    actor.expect("a fake GPU of echo's");
    assert!(actor.wait().success());
    assert!(left_nothing(&tree, actor.pid()));
}

#[test]
fn a_driver_that_lacks_a_call_is_said_to() {
    let tree = Tree::new("lacking");
    tree.put_without(&fakes::built().cuda, "cuMemMap", "driver/libcuda.so.1");
    let mut actor = start_with_a_system(&tree);
    let said = actor.line().unwrap();
    assert!(said.starts_with("libcuda.so.1 has no cuMemMap: it is older than CUDA 10.2"), "{said}");
    assert_eq!(tree.journal().entries(), [], "nothing was called");
}

fn use_the_systems_driver() {
    let api = match CudaDriverApi::load() {
        Ok(api) => api,
        Err(error) => return say(&error.to_string()),
    };
    let name = CudaDevice::by_ordinal(api, 1).unwrap().name().to_owned();
    let mut exporter = Exporter::new(&api);
    exporter.buffer.grow_to(BLOCK).unwrap();
    write(&exporter.buffer, 0, 7);
    assert_eq!((read(&exporter.buffer, 0), own_files()), (7, [1, 1]));
    drop(exporter);
    say(&name);
}

#[test]
fn a_driver_that_wants_a_context_says_so_and_is_left_nothing() {
    let tree = Tree::new("context");
    let role = format!("context {}", tree.put_driver().display());
    let mut actor = start_alone(&tree, &role, |command| {
        command.env("ECHO_FAKE_CUDA_VMM_CONTEXT", "1");
    });
    actor.expect("nothing is left");
    assert!(actor.wait().success());
    assert!(left_nothing(&tree, actor.pid()));
}

fn want_a_context(library: &str) {
    let api = load(library);
    let advice = "make the framework's context current on the thread that calls this";
    let error = CudaDevice::by_ordinal(api, 1).unwrap_err();
    let is_context = |error: &CudaError| matches!(error, CudaError::Driver(error) if error.code() == 201);
    assert!(is_context(&error) && error.to_string().contains(advice), "{error}");
    // As a framework does.
    let framework = cuda::Driver::load(Path::new(library)).unwrap();
    let context = framework.of_device("cuDevicePrimaryCtxRetain", 1).unwrap();
    assert_eq!(framework.with_context("cuCtxPushCurrent_v2", context), 0);
    let mut exporter = Exporter::new(&api);
    exporter.buffer.grow_to(BLOCK).unwrap();
    // What is current is so on one thread.
    std::thread::scope(|scope| {
        let grown = scope.spawn(|| exporter.buffer.grow_to(3 * BLOCK)).join().unwrap();
        let error = grown.unwrap_err();
        assert!(matches!(&error, MemoryError::Cuda(error) if is_context(error)), "{error}");
    });
    assert_eq!((exporter.buffer.committed(), exporter.used(), own_files()), (BLOCK, BLOCK, [1, 1]));
    exporter.buffer.grow_to(3 * BLOCK).unwrap();
    let Exporter { governor, buffer, .. } = exporter;
    drop(buffer);
    assert_eq!((own_files(), governor.device_usage().used), ([0, 0], 0));
    say("nothing is left");
}

#[test]
fn threads_share_a_pool_and_no_block_of_it() {
    let tree = Tree::new("threads");
    let role = format!("threads {}", tree.put_driver().display());
    let mut actor = start_alone(&tree, &role, |_| ());
    actor.expect("nothing is left");
    assert!(actor.wait().success());
    assert!(left_nothing(&tree, actor.pid()));
}

fn share_a_pool(api: &CudaDriverApi) {
    let device = CudaDevice::by_ordinal(*api, 0).unwrap();
    // More is asked for at times than there may be, and less is kept than is given back.
    let (governor, pool) = pool(device, PoolOptions { block_bytes: BLOCK, keep_idle_bytes: 3 * BLOCK });
    let grown: u64 = std::thread::scope(|scope| {
        let threads = [1, 2, 3, 4].map(|thread| {
            let (pool, governor) = (pool.clone(), &governor);
            scope.spawn(move || grow_and_shrink(thread, &pool, governor))
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(grown > 0);
    assert_eq!(governor.device_usage().used as usize, pool.idle_bytes());
    pool.trim();
    assert_eq!((governor.device_usage().used, own_files()), (0, [0, 0]));
    say("nothing is left");
}

/// Writes into each block whose it is, and finds that in it for as long as it has it. Says how often it grew.
fn grow_and_shrink(thread: u64, pool: &CudaPool, governor: &MemoryGovernor) -> u64 {
    let mut buffer =
        VirtualBuffer::new(CudaBacking::new(pool.clone()), 4 * BLOCK, Account::nobody()).unwrap();
    let mut random = fastrand::Rng::with_seed(thread);
    let (base, mut grown) = (buffer.base(), 0);
    for turn in 0..200 {
        let (before, target) = (buffer.committed() / BLOCK, random.usize(0..=4));
        if target < before {
            // SAFETY: it is this thread's alone.
            unsafe { buffer.shrink_to(target * BLOCK) }.unwrap();
        } else {
            match buffer.grow_to(target * BLOCK) {
                Ok(()) => grown += u64::from(target > before),
                Err(MemoryError::Budget(_)) => assert_eq!(buffer.committed(), before * BLOCK, "as it was"),
                Err(error) => panic!("{error}"),
            }
        }
        let now = buffer.committed() / BLOCK;
        for block in before..now {
            write(&buffer, block * BLOCK, thread);
        }
        for block in 0..now {
            assert_eq!(read(&buffer, block * BLOCK), thread, "another has it too");
        }
        assert_eq!(buffer.base(), base);
        assert!(governor.device_usage().used <= MAX as u64);
        if turn % 16 == 0 {
            pool.trim();
        }
    }
    grown
}
