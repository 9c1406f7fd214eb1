//! Workers and a trainer of a table that nobody does anything to: whatever happens beside them, they get every sample,
//! whole and once.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use echo_client::message::EndReason;
use echo_client::{Error, ReaderOptions};

use crate::support::{Daemon, LONG, check_of, ids, numbers};

pub const TABLE: &str = "bystanders";

pub struct Bystanders {
    over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<u64>>,
    trainer: JoinHandle<BTreeMap<u64, u64>>,
}

impl Bystanders {
    /// They begin.
    pub fn start(daemon: &Daemon) -> Self {
        daemon.client().create_table(&numbers(TABLE, 7, 4)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let mut reader = daemon.client().attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
        let workers = (0..2_u64).map(|worker| {
            let (client, over) = (daemon.client(), over.clone());
            let mut writer = client.attach_writer(TABLE, None).unwrap();
            writer.set_timeout(LONG);
            std::thread::spawn(move || {
                let mut written = 0;
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..32 {
                        let id = worker << 32 | written;
                        writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
                        written += 1;
                    }
                    // Leaves the cores to what is tested.
                    std::thread::sleep(Duration::from_millis(1));
                }
                writer.finish().unwrap();
                written
            })
        });
        let workers = workers.collect();
        // One worker's samples come in its order, since one reader reads all batches.
        let trainer = std::thread::spawn(move || {
            let mut next: BTreeMap<u64, u64> = BTreeMap::new();
            loop {
                match reader.next_batch(LONG) {
                    Ok(batch) => {
                        for id in ids(&batch) {
                            let next = next.entry(id >> 32).or_default();
                            assert_eq!(id & u64::from(u32::MAX), *next, "of worker {}", id >> 32);
                            *next += 1;
                        }
                    }
                    Err(Error::Closed { reason: EndReason::Finished, .. }) => return next,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        Self { over, workers, trainer }
    }

    /// They end. Every sample that was written was read.
    pub fn finish(self) {
        self.over.store(true, Ordering::Relaxed);
        let written: Vec<u64> = self.workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        let read = self.trainer.join().unwrap();
        for (worker, written) in (0..).zip(written) {
            assert!(written > 0);
            assert_eq!(read.get(&worker), Some(&written), "of worker {worker}");
        }
    }
}
