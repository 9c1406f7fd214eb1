//! Echo itself on the machine: a daemon, workers, and trainers that page-lock a table.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use echo_client::{ArraySpec, Client, ConnectOptions, DType, PinOptions, Reader, ReaderOptions, TableSpec};
use serde_json::json;

use crate::library::{Cuda, Destination};
use crate::outcome::Outcome;
use crate::stage::{Actor, say_and_wait};

const TABLE: &str = "gpu";
const LONG: Duration = Duration::from_secs(60);
/// Samples of a batch, and bytes of a sample's larger array.
const BATCH: u32 = 64;
const FRAME: usize = 84 * 84 * 4;
const BATCHES: u64 = 64;
const TRAINERS: usize = 4;

/// A daemon of the check's own, with a table.
struct Daemon {
    directory: PathBuf,
    _actor: Actor,
}

impl Daemon {
    fn start(batches: u32) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("echo-gpu-check-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let ready = UnixDatagram::bind(directory.join("notify"))?;
        ready.set_read_timeout(Some(LONG))?;
        let socket = directory.join("echod.sock");
        let actor = Actor::start_with(None, &["daemon", &socket.to_string_lossy()], |command| {
            command.env("NOTIFY_SOCKET", directory.join("notify"));
        })?;
        let daemon = Self { directory, _actor: actor };
        ready.recv(&mut [0; 64]).context("the daemon does not say that it is ready")?;
        let arrays =
            vec![ArraySpec::new("frame", DType::U8, [FRAME as u64]), ArraySpec::new("id", DType::U64, [])];
        connect(&daemon.socket())?.create_table(&TableSpec::new(TABLE, arrays, BATCH, batches))?;
        Ok(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("echod.sock")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It is ours, and there is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The daemon's part.
pub fn play_daemon(socket: &str) -> Result<()> {
    use echod::{cli::Cli, config::Config, logging, run, surroundings::Surroundings};
    let cli = Cli {
        config: Some("/dev/null".into()),
        socket: Some(socket.into()),
        log: Some("error".into()),
        ..Cli::default()
    };
    let surroundings = Surroundings::of_this_process();
    let config = Config::load(&cli, &surroundings)?;
    logging::init(&config, &surroundings)?;
    Ok(run::run(&config)?)
}

fn connect(socket: &Path) -> Result<Client> {
    let options = ConnectOptions { socket: Some(socket.to_owned()), ..ConnectOptions::default() };
    Ok(Client::connect(&options)?)
}

fn attach(socket: &Path) -> Result<Reader> {
    let options = ReaderOptions { registrable: true, ..ReaderOptions::default() };
    Ok(connect(socket)?.attach_reader(TABLE, None, options)?)
}

/// Page-locks by the library that the check found.
fn pin(reader: &Reader, library: Option<&Path>) -> Result<echo::ring::buf::Pinned> {
    let options = PinOptions { library: library.map(Path::to_owned), ..PinOptions::default() };
    Ok(reader.pin_host_memory(&options)?)
}

/// A sample's frame.
fn frame(id: u64) -> Vec<u8> {
    (0..FRAME as u64).map(|i| (id.wrapping_mul(31).wrapping_add(i) >> 2) as u8).collect()
}

/// Writes all samples of the check.
pub fn play_worker(socket: &Path) -> Result<()> {
    let mut writer = connect(socket)?.attach_writer(TABLE, None)?;
    for id in 0..BATCHES * u64::from(BATCH) {
        writer.append(&[&frame(id), &id.to_ne_bytes()])?;
    }
    writer.finish()?;
    Ok(())
}

/// What a worker wrote is what the device has, of each batch and array.
pub fn end_to_end(cuda: &Cuda, library: Option<&Path>) -> Result<Outcome> {
    let daemon = Daemon::start(16)?;
    let mut reader = attach(&daemon.socket())?;
    let pinned = pin(&reader, library)?;
    let device = Destination::new(cuda.runtime(), FRAME * BATCH as usize)?;
    let _worker = Actor::start(None, &["worker", &daemon.socket().to_string_lossy()])?;
    let (mut samples, mut wrong) = (0, 0);
    let mut copying = Duration::ZERO;
    for _ in 0..BATCHES {
        let batch = reader.next_batch(LONG)?;
        let ids: Vec<u64> = batch.array(1).as_slice()?.to_vec();
        let expected: [Vec<u8>; 2] = [
            ids.iter().flat_map(|&id| frame(id)).collect(),
            ids.iter().flat_map(|id| id.to_ne_bytes()).collect(),
        ];
        for (array, expected) in expected.iter().enumerate() {
            let bytes = batch.array(array).bytes();
            let started = Instant::now();
            // SAFETY: a batch's bytes are readable, and no worker's, as long as it is there.
            let answers = unsafe { device.copy(bytes.as_ptr().expose_provenance(), bytes.len()) };
            copying += started.elapsed();
            ensure!(answers == (0, 0), "the copy of a batch and its end answer {answers:?}");
            wrong += usize::from(device.read(bytes.len())? != *expected);
        }
        samples += ids.len();
    }
    let gib = (BATCHES * u64::from(BATCH)) as f64 * (FRAME + 8) as f64 / (1 << 30) as f64;
    Ok(Outcome::holds(
        wrong == 0,
        "the device has what the workers wrote",
        json!({
            "samples": samples, "wrong_arrays": wrong, "pinned_bytes": pinned.bytes, "pieces": pinned.pieces,
            "library": pinned.library, "permission": format!("{:?}", pinned.permission),
            "gib_per_second": gib / copying.as_secs_f64(),
        }),
    ))
}

/// Several trainers that page-lock one table at the same time: none fails, since they take turns.
pub fn in_turns(_: &Cuda, library: Option<&Path>) -> Result<Outcome> {
    const ROUNDS: usize = 3;
    let daemon = Daemon::start(128)?;
    let socket = daemon.socket();
    let mut failed = Vec::new();
    let mut seconds: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        let mut trainers = (0..TRAINERS)
            .map(|_| Actor::start(library, &["pin", &socket.to_string_lossy()]))
            .collect::<Result<Vec<_>>>()?;
        trainers.iter_mut().try_for_each(|trainer| trainer.expect("ready"))?;
        trainers.iter_mut().try_for_each(|trainer| trainer.say("pin"))?;
        for trainer in &mut trainers {
            match trainer.line()?.split_once(' ') {
                Some(("pinned", took)) => seconds.push(took.parse()?),
                said => failed.push(said.map_or("", |(_, why)| why).to_owned()),
            }
        }
    }
    Ok(Outcome::holds(
        failed.is_empty(),
        "trainers that take turns do not fail each other",
        json!({
            "trainers": TRAINERS, "rounds": ROUNDS, "failed": failed,
            "slowest_seconds": seconds.iter().copied().fold(0.0, f64::max),
        }),
    ))
}

/// Page-locks when it is told to, and keeps it until it is killed.
pub fn play_pin(library: Option<&Path>, socket: &Path) -> Result<()> {
    let reader = attach(socket)?;
    say_and_wait("ready")?;
    let started = Instant::now();
    let line = match pin(&reader, library) {
        Ok(_) => format!("pinned {}", started.elapsed().as_secs_f64()),
        Err(error) => format!("failed {}", format!("{error:#}").lines().next().unwrap_or_default()),
    };
    let _ = say_and_wait(&line);
    Ok(())
}
