//! Page-locking what a trainer has mapped; beside the kernel pinning the same pages and nothing else.
//!
//! There is no GPU: the CUDA runtime is the tests' own, which takes a real pin for each registration, as a driver does.
//! So what is seen is what echo adds to it. Equal on both sides: a fresh process and a fresh mapping of one resident
//! file, small pages, as many threads that first fill the page tables (which is part of the time), and a fixed buffer
//! of io_uring. Echo's side is the client's: pieces, threads, the right to write given up at the end.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use echo::host_pinning::{CudaApi, Search, resolve};
use echo::memory::layout::DataLayout;
use echo::memory::memfd::Sealed;
use echo::memory::{Access, Mapping, SharedBacking};
use echo::ring::buf::{Pinning, PytreeRingBuf};
use echo_client::{ArraySpec, DType, TableSpec};
use io_uring::IoUring;
use rustix::mm::{Advice, madvise};

use crate::part::Words;
use crate::shared::SharedFile;
use crate::stage::{self, Actor};
use crate::workload::TABLE;

const MIB: u64 = 1 << 20;
/// What is tried, the largest first: a process may not be allowed to pin so much (RLIMIT_MEMLOCK). One buffer of
/// io_uring holds no more than the first.
const SIZES: [u64; 3] = [1024 * MIB, 512 * MIB, 256 * MIB];
/// Pins of one process, each of a mapping of its own.
const TIMES: usize = 3;
/// How long the kernel may take to let pages go.
const LONG: Duration = Duration::from_secs(30);
/// The runtime's file, as cargo names it, and what makes it.
const LIBRARY: &str = "libcudart12.so";
const MAKE: &str = "cargo build --release --package echo-fake-cudart12";

/// What both sides pin.
pub struct Scene {
    file: SharedFile,
    mib: u64,
    library: PathBuf,
}

