//! Copies of a batch to the device: how fast from which memory, and whether they arrive.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use rustix::mm::{MprotectFlags, mprotect};
use serde_json::{Value, json};

use crate::library::{Cuda, Destination, refused};
use crate::outcome::Outcome;
use crate::registering::{Shared, start_of};

const BYTES: usize = 256 << 20;
const TIMES: usize = 10;

/// Bytes that are told apart by where they are.
fn mark(start: usize, bytes: usize, salt: u64) {
    let words: *mut u64 = std::ptr::with_exposed_provenance_mut(start);
    for i in 0..bytes / 8 {
        let word = words.wrapping_add(i);
        // SAFETY: inside a mapping of so many bytes that only this process has, and page-aligned.
        unsafe { word.write((i as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)) };
    }
}

fn is_marked(bytes: &[u8], salt: u64) -> bool {
    bytes
        .chunks_exact(8)
        .enumerate()
        .all(|(i, word)| word == (i as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes())
}

/// The best of several, in GiB/s.
fn speed(device: &Destination<'_>, start: usize) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        let started = Instant::now();
        // SAFETY: a mapping of so many bytes, which nobody writes.
        let answers = unsafe { device.copy(start, BYTES) };
        best = best.min(started.elapsed().as_secs_f64());
        ensure!(answers == (0, 0), "the copy and its end answer {answers:?}");
    }
    Ok(BYTES as f64 / (1 << 30) as f64 / best)
}

/// From pageable memory, from registered memory, and from that once it can only be read, as a trainer's is.
pub fn bandwidth(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    let runtime = cuda.runtime();
    let shared = Shared::new(BYTES)?;
    mark(shared.start(), BYTES, 1);
    let device = Destination::new(runtime, BYTES)?;
    let pageable = speed(&device, shared.start())?;
    refused("cudaHostRegister", runtime.host_register(shared.start(), BYTES, 0))?;
    let registered = speed(&device, shared.start())?;
    let page = shared.mapping.base().as_ptr().cast();
    // SAFETY: a mapping of ours, to which nothing of Rust's refers and which is only read from now on.
    unsafe { mprotect(page, BYTES, MprotectFlags::READ) }?;
    let read_only = speed(&device, shared.start())?;
    let arrives = is_marked(&device.read(BYTES)?, 1);
    // As a worker goes on writing, by a mapping of its own.
    mark(start_of(&shared.again()?), BYTES, 2);
    let again = speed(&device, shared.start())?;
    let follows = is_marked(&device.read(BYTES)?, 2);
    let unregistered = runtime.host_unregister(shared.start());
    let value = |speed: f64| -> Value { json!((speed * 100.0).round() / 100.0) };
    Ok(Outcome::holds(
        arrives && follows && unregistered == 0 && read_only.max(again) > 0.8 * registered,
        "what is registered stays so, and as fast, when the process can only read it",
        json!({
            "bytes": BYTES, "unit": "GiB/s", "pageable": value(pageable), "registered": value(registered),
            "registered_then_read_only": value(read_only.max(again)), "arrives": arrives, "follows": follows,
        }),
    ))
}

/// A copy from two registrations that are neighbours: why no batch is cut.
pub fn across_registrations(cuda: &Cuda, _: Option<&Path>) -> Result<Outcome> {
    const HALF: usize = 1 << 20;
    let runtime = cuda.runtime();
    let shared = Shared::new(2 * HALF)?;
    mark(shared.start(), 2 * HALF, 3);
    let device = Destination::new(runtime, 2 * HALF)?;
    for start in [shared.start(), shared.start() + HALF] {
        refused("cudaHostRegister", runtime.host_register(start, HALF, 0))?;
    }
    // SAFETY: a mapping of so many bytes, which nobody writes.
    let (copied, waited) = unsafe { device.copy(shared.start(), 2 * HALF) };
    let arrives = device.read(2 * HALF).is_ok_and(|bytes| is_marked(&bytes, 3));
    Ok(Outcome::measured(json!({ "copy": copied, "wait": waited, "arrives": arrives })))
}
