//! Many clients that come, work, crash and go leave nothing behind.
//!
//! A few for some seconds with the other tests; `cargo xtask soak` has two hundred for ten minutes. Latency is printed,
//! before, meanwhile and afterwards, and not judged.

#[path = "support/mod.rs"]
mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use echo_client::message::{RefusalKind, TableRow};
use echo_client::{ArraySpec, Client, DType, Error, Reader, ReaderOptions, TableSpec, Writer};
use rustix::process::Signal;
use support::{Actor, Daemon, LONG, check_of, client_of_role, eventually, ids, numbers};

/// Tables that all lives share; each has a reader that stays.
const SHARED: usize = 4;
/// What a life's own table is called, before its number.
const OWN: &str = "own/";
/// How long somebody in a life waits for something.
const SHORT: Duration = Duration::from_millis(50);

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        "life" => live(role[1].parse().unwrap()),
        other => panic!("{other}"),
    }
}

/// Comes, works, and goes or crashes, as the seed says. Its table may be dropped behind its back.
fn live(seed: u64) {
    match try_to_live(fastrand::Rng::with_seed(seed), seed) {
        Ok(()) | Err(Error::Closed { .. }) => {}
        Err(Error::Refused(refusal)) if refusal.kind == RefusalKind::NoSuchTable => {}
        Err(error) => panic!("life {seed}: {error}"),
    }
}

fn try_to_live(mut rng: fastrand::Rng, seed: u64) -> Result<(), Error> {
    let client = client_of_role();
    let name = if rng.u8(..) < 50 { format!("{OWN}{seed}") } else { shared(rng.usize(..SHARED)) };
    let is_own = name.starts_with(OWN);
    if is_own {
        client.create_table(&numbers(&name, rng.u32(1..20), rng.u32(1..8)))?;
    }
    let steps = rng.u32(1..2000);
    let dies_at = if rng.bool() { rng.u32(..steps * 2) } else { u32::MAX };
    let mut writer = client.attach_writer(&name, None)?;
    writer.set_timeout(SHORT);
    let reads = rng.u8(..) < 100;
    let options = ReaderOptions::with_prefetch(rng.u16(1..5));
    let mut reader = if reads { Some(client.attach_reader(&name, None, options)?) } else { None };
    let mut kept = Vec::new();
    for step in 0..steps {
        if step == dies_at {
            die(&mut rng, &mut writer);
        }
        match rng.u8(..) {
            0..20 => drop(writer.try_claim(3)?),
            20..24 => std::thread::sleep(Duration::from_millis(rng.u64(..5))),
            _ => {
                let id = rng.u64(..);
                match writer.append(&[&id.to_ne_bytes(), &check_of(id)]) {
                    Err(Error::TimedOut { .. }) => {}
                    result => result?,
                }
            }
        }
        if let Some(reader) = &mut reader
            && rng.u8(..) < 60
            && let Some(batch) = reader.try_next_batch()?
        {
            ids(&batch);
            kept.push(batch);
            kept.truncate(rng.usize(..4));
        }
    }
    drop((writer, reader, kept));
    if is_own { client.drop_table(&name) } else { Ok(()) }
}

/// In the middle of something, without a word; or it forgets a claim, and lives on.
fn die(rng: &mut fastrand::Rng, writer: &mut Writer) {
    let claim = writer.try_claim(rng.u32(1..4));
    match rng.u8(..3) {
        0 => rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap(),
        1 => std::process::exit(0),
        _ => std::mem::forget(claim),
    }
}

fn shared(i: usize) -> String {
    format!("shared/{i}")
}

/// How many at a time, and for how long.
fn extent() -> (usize, Duration) {
    let told = |name, default| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    (told("ECHO_SOAK_CLIENTS", 16) as usize, Duration::from_secs(told("ECHO_SOAK_SECONDS", 4)))
}

