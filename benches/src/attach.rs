//! Attaching: connect, hello, attach, map; beside a descriptor passed over a socket and mapped.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use echo::memory::memfd::{Sealed, Unsealed};
use echo::memory::{Access, Mapping};
use echo::wire::socket::{self, Received};
use echo_client::ReaderOptions;

use crate::clock;
use crate::part::Words;
use crate::stage::{self, Actor, Daemon};
use crate::workload::{TABLE, Workload};

const TIMES: usize = 500;
/// Bytes that the limit maps.
const BYTES: usize = 2 << 20;
const LONG: Duration = Duration::from_secs(60);

/// Median of the microseconds that a process takes for it.
pub fn echo(daemon: &Daemon) -> Result<f64> {
    let client = daemon.client()?;
    client.create_table(&Workload::Tiny.spec())?;
    let socket = daemon.socket();
    let seen = stage::run(vec![Actor::start(0, &["attacher", &socket.to_string_lossy()])?])?;
    client.drop_table(TABLE)?;
    Ok(seen[0])
}

/// The same of asking for a descriptor and mapping it.
pub fn plain() -> Result<f64> {
    let path = std::env::temp_dir().join(format!("echo-bench-pass-{}", std::process::id()));
    let path = path.to_string_lossy();
    let mut passer = Actor::start(1, &["passer", &path])?;
    passer.ready()?;
    passer.go()?;
    let asked = Actor::start(0, &["pass-asker", &path]).and_then(|asker| stage::run(vec![asker]));
    let _ = std::fs::remove_file(&*path);
    Ok(asked?[0])
}

/// Connects and attaches again and again.
pub fn play_attacher(words: &mut Words<'_>) -> Result<()> {
    let socket = Path::new(words.text()?);
    stage::ready()?;
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let started = clock::now();
        let client = stage::connect(socket)?;
        let reader = client.attach_reader(TABLE, None, ReaderOptions::default())?;
        took.push(clock::now() - started);
        drop(reader);
    }
    report(took);
    Ok(())
}

/// Answers each packet with a descriptor.
pub fn play_passer(words: &mut Words<'_>) -> Result<()> {
    let listener = socket::listen(Path::new(words.text()?), 1)?;
    let file = Unsealed::create("bench", BYTES as u64)?.seal()?;
    stage::ready()?;
    let deadline = Instant::now() + LONG;
    if !socket::wait_readable(listener.as_fd(), deadline)? {
        bail!("nobody connects");
    }
    let connection = socket::accept(listener.as_fd())?.context("nobody connects")?;
    let mut buffer = [0; 64];
    while socket::wait_readable(connection.as_fd(), deadline)? {
        match socket::receive(connection.as_fd(), &mut buffer)? {
            Received::Packet(_) => drop(socket::send(connection.as_fd(), b"here", &[file.as_fd()])?),
            Received::WouldBlock => {}
            Received::Closed => break,
        }
    }
    Ok(())
}

/// Asks for a descriptor, and maps what comes, again and again.
pub fn play_asker(words: &mut Words<'_>) -> Result<()> {
    let deadline = Instant::now() + LONG;
    let path = Path::new(words.text()?);
    stage::ready()?;
    let connection = socket::connect(path, deadline)?;
    let mut took = Vec::new();
    let mut buffer = [0; 64];
    for _ in 0..TIMES {
        let started = clock::now();
        socket::send(connection.as_fd(), b"please", &[])?;
        socket::wait_readable(connection.as_fd(), deadline)?;
        let Received::Packet(packet) = socket::receive(connection.as_fd(), &mut buffer)? else {
            bail!("nothing came");
        };
        let file = packet.descriptors.into_iter().next().context("no descriptor came")?;
        let file = Sealed::received(file, BYTES as u64, Access::ReadWrite)
            .with_context(|| format!("of {}", connection.as_raw_fd()))?;
        let mapping = Mapping::new(&file, BYTES, Access::ReadWrite)?;
        took.push(clock::now() - started);
        drop(mapping);
    }
    report(took);
    Ok(())
}

fn report(mut took: Vec<u64>) {
    took.sort_unstable();
    stage::report(&[took[took.len() / 2] as f64 / 1e3]);
}
