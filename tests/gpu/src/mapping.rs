//! Devices, their contexts, and their memory behind addresses and descriptors.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cuda::{Driver, properties};
use crate::library::{Cuda, code, enter, free_bytes, refused, said, set_device};
use crate::outcome::Outcome;
use crate::stage::{Actor, say_and_wait};

/// Those that echo asks for, or that explain what it meets.
const ATTRIBUTES: [(&str, i32); 7] = [
    ("integrated", 18),
    ("pageable_memory_access", 88),
    ("host_register_supported", 99),
    ("uses_host_page_tables", 100),
    ("virtual_memory_management", 102),
    ("posix_descriptors", 103),
    ("read_only_host_register", 113),
];
/// Enough to be seen among what else happens on a device.
const MUCH: usize = 256 << 20;
const READ_WRITE: i32 = 3;
const CREATE: &str = "cuMemCreate";

/// What there is.
pub fn devices(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let count: i32 = said("cuDeviceGetCount", driver.says("cuDeviceGetCount"))?;
    let mut devices = Vec::new();
    for device in 0..count {
        let attributes: serde_json::Map<String, Value> = ATTRIBUTES
            .iter()
            .map(|&(name, number)| (name.to_owned(), json!(driver.attribute(number, device).ok())))
            .collect();
        let bytes = driver.of_device_bytes(device);
        devices.push(json!({ "name": driver.name(device).ok(), "bytes": bytes, "attributes": attributes }));
    }
    Ok(Outcome::measured(json!({
        "devices": devices,
        "driver": cuda.runtime().number("cudaDriverGetVersion").ok(),
        "runtime": cuda.runtime().number("cudaRuntimeGetVersion").ok(),
        "kernel_module": std::fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned()),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()),
    })))
}

impl Driver {
    fn of_device_bytes(&self, device: i32) -> Option<usize> {
        self.loaded()
            .has("cuDeviceTotalMem_v2")
            .then(|| self.of_device("cuDeviceTotalMem_v2", device).ok())?
    }
}

/// Somebody else who has a context on a device, and says how much of it is free.
struct Watch(Actor);

impl Watch {
    fn start(device: i32) -> Result<Self> {
        let mut actor = Actor::start(None, &["watch", &device.to_string()])?;
        actor.expect("ready")?;
        Ok(Self(actor))
    }

    fn free(&mut self) -> Result<u64> {
        self.0.say("free")?;
        Ok(self.0.line()?.parse()?)
    }
}

/// Says how much is free, whenever it is asked.
pub fn play_watch(device: i32) -> Result<()> {
    let cuda = Cuda::load(None, &[], &["cuMemGetInfo_v2"]).map_err(anyhow::Error::msg)?;
    let driver = cuda.started()?;
    enter(driver, device)?;
    let mut line = "ready".to_owned();
    while say_and_wait(&line).is_ok() {
        line = free_bytes(driver)?.to_string();
    }
    Ok(())
}

/// What a trainer's context takes on each device.
pub fn context_bytes(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let count: i32 = said("cuDeviceGetCount", driver.says("cuDeviceGetCount"))?;
    let mut bytes = Vec::new();
    for device in 0..count {
        let mut watch = Watch::start(device)?;
        let before = watch.free()?;
        set_device(cuda.runtime(), device)?;
        refused("cudaFree", cuda.runtime().free_nothing())?;
        bytes.push(before.saturating_sub(watch.free()?));
    }
    Ok(Outcome::measured(json!({ "bytes": bytes })))
}

/// The size of a block.
fn granule(driver: &Driver) -> Result<usize> {
    said("cuMemGetAllocationGranularity", driver.granularity(&properties(0, true)))
}

/// Whether a context is there by now.
fn active(driver: &Driver) -> Result<bool> {
    said("cuDevicePrimaryCtxGetState", driver.is_active(0))
}

pub fn create_without_a_context(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let bytes = granule(driver)?;
    let handle = driver.create(bytes, &properties(0, true), 0);
    let (create, mut export, mut release) = (code(&handle), None, None);
    if let Ok(handle) = handle {
        export = Some(code(&driver.export(handle)));
        release = Some(driver.release(handle));
    }
    let active = active(driver)?;
    Ok(Outcome::holds(
        create == 0 && export == Some(0) && release == Some(0) && !active,
        "memory is created and exported without a context",
        json!({ "granule": bytes, "create": create, "export": export, "release": release, "active_after": active }),
    ))
}

pub fn map_without_a_context(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let bytes = granule(driver)?;
    let handle = said(CREATE, driver.create(bytes, &properties(0, true), 0))?;
    let start = said("cuMemAddressReserve", driver.reserve(bytes, 0))?;
    let map = driver.map(start, bytes, 0, handle);
    let access = driver.set_access(start, bytes, 0, READ_WRITE);
    let unmap = driver.on_range("cuMemUnmap", start, bytes);
    let active = active(driver)?;
    Ok(Outcome::holds(
        [map, access, unmap] == [0; 3] && !active,
        "memory is mapped, and access given, without a context",
        json!({ "map": map, "set_access": access, "unmap": unmap, "active_after": active }),
    ))
}