#[test]
fn clients_that_come_work_crash_and_go_leave_nothing_behind() {
    let (clients, duration) = extent();
    let daemon = Daemon::start_with(&["--max-clients", "1000"]);
    let client = daemon.client();
    let mut probe = Probe::start(daemon.client());
    for i in 0..SHARED {
        client.create_table(&numbers(&shared(i), 16, 8)).unwrap();
    }
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    eventually("the probe is alone", || client.list_clients().unwrap().len() == 2);
    let p99_before = probe.p99();
    let before = Left::of(&daemon, &client, descriptors());

    let (lives, p99_meanwhile) = soak(&daemon, &client, &mut probe, clients, duration);

    eventually("all clients are forgotten", || client.list_clients().unwrap().len() == 2);
    for row in own_tables(&client) {
        client.drop_table(&row.name).unwrap();
    }
    for i in 0..SHARED {
        every_block_goes_round(&client, &shared(i));
    }
    eventually("bytes and descriptors are as before", || Left::of(&daemon, &client, descriptors()) == before);
    let p99_after = probe.p99();
    let us = |p99: Duration| p99.as_nanos() as f64 / 1000.0;
    let mut out = std::io::stderr().lock();
    writeln!(
        out,
        "{lives} lives, {clients} at a time: latency from commit to batch, p99: {:.0} us before, {:.0} us afterwards \
         (in the middle of it {:.0} us)",
        us(p99_before),
        us(p99_after),
        us(p99_meanwhile)
    )
    .unwrap();
}

/// Keeps so many lives going. How many there were, and the latency in the middle of it.
fn soak(
    daemon: &Daemon,
    client: &Client,
    probe: &mut Probe,
    clients: usize,
    duration: Duration,
) -> (u64, Duration) {
    let mut rng = fastrand::Rng::with_seed(7);
    let stop = Instant::now() + duration;
    let mut p99 = None;
    let mut lives: Vec<Life> = Vec::new();
    let (mut seed, mut swept) = (0, Instant::now());
    let mut readers: Vec<_> = (0..SHARED)
        .map(|i| client.attach_reader(&shared(i), None, ReaderOptions::with_prefetch(4)).unwrap())
        .collect();
    while Instant::now() < stop {
        lives.retain_mut(Life::is_going);
        // Not all at once: starting a process costs more than most of what it does.
        for _ in lives.len()..clients.min(lives.len() + 4) {
            seed += 1;
            lives.push(Life { actor: daemon.actor_of(&format!("life {seed}")), stopped_until: None });
        }
        if let Some(life) = rng.choice(&mut lives) {
            match rng.u8(..10) {
                0 => life.actor.kill(),
                1..3 => life.stop(Duration::from_millis(rng.u64(..300))),
                _ => {}
            }
        }
        lives.iter_mut().for_each(Life::go_on);
        for reader in &mut readers {
            while let Some(batch) = reader.try_next_batch().unwrap() {
                ids(&batch);
            }
        }
        if swept.elapsed() > Duration::from_secs(1) {
            swept = Instant::now();
            // Those of lives that crashed. One may still be going to drop its own.
            for row in own_tables(client).iter().filter(|row| row.writers == 0) {
                let _ = client.drop_table(&row.name);
            }
        }
        if p99.is_none() && stop - Instant::now() < duration / 2 {
            p99 = Some(probe.p99());
        }
        let _ = echo_client::wait_any(&readers.iter().collect::<Vec<_>>(), Duration::from_millis(5));
    }
    (seed, p99.unwrap_or_default())
}

/// A process that lives.
struct Life {
    actor: Actor,
    stopped_until: Option<Instant>,
}

impl Life {
    /// Whether it has not ended.
    fn is_going(&mut self) -> bool {
        let ended = self.actor.ended();
        assert_ne!(ended.and_then(|status| status.code()), Some(101), "a life panicked");
        ended.is_none()
    }

    fn stop(&mut self, time: Duration) {
        if self.is_going() {
            self.actor.signal(Signal::STOP);
            self.stopped_until = Some(Instant::now() + time);
        }
    }

