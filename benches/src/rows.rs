//! What is measured: the rows, in their order.

use anyhow::{Result, ensure};

use crate::clients::Cost;
use crate::fifo::Fifo;
use crate::latency::{Percentiles, Waiting};
use crate::latest::{self, Looks};
use crate::report::{self, Figure};
use crate::sample::{self, Alone, Sample};
use crate::stage::Daemon;
use crate::workload::Workload;
use crate::{attach, clients, latency, pin, prefault};

/// What is measured in a row.
#[derive(Clone, Copy, Debug)]
enum Row {
    Fifo(Fifo),
    Latency(Waiting),
    BesideAFlood,
    /// With so many readers.
    Latest(usize),
    Publish,
    Sample(Sample),
    /// The index of a replay table alone.
    Index,
    Attach,
    Prefault,
    Pin,
    Clients(usize),
    Arrays(u64),
}

const fn fifo(workload: Workload, writers: usize, many: u64) -> Row {
    Row::Fifo(Fifo { workload, writers, many })
}

const fn sample(workload: Workload, prioritized: bool) -> Row {
    Row::Sample(Sample { workload, prioritized })
}

/// Names and rows.
const ROWS: [(&str, Row); 29] = [
    ("fifo/tiny/1w", fifo(Workload::Tiny, 1, 1)),
    ("fifo/tiny/2w", fifo(Workload::Tiny, 2, 1)),
    ("fifo/many/1w", fifo(Workload::Tiny, 1, 64)),
    ("fifo/atari/1w", fifo(Workload::Atari, 1, 1)),
    ("fifo/atari/2w", fifo(Workload::Atari, 2, 1)),
    ("fifo/large/1w", fifo(Workload::Large, 1, 1)),
    ("latency/commit-to-batch", Row::Latency(Waiting::Asleep)),
    ("latency/polling", Row::Latency(Waiting::Polling)),
    ("latency/beside-a-flood", Row::BesideAFlood),
    ("latest/read/1", Row::Latest(1)),
    ("latest/read/4", Row::Latest(4)),
    ("latest/read/16", Row::Latest(16)),
    ("latest/publish", Row::Publish),
    ("sample/uniform/tiny", sample(Workload::Tiny, false)),
    ("sample/prioritized/tiny", sample(Workload::Tiny, true)),
    ("sample/uniform/atari", sample(Workload::Atari, false)),
    ("sample/prioritized/atari", sample(Workload::Atari, true)),
    ("index", Row::Index),
    ("attach", Row::Attach),
    ("prefault/1GiB", Row::Prefault),
    ("pin/register", Row::Pin),
    ("scale/clients/1", Row::Clients(1)),
    ("scale/clients/10", Row::Clients(10)),
    ("scale/clients/100", Row::Clients(100)),
    ("scale/clients/500", Row::Clients(500)),
    ("scale/arrays/1", Row::Arrays(1)),
    ("scale/arrays/10", Row::Arrays(10)),
    ("scale/arrays/100", Row::Arrays(100)),
    ("scale/arrays/1000", Row::Arrays(1000)),
];

/// Measures the rows whose name contains `only`, and prints them.
pub fn run(quick: bool, only: Option<&str>, json: bool) -> Result<()> {
    let rounds = if quick { 3 } else { 5 };
    let wanted: Vec<_> =
        ROWS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))).collect();
    ensure!(!wanted.is_empty(), "no row's name contains {:?}; they are {}", only.unwrap_or(""), names());
    let daemon = Daemon::start()?;
    let mut all = Vec::new();
    for (name, row) in wanted {
        let figures = row.measure(name, &daemon, rounds, quick)?;
        for figure in &figures {
            if json {
                println!("{}", figure.json());
            } else {
                eprintln!("{} {:.2} of {}", figure.bench, figure.ratio, figure.limit_name);
            }
        }
        all.extend(figures);
    }
    if !json {
        println!("{}", report::table(&all));
    }
    Ok(())
}

fn names() -> String {
    ROWS.map(|(name, _)| name).join(", ")
}

