//! Throughput: samples a second from writers to a reader, through echo and through plain rings.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use echo_client::ReaderOptions;

use crate::clock;
use crate::part::Words;
use crate::patience::POLL;
use crate::plain_ring::{Consumer, Producer, file_bytes};
use crate::shared::SharedFile;
use crate::stage::{self, Actor, Daemon};
use crate::workload::{Source, TABLE, Workload, sum};

/// How long anything may take that must come.
const LONG: Duration = Duration::from_secs(60);

/// A row of throughput.
#[derive(Clone, Copy, Debug)]
pub struct Fifo {
    pub workload: Workload,
    pub writers: usize,
    /// Samples that are appended, or published, at once.
    pub many: u64,
}

impl Fifo {
    fn samples_each(self, quick: bool) -> u64 {
        ((self.workload.slots() + self.workload.samples(quick)) / self.writers as u64)
            .next_multiple_of(u64::from(self.workload.batch()))
    }

    /// Batches of one measurement.
    pub fn batches(self, quick: bool) -> u64 {
        self.samples_each(quick) * self.writers as u64 / u64::from(self.workload.batch())
    }

    /// Samples a second through echo.
    pub fn echo(self, daemon: &Daemon, quick: bool) -> Result<f64> {
        let client = daemon.client()?;
        client.create_table(&self.workload.spec())?;
        let socket = daemon.socket();
        let (socket, workload) = (socket.to_string_lossy(), self.workload.name());
        let (many, samples) = (self.many.to_string(), self.samples_each(quick).to_string());
        let mut actors: Vec<Actor> = (0..self.writers)
            .map(|i| Actor::start(i, &["fifo-writer", &socket, &workload, &many, &samples]))
            .collect::<Result<_>>()?;
        let all = (self.samples_each(quick) * self.writers as u64).to_string();
        actors.push(Actor::start(1, &["fifo-reader", &socket, &workload, &all])?);
        let seen = stage::run(actors)?;
        client.drop_table(TABLE)?;
        Ok(seen[0])
    }

    /// Samples a second through plain rings, one for each writer.
    pub fn plain(self, quick: bool) -> Result<f64> {
        let (slots, bytes) = (self.workload.slots() / self.writers as u64, self.workload.sample_bytes());
        let files: Vec<SharedFile> =
            (0..self.writers).map(|_| SharedFile::create(file_bytes(slots, bytes))).collect::<Result<_>>()?;
        let names: Vec<String> = files.iter().map(SharedFile::name).collect();
        let (slots, workload) = (slots.to_string(), self.workload.name());
        let (many, samples) = (self.many.to_string(), self.samples_each(quick).to_string());
        let mut actors: Vec<Actor> = names
            .iter()
            .enumerate()
            .map(|(i, name)| Actor::start(i, &["ring-writer", name, &slots, &workload, &many, &samples]))
            .collect::<Result<_>>()?;
        let mut reader = vec!["ring-reader", &slots, &workload];
        reader.extend(names.iter().map(String::as_str));
        actors.push(Actor::start(1, &reader)?);
        let seen = stage::run(actors)?;
        Ok(seen[0])
    }
}

/// Appends samples to the table.
pub fn play_writer(words: &mut Words<'_>) -> Result<()> {
    let (socket, workload) = (words.text()?, Workload::from_name(words.text()?)?);
    let (many, samples) = (words.number()? as usize, words.number()?);
    let client = stage::connect(Path::new(socket))?;
    let mut writer = client.attach_writer(TABLE, Some(&workload.arrays()))?;
    writer.set_poll(POLL);
    writer.set_timeout(LONG);
    let source = Source::new(workload);
    let pieces = source.pieces(many);
    stage::ready()?;
    let mut pieces = pieces.iter().cycle();
    for _ in 0..samples / many as u64 {
        let piece = pieces.next().expect("a cycle has no end");
        if many == 1 { writer.append(piece)? } else { writer.append_many(many, piece)? }
    }
    writer.finish()?;
    stage::report(&[samples as f64]);
    Ok(())
}

/// Reads so many samples.
pub fn play_reader(words: &mut Words<'_>) -> Result<()> {
    let (socket, workload) = (words.text()?, Workload::from_name(words.text()?)?);
    let mut left = words.number()?;
    let client = stage::connect(Path::new(socket))?;
    let options = ReaderOptions { prefetch: workload.prefetch(), poll: POLL, ..ReaderOptions::default() };
    let mut reader = client.attach_reader(TABLE, Some(&workload.arrays()), options)?;
    stage::ready()?;
    let mut stopwatch = Stopwatch::new(workload);
    // Until all are there, and not until the table ends: idle writers may be attached to it.
    while left > 0 {
        let batch = reader.next_batch(LONG)?;
        let total = (0..batch.arrays()).map(|i| sum(batch.array(i).bytes())).fold(0, u64::wrapping_add);
        stopwatch.lap(batch.len() as u64, total);
        left -= batch.len() as u64;
    }
    stopwatch.report();
    Ok(())
}

/// Pushes samples into a plain ring.
pub fn play_ring_writer(words: &mut Words<'_>) -> Result<()> {
    let (name, slots, workload) = (words.text()?, words.number()?, Workload::from_name(words.text()?)?);
    let (many, samples) = (words.number()?, words.number()?);
    let mut producer = Producer::open(name, slots, workload.sample_bytes(), many)?;
    let source = Source::new(workload);
    let pieces = source.pieces(1);
    stage::ready()?;
    let mut pieces = pieces.iter().cycle();
    for _ in 0..samples {
        producer.push(pieces.next().expect("a cycle has no end"));
    }
    producer.finish();
    stage::report(&[samples as f64]);
    Ok(())
}

/// Pops batches from plain rings in turn, until there are no more.
pub fn play_ring_reader(words: &mut Words<'_>) -> Result<()> {
    let (slots, workload) = (words.number()?, Workload::from_name(words.text()?)?);
    let mut consumers = Vec::new();
    while let Ok(name) = words.text() {
        consumers.push(Consumer::open(name, slots, workload.sample_bytes())?);
    }
    stage::ready()?;
    let batch = u64::from(workload.batch());
    let mut stopwatch = Stopwatch::new(workload);
    while !consumers.is_empty() {
        let mut total = 0;
        consumers.retain_mut(|consumer| {
            let samples = consumer.pop(batch, |bytes| total = sum(bytes));
            stopwatch.lap(samples, total);
            samples > 0
        });
    }
    stopwatch.report();
    Ok(())
}

/// Measures from the second lap of the ring on: in the first, each process touches its mapping for the first time.
struct Stopwatch {
    warm_up: u64,
    started: u64,
    last: u64,
    samples: u64,
    total: u64,
}

impl Stopwatch {
    fn new(workload: Workload) -> Self {
        Self { warm_up: workload.slots(), started: 0, last: 0, samples: 0, total: 0 }
    }

    fn lap(&mut self, samples: u64, total: u64) {
        if samples == 0 {
            return;
        }
        // So that the summing is not optimised away.
        self.total = self.total.wrapping_add(std::hint::black_box(total));
        if self.warm_up > 0 {
            self.warm_up = self.warm_up.saturating_sub(samples);
            self.started = clock::now();
        } else {
            self.samples += samples;
            self.last = clock::now();
        }
    }

    fn report(&self) {
        let seconds = (self.last - self.started) as f64 / 1e9;
        stage::report(&[self.samples as f64 / seconds]);
    }
}