    /// If it was stopped for long enough.
    fn go_on(&mut self) {
        if self.stopped_until.is_some_and(|until| Instant::now() >= until) && self.is_going() {
            self.actor.signal(Signal::CONT);
            self.stopped_until = None;
        }
    }
}

fn own_tables(client: &Client) -> Vec<TableRow> {
    let tables = client.list_tables().unwrap();
    tables.into_iter().filter(|row| row.name.starts_with(OWN)).collect()
}

/// Writes and reads several laps: a block, a slot or a lease that was lost would be missed.
fn every_block_goes_round(client: &Client, name: &str) {
    let mut writer = client.attach_writer(name, None).unwrap();
    let mut reader = client.attach_reader(name, None, ReaderOptions::with_prefetch(8)).unwrap();
    let details = client.show_table(name).unwrap();
    assert_eq!(details.orphaned_claims, 0, "{name}");
    let samples = u64::from(details.row.batch_size * details.row.capacity) * 3;
    for id in 0..samples {
        let sample: &[&[u8]] = &[&id.to_ne_bytes(), &check_of(id)];
        eventually("there is room again", || {
            let written = writer.try_append(sample).unwrap();
            while let Some(batch) = reader.try_next_batch().unwrap() {
                ids(&batch);
            }
            written
        });
    }
    let details = client.show_table(name).unwrap();
    let (samples, blocks) = (details.row.samples, details.blocks);
    assert_eq!(samples.committed, samples.delivered + samples.pending, "{name}");
    assert_eq!(details.holes_offered, 0, "{name}: they were filled");
    assert_eq!(blocks.free + blocks.filling + blocks.complete, details.row.capacity, "{name}: {blocks:?}");
}

/// What the daemon has, when nobody but the test is there.
#[derive(PartialEq, Eq, Debug)]
struct Left {
    descriptors: usize,
    bytes: u64,
    tables: usize,
    clients: usize,
    members: u32,
}

impl Left {
    fn of(daemon: &Daemon, client: &Client, descriptors: usize) -> Self {
        let tables = client.list_tables().unwrap();
        Self {
            descriptors,
            bytes: echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used,
            tables: tables.len(),
            clients: client.list_clients().unwrap().len(),
            members: tables.iter().map(|row| row.writers + row.readers).sum(),
        }
    }
}

/// A writer and a reader with a table of their own, whose latency is looked at.
struct Probe {
    writer: Writer,
    reader: Reader,
    started: Instant,
}

impl Probe {
    const SAMPLES: u64 = 500;
    /// Between two samples: long enough for the reader to fall asleep.
    const PAUSE: Duration = Duration::from_micros(300);

    fn start(client: Client) -> Self {
        let arrays = vec![ArraySpec::new("sent", DType::U64, [])];
        client.create_table(&TableSpec::new("probe", arrays, 1, 64)).unwrap();
        let writer = client.attach_writer("probe", None).unwrap();
        let reader = client.attach_reader("probe", None, ReaderOptions::with_prefetch(32)).unwrap();
        Self { writer, reader, started: Instant::now() }
    }

    /// The median of some rounds: one that something else disturbed does not count.
    fn p99(&mut self) -> Duration {
        let mut rounds = [(); 5].map(|()| self.round());
        rounds.sort_unstable();
        rounds[2]
    }

    /// The 99th percentile of some samples.
    fn round(&mut self) -> Duration {
        let Self { writer, reader, started } = self;
        let now = || started.elapsed().as_nanos() as u64;
        let mut took: Vec<u64> = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let one = |_| {
                    let batch = reader.next_batch(LONG).unwrap();
                    now() - batch.array(0).as_slice::<u64>().unwrap()[0]
                };
                (0..Self::SAMPLES).map(one).collect()
            });
            for _ in 0..Self::SAMPLES {
                std::thread::sleep(Self::PAUSE);
                writer.append(&[&now().to_ne_bytes()]).unwrap();
            }
            reading.join().unwrap()
        });
        took.sort_unstable();
        Duration::from_nanos(took[took.len() * 99 / 100])
    }
}
