//! Registering host memory: what it makes, what counts it, who disturbs whom, and how long it takes.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use echo::memory::governor::Account;
use echo::memory::layout::DataLayout;
use echo::memory::memfd::{Sealed, Unsealed};
use echo::memory::shared::Filling;
use echo::memory::{Access, Mapping, SharedBacking, pages};
use echo::ring::buf::PytreeRingBuf;
use echo_client::{ArraySpec, DType, Pin, TableSpec};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use serde_json::{Map, json};

use crate::cuda::Runtime;
use crate::library::{Cuda, enter, refused, said};
use crate::outcome::Outcome;
use crate::stage::{Actor, say_and_wait};

const MIB: usize = 1 << 20;
/// Bytes of a check in which the time does not matter.
const SOME: usize = 64 * MIB;

/// A file of shared memory that is resident, and mapped to be written.
pub struct Shared {
    pub mapping: Mapping,
    file: OwnedFd,
    bytes: usize,
}

impl Shared {
    pub fn new(bytes: usize) -> Result<Self> {
        let file = Unsealed::create("gpu-check", bytes as u64)?.seal()?;
        let mapping = Mapping::new(&file, bytes, Access::ReadWrite)?;
        mapping.make_resident(&Filling::new(8, Pin::Off, |_| ()))?;
        Ok(Self { mapping, file: file.into_fd(), bytes })
    }

    pub fn start(&self) -> usize {
        self.mapping.base().as_ptr().expose_provenance()
    }

    /// Maps it once more.
    pub fn again(&self) -> Result<Mapping> {
        Ok(Mapping::new(&self.file, self.bytes, Access::ReadWrite)?)
    }

    /// What another process opens it by.
    fn name(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

pub fn start_of(mapping: &Mapping) -> usize {
    mapping.base().as_ptr().expose_provenance()
}

/// A trainer that has used no GPU yet has a context by registering.
pub fn makes_a_context(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let before = said("cuDevicePrimaryCtxGetState", driver.is_active(0))?;
    let shared = Shared::new(MIB)?;
    let registered = cuda.runtime().host_register(shared.start(), MIB, 0);
    let after = said("cuDevicePrimaryCtxGetState", driver.is_active(0))?;
    let unregistered = cuda.runtime().host_unregister(shared.start());
    Ok(Outcome::holds(
        !before && registered == 0 && after && unregistered == 0,
        "registering alone works, and makes a context",
        json!({ "active_before": before, "register": registered, "active_after": after }),
    ))
}

/// As two readers of one table in one process have it.
pub fn two_mappings(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let shared = Shared::new(MIB)?;
    let again = shared.again()?;
    let runtime = cuda.runtime();
    let codes = [shared.start(), start_of(&again)].map(|start| runtime.host_register(start, MIB, 0));
    let gone = [shared.start(), start_of(&again)].map(|start| runtime.host_unregister(start));
    Ok(Outcome::holds(
        codes == [0; 2] && gone == [0; 2],
        "two readers in one process can both page-lock a table",
        json!({ "register": codes, "unregister": gone }),
    ))
}

/// Whether what the runtime has registered is registered for the driver.
pub fn one_table(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    const ALREADY: i32 = 712;
    let shared = Shared::new(MIB)?;
    let (runtime, driver) = (cuda.runtime(), cuda.started()?);
    refused("cudaHostRegister", runtime.host_register(shared.start(), MIB, 0))?;
    enter(driver, 0)?;
    let by_driver = driver.host_register(shared.start(), MIB, 0);
    let gone_by_driver = driver.host_unregister(shared.start());
    let gone = runtime.host_unregister(shared.start());
    Ok(Outcome::measured(json!({
        "one": by_driver == ALREADY,
        "register_by_driver": by_driver, "unregister_by_driver": gone_by_driver, "unregister_after": gone,
    })))
}

/// The limit of locked memory is not the driver's.
pub fn memlock(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    const LIMIT: u64 = 64 << 10;
    let shared = Shared::new(SOME)?;
    // Started without the limit, since that is about something else.
    let started = Shared::new(MIB)?;
    refused("cudaHostRegister", cuda.runtime().host_register(started.start(), MIB, 0))?;
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(LIMIT), maximum })?;
    // Whoever may lock what he likes is held by no limit.
    let mut sets = capabilities(None)?;
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets)?;
    let registered = cuda.runtime().host_register(shared.start(), SOME, 0);
    let unregistered = cuda.runtime().host_unregister(shared.start());
    Ok(Outcome::holds(
        registered == 0 && unregistered == 0,
        "the driver does not count what it pins against RLIMIT_MEMLOCK",
        json!({ "limit": LIMIT, "bytes": SOME, "register": registered }),
    ))
}

/// What `/proc` says of memory that is registered.
pub fn shown_by_the_kernel(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let shared = Shared::new(SOME)?;
    let fields = || Ok::<_, anyhow::Error>([status_bytes("VmPin:")?, status_bytes("VmLck:")?]);
    let before = fields()?;
    refused("cudaHostRegister", cuda.runtime().host_register(shared.start(), SOME, 0))?;
    let after = fields()?;
    refused("cudaHostUnregister", cuda.runtime().host_unregister(shared.start()))?;
    let [pinned, locked] = [0, 1].map(|i| after[i].saturating_sub(before[i]));
    Ok(Outcome::holds(
        locked < SOME as u64,
        "VmLck does not show it",
        json!({ "bytes": SOME, "vm_pin": pinned, "vm_lck": locked }),
    ))
}

