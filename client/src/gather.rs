//! Threads that copy chosen samples from where they lie into a batch.
//!
//! The first of them listens to what was chosen, and all of them copy: a batch is cut into pieces, and each takes the next
//! piece that nobody has. Who copies the last one gives the samples back and hands the batch over.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use echo::sync::{AtomicU32, Ordering, expect_read};
use echo::wire::message::SampledItem;

use crate::sampler::{Asking, Gathered};
use crate::staging::Staging;
use crate::table::Table;
use crate::wait::{deadline_in, wait};
use crate::{Error, Result};

/// Bytes of a piece: some 10 µs of work.
const PIECE_BYTES: usize = 64 << 10;
/// Samples of a piece, however small they are.
const PIECE_SAMPLES: usize = 32;
/// How many samples ahead the cache is told.
const AHEAD: usize = 8;

/// The threads of one sampler. Dropping it ends them.
pub(crate) struct Gatherer {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

struct Pool {
    asking: Arc<Asking>,
    staging: Arc<Staging>,
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Arc<Job>>,
    closing: bool,
}

/// A batch that is being copied.
struct Job {
    gathered: Gathered,
    piece: usize,
    pieces: usize,
    next: AtomicU32,
    left: AtomicU32,
}

impl Gatherer {
    pub(crate) fn start(asking: &Arc<Asking>, staging: &Arc<Staging>, threads: u16) -> Result<Self> {
        let pool = Arc::new(Pool {
            asking: asking.clone(),
            staging: staging.clone(),
            work: Mutex::default(),
            changed: Condvar::new(),
        });
        let mut gatherer = Self { pool, threads: Vec::new() };
        for number in 0..threads {
            let pool = gatherer.pool.clone();
            let gather = move || if number == 0 { pool.lead() } else { pool.help() };
            let thread = std::thread::Builder::new().name("echo-gather".into()).spawn(gather);
            gatherer.threads.push(thread.map_err(Error::Thread)?);
        }
        Ok(gatherer)
    }
}

impl Drop for Gatherer {
    fn drop(&mut self) {
        // A forked child has none of the threads, and a lock may be held there for ever.
        if self.pool.asking.member.is_elsewhere() {
            return;
        }
        self.pool.work().closing = true;
        self.pool.changed.notify_all();
        self.pool.asking.member.inbox.tell(|_| ());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Pool {
    fn work(&self) -> MutexGuard<'_, Work> {
        // What is behind the lock is changed by single calls that do not panic.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to what was chosen, and copies as the others do.
    fn lead(&self) {
        let inbox = &self.asking.member.inbox;
        loop {
            // Loaded before the look: see `inbox`.
            let signal = inbox.observe();
            self.asking.take_what_came(|_, gathered| self.begin(gathered));
            let job = {
                let work = self.work();
                if work.closing {
                    return;
                }
                work.jobs.front().cloned()
            };
            match job {
                Some(job) => self.copy(&job),
                None => wait(&[inbox.signal_word(signal)], Duration::ZERO, deadline_in(Duration::MAX)),
            }
        }
    }

    fn help(&self) {
        loop {
            let job = {
                let mut work = self.work();
                loop {
                    if work.closing {
                        return;
                    }
                    if let Some(job) = work.jobs.front() {
                        break job.clone();
                    }
                    work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.copy(&job);
        }
    }

    fn begin(&self, gathered: Gathered) {
        let samples = gathered.sampled.items.len();
        if samples == 0 {
            self.hand_over(gathered);
            return;
        }
        let bytes = self.staging.sample_bytes().max(1);
        let piece = (PIECE_BYTES / bytes).max(PIECE_SAMPLES.min(samples.div_ceil(2))).max(1);
        let pieces = samples.div_ceil(piece);
        let (next, left) = (AtomicU32::new(0), AtomicU32::new(pieces as u32));
        self.work().jobs.push_back(Arc::new(Job { gathered, piece, pieces, next, left }));
        self.changed.notify_all();
    }

    /// Copies pieces of a batch until none is left that nobody has.
    fn copy(&self, job: &Arc<Job>) {
        loop {
            // Relaxed: it only gives out numbers.
            let piece = job.next.fetch_add(1, Ordering::Relaxed) as usize;
            if piece >= job.pieces {
                self.work().jobs.retain(|other| !Arc::ptr_eq(other, job));
                return;
            }
            let first = piece * job.piece;
            let items = &job.gathered.sampled.items;
            let items = &items[first..items.len().min(first + job.piece)];
            gather(self.asking.member.table(), &self.staging, job.gathered.place, first, items);
            // acq-rel: who sees the last one done sees all bytes
            if job.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.asking.give_back(job.gathered.sampled.number);
                self.hand_over(job.gathered.clone());
            }
        }
    }

    fn hand_over(&self, gathered: Gathered) {
        self.asking.finish(gathered);
        // Wakes who waits for it.
        self.asking.member.inbox.tell(|_| ());
    }
}

/// Copies samples into a place, from its `first` on.
fn gather(table: &Table, staging: &Staging, place: usize, first: usize, items: &[SampledItem]) {
    for array in 0..table.arrays.arrays() {
        let bytes = table.arrays.slot_bytes(array);
        if bytes == 0 {
            continue;
        }
        let (target, room) = staging.target(array, place, first as u32, items.len() as u32);
        debug_assert_eq!(room, bytes * items.len());
        let source = |item: &SampledItem| table.arrays.slot_ref(array, table.slot(item.slot.into()));
        for (i, item) in items.iter().enumerate() {
            if let Some(later) = items.get(i + AHEAD) {
                expect_read(source(later));
            }
            // SAFETY: `slot_ref` is `bytes` bytes of the table's mapping. They were committed, and the sample is leased to us
            // until it is given back, which comes after: no worker that keeps to the protocol writes them. The target is
            // as many bytes of this process's own memory (`target` checked the place), in a place that this batch alone
            // has; the pieces of a batch do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(source(item), target.wrapping_add(i * bytes), bytes) };
        }
    }
}
