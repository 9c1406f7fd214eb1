//! The one who publishes into a latest table: values in, each as the newest.

use std::time::Duration;

use echo::spec::TableSpec;

use crate::claim::{Claim, ClaimAside};
use crate::element::Element;
use crate::inbox::Canceller;
use crate::writer::Writer;
use crate::{Error, Result};

/// The right to publish values of a latest table. A table has one at a time; another one may come when it is gone.
///
/// A value has a version, counted from 1 over all publishers of the table, without gaps.
pub struct Publisher {
    writer: Writer,
}

impl Publisher {
    pub(crate) const fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// The same right as a writer of samples, for programs that treat both alike: a value is a sample, and its commit
    /// publishes it.
    pub fn into_writer(self) -> Writer {
        self.writer
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.writer.spec()
    }

    /// The version that it published last, or 0 before the first.
    pub fn version(&self) -> u64 {
        self.writer.version()
    }

    /// How long a call may wait for room. The connection's timeout, unless it is set here.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.writer.set_timeout(timeout);
    }

    /// How long a wait for room polls before it sleeps. Not at all, unless it is set here.
    pub const fn set_poll(&mut self, poll: Duration) {
        self.writer.set_poll(poll);
    }

    /// How often it waited for room: readers held all older values, or the daemon had not looked yet.
    pub const fn waits(&self) -> u64 {
        self.writer.waits()
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        self.writer.canceller()
    }

    /// Whether this process was forked from the one that attached, in which the publisher is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.writer.is_elsewhere()
    }

    /// Publishes a value: the bytes of each array, in the order of the spec. When this returns, it is the newest, whatever
    /// dies afterwards. Its version.
    ///
    /// # Errors
    /// If the lengths are not those of the spec; [`Error::TimedOut`] if readers hold every older value for so long; if the
    /// table has ended; or if the daemon is gone and what it had allowed is used up. Nothing is then published.
    pub fn publish(&mut self, value: &[&[u8]]) -> Result<u64> {
        self.writer.append(value)?;
        Ok(self.version())
    }

    /// As [`Publisher::publish`], if there is room now.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn try_publish(&mut self, value: &[&[u8]]) -> Result<Option<u64>> {
        Ok(self.writer.try_append(value)?.then(|| self.version()))
    }

    /// Room for the next value, to be filled in place and then published. Dropping it publishes nothing: the next claim is
    /// of the same room. Waits for room if there is none.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn claim(&mut self) -> Result<ValueClaim<'_>> {
        self.writer.claim(1).map(|claim| ValueClaim { claim })
    }

    /// As [`Publisher::claim`], if there is room now.
    ///
    /// # Errors
    /// As [`Publisher::publish`].
    pub fn try_claim(&mut self) -> Result<Option<ValueClaim<'_>>> {
        Ok(self.writer.try_claim(1)?.map(|claim| ValueClaim { claim }))
    }

    /// Takes up a claim that was put aside. None if it is another publisher's, or was published since.
    pub fn resume(&mut self, aside: ClaimAside) -> Option<ValueClaim<'_>> {
        self.writer.resume(aside).map(|claim| ValueClaim { claim })
    }

    /// Says that it publishes no more, so that another one can attach at once. The table goes on.
    ///
    /// # Errors
    /// If the daemon cannot be told.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

/// Room for a value that is filled in place: this thread's alone, until it is published or dropped.
pub struct ValueClaim<'a> {
    claim: Claim<'a>,
}

impl ValueClaim<'_> {
    /// The version that it will be published as.
    pub const fn version(&self) -> u64 {
        self.claim.first_position() + 1
    }

    /// The bytes of one array. What is in them is left over from an older value.
    ///
    /// # Panics
    /// If the table has no such array, or in a process that was forked from the one that publishes.
    pub fn array_mut(&mut self, array: usize) -> &mut [u8] {
        self.claim.array_mut(array)
    }

    /// The elements of one array.
    ///
    /// # Errors
    /// [`Error::Element`] if the array holds another type.
    ///
    /// # Panics
    /// As [`ValueClaim::array_mut`].
    pub fn array_mut_as<T: Element>(&mut self, array: usize) -> Result<&mut [T], Error> {
        self.claim.array_mut_as(array)
    }

    /// Puts it aside, open, until [`Publisher::resume`].
    pub fn put_aside(self) -> ClaimAside {
        self.claim.put_aside()
    }

    /// Publishes it. When this returns, it is the newest, whatever dies afterwards. Its version.
    ///
    /// # Errors
    /// If somebody spoilt the table's memory.
    pub fn publish(self) -> Result<u64> {
        let version = self.version();
        self.claim.commit().map(|()| version)
    }
}