/// A line of this process's status, in bytes.
fn status_bytes(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

const PROCESSES: usize = 4;
const AT_ONCE: usize = 256 * MIB;

/// What happens without taking turns.
pub fn at_once(_: &Cuda, library: Option<&Path>) -> Result<Outcome> {
    const ROUNDS: usize = 5;
    let shared = Shared::new(AT_ONCE)?;
    let (file, bytes) = (shared.name(), AT_ONCE.to_string());
    let mut actors = (0..PROCESSES)
        .map(|_| Actor::start(library, &["register", &file, &bytes]))
        .collect::<Result<Vec<_>>>()?;
    let mut codes: Vec<i32> = Vec::new();
    let mut seconds = Vec::new();
    for actor in &mut actors {
        actor.expect("ready")?;
    }
    for _ in 0..ROUNDS {
        actors.iter_mut().try_for_each(|actor| actor.say("register"))?;
        for actor in &mut actors {
            let said = actor.line()?;
            let (code, took) = said.split_once(' ').context("no code")?;
            codes.push(code.parse()?);
            seconds.push(took.parse::<f64>()?);
        }
        actors.iter_mut().try_for_each(|actor| actor.say("unregister"))?;
        actors.iter_mut().try_for_each(|actor| actor.expect("ready"))?;
    }
    let refused: Vec<i32> = codes.iter().copied().filter(|&code| code != 0).collect();
    Ok(Outcome::measured(json!({
        "processes": PROCESSES, "bytes": AT_ONCE, "registrations": codes.len(), "refused": refused,
        "slowest_seconds": seconds.iter().copied().fold(0.0, f64::max),
    })))
}

/// Registers when it is told to, again and again.
pub fn play_register(library: Option<&Path>, file: &str, bytes: usize) -> Result<()> {
    let cuda = Cuda::load(library, &["cudaFree"], &[]).map_err(anyhow::Error::msg)?;
    let file = File::options().read(true).write(true).open(file)?;
    let file = Sealed::received(file.into(), bytes as u64, Access::ReadWrite)?;
    let mapping = Mapping::new(&file, bytes, Access::ReadWrite)?;
    // Starting CUDA is not what is to happen at the same time.
    refused("cudaFree", cuda.runtime().free_nothing())?;
    loop {
        if say_and_wait("ready").is_err() {
            return Ok(());
        }
        let started = Instant::now();
        let registered = cuda.runtime().host_register(start_of(&mapping), bytes, 0);
        say_and_wait(&format!("{registered} {}", started.elapsed().as_secs_f64()))?;
        let unregistered = cuda.runtime().host_unregister(start_of(&mapping));
        ensure!(registered != 0 || unregistered == 0, "cudaHostUnregister answers {unregistered}");
        let _ = cuda.runtime().get_last_error();
    }
}

/// How long it takes for a GiB, by what the memory is made of and whether the page tables are filled.
pub fn seconds(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    const ARRAY: usize = 512 * MIB;
    let runtime = cuda.runtime();
    refused("cudaFree", runtime.free_nothing())?;
    let mut values = Map::new();
    let per_gib = |seconds: f64| json!(seconds * (1 << 30) as f64 / ARRAY as f64);
    values.insert("bytes".into(), json!(ARRAY));

    let shared = Shared::new(ARRAY)?;
    let [register, unregister] = timed(runtime, shared.start(), ARRAY)?;
    values.insert("filled".into(), per_gib(register));
    values.insert("unregister".into(), per_gib(unregister));
    // The pages are there, but this mapping has none of them yet.
    let again = shared.again()?;
    values.insert("not_filled".into(), per_gib(timed(runtime, start_of(&again), ARRAY)?[0]));
    let again = shared.again()?;
    let started = Instant::now();
    again.make_resident(&Filling::new(8, Pin::Off, |_| ()))?;
    values.insert("filling".into(), per_gib(started.elapsed().as_secs_f64()));

    match pages::shared_huge_page() {
        Ok(size) => {
            let spec = TableSpec::new(
                "huge",
                vec![ArraySpec::new("a", DType::U8, [MIB as u64])],
                1,
                (ARRAY / MIB) as u32,
            );
            let layout = DataLayout::of(&spec)?;
            let file = Arc::new(Unsealed::create("gpu-check", layout.bytes())?.seal()?.into_fd());
            let filling = Arc::new(Filling::new(8, Pin::Off, |_| ()));
            let slots = (ARRAY / MIB) as u64;
            let arrays = PytreeRingBuf::<SharedBacking>::create(
                &file,
                &layout,
                slots,
                &Account::nobody(),
                Some(size),
                &filling,
            )?;
            let ranges = arrays.address_ranges();
            let (start, _) = ranges[0];
            values.insert("huge_bytes".into(), json!(pages::count(&ranges)?.huge));
            values.insert("huge_filled".into(), per_gib(timed(runtime, start, ARRAY)?[0]));
        }
        Err(reason) => {
            values.insert("no_huge_pages".into(), json!(reason.to_string()));
        }
    }
    Ok(Outcome::measured(values.into()))
}

/// Seconds of registering and of unregistering.
fn timed(runtime: &Runtime, start: usize, bytes: usize) -> Result<[f64; 2]> {
    let started = Instant::now();
    refused("cudaHostRegister", runtime.host_register(start, bytes, 0))?;
    let registered = started.elapsed().as_secs_f64();
    let started = Instant::now();
    refused("cudaHostUnregister", runtime.host_unregister(start))?;
    Ok([registered, started.elapsed().as_secs_f64()])
}
