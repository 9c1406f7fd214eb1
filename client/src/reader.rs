//! The trainer's side: batches out.
//!
//! The daemon grants batches ahead of time; a batch that is complete costs a few loads. Of those that were
//! granted the oldest comes first. A batch is given back when it is dropped, by a message; of batches in quick succession, half
//! a prefetch depth is told of in one. What is held back in this way is told before the reader waits, and after 50 ms
//! at the latest, by the thread that listens (`connection`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use echo::ids::{BlockIndex, BlockSeq, LeaseToken};
use echo::ring::ready::{self, Readiness};
use echo::spec::TableSpec;
use echo::sync::{AtomicU64, MAX_WORDS, Ordering};
use echo::wire::message::{Attachment, Call, Grant};

use crate::batch::Batch;
use crate::connection::Connection;
use crate::inbox::{Canceller, Inbox, InboxState};
use crate::member::Member;
use crate::table::Table;
use crate::wait::{Watched, deadline_in, wait};
use crate::{Error, Result};

/// Batches given back within so long of each other are told of together.
const QUICK: Duration = Duration::from_micros(200);

/// How often more readers are looked at than can be slept on.
const FEW: Duration = Duration::from_millis(5);

/// How a reader reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderOptions {
    /// How many batches may be granted ahead: those that are out count. At least 2 lets the next batch fill while
    /// one is read.
    pub prefetch: u16,
    /// How long a wait polls before it sleeps. Zero, the default, leaves the core to others at once; some 50 µs
    /// save a wake, both its latency and what it costs the workers, where batches come in quick succession.
    pub poll: Duration,
    /// Whether the samples are mapped so that [`Reader::pin_host_memory`] can page-lock them, which many GPUs do for
    /// writable memory alone. The table's access list must give the role `pin`.
    pub registrable: bool,
}

impl ReaderOptions {
    /// The default, with this prefetch depth.
    pub fn with_prefetch(prefetch: u16) -> Self {
        Self { prefetch, ..Self::default() }
    }
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self { prefetch: 2, poll: Duration::ZERO, registrable: false }
    }
}

/// The right to read batches out of a table. Each batch goes to one reader.
pub struct Reader {
    pub(crate) attached: Arc<Attached>,
    poll: Duration,
    waits: AtomicU64,
}

impl Drop for Reader {
    /// What it was granted and has not handed out goes to others now, and not when the last batch is dropped, with which
    /// it is detached.
    fn drop(&mut self) {
        if Arc::strong_count(&self.attached) > 1 {
            self.attached.leave();
        }
    }
}

/// What batches keep alive.
pub(crate) struct Attached {
    pub(crate) member: Member,
    given_back: Mutex<Option<Instant>>,
    /// How many batches can be granted to it at a time.
    depth: u32,
    /// How many that come back in quick succession are told of together: half of what it can have.
    enough: usize,
}

/// What a look at the next batch found.
enum Look {
    Batch(Batch),
    /// It is filling: sleep while its state is this.
    Filling(BlockIndex, u64),
    /// There is no grant.
    Nothing,
}

impl Reader {
    pub(crate) fn new(
        connection: Arc<Connection>,
        table: Table,
        attachment: &Attachment,
        inbox: Arc<Inbox>,
        options: ReaderOptions,
    ) -> Self {
        let depth = u32::from(options.prefetch).min(table.blocks);
        let member = Member::new(connection, table, attachment, inbox);
        let attached = Attached { member, given_back: Mutex::default(), depth, enough: depth as usize / 2 };
        Self { attached: Arc::new(attached), poll: options.poll, waits: AtomicU64::new(0) }
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.attached.member.spec()
    }

    /// How many batches can be granted to it at a time.
    pub fn depth(&self) -> u32 {
        self.attached.depth
    }

