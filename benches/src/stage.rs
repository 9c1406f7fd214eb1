//! Processes of a measurement: started, told to go, asked what they saw.
//!
//! A process says `ready` once it has all that it needs, waits for a line, does its part, and says a line of
//! numbers. Nobody measures before everybody is ready.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use echo_client::{Client, ConnectOptions};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Time in which a daemon must say that it serves.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that plays a part.
pub struct Actor {
    child: Child,
    orders: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// Starts a part: its words, and the core that it stays on.
    pub fn start(core: usize, part: &[&str]) -> Result<Self> {
        let core = format!("core={core}");
        let words: Vec<&str> = std::iter::once(core.as_str()).chain(part.iter().copied()).collect();
        Self::start_anywhere(&words)
    }

    /// Starts a part that has threads of its own, for as many cores as there are.
    pub fn start_anywhere(part: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.arg("--part").args(part).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take().context("no input")?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, orders, lines })
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.lines.next().context("a process of the measurement has failed")??)
    }

    /// Waits until it is ready.
    pub fn ready(&mut self) -> Result<()> {
        let said = self.line()?;
        ensure!(said == "ready", "{said} instead of ready");
        Ok(())
    }

    /// Lets it go.
    pub fn go(&mut self) -> Result<()> {
        Ok(self.orders.write_all(b"go\n")?)
    }

    /// What it saw.
    pub fn result(&mut self) -> Result<Vec<f64>> {
        let said = self.line()?;
        let numbers = said.split(' ').map(str::parse).collect::<Result<_, _>>();
        numbers.with_context(|| format!("{said} instead of numbers"))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // It has ended, or is of no use any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts all, and returns what the last one saw.
pub fn run(mut actors: Vec<Actor>) -> Result<Vec<f64>> {
    for actor in &mut actors {
        actor.ready()?;
    }
    for actor in &mut actors {
        actor.go()?;
    }
    let results: Result<Vec<Vec<f64>>> = actors.iter_mut().map(Actor::result).collect();
    results?.pop().context("nobody plays")
}

/// A part's side: stays on its core.
pub fn stay_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    // A machine with fewer cores runs it where it can.
    let there = std::thread::available_parallelism()?.get();
    cores.set(core % there);
    Ok(sched_setaffinity(None, &cores)?)
}

/// A part's side: says that it is ready, and waits until it is told to go.
pub fn ready() -> Result<()> {
    println!("ready");
    let mut order = String::new();
    ensure!(std::io::stdin().read_line(&mut order)? > 0, "the measurement is over before it began");
    Ok(())
}

/// A part's side: says what it saw.
pub fn report(numbers: &[f64]) {
    let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
    println!("{}", words.join(" "));
}

/// A daemon of the measurement's own.
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Starts it, and waits until it serves.
    pub fn start() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("echo-bench-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let ready = UnixDatagram::bind(directory.join("notify"))?;
        ready.set_read_timeout(Some(PATIENCE))?;
        let child = Command::new(std::env::current_exe()?)
            .args(["--part", "daemon"])
            .arg(directory.join("echod.sock"))
            .env("NOTIFY_SOCKET", directory.join("notify"))
            .spawn()?;
        let daemon = Self { child, directory };
        ready.recv(&mut [0; 64]).context("the daemon does not say that it is ready")?;
        Ok(daemon)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("echod.sock")
    }

    /// Nanoseconds that its event loop, one thread, has had a core.
    pub fn busy(&self) -> Result<u64> {
        let told = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let first = told.split(' ').next().context("an empty schedstat")?;
        Ok(first.parse()?)
    }

    /// A connection.
    pub fn client(&self) -> Result<Client> {
        connect(&self.socket())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It is ours, and there is nobody to tell.
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        let _ = std::fs::remove_file(self.directory.join("notify"));
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
        max_clients: Some("2000".into()),
        ..Cli::default()
    };
    let surroundings = Surroundings::of_this_process();
    let config = Config::load(&cli, &surroundings)?;
    logging::init(&config, &surroundings)?;
    Ok(run::run(&config)?)
}

/// A connection.
pub fn connect(socket: &Path) -> Result<Client> {
    let options = ConnectOptions { socket: Some(socket.to_owned()), ..ConnectOptions::default() };
    Ok(Client::connect(&options)?)
}
