//! Replay tables: batches of samples that are chosen, from the request to the batch in the trainer's own memory, pipelined;
//! beside a bare gather of as many samples by as many threads. And the index alone, beside as many lines of memory.
//!
//! The table is full, and its items have random priorities. Of a prioritized table each batch's priorities are set anew, as a
//! trainer does. The reader does nothing else with a batch.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use echo::replay::index::{Arrival, Index};
use echo::replay::items::Items;
use echo::ring::words::Words as Memory;
use echo_client::replay::{Real, ReplaySpec, Selector};
use echo_client::{Mark, SamplerOptions, TableSpec};

use crate::clock;
use crate::part::Words;
use crate::stage::{self, Actor, Daemon};
use crate::workload::{Source, TABLE, Workload};

/// Samples in a batch.
const BATCH: u32 = 256;
/// Batches that are asked for ahead.
const PREFETCH: u16 = 4;
/// Threads that gather.
const THREADS: u16 = 1;
/// Samples that are written together.
const MANY: usize = 64;
const LONG: Duration = Duration::from_secs(60);
/// Items of the index alone.
const ITEMS: u32 = 1_000_000;
/// How often it is asked.
const ROUNDS: usize = 2000;

/// A table that is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// What its samples are.
    pub workload: Workload,
    /// By priority, or each as likely as another.
    pub prioritized: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Sampled {
    /// Samples a second.
    pub rate: f64,
    /// Bytes of memory an item, besides its arrays.
    pub overhead: f64,
}

impl Sample {
    /// Items in the table.
    const fn items(self, quick: bool) -> u32 {
        match (self.workload, quick) {
            (Workload::Tiny, false) => 1_000_000,
            (Workload::Tiny, true) => 200_000,
            (_, false) => 100_000,
            (_, true) => 20_000,
        }
    }

    /// Batches of one measurement.
    const fn batches(self, quick: bool) -> u64 {
        match (self.workload, quick) {
            (Workload::Tiny, false) => 8000,
            (Workload::Tiny, true) => 2000,
            (_, false) => 1000,
            (_, true) => 200,
        }
    }

    /// Through echo.
    pub fn echo(self, daemon: &Daemon, quick: bool) -> Result<Sampled> {
        let mut settings = ReplaySpec::new(self.items(quick), BATCH);
        if self.prioritized {
            settings.sampler = Selector::Prioritized { exponent: Real(0.6) };
        }
        let client = daemon.client()?;
        client.create_table(&TableSpec::replay(TABLE, self.workload.arrays(), settings))?;
        self.fill(&client, quick)?;
        let socket = daemon.socket();
        let (socket, batches) = (socket.to_string_lossy(), self.batches(quick).to_string());
        let updates = if self.prioritized { "1" } else { "0" };
        let seen = stage::run(vec![Actor::start_anywhere(&["sampler", &socket, &batches, updates])?])?;
        let shown = client.show_table(TABLE)?.replay.context("it is a replay table")?;
        client.drop_table(TABLE)?;
        let rate = (self.batches(quick) * u64::from(BATCH)) as f64 / seen[0];
        Ok(Sampled { rate, overhead: shown.bytes_per_item.0 })
    }

    fn fill(self, client: &echo_client::Client, quick: bool) -> Result<()> {
        let mut writer = client.attach_replay_writer(TABLE, None)?;
        writer.set_timeout(LONG);
        let source = Source::new(self.workload);
        let mut random = fastrand::Rng::with_seed(1);
        let many = MANY.min(source.samples());
        let pieces = source.pieces(many);
        let mut left = self.items(quick) as usize;
        for piece in pieces.iter().cycle() {
            if left == 0 {
                break;
            }
            let n = many.min(left);
            let piece: Vec<&[u8]> = piece.iter().map(|bytes| &bytes[..bytes.len() / many * n]).collect();
            let mark = |_| Mark { priority: Some(random.f64()), version: None };
            let marks: Vec<Mark> = (0..n).map(mark).collect();
            writer.append_many(n, &piece, &marks)?;
            left -= n;
        }
        Ok(())
    }

    /// As many samples from memory of a process's own, at random, by one thread.
    pub fn plain(self, quick: bool) -> Result<f64> {
        let (name, items, batches) =
            (self.workload.name(), self.items(quick).to_string(), self.batches(quick).to_string());
        let seen = stage::run(vec![Actor::start(0, &["gatherer", &name, &items, &batches])?])?;
        Ok((self.batches(quick) * u64::from(BATCH)) as f64 / seen[0])
    }
}

