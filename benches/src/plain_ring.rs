//! The limit of throughput: a plain single-producer single-consumer ring in shared memory.
//!
//! No leases, no second producer, nobody may die. It copies each sample into its slot and publishes it by one
//! release store; what echo costs beyond that is what its promises cost.
//!
//! ```text
//!    0  head: samples published, of all time │ bit 63: the producer is done
//!  128  tail: samples consumed, of all time
//! 4096  slots, without padding
//! ```

use anyhow::Result;
use echo::memory::Mapping;
use echo::ring::words::Words;
use echo::sync::{AtomicU64, Ordering};

use crate::{patience, shared};

const HEAD: usize = 0;
const TAIL: usize = 128;
const DATA: usize = 4096;
const DONE: u64 = 1 << 63;

/// Bytes of the file of a ring.
pub const fn file_bytes(slots: u64, sample_bytes: usize) -> usize {
    DATA + slots as usize * sample_bytes
}

/// One end of a ring.
struct Ring {
    words: Words,
    mapping: Mapping,
    slots: u64,
    sample_bytes: usize,
}

impl Ring {
    fn open(name: &str, slots: u64, sample_bytes: usize) -> Result<Self> {
        let bytes = file_bytes(slots, sample_bytes).next_multiple_of(4096);
        let (words, mapping) = shared::open(name, bytes)?;
        Ok(Self { words, mapping, slots, sample_bytes })
    }

    fn head(&self) -> &AtomicU64 {
        self.words.u64(HEAD)
    }

    fn tail(&self) -> &AtomicU64 {
        self.words.u64(TAIL)
    }

    /// The address of a position's slot.
    fn slot(&self, position: u64) -> *mut u8 {
        self.mapping.base().as_ptr().wrapping_add(DATA + (position % self.slots) as usize * self.sample_bytes)
    }
}

/// The end that writes.
pub struct Producer {
    ring: Ring,
    head: u64,
    published: u64,
    tail_seen: u64,
    publish_every: u64,
}

impl Producer {
    /// Publishes every so many samples.
    pub fn open(name: &str, slots: u64, sample_bytes: usize, publish_every: u64) -> Result<Self> {
        let ring = Ring::open(name, slots, sample_bytes)?;
        Ok(Self { ring, head: 0, published: 0, tail_seen: 0, publish_every })
    }

    /// Writes one sample, array behind array.
    #[inline]
    pub fn push(&mut self, sample: &[&[u8]]) {
        let slots = self.ring.slots;
        if self.head - self.tail_seen == slots {
            self.publish();
            let head = self.head;
            self.tail_seen = patience::wait(self.ring.tail(), |tail| head - tail < slots);
        }
        let mut to = self.ring.slot(self.head);
        for bytes in sample {
            // SAFETY: the slot is ours until the head passes it: the consumer has passed it (checked above), and
            // there is no other producer. The arrays' lengths add up to the slot's.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            to = to.wrapping_add(bytes.len());
        }
        self.head += 1;
        if self.head - self.published == self.publish_every {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.published = self.head;
        // release: pairs with the consumer's acquire
        self.ring.head().store(self.head, Ordering::Release);
    }

    /// Publishes what is left.
    pub fn finish(mut self) {
        self.publish();
        self.ring.head().store(self.head | DONE, Ordering::Release);
    }
}

/// The end that reads.
pub struct Consumer {
    ring: Ring,
    tail: u64,
}

impl Consumer {
    /// Reads from the start.
    pub fn open(name: &str, slots: u64, sample_bytes: usize) -> Result<Self> {
        Ok(Self { ring: Ring::open(name, slots, sample_bytes)?, tail: 0 })
    }

    /// Shows the next batch of at most `batch` samples, which divides the slots, waiting until there are so many or
    /// no more come. Returns how many there were.
    pub fn pop(&mut self, batch: u64, consume: impl FnOnce(&[u8])) -> u64 {
        let tail = self.tail;
        let enough = |head: u64| head & DONE != 0 || head - tail >= batch;
        let head = patience::wait(self.ring.head(), enough) & !DONE;
        let samples = (head - tail).min(batch);
        let bytes = samples as usize * self.ring.sample_bytes;
        // SAFETY: inside the mapping, since a batch does not cross the ring's end; published by the producer, which
        // does not write there before the tail passes it.
        consume(unsafe { std::slice::from_raw_parts(self.ring.slot(tail), bytes) });
        self.tail += samples;
        // release: pairs with the producer's acquire
        self.ring.tail().store(self.tail, Ordering::Release);
        samples
    }
}