pub fn unmap_several(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let bytes = granule(driver)?;
    let start = said("cuMemAddressReserve", driver.reserve(2 * bytes, 0))?;
    for i in 0..2 {
        let handle = said(CREATE, driver.create(bytes, &properties(0, true), 0))?;
        refused("cuMemMap", driver.map(start + (i * bytes) as u64, bytes, 0, handle))?;
        refused("cuMemRelease", driver.release(handle))?;
    }
    let access = driver.set_access(start, 2 * bytes, 0, READ_WRITE);
    let unmap = driver.on_range("cuMemUnmap", start, 2 * bytes);
    let free = driver.on_range("cuMemAddressFree", start, 2 * bytes);
    Ok(Outcome::holds(
        [access, unmap, free] == [0; 3],
        "one call gives access to several mappings, and one unmaps them",
        json!({ "set_access": access, "unmap": unmap, "free": free }),
    ))
}

pub fn closed_on_exec(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let handle = said(CREATE, driver.create(granule(driver)?, &properties(0, true), 0))?;
    let descriptor = said("cuMemExportToShareableHandle", driver.export(handle))?;
    let flags = rustix::io::fcntl_getfd(&descriptor)?;
    // Echo sets it in any case; until then a child of another thread may inherit it.
    Ok(Outcome::measured(json!({ "by_the_driver": flags.contains(rustix::io::FdFlags::CLOEXEC) })))
}

/// A process that sees another device, or none, gets an error and not the memory.
pub fn import_invisible(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let count: i32 = said("cuDeviceGetCount", driver.says("cuDeviceGetCount"))?;
    let handle = said(CREATE, driver.create(granule(driver)?, &properties(0, true), 0))?;
    let descriptor = said("cuMemExportToShareableHandle", driver.export(handle))?;
    // By an ordinal that is this process's own: it may see some of the machine's alone.
    let outer = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let mine: Vec<&str> = outer.split(',').filter(|device| !device.is_empty()).collect();
    let name = |device: usize| mine.get(device).map_or_else(|| device.to_string(), |&name| name.to_owned());
    let others: Vec<String> = (1..count as usize).map(name).collect();
    let import = |visible: &str| -> Result<Vec<i32>> {
        let input = Stdio::from(descriptor.try_clone()?);
        let mut actor = Actor::start_with(None, &["import"], |command| {
            command.env("CUDA_VISIBLE_DEVICES", visible).stdin(input);
        })?;
        actor.line()?.split(' ').map(|code| code.parse().context("no code")).collect()
    };
    let (same, none) = (import(&name(0))?, import("")?);
    let other = others.first().map(|device| import(device)).transpose()?;
    let is_refused = |codes: &[i32]| codes.iter().any(|&code| code != 0);
    Ok(Outcome::holds(
        !is_refused(&same) && is_refused(&none) && other.as_deref().is_none_or(is_refused),
        "memory of a device that a process does not see is refused to it",
        json!({ "init_and_import": { "the_same": same, "none": none, "another": other } }),
    ))
}

/// Imports its input, and says what starting and importing answered.
pub fn play_import() -> Result<()> {
    let cuda = Cuda::load(None, &[], &["cuMemImportFromShareableHandle"]).map_err(anyhow::Error::msg)?;
    let init = cuda.driver().init(0);
    let import = code(&cuda.driver().import(std::io::stdin().as_fd()));
    println!("{init} {import}");
    Ok(())
}

/// Memory of an exporter that has let go is held by whoever imported it, and free when that one is killed.
pub fn importer_dies(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let driver = cuda.started()?;
    let mut watch = Watch::start(0)?;
    let before = watch.free()?;
    let bytes = MUCH.next_multiple_of(granule(driver)?);
    let handle = said(CREATE, driver.create(bytes, &properties(0, true), 0))?;
    let descriptor = said("cuMemExportToShareableHandle", driver.export(handle))?;
    let created = watch.free()?;
    let mut importer = Actor::start_with(None, &["stay"], |command| {
        command.stdin(Stdio::from(descriptor));
    })?;
    importer.expect("mapped")?;
    refused("cuMemRelease", driver.release(handle))?;
    let imported = watch.free()?;
    importer.kill();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut after = watch.free()?;
    while after < imported + bytes as u64 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        after = watch.free()?;
    }
    Ok(Outcome::holds(
        created + bytes as u64 <= before && imported <= created && after >= imported + bytes as u64,
        "an import holds the memory, and its process's death frees it",
        json!({
            "bytes": bytes, "free_before": before, "free_created": created,
            "free_imported_and_released": imported, "free_after_death": after,
        }),
    ))
}

/// Imports its input, maps it, and stays until it is killed.
pub fn play_stay() -> Result<()> {
    let cuda = Cuda::load(None, &[], &["cuMemImportFromShareableHandle"]).map_err(anyhow::Error::msg)?;
    let driver = cuda.started()?;
    let handle = said("cuMemImportFromShareableHandle", driver.import(std::io::stdin().as_fd()))?;
    let bytes = MUCH.next_multiple_of(granule(driver)?);
    let start = said("cuMemAddressReserve", driver.reserve(bytes, 0))?;
    refused("cuMemMap", driver.map(start, bytes, 0, handle))?;
    refused("cuMemSetAccess", driver.set_access(start, bytes, 0, READ_WRITE))?;
    ensure!(driver.release(handle) == 0, "the handle is released");
    println!("mapped");
    loop {
        std::thread::park();
    }
}
