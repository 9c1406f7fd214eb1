//! Latest tables: a look for something new, taking it, and publishing; beside the load of a word, and a plain copy.
//!
//! A value is 40 MB, as a policy's weights are. The reader that is measured has a core, the publisher another one. Readers
//! beside it are in one process of clients of their own, and look in turn, ten thousand times a second together, each
//! holding what it took last. The publisher writes all of the value, when it is told to by a word that is none of echo's:
//! the reader meets what is new only when it is measured.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use echo::memory::Mapping;
use echo::ring::words::Words as Shared;
use echo::sync::{AtomicU64, Ordering};
use echo_client::{ArraySpec, DType, LatestOptions, LatestReader, TableSpec, Value};

use crate::clock;
use crate::part::Words;
use crate::shared::{self, SharedFile};
use crate::stage::{self, Actor, Daemon};
use crate::workload::TABLE;

/// Bytes of a value.
const BYTES: usize = 40_000_000;
/// Values of the table: enough for whoever holds an old one.
const VALUES: u32 = 8;
/// Looks that are timed together.
const LOOKS: u32 = 100;
const LONG: Duration = Duration::from_secs(60);
/// Between two looks of the readers beside.
const PAUSE: Duration = Duration::from_micros(100);
/// What the one who asks says at last.
const END: u64 = u64::MAX;
/// Of the limit's file: words first, then the value.
const DATA: usize = 4096;

/// What a reader pays.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// Nanoseconds of a look that finds nothing new.
    pub nothing_new: f64,
    /// Nanoseconds of taking what is new.
    pub new: f64,
}

impl Looks {
    fn of(seen: &[f64]) -> Result<Self> {
        let &[nothing_new, new] = seen else { anyhow::bail!("two figures, not {seen:?}") };
        Ok(Self { nothing_new, new })
    }
}

fn spec() -> TableSpec {
    let arrays = vec![ArraySpec::new("weights", DType::U8, [BYTES as u64])];
    TableSpec { capacity: VALUES, max_capacity: VALUES, ..TableSpec::latest(TABLE, arrays) }
}

/// How often something new is taken.
fn times(quick: bool) -> String {
    if quick { 20 } else { 60 }.to_string()
}

/// Through echo, with so many readers.
pub fn echo(daemon: &Daemon, readers: usize, quick: bool) -> Result<Looks> {
    let client = daemon.client()?;
    client.create_table(&spec())?;
    let file = SharedFile::create(DATA)?;
    let (name, socket, times) = (file.name(), daemon.socket(), times(quick));
    let (socket, beside) = (socket.to_string_lossy(), (readers - 1).to_string());
    let mut actors = vec![Actor::start(0, &["latest-publisher", &socket, &name])?];
    if readers > 1 {
        actors.push(Actor::start_anywhere(&["latest-beside", &socket, &name, &beside])?);
    }
    actors.push(Actor::start(1, &["latest-reader", &socket, &name, &times])?);
    let seen = stage::run(actors)?;
    client.drop_table(TABLE)?;
    Looks::of(&seen)
}

/// One word that says which value is the newest.
pub fn plain(quick: bool) -> Result<Looks> {
    let file = SharedFile::create(DATA + BYTES)?;
    let (name, times) = (file.name(), times(quick));
    let actors = vec![
        Actor::start(0, &["newest-writer", &name])?,
        Actor::start(1, &["newest-reader", &name, &times])?,
    ];
    Looks::of(&stage::run(actors)?)
}

/// GiB that are published in a second, while a reader follows.
pub fn publish(daemon: &Daemon, quick: bool) -> Result<f64> {
    let client = daemon.client()?;
    client.create_table(&spec())?;
    let (socket, values) = (daemon.socket(), published(quick).to_string());
    let socket = socket.to_string_lossy();
    let actors = vec![
        Actor::start(1, &["latest-follower", &socket, &values])?,
        Actor::start(0, &["latest-copies", &socket, &values])?,
    ];
    let seen = stage::run(actors)?;
    client.drop_table(TABLE)?;
    Ok(rate(published(quick), seen[0]))
}