impl Row {
    fn measure(self, name: &str, daemon: &Daemon, rounds: usize, quick: bool) -> Result<Vec<Figure>> {
        match self {
            Self::Fifo(fifo) => {
                let pairs = pairs(rounds, || Ok((fifo.echo(daemon, quick)?, fifo.plain(quick)?)))?;
                Ok(vec![Figure::of(name.into(), "samples/s", "a plain ring", &pairs)])
            }
            Self::Latency(waiting) => {
                let limit = match waiting {
                    Waiting::Asleep => "a futex wake",
                    Waiting::Polling => "a cache line handed over",
                };
                let pairs = pairs(rounds, || {
                    Ok((latency::echo(daemon, waiting, quick)?, latency::plain(waiting, quick)?))
                })?;
                Ok(percentiles(name, limit, &pairs))
            }
            Self::BesideAFlood => {
                let pairs = pairs(rounds, || {
                    let flooded = clients::beside_a_flood(daemon, quick)?;
                    Ok((flooded, latency::echo(daemon, Waiting::Asleep, quick)?))
                })?;
                Ok(percentiles(name, "the same without the flood", &pairs))
            }
            Self::Latest(readers) => {
                let pairs =
                    pairs(rounds, || Ok((latest::echo(daemon, readers, quick)?, latest::plain(quick)?)))?;
                let figure = |name: &str, of: fn(&Looks) -> f64| {
                    let pairs: Vec<_> = pairs.iter().map(|(value, limit)| (of(value), of(limit))).collect();
                    Figure::of(name.into(), "ns", "a load of one word", &pairs)
                };
                let new = format!("{name}/new");
                Ok(vec![figure(name, |looks| looks.nothing_new), figure(&new, |looks| looks.new)])
            }
            Self::Publish => {
                let pairs = pairs(rounds, || Ok((latest::publish(daemon, quick)?, latest::copy(quick)?)))?;
                Ok(vec![Figure::of(name.into(), "GiB/s", "memcpy", &pairs)])
            }
            Self::Sample(sample) => {
                let pairs = pairs(rounds, || Ok((sample.echo(daemon, quick)?, sample.plain(quick)?)))?;
                let rates: Vec<_> = pairs.iter().map(|(sampled, plain)| (sampled.rate, *plain)).collect();
                let overheads: Vec<_> = pairs.iter().map(|(sampled, _)| (sampled.overhead, 128.0)).collect();
                Ok(vec![
                    Figure::of(name.into(), "samples/s", "a bare gather by one thread", &rates),
                    Figure::of(format!("{name}/overhead"), "bytes/item", "128 bytes", &overheads),
                ])
            }
            Self::Index => {
                let pairs = pairs(rounds, || Ok((sample::index()?, sample::lines())))?;
                let figure = |what: &str, of: fn(&Alone) -> f64| {
                    let pairs: Vec<_> = pairs.iter().map(|(value, limit)| (of(value), of(limit))).collect();
                    Figure::of(format!("{name}/{what}-256"), "µs", "as many lines of memory", &pairs)
                };
                Ok(vec![figure("draw", |alone| alone.draw), figure("update", |alone| alone.update)])
            }
            Self::Attach => {
                let pairs = pairs(rounds, || Ok((attach::echo(daemon)?, attach::plain()?)))?;
                Ok(vec![Figure::of(name.into(), "µs", "a descriptor passed and mapped", &pairs)])
            }
            Self::Prefault => {
                let pairs = pairs(rounds, || Ok((1.0 / prefault::echo(daemon)?, 1.0 / prefault::plain()?)))?;
                Ok(vec![Figure::of(name.into(), "GiB/s", "MADV_POPULATE_WRITE", &pairs)])
            }
            Self::Pin => {
                let scene = match pin::Scene::set() {
                    Ok(scene) => scene,
                    Err(error) => {
                        eprintln!("{name} is left out: {error:#}");
                        return Ok(Vec::new());
                    }
                };
                let pairs = pairs(rounds, || Ok((scene.echo()?, scene.plain()?)))?;
                Ok(vec![Figure::of(name.into(), "GiB/s", "io_uring's registered buffers", &pairs)])
            }
            Self::Clients(n) => {
                let pairs = pairs(rounds, || {
                    Ok((clients::scale(daemon, n, quick)?, clients::scale(daemon, 2, quick)?))
                })?;
                let figure = |name: &str, unit, of: fn(&Cost) -> f64| {
                    let pairs: Vec<_> = pairs.iter().map(|(value, limit)| (of(value), of(limit))).collect();
                    Figure::of(name.into(), unit, "two workers that write", &pairs)
                };
                let in_the_daemon = format!("{name}/daemon");
                Ok(vec![
                    figure(name, "ns/sample", |cost| cost.sample),
                    figure(&in_the_daemon, "ns/batch", |cost| cost.batch),
                ])
            }
            Self::Arrays(n) => {
                let of = |n| {
                    let fifo = Fifo { workload: Workload::Arrays(n), writers: 1, many: 1 };
                    anyhow::Ok(1e9 / fifo.echo(daemon, quick)?)
                };
                let pairs = pairs(rounds, || Ok((of(n)?, of(1)?)))?;
                Ok(vec![Figure::of(name.into(), "ns/sample", "the same bytes in one array", &pairs)])
            }
        }
    }
}

fn pairs<T>(rounds: usize, mut measure: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    (0..rounds).map(|_| measure()).collect()
}

fn percentiles(name: &str, limit: &'static str, pairs: &[(Percentiles, Percentiles)]) -> Vec<Figure> {
    let figure = |of: fn(&Percentiles) -> f64, at: &str| {
        let pairs: Vec<_> = pairs.iter().map(|(value, limit)| (of(value) / 1e3, of(limit) / 1e3)).collect();
        Figure::of(format!("{name}/{at}"), "µs", limit, &pairs)
    };
    vec![figure(|p| p.p50, "p50"), figure(|p| p.p90, "p90"), figure(|p| p.p99, "p99")]
}