/// Takes batches, and lets each go when the next one is asked for.
pub fn play_sampler(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    let (batches, updates) = (words.number()?, words.number()? == 1);
    let options =
        SamplerOptions { batch: Some(BATCH), prefetch: PREFETCH, threads: THREADS, ..Default::default() };
    let sampler = client.attach_sampler(TABLE, None, options)?;
    let mut random = fastrand::Rng::with_seed(2);
    // Every page is met once before.
    for _ in 0..4 * PREFETCH {
        sampler.next_batch(LONG)?;
    }
    stage::ready()?;
    let started = clock::now();
    for _ in 0..batches {
        let batch = sampler.next_batch(LONG)?;
        if updates {
            let priorities: Vec<(u64, f64)> = batch.keys().map(|key| (key, random.f64())).collect();
            sampler.send_priorities(&priorities)?;
        }
    }
    stage::report(&[(clock::now() - started) as f64 / 1e9]);
    Ok(())
}

/// Copies samples of its own memory, at random.
pub fn play_gatherer(words: &mut Words<'_>) -> Result<()> {
    let workload = Workload::from_name(words.text()?)?;
    let (items, batches) = (words.number()? as usize, words.number()?);
    let sizes: Vec<usize> =
        workload.arrays().iter().map(|array| array.slot_bytes().unwrap_or(0) as usize).collect();
    let arrays: Vec<Vec<u8>> = sizes.iter().map(|size| vec![1_u8; size * items]).collect();
    let mut places: Vec<Vec<u8>> =
        sizes.iter().map(|size| vec![0_u8; size * BATCH as usize * usize::from(PREFETCH + 1)]).collect();
    let mut random = fastrand::Rng::with_seed(3);
    stage::ready()?;
    let started = clock::now();
    for batch in 0..batches as usize {
        let place = batch % usize::from(PREFETCH + 1);
        let chosen: Vec<usize> = (0..BATCH).map(|_| random.usize(..items)).collect();
        for ((size, array), target) in sizes.iter().zip(&arrays).zip(&mut places) {
            let target = &mut target[place * size * BATCH as usize..][..size * BATCH as usize];
            for (&item, target) in chosen.iter().zip(target.chunks_exact_mut(*size)) {
                target.copy_from_slice(&array[item * size..][..*size]);
            }
        }
        std::hint::black_box(&mut places);
    }
    stage::report(&[(clock::now() - started) as f64 / 1e9]);
    Ok(())
}

/// What the index alone takes for 256 items, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// To choose them.
    pub draw: f64,
    /// To change their priorities.
    pub update: f64,
}

/// Of a full prioritized table.
pub fn index() -> Result<Alone> {
    let mut settings = ReplaySpec::new(ITEMS, BATCH);
    settings.sampler = Selector::Prioritized { exponent: Real(0.6) };
    let slots = settings.blocks() * settings.block_slots();
    let mut index = Index::create(&settings, slots, Memory::heap(Items::bytes(slots)))?;
    let mut random = fastrand::Rng::with_seed(4);
    let mut source = fastrand::Rng::with_seed(5);
    for slot in 0..ITEMS {
        let arrival = Arrival { key: slot.into(), priority: Some(random.f64()), version: None };
        index.insert(slot, &arrival, Duration::ZERO, &mut || source.u64(..))?;
    }
    let (mut draws, mut updates, mut picks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        picks.clear();
        let started = clock::now();
        index.sample(BATCH, Duration::ZERO, &mut || source.u64(..), &mut picks);
        draws.push((clock::now() - started) as f64 / 1e3);
        let changed: Vec<(u64, f64)> = picks.iter().map(|pick| (pick.key, random.f64())).collect();
        let started = clock::now();
        index.update_priorities(&changed)?;
        updates.push((clock::now() - started) as f64 / 1e3);
        index.release(&picks.iter().map(|pick| pick.slot).collect::<Vec<_>>())?;
    }
    Ok(Alone { draw: median(draws), update: median(updates) })
}

/// As many cache lines of as much memory, at random: read, and written.
pub fn lines() -> Alone {
    const LINE: usize = 8;
    let mut memory = vec![1_u64; ITEMS as usize * LINE];
    let mut random = fastrand::Rng::with_seed(6);
    let (mut draws, mut updates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let chosen: Vec<usize> = (0..BATCH).map(|_| random.usize(..ITEMS as usize) * LINE).collect();
        let started = clock::now();
        std::hint::black_box(chosen.iter().map(|&at| memory[at]).sum::<u64>());
        draws.push((clock::now() - started) as f64 / 1e3);
        let chosen: Vec<usize> = (0..BATCH).map(|_| random.usize(..ITEMS as usize) * LINE).collect();
        let started = clock::now();
        chosen.iter().for_each(|&at| memory[at] += 1);
        std::hint::black_box(&mut memory);
        updates.push((clock::now() - started) as f64 / 1e3);
    }
    Alone { draw: median(draws), update: median(updates) }
}

fn median(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}