/// GiB that are copied in a second to as many places, one after the other.
pub fn copy(quick: bool) -> Result<f64> {
    let file = SharedFile::create(BYTES * VALUES as usize)?;
    let (name, values) = (file.name(), published(quick).to_string());
    let seen = stage::run(vec![Actor::start(0, &["copies", &name, &values])?])?;
    Ok(rate(published(quick), seen[0]))
}

const fn published(quick: bool) -> u64 {
    if quick { 50 } else { 200 }
}

fn rate(values: u64, seconds: f64) -> f64 {
    values as f64 * BYTES as f64 / f64::from(1 << 30) / seconds
}

/// The words by which parts of a measurement wait for each other, a cache line each.
struct Turns {
    words: Shared,
    mapping: Mapping,
}

impl Turns {
    fn open(name: &str, bytes: usize) -> Result<Self> {
        let (words, mapping) = shared::open(name, bytes.next_multiple_of(4096))?;
        Ok(Self { words, mapping })
    }

    /// How many values are asked for.
    fn asked(&self) -> &AtomicU64 {
        self.words.u64(0)
    }

    /// How many there are.
    fn done(&self) -> &AtomicU64 {
        self.words.u64(256)
    }

    /// The limit's newest version.
    fn newest(&self) -> &AtomicU64 {
        self.words.u64(512)
    }

    /// The one who asks: waits until the value is there.
    fn ask(&self, value: u64) {
        // release and acquire: pair with `each`
        self.asked().store(value, Ordering::Release);
        while self.done().load(Ordering::Acquire) < value {
            std::hint::spin_loop();
        }
    }

