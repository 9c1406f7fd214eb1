//! Making a table's memory resident; beside the kernel doing that and nothing else.

use std::time::{Duration, Instant};

use anyhow::Result;
use echo::memory::memfd::Unsealed;
use echo::memory::{Access, Mapping};
use echo_client::{ArraySpec, DType, HugePages, Pin, TableSpec};
use rustix::mm::{Advice, madvise};

use crate::stage::Daemon;
use crate::workload::TABLE;

const GIB: usize = 1 << 30;
const LONG: Duration = Duration::from_secs(60);

/// Seconds in which the daemon makes a table of a GiB: small pages, not locked.
pub fn echo(daemon: &Daemon) -> Result<f64> {
    let client = daemon.client()?;
    let spec = TableSpec {
        pin: Pin::Off,
        huge_pages: HugePages::Off,
        ..TableSpec::new(TABLE, vec![ArraySpec::new("obs", DType::U8, [1 << 20])], 32, 32)
    };
    let started = Instant::now();
    client.create_table(&spec)?;
    let took = started.elapsed().as_secs_f64();
    client.drop_table(TABLE)?;
    // Freeing its pages takes a while, and must not be in the way of what is measured next.
    while echo_client::status(Some(&daemon.socket()), LONG)?.host_used > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(took)
}

/// Seconds in which as many threads populate a bare file of a GiB.
pub fn plain() -> Result<f64> {
    let threads = std::thread::available_parallelism()?.get().min(4);
    let started = Instant::now();
    let file = Unsealed::create("bench", GIB as u64)?.seal()?;
    let mapping = Mapping::new(&file, GIB, Access::ReadWrite)?;
    let part = GIB / threads;
    std::thread::scope(|scope| {
        let populate = |i: usize| {
            let mapping = &mapping;
            move || {
                let start = mapping.base().as_ptr().wrapping_add(i * part);
                // SAFETY: a part of the mapping, which lives for the whole scope; populating changes no content.
                unsafe { madvise(start.cast(), part, Advice::LinuxPopulateWrite) }
            }
        };
        let running: Vec<_> = (0..threads).map(|i| scope.spawn(populate(i))).collect();
        running.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(started.elapsed().as_secs_f64())
}
