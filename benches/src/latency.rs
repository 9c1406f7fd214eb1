//! Latency: from just before a sample's commit to its reader having the batch.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use echo::ring::words::Words as Shared;
use echo::sync::{AtomicU64, Ordering, futex_wait_low, futex_wake_low};
use echo_client::{ArraySpec, DType, Error, ReaderOptions, TableSpec};

use crate::clock;
use crate::part::Words;
use crate::shared::{self, SharedFile};
use crate::stage::{self, Actor, Daemon};
use crate::workload::TABLE;

const LONG: Duration = Duration::from_secs(60);
/// Between two samples: long enough for a reader to fall asleep, and for the daemon to have a core meanwhile.
const PAUSE: Duration = Duration::from_micros(200);
/// What the limit's writer says at last.
const END: u64 = u64::MAX;
/// Bytes of the limit's file.
const FILE: usize = 4096;

/// How the reader waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It sleeps.
    Asleep,
    /// It polls.
    Polling,
}

impl Waiting {
    const fn name(self) -> &'static str {
        match self {
            Self::Asleep => "asleep",
            Self::Polling => "polling",
        }
    }

    fn from_name(name: &str) -> Self {
        if name == "polling" { Self::Polling } else { Self::Asleep }
    }

    const fn poll(self) -> Duration {
        match self {
            Self::Asleep => Duration::ZERO,
            Self::Polling => Duration::from_millis(5),
        }
    }

    /// Samples of one measurement.
    const fn samples(self, quick: bool) -> u64 {
        if quick { 1000 } else { 5000 }
    }
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Percentiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Percentiles {
    fn of(seen: Vec<f64>) -> Result<Self> {
        ensure!(seen.len() == 3, "three percentiles, not {seen:?}");
        Ok(Self { p50: seen[0], p90: seen[1], p99: seen[2] })
    }
}

fn spec() -> TableSpec {
    TableSpec::new(TABLE, vec![ArraySpec::new("sent", DType::U64, [])], 1, 64)
}

/// Through echo, with batches of one sample.
pub fn echo(daemon: &Daemon, waiting: Waiting, quick: bool) -> Result<Percentiles> {
    let client = daemon.client()?;
    client.create_table(&spec())?;
    let socket = daemon.socket();
    let (socket, samples) = (socket.to_string_lossy(), waiting.samples(quick).to_string());
    let actors = vec![
        Actor::start(0, &["latency-writer", &socket, &samples])?,
        Actor::start(1, &["latency-reader", &socket, waiting.name()])?,
    ];
    let seen = stage::run(actors)?;
    client.drop_table(TABLE)?;
    Percentiles::of(seen)
}

/// Through one word: a futex wake, or a cache line handed over.
pub fn plain(waiting: Waiting, quick: bool) -> Result<Percentiles> {
    let file = SharedFile::create(FILE)?;
    let (name, samples) = (file.name(), waiting.samples(quick).to_string());
    let actors = vec![
        Actor::start(0, &["word-writer", &name, waiting.name(), &samples])?,
        Actor::start(1, &["word-reader", &name, waiting.name()])?,
    ];
    Percentiles::of(stage::run(actors)?)
}

/// Appends samples that say when.
pub fn play_writer(words: &mut Words<'_>) -> Result<()> {
    let (socket, samples) = (words.text()?, words.number()?);
    let client = stage::connect(Path::new(socket))?;
    let mut writer = client.attach_writer(TABLE, None)?;
    stage::ready()?;
    for _ in 0..samples {
        std::thread::sleep(PAUSE);
        let mut claim = writer.claim(1)?;
        claim.array_mut(0).copy_from_slice(&clock::now().to_ne_bytes());
        claim.commit()?;
    }
    writer.finish()?;
    stage::report(&[samples as f64]);
    Ok(())
}

/// Reads them, and looks at the clock.
pub fn play_reader(words: &mut Words<'_>) -> Result<()> {
    let (socket, waiting) = (words.text()?, Waiting::from_name(words.text()?));
    let client = stage::connect(Path::new(socket))?;
    let options = ReaderOptions { prefetch: 32, poll: waiting.poll(), ..ReaderOptions::default() };
    let mut reader = client.attach_reader(TABLE, None, options)?;
    stage::ready()?;
    let mut took = Vec::new();
    loop {
        match reader.next_batch(LONG) {
            Ok(batch) => {
                let now = clock::now();
                let sent: &[u64] = batch.array(0).as_slice()?;
                took.push(now.saturating_sub(sent[0]));
            }
            Err(Error::Closed { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    report(took);
    Ok(())
}

/// The word of the limit: when the last one was sent.
fn sent(words: &Shared) -> &AtomicU64 {
    words.u64(0)
}

/// Stores the time into a word, and wakes.
pub fn play_word_writer(words: &mut Words<'_>) -> Result<()> {
    let (name, waiting, samples) = (words.text()?, Waiting::from_name(words.text()?), words.number()?);
    let (shared, _) = shared::open(name, FILE)?;
    stage::ready()?;
    for _ in 0..samples {
        std::thread::sleep(PAUSE);
        // release: pairs with the reader's acquire
        sent(&shared).store(clock::now(), Ordering::Release);
        if waiting == Waiting::Asleep {
            futex_wake_low(sent(&shared));
        }
    }
    std::thread::sleep(PAUSE);
    sent(&shared).store(END, Ordering::Release);
    futex_wake_low(sent(&shared));
    stage::report(&[samples as f64]);
    Ok(())
}

/// Waits until the word changes, and looks at the clock.
pub fn play_word_reader(words: &mut Words<'_>) -> Result<()> {
    let (name, waiting) = (words.text()?, Waiting::from_name(words.text()?));
    let (shared, _) = shared::open(name, FILE)?;
    stage::ready()?;
    let mut took = Vec::new();
    let mut last = 0;
    loop {
        // acquire: pairs with the writer's release
        let seen = sent(&shared).load(Ordering::Acquire);
        if seen == END {
            break;
        } else if seen != last {
            took.push(clock::now().saturating_sub(seen));
            last = seen;
        } else if waiting == Waiting::Asleep {
            futex_wait_low(sent(&shared), last, Duration::from_secs(1));
        } else {
            std::hint::spin_loop();
        }
    }
    report(took);
    Ok(())
}

fn report(mut took: Vec<u64>) {
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).copied().unwrap_or(0) as f64;
    stage::report(&[at(0.5), at(0.9), at(0.99)]);
}