    /// The one who is asked: makes each value that is asked for.
    fn each(&self, mut make: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut done = 0;
        loop {
            // acquire and release: pair with `ask`
            match self.asked().load(Ordering::Acquire) {
                END => return Ok(()),
                asked if asked > done => {
                    done += 1;
                    make(done)?;
                    self.done().store(done, Ordering::Release);
                }
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn end(&self) {
        self.asked().store(END, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.asked().load(Ordering::Acquire) == END
    }
}

/// Publishes what is asked for, writing all of it in place.
pub fn play_publisher(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    let turns = Turns::open(words.text()?, DATA)?;
    let mut publisher = client.attach_publisher(TABLE, None)?;
    publisher.set_timeout(LONG);
    stage::ready()?;
    turns.each(|value| {
        let mut claim = publisher.claim()?;
        claim.array_mut(0).fill(value as u8);
        claim.publish()?;
        Ok(())
    })?;
    stage::report(&[publisher.version() as f64]);
    Ok(())
}

/// Takes what it asked for, and then looks when there is nothing new.
pub fn play_reader(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    let turns = Turns::open(words.text()?, DATA)?;
    let times = words.number()?;
    let reader = client.attach_latest(TABLE, None, LatestOptions::default())?;
    stage::ready()?;
    let mut held: Option<Value> = None;
    let new = (1..=times).map(|value| {
        turns.ask(value);
        let started = clock::now();
        let taken = reader.newer_than(value - 1)?;
        let took = clock::now() - started;
        let taken = taken.context("what was asked for is not there")?;
        ensure!(taken.version() == value && taken.array(0).bytes()[BYTES - 1] == value as u8, "{taken:?}");
        held = Some(taken);
        Ok(took as f64)
    });
    let new = median(new.collect::<Result<_>>()?);
    let nothing_new = timed_looks(|| match reader.newer_than(times) {
        Ok(None) => Ok(()),
        other => anyhow::bail!("nothing new was asked for: {other:?}"),
    })?;
    turns.end();
    stage::report(&[nothing_new, new]);
    Ok(())
}

/// Readers beside the one that is measured.
pub fn play_beside(words: &mut Words<'_>) -> Result<()> {
    let socket = Path::new(words.text()?);
    let turns = Turns::open(words.text()?, DATA)?;
    let attach = || -> Result<LatestReader> {
        Ok(stage::connect(socket)?.attach_latest(TABLE, None, LatestOptions::default())?)
    };
    let readers = (0..words.number()?).map(|_| attach()).collect::<Result<Vec<_>>>()?;
    let mut held: Vec<Option<Value>> = readers.iter().map(|_| None).collect();
    stage::ready()?;
    let mut taken = 0_u64;
    while !turns.is_over() {
        for (reader, held) in readers.iter().zip(&mut held) {
            if let Some(value) = reader.newer_than(held.as_ref().map_or(0, Value::version))? {
                *held = Some(value);
                taken += 1;
            }
            std::thread::sleep(PAUSE);
        }
    }
    stage::report(&[taken as f64]);
    Ok(())
}

/// The limit's publisher: writes the value, and says its version by one store.
pub fn play_newest_writer(words: &mut Words<'_>) -> Result<()> {
    let turns = Turns::open(words.text()?, DATA + BYTES)?;
    stage::ready()?;
    turns.each(|value| {
        let start = turns.mapping.base().as_ptr().wrapping_add(DATA);
        // SAFETY: the value's bytes in the mapping, which is writable and so long; nobody reads them now.
        unsafe { start.write_bytes(value as u8, BYTES) };
        // release: pairs with the reader's acquire
        turns.newest().store(value, Ordering::Release);
        Ok(())
    })?;
    stage::report(&[0.0]);
    Ok(())
}

/// The limit's reader: loads the word.
pub fn play_newest_reader(words: &mut Words<'_>) -> Result<()> {
    let turns = Turns::open(words.text()?, DATA + BYTES)?;
    let times = words.number()?;
    stage::ready()?;
    let new = (1..=times).map(|value| {
        turns.ask(value);
        let started = clock::now();
        // acquire: pairs with the writer's release
        let newest = std::hint::black_box(turns.newest().load(Ordering::Acquire));
        let took = clock::now() - started;
        ensure!(newest == value, "{newest} instead of {value}");
        Ok(took as f64)
    });
    let new = median(new.collect::<Result<_>>()?);
    let nothing_new = timed_looks(|| {
        std::hint::black_box(turns.newest().load(Ordering::Acquire));
        Ok(())
    })?;
    turns.end();
    stage::report(&[nothing_new, new]);
    Ok(())
}

/// The median nanoseconds of a look.
fn timed_looks(look: impl Fn() -> Result<()>) -> Result<f64> {
    let mut took = Vec::new();
    for _ in 0..2000 {
        let started = clock::now();
        for _ in 0..LOOKS {
            look()?;
        }
        took.push((clock::now() - started) as f64 / f64::from(LOOKS));
    }
    Ok(median(took))
}

fn median(mut took: Vec<f64>) -> f64 {
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// Publishes copies of what it has, one after the other.
pub fn play_copies(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    let values = words.number()?;
    let mut publisher = client.attach_publisher(TABLE, None)?;
    publisher.set_timeout(LONG);
    let weights = vec![1_u8; BYTES];
    // Each page is met once before.
    for _ in 0..VALUES {
        publisher.publish(&[&weights])?;
    }
    stage::ready()?;
    let started = clock::now();
    for _ in 0..values {
        publisher.publish(&[&weights])?;
    }
    stage::report(&[(clock::now() - started) as f64 / 1e9]);
    Ok(())
}

/// Takes what is published, and holds the newest.
pub fn play_follower(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    let last = u64::from(VALUES) + words.number()?;
    let reader = client.attach_latest(TABLE, None, LatestOptions::default())?;
    stage::ready()?;
    let (mut held, mut taken) = (None, 0_u64);
    while held.as_ref().map_or(0, Value::version) < last {
        held = Some(reader.wait_newer_than(held.as_ref().map_or(0, Value::version), LONG)?);
        taken += 1;
    }
    stage::report(&[taken as f64]);
    Ok(())
}

/// The limit of publishing: the same copies, to plain shared memory.
pub fn play_plain_copies(words: &mut Words<'_>) -> Result<()> {
    let (name, values) = (words.text()?, words.number()?);
    let (_, mapping) = shared::open(name, BYTES * VALUES as usize)?;
    let weights = vec![1_u8; BYTES];
    stage::ready()?;
    let started = clock::now();
    for i in 0..values as usize {
        let target = mapping.base().as_ptr().wrapping_add(i % VALUES as usize * BYTES);
        // SAFETY: so many bytes of the mapping, which is writable and apart from the source.
        unsafe { std::ptr::copy_nonoverlapping(weights.as_ptr(), target, BYTES) };
    }
    stage::report(&[(clock::now() - started) as f64 / 1e9]);
    Ok(())
}
