//! The one who writes into a replay table: samples in, and what is said of each.

use std::time::Duration;

use echo::ring::marks::Mark;
use echo::spec::TableSpec;

use crate::claim::{Claim, ClaimAside, check_marks};
use crate::element::Element;
use crate::inbox::Canceller;
use crate::writer::Writer;
use crate::{Error, Result};

/// The right to write samples into a replay table. One claim at a time: attach a writer for each thread that writes.
///
/// It waits where the table's rate limiter holds workers back, and where there is no room since trainers still read what was
/// removed.
pub struct ReplayWriter {
    writer: Writer,
}

impl ReplayWriter {
    pub(crate) const fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// The same right as a writer of samples, for programs that treat both alike: its claims can say something of their samples.
    pub fn into_writer(self) -> Writer {
        self.writer
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.writer.spec()
    }

    /// How long a call may wait for room. The connection's timeout, unless it is set here.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.writer.set_timeout(timeout);
    }

    /// How long a wait for room polls before it sleeps. Not at all, unless it is set here.
    pub const fn set_poll(&mut self, poll: Duration) {
        self.writer.set_poll(poll);
    }

    /// Samples committed so far.
    pub const fn committed(&self) -> u64 {
        self.writer.committed()
    }

    /// How often it waited for room.
    pub const fn waits(&self) -> u64 {
        self.writer.waits()
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        self.writer.canceller()
    }

    /// Whether this process was forked from the one that attached, in which the writer is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.writer.is_elsewhere()
    }

    /// Writes one sample: the bytes of each array, in the order of the spec, and what is said of it. When this returns, the
    /// sample is or will be one of the table's items, whatever dies afterwards. Waits for room if there is none.
    ///
    /// # Errors
    /// If the lengths are not those of the spec, or the priority is none; if there is no room in time, if the table has ended,
    /// or if the daemon is gone and what it had allowed is used up. The sample is then not written.
    pub fn append(&mut self, sample: &[&[u8]], mark: Mark) -> Result<()> {
        self.append_many(1, sample, &[mark])
    }

    /// Writes one sample, if there is room now. False if there is none.
    ///
    /// # Errors
    /// As [`ReplayWriter::append`].
    pub fn try_append(&mut self, sample: &[&[u8]], mark: Mark) -> Result<bool> {
        check_marks(&[mark])?;
        self.writer.try_append_marked(sample, &[mark])
    }

    /// Writes `n` samples: of each array the bytes of `n` samples in a row, and what is said of each of them, or of none.
    ///
    /// # Errors
    /// As [`ReplayWriter::append`]; [`Error::Partly`] if some of them were written.
    pub fn append_many(&mut self, n: usize, samples: &[&[u8]], marks: &[Mark]) -> Result<()> {
        if !marks.is_empty() && marks.len() != n {
            return Err(Error::Marks { samples: n, got: marks.len() });
        }
        check_marks(marks)?;
        self.writer.append_marked(n, samples, marks)
    }

    /// Claims room for up to `n` samples (at least one) to be filled in place, and then committed. Dropping it gives the room
    /// to others. Waits for room if there is none.
    ///
    /// # Errors
    /// As [`ReplayWriter::append`].
    pub fn claim(&mut self, n: u32) -> Result<ReplayClaim<'_>> {
        self.writer.claim(n).map(|claim| ReplayClaim { claim })
    }

    /// As [`ReplayWriter::claim`], if there is room now.
    ///
    /// # Errors
    /// As [`ReplayWriter::append`].
    pub fn try_claim(&mut self, n: u32) -> Result<Option<ReplayClaim<'_>>> {
        Ok(self.writer.try_claim(n)?.map(|claim| ReplayClaim { claim }))
    }

    /// Takes up a claim that was put aside, with what was said of its samples. None if it is another writer's, or is not open
    /// any more.
    pub fn resume(&mut self, aside: ClaimAside) -> Option<ReplayClaim<'_>> {
        self.writer.resume(aside).map(|claim| ReplayClaim { claim })
    }

    /// Says that this writer commits no more samples. The table goes on.
    ///
    /// # Errors
    /// If the daemon cannot be told.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

/// Room for some samples of a replay table, filled in place: this thread's alone, until it is committed or dropped.
pub struct ReplayClaim<'a> {
    claim: Claim<'a>,
}

impl ReplayClaim<'_> {
    /// How many samples.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.claim.len()
    }

    /// The key of the first sample; the others' follow.
    pub const fn first_key(&self) -> u64 {
        self.claim.first_position()
    }

    /// The bytes of one array, of all samples in a row. What is in them is left over from before.
    ///
    /// # Panics
    /// If the table has no such array, or in a process that was forked from the one that claimed.
    pub fn array_mut(&mut self, array: usize) -> &mut [u8] {
        self.claim.array_mut(array)
    }

    /// The elements of one array, of all samples in a row.
    ///
    /// # Errors
    /// If the array holds another type.
    ///
    /// # Panics
    /// As [`ReplayClaim::array_mut`].
    pub fn array_mut_as<T: Element>(&mut self, array: usize) -> Result<&mut [T]> {
        self.claim.array_mut_as(array)
    }

    /// Says something of one of the samples; nothing is said of them before.
    ///
    /// # Errors
    /// If the priority is none.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn set_mark(&mut self, sample: usize, mark: Mark) -> Result<()> {
        self.claim.set_mark(sample, mark)
    }

    /// Puts it aside, open, until [`ReplayWriter::resume`].
    pub fn put_aside(self) -> ClaimAside {
        self.claim.put_aside()
    }

    /// Commits the samples. When this returns, they are or will be among the table's items, whatever dies afterwards.
    ///
    /// # Errors
    /// If another worker spoilt the table's memory.
    pub fn commit(self) -> Result<()> {
        self.claim.commit()
    }
}