    /// Whether this process was forked from the one that attached, in which the reader is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.attached.is_elsewhere()
    }

    /// How often [`Reader::next_batch`] found no batch that was complete, and waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { inbox: self.attached.member.inbox.clone() }
    }

    /// The next batch, waiting for it at most so long.
    ///
    /// # Errors
    /// [`Error::Closed`] when the table has ended and there is nothing left, [`Error::TimedOut`], and
    /// [`Error::Gone`] when the daemon is gone and all that it had granted is read.
    pub fn next_batch(&mut self, timeout: Duration) -> Result<Batch> {
        self.next_batch_shared(timeout)
    }

    /// As [`Reader::next_batch`], for threads that share the reader: each batch goes to one of them. A wait that is
    /// cancelled is one of theirs.
    ///
    /// # Errors
    /// As [`Reader::next_batch`].
    pub fn next_batch_shared(&self, timeout: Duration) -> Result<Batch> {
        let deadline = deadline_in(timeout);
        loop {
            // Loaded before the look: see `inbox`.
            let signal = self.attached.member.inbox.signal_word(self.attached.member.inbox.observe());
            let look = match self.attached.look()? {
                Look::Batch(batch) => return Ok(batch),
                other => other,
            };
            self.attached.before_waiting()?;
            if Instant::now() >= deadline {
                return Err(Error::TimedOut { what: "waiting for a batch", after: timeout });
            }
            // Relaxed: for people who ask what is going on.
            self.waits.fetch_add(1, Ordering::Relaxed);
            match look {
                Look::Filling(block, word) => {
                    wait(&[self.attached.state_word(block, word), signal], self.poll, deadline);
                }
                _ => wait(&[signal], self.poll, deadline),
            }
        }
    }

    /// The next batch, if it is complete now.
    ///
    /// # Errors
    /// As [`Reader::next_batch`].
    pub fn try_next_batch(&mut self) -> Result<Option<Batch>> {
        self.try_next_batch_shared()
    }

    /// As [`Reader::try_next_batch`], for threads that share the reader.
    ///
    /// # Errors
    /// As [`Reader::next_batch`].
    pub fn try_next_batch_shared(&self) -> Result<Option<Batch>> {
        match self.attached.look()? {
            Look::Batch(batch) => Ok(Some(batch)),
            Look::Filling(..) | Look::Nothing => self.attached.before_waiting().map(|()| None),
        }
    }
}