impl Scene {
    /// Finds the runtime, and how much may be pinned. An error is why this cannot be measured here.
    pub fn set() -> Result<Self> {
        let library = std::env::current_exe()?.with_file_name(LIBRARY);
        ensure!(
            library.exists(),
            "there is no {}: run `{MAKE}`, as `cargo xtask bench` does",
            library.display()
        );
        let mut refused = None;
        for bytes in SIZES {
            let file = SharedFile::create(layout(bytes / MIB)?.bytes() as usize)?;
            match bare(&open(&file.name(), bytes)?, 1) {
                Ok(_) => return Ok(Self { file, mib: bytes / MIB, library }),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.context("nothing was tried")?)
    }

    /// GiB in a second that a reader page-locks.
    pub fn echo(&self) -> Result<f64> {
        self.play("pin-reader")
    }

    /// GiB in a second that the kernel pins.
    pub fn plain(&self) -> Result<f64> {
        self.play("pin-bare")
    }

    fn play(&self, part: &str) -> Result<f64> {
        let words = [part, &self.file.name(), &self.mib.to_string(), &self.library.to_string_lossy()];
        let seconds = stage::run(vec![Actor::start_anywhere(&words)?])?[0];
        Ok(self.mib as f64 / 1024.0 / seconds)
    }
}

/// One array, as large samples have it.
fn spec(mib: u64) -> TableSpec {
    TableSpec::new(TABLE, vec![ArraySpec::new("obs", DType::U8, [MIB])], 32, (mib / 32) as u32)
}

fn layout(mib: u64) -> Result<DataLayout> {
    Ok(DataLayout::of(&spec(mib))?)
}

fn open(name: &str, bytes: u64) -> Result<Sealed> {
    let file = std::fs::File::options().read(true).write(true).open(name).context("the shared file")?;
    Ok(Sealed::received(file.into(), bytes, Access::ReadWrite)?)
}

/// A reader's part.
pub fn play_reader(words: &mut Words<'_>) -> Result<()> {
    let (name, mib, library) = (words.text()?, words.number()?, PathBuf::from(words.text()?));
    let api = resolve(&Search::of_this_process(Some(&library), &[]))?.api;
    repeat(|| reader(name, mib, &api))
}

/// Maps as a reader does, and page-locks by echo.
fn reader(name: &str, mib: u64, api: &CudaApi) -> Result<(f64, impl Sized)> {
    let (spec, layout) = (spec(mib), layout(mib)?);
    let slots = u64::from(spec.batch_size) * u64::from(spec.capacity);
    let file = open(name, layout.bytes())?;
    let arrays = PytreeRingBuf::<SharedBacking>::attach(file, &layout, slots, Access::ReadWrite)?;
    let mut progress = |_| ();
    let started = Instant::now();
    arrays.prefault()?;
    // SAFETY: nobody writes the arrays here.
    let pinned = unsafe { arrays.pin_to_read(api, Pinning::of_rows(spec.batch_size, &mut progress)) }?;
    let took = started.elapsed().as_secs_f64();
    ensure!(pinned.bytes == mib * MIB, "{pinned:?} of {mib} MiB");
    // The runtime says that it registered even where the kernel does not let it pin.
    ensure!(pinned_bytes()? >= pinned.bytes, "the kernel pins {} bytes of {mib} MiB", pinned_bytes()?);
    Ok((took, arrays))
}

/// The limit's part.
pub fn play_bare(words: &mut Words<'_>) -> Result<()> {
    let (name, mib) = (words.text()?, words.number()?);
    let file = open(name, mib * MIB)?;
    let threads = thread::available_parallelism()?.get().min(8);
    repeat(|| bare(&file, threads))
}

/// Maps, fills the page tables, and pins.
fn bare(file: &Sealed, threads: usize) -> Result<(f64, impl Sized)> {
    let mapping = Mapping::new(file, usize::try_from(file.bytes())?, Access::ReadWrite)?;
    let started = Instant::now();
    fill(&mapping, threads)?;
    let ring = IoUring::new(1).context("the kernel gives no io_uring")?;
    let buffer = libc::iovec { iov_base: mapping.base().as_ptr().cast(), iov_len: mapping.len() };
    // SAFETY: the mapping is returned with the ring and dropped after it; nothing is ever read or written by the buffer.
    unsafe { ring.submitter().register_buffers(&[buffer]) }
        .with_context(|| format!("the kernel pins no {} MiB (RLIMIT_MEMLOCK)", file.bytes() / MIB))?;
    Ok((started.elapsed().as_secs_f64(), (ring, mapping)))
}

/// As echo does: several threads, each a part.
fn fill(mapping: &Mapping, threads: usize) -> Result<()> {
    let part = mapping.len().div_ceil(threads).next_multiple_of(4096);
    thread::scope(|scope| {
        let populate = |start: usize| {
            move || {
                let bytes = part.min(mapping.len() - start);
                let at = mapping.base().as_ptr().wrapping_add(start);
                // SAFETY: a part of the mapping, which lives for the whole scope; populating changes no content.
                unsafe { madvise(at.cast(), bytes, Advice::LinuxPopulateWrite) }
            }
        };
        let running: Vec<_> =
            (0..mapping.len()).step_by(part).map(|start| scope.spawn(populate(start))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(())
}

/// Pins several times, and says the median of the seconds.
fn repeat<P>(pin: impl Fn() -> Result<(f64, P)>) -> Result<()> {
    stage::ready()?;
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let (seconds, pinned) = pin()?;
        took.push(seconds);
        drop(pinned);
        // The kernel lets go of pages in its own time, which must not be in the way of what is measured next.
        let patience = Instant::now() + LONG;
        while pinned_bytes()? > 0 {
            ensure!(Instant::now() < patience, "the kernel does not let go of {} bytes", pinned_bytes()?);
            thread::sleep(Duration::from_millis(1));
        }
    }
    took.sort_by(f64::total_cmp);
    stage::report(&[took[took.len() / 2]]);
    Ok(())
}

/// Bytes of this process's memory that the kernel has pinned.
fn pinned_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).context("no VmPin")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}
