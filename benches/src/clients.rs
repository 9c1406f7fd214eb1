//! What other clients cost: many that are attached and idle, and one that floods.

use std::path::Path;

use anyhow::Result;

use crate::fifo::Fifo;
use crate::latency::{self, Percentiles, Waiting};
use crate::part::Words;
use crate::stage::{self, Actor, Daemon};
use crate::workload::{TABLE, Workload};

/// Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// That pass for each sample.
    pub sample: f64,
    /// That the daemon is busy for each batch.
    pub batch: f64,
}

/// What it costs with so many workers attached to the table of which two write.
pub fn scale(daemon: &Daemon, workers: usize, quick: bool) -> Result<Cost> {
    let fifo = Fifo { workload: Workload::Tiny, writers: workers.min(2), many: 1 };
    let idle = workers - fifo.writers;
    let client = daemon.client()?;
    client.create_table(&fifo.workload.spec())?;
    let socket = daemon.socket();
    let mut idlers = Actor::start(1, &["idlers", &socket.to_string_lossy(), &idle.to_string()])?;
    idlers.ready()?;
    let before = daemon.busy()?;
    let sample = 1e9 / fifo.echo(daemon, quick)?;
    let batch = (daemon.busy()? - before) as f64 / fifo.batches(quick) as f64;
    Ok(Cost { sample, batch })
}

/// Latency beside a client that asks as fast as it can.
pub fn beside_a_flood(daemon: &Daemon, quick: bool) -> Result<Percentiles> {
    let socket = daemon.socket();
    let mut flooder = Actor::start(1, &["flooder", &socket.to_string_lossy()])?;
    flooder.ready()?;
    flooder.go()?;
    latency::echo(daemon, Waiting::Asleep, quick)
}

/// Attaches so many workers, each a client, and does nothing until it is told to.
pub fn play_idlers(words: &mut Words<'_>) -> Result<()> {
    let (socket, n) = (Path::new(words.text()?), words.number()?);
    let attached: Vec<_> =
        (0..n).map(|_| Ok(stage::connect(socket)?.attach_writer(TABLE, None)?)).collect::<Result<_>>()?;
    stage::ready()?;
    drop(attached);
    Ok(())
}

/// Asks for the list of tables for as long as it lives.
pub fn play_flooder(words: &mut Words<'_>) -> Result<()> {
    let client = stage::connect(Path::new(words.text()?))?;
    stage::ready()?;
    loop {
        client.list_tables()?;
    }
}