/// Waits until [`Reader::try_next_batch`] of one of the readers would give a batch or an error, and says of which:
/// its index. Beyond some sixty readers it looks at them every few milliseconds.
///
/// # Errors
/// [`Error::TimedOut`], and [`Error::Cancelled`] if a reader's wait was cancelled.
pub fn wait_any(readers: &[&Reader], timeout: Duration) -> Result<usize> {
    let deadline = deadline_in(timeout);
    loop {
        let mut words = Vec::with_capacity(readers.len() * 2);
        for (i, reader) in readers.iter().enumerate() {
            let attached = &reader.attached;
            words.push(attached.member.inbox.signal_word(attached.member.inbox.observe()));
            match attached.peek() {
                Ok(Peek::Complete) => return Ok(i),
                Ok(Peek::Filling(block, word)) => words.push(attached.state_word(block, word)),
                Ok(Peek::Nothing) => {}
                // Asking for the batch tells it again.
                Err(_) => return Ok(i),
            }
            match attached.before_waiting() {
                Err(error @ Error::Cancelled) => return Err(error),
                Err(_) => return Ok(i),
                Ok(()) => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(Error::TimedOut { what: "waiting for a batch", after: timeout });
        }
        let poll = readers.iter().map(|reader| reader.poll).max().unwrap_or_default();
        let at_once = if words.len() > MAX_WORDS { Instant::now() + FEW } else { deadline };
        words.truncate(MAX_WORDS);
        wait(&words, poll, deadline.min(at_once));
    }
}

/// What a look at the next grant found, without taking it.
enum Peek {
    Complete,
    Filling(BlockIndex, u64),
    Nothing,
}

impl Attached {
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.member.is_elsewhere()
    }

    pub(crate) fn table(&self) -> &Table {
        self.member.table()
    }

    fn state_word(&self, block: BlockIndex, word: u64) -> Watched<'_> {
        Watched::Word(self.table().control.ready(block), word)
    }

    /// Looks at the next grant, and takes it if its batch is complete.
    fn look(self: &Arc<Self>) -> Result<Look> {
        let mut told = self.inbox_state()?;
        match self.first(&mut told)? {
            None => Ok(Look::Nothing),
            Some((block, _, Readiness::Filling(word))) => Ok(Look::Filling(block, word)),
            Some((block, _, Readiness::Complete(samples))) => {
                let grant = told.grants.pop_front().expect("looked at just now");
                told.held.push(grant.token);
                drop(told);
                Ok(Look::Batch(Batch::new(self.clone(), block, samples, grant)))
            }
            Some((_, _, Readiness::Lost)) => unreachable!("`first` passes over lost grants"),
        }
    }

    fn peek(&self) -> Result<Peek> {
        let mut told = self.inbox_state()?;
        Ok(match self.first(&mut told)? {
            None => Peek::Nothing,
            Some((block, _, Readiness::Filling(word))) => Peek::Filling(block, word),
            Some(_) => Peek::Complete,
        })
    }

    fn inbox_state(&self) -> Result<std::sync::MutexGuard<'_, InboxState>> {
        // Before the lock: in a child, another thread of the parent may hold it for ever.
        if self.is_elsewhere() { Err(Error::Forked) } else { Ok(self.member.inbox.state()) }
    }

    /// The first grant that will come to something, and how far it is.
    fn first(&self, told: &mut InboxState) -> Result<Option<(BlockIndex, BlockSeq, Readiness)>> {
        while let Some(grant) = told.grants.front() {
            let Some(block) = BlockIndex::new(grant.block, self.table().blocks) else {
                let (block, blocks) = (grant.block, self.table().blocks);
                return Err(Error::Announced(format!("block {block} was granted, of {blocks}")));
            };
            let over = told.ended.is_some_and(|(_, end)| grant.seq >= end);
            match ready::look(&self.table().control, block, grant.seq) {
                readiness if !over && readiness != Readiness::Lost => {
                    return Ok(Some((block, grant.seq, readiness)));
                }
                _ => drop(told.grants.pop_front()),
            }
        }
        Ok(None)
    }

    /// What has to be done, or makes waiting pointless, when there is no batch.
    fn before_waiting(&self) -> Result<()> {
        self.flush(1);
        if self.member.inbox.take_cancelled() {
            return Err(Error::Cancelled);
        }
        let told = self.member.inbox.state();
        if told.grants.is_empty()
            && let Some((reason, _)) = told.ended
        {
            return Err(Error::Closed { table: self.table().spec.name.clone(), reason });
        }
        match &told.gone {
            Some(reason) => Err(Error::Gone { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// A batch is given back.
    pub(crate) fn give_back(&self, token: LeaseToken) {
        if self.is_elsewhere() {
            return;
        }
        {
            let mut told = self.member.inbox.state();
            told.held.retain(|&held| held != token);
            told.returned.push(token);
        }
        self.flush(if self.is_quick() { self.enough } else { 1 });
    }

    /// A batch was not read after all.
    pub(crate) fn put_back(&self, grant: Grant) {
        if self.is_elsewhere() {
            return;
        }
        let mut left = false;
        self.member.inbox.tell(|told| {
            told.held.retain(|&held| held != grant.token);
            left = told.left;
            if !left {
                told.add(grant);
            }
        });
        if left {
            self.leave();
        }
    }

    /// Takes no more batches. Those that are out are given back as before.
    fn leave(&self) {
        if self.is_elsewhere() {
            return;
        }
        let Member { connection, id, inbox, .. } = &self.member;
        let (returned, keeps) = {
            let mut told = inbox.state();
            told.left = true;
            told.grants.clear();
            (std::mem::take(&mut told.returned), told.held.clone())
        };
        // Before the other message, by which others would get them once more. Where the daemon cannot be told, the thread that
        // listens tries again.
        if connection.release(*id, returned.clone()).is_ok() {
            let _ = connection.tell(Call::LeaveReader { member: *id, keeps });
        } else {
            inbox.state().returned.extend(returned);
        }
    }

    /// Whether batches are being given back in quick succession, so that the next one will come soon. One who reads
    /// slowly keeps nothing that it has read from the workers; one who pauses after a burst, for as long as the
    /// listening thread takes to look.
    fn is_quick(&self) -> bool {
        let now = Instant::now();
        let last = self.given_back.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        last.is_some_and(|last| now - last < QUICK)
    }

    /// Tells which batches came back, once they are so many.
    fn flush(&self, enough: usize) {
        let Member { connection, id, inbox, .. } = &self.member;
        connection.tell_returned(*id, inbox, enough);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            return;
        }
        // Before the detach, by which others would get them once more. One who cannot be told is gone.
        let Member { connection, id, inbox, .. } = &self.member;
        let returned = std::mem::take(&mut inbox.state().returned);
        let _ = connection.release(*id, returned);
    }
}
