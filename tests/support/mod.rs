//! What tests of several processes have in common: a daemon of their own, and processes that play a part.
//!
//! A process that plays a part is this test binary again. Each file of tests has an ignored test named `role`
//! which does what [`ROLE`] says; nobody else runs it.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use echo_client::{ArraySpec, Client, ConnectOptions, DType, TableSpec};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that must happen.
pub const LONG: Duration = Duration::from_secs(60);

const ROLE: &str = "ECHO_TEST_ROLE";
const SOCKET: &str = "ECHO_SOCKET";

/// The part that this process plays, if it plays one, and its arguments.
pub fn role() -> Option<Vec<String>> {
    Some(std::env::var(ROLE).ok()?.split(' ').map(str::to_owned).collect())
}

/// The daemon's part: serves until it is told to stop.
pub fn play_daemon(args: &[String]) {
    let args = std::iter::once("echod").chain(args.iter().map(String::as_str));
    let cli = echod::cli::Cli::parse_from(args);
    let surroundings = echod::surroundings::Surroundings::of_this_process();
    let config = echod::config::Config::load(&cli, &surroundings).expect("a good configuration");
    echod::logging::init(&config, &surroundings).expect("a log");
    echod::run::run(&config).expect("a daemon");
}

/// The directory of the daemon that a process with these arguments will be, and what it says that it is ready by.
pub fn places(args: &[String]) -> [PathBuf; 2] {
    let socket = args.iter().skip_while(|arg| *arg != "--socket").nth(1).expect("a socket");
    let notify = std::env::var_os("NOTIFY_SOCKET").expect("a place to say that it is ready");
    [Path::new(socket).parent().expect("a directory").to_owned(), notify.into()]
}

/// A process of this binary that plays a part.
pub struct Actor {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Actor {
    /// Starts a part. `socket` is the daemon's.
    pub fn start(role: &str, socket: &Path) -> Self {
        Self::spawn(role, socket, |_| ())
    }

    /// With something changed about the process before it starts.
    pub fn spawn(role: &str, socket: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role", "--exact", "--ignored", "--nocapture", "--test-threads=1", "-q"]);
        command.env(ROLE, role).env(SOCKET, socket).stdin(Stdio::null()).stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        Self { child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says, without those of the test harness. None if it has ended.
    pub fn line(&mut self) -> Option<String> {
        self.lines.as_mut()?.map_while(Result::ok).find_map(|line| line.strip_prefix("> ").map(str::to_owned))
    }

    /// Waits until it says this.
    pub fn expect(&mut self, expected: &str) {
        assert_eq!(self.line().as_deref(), Some(expected));
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.pid());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Says a line to the process that started this one.
pub fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {line}").unwrap();
    out.flush().unwrap();
}

/// A daemon with a directory of its own.
pub struct Daemon {
    actor: Actor,
    directory: PathBuf,
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these arguments beside the socket's.
    pub fn start_with(args: &[&str]) -> Self {
        Self::start_role("daemon", args)
    }

    /// Another part that ends up as a daemon.
    pub fn start_as(role: &str) -> Self {
        Self::start_role(role, &[])
    }

    /// It is ready when this returns.
    fn start_role(role: &str, args: &[&str]) -> Self {
        let directory = directory();
        std::fs::create_dir_all(&directory).unwrap();
        let ready = UnixDatagram::bind(directory.join("notify")).unwrap();
        ready.set_read_timeout(Some(LONG)).unwrap();
        let actor = Self::spawn(role, &directory, args);
        let mut said = [0; 64];
        let n = loop {
            // A process that was frozen meanwhile is interrupted.
            match ready.recv(&mut said) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.expect("echod says that it is ready"),
            }
        };
        assert!(said[..n].starts_with(b"READY=1"), "{:?}", String::from_utf8_lossy(&said[..n]));
        Self { actor, directory }
    }

    fn spawn(role: &str, directory: &Path, args: &[&str]) -> Actor {
        let socket = directory.join("echod.sock");
        let role = format!("{role} --config /dev/null --socket {} {}", socket.display(), args.join(" "));
        Actor::spawn(role.trim(), &socket, |command| {
            command.env("NOTIFY_SOCKET", directory.join("notify")).env("ECHO_LOG", "warn");
        })
    }

    /// Another daemon at the same place.
    pub fn rival(&self) -> Actor {
        Self::spawn("daemon", &self.directory, &[])
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("echod.sock")
    }

    pub fn pid(&self) -> u32 {
        self.actor.pid()
    }

    pub fn actor(&mut self) -> &mut Actor {
        &mut self.actor
    }

    pub fn client(&self) -> Client {
        connect(&self.socket())
    }

    /// Lets every user of the machine connect, as an administrator does who sets the socket's group.
    pub fn open_to_all(self) -> Self {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(self.socket(), std::fs::Permissions::from_mode(0o666)).unwrap();
        self
    }

    /// Starts a part that uses this daemon.
    pub fn actor_of(&self, role: &str) -> Actor {
        Actor::start(role, &self.socket())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.actor.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn directory() -> PathBuf {
    static NEXT: std::sync::Mutex<u32> = std::sync::Mutex::new(0);
    let mut next = NEXT.lock().unwrap();
    *next += 1;
    std::env::temp_dir().join(format!("echo-test-{}-{next}", std::process::id()))
}

pub fn connect(socket: &Path) -> Client {
    let options = ConnectOptions { socket: Some(socket.to_owned()), ..ConnectOptions::default() };
    Client::connect(&options).expect("a connection")
}

/// The daemon's socket, of a process that plays a part.
pub fn socket_of_role() -> PathBuf {
    std::env::var_os(SOCKET).expect("a socket").into()
}

/// The client of a process that plays a part.
pub fn client_of_role() -> Client {
    connect(&socket_of_role())
}

/// An error and its causes.
pub fn said(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

/// Samples of a number and eight bytes that follow from it, so that a torn one is seen.
pub fn numbers(name: &str, batch_size: u32, capacity: u32) -> TableSpec {
    let arrays = vec![ArraySpec::new("id", DType::U64, []), ArraySpec::new("check", DType::U8, [8])];
    TableSpec::new(name, arrays, batch_size, capacity)
}

/// The eight bytes.
pub fn check_of(id: u64) -> [u8; 8] {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// The ids in a batch, each checked.
pub fn ids(batch: &echo_client::Batch) -> Vec<u64> {
    let ids: &[u64] = batch.array(0).as_slice().unwrap();
    let checks = batch.array(1).bytes();
    for (i, &id) in ids.iter().enumerate() {
        assert_eq!(checks[i * 8..][..8], check_of(id), "sample {id} is torn");
    }
    ids.to_vec()
}

/// Waits until something is so.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
