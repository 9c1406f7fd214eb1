//! The reader of a latest table: takes the newest value, without asking anybody.
//!
//! ```text
//! newer_than ──▶ one load: nothing newer                    no lock but the inbox's, no system call
//!     └─ there is: hold it, look again ──▶ Value            where it lies, until it is dropped
//! ```
//!
//! How a value is held: [`echo::ring::hold`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use echo::ring::hold::{self, HOLDS, HoldLine};
use echo::ring::newest::{self, ValueWord};
use echo::spec::TableSpec;
use echo::sync::Ordering;
use echo::wire::message::Attachment;

use crate::batch::ArrayView;
use crate::connection::Connection;
use crate::inbox::{Canceller, Inbox};
use crate::member::Member;
use crate::table::Table;
use crate::wait::{Watched, deadline_in, wait};
use crate::{Error, Result};

/// How a reader of a latest table reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatestOptions {
    /// How long a wait polls before it sleeps; not at all by default. See [`ReaderOptions`](crate::ReaderOptions).
    pub poll: Duration,
    /// Whether the values are mapped so that [`LatestReader::pin_host_memory`] can page-lock them, which many GPUs do for
    /// writable memory alone. The table's access list must give the role `pin`.
    pub registrable: bool,
}

/// The right to take the newest value of a latest table. Threads may share it.
///
/// It may hold four values at a time, however often each: of those that are taken and not dropped, no more than four may be
/// different. What it holds is not written again, so that a publisher finds no room where readers hold all that is not the
/// newest.
pub struct LatestReader {
    pub(crate) taking: Arc<Taking>,
    poll: Duration,
}

/// What values keep alive.
pub(crate) struct Taking {
    pub(crate) member: Member,
    line: u32,
    holds: Mutex<Holds>,
}

/// What this reader holds.
#[derive(Default)]
struct Holds {
    held: [Option<Held>; HOLDS],
    taken: u64,
}

/// One value, and how often.
#[derive(Clone, Copy)]
struct Held {
    value: ValueWord,
    handles: u64,
}

impl LatestReader {
    pub(crate) fn new(
        connection: Arc<Connection>,
        table: Table,
        attachment: &Attachment,
        inbox: Arc<Inbox>,
        options: LatestOptions,
    ) -> Result<Self> {
        let member = Member::new(connection, table, attachment, inbox);
        let line = attachment.record;
        if member.connection.holds(line).is_none() {
            return Err(Error::Announced(format!("line {line} is none of the client page's")));
        }
        let taking = Taking { member, line, holds: Mutex::default() };
        Ok(Self { taking: Arc::new(taking), poll: options.poll })
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.taking.member.spec()
    }

    /// Whether this process was forked from the one that attached, in which the reader is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.taking.member.is_elsewhere()
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { inbox: self.taking.member.inbox.clone() }
    }

    /// The newest version, or 0 if nothing has been published. It takes nothing.
    pub fn version(&self) -> u64 {
        if self.is_elsewhere() {
            0
        } else {
            newest::version(newest::load(&self.taking.member.table().control))
        }
    }

    /// The newest value, if one has been published; also when the table has ended or the daemon is gone.
    ///
    /// # Errors
    /// [`Error::TooManyHeld`] if this reader holds four others; [`Error::Closed`] or [`Error::Gone`] if there is none and
    /// none will come.
    pub fn get(&self) -> Result<Option<Value>> {
        self.newer_than(0)
    }

    /// The newest value, if its version is above this one. Nothing newer costs a load and a lock that nobody else wants,
    /// however many readers there are.
    ///
    /// # Errors
    /// As [`LatestReader::get`].
    pub fn newer_than(&self, version: u64) -> Result<Option<Value>> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        match Taking::take(&self.taking, version) {
            // What makes it so was told, if it was noticed.
            nothing @ (Ok(None) | Err(Error::Hold(_))) => self.taking.member.check_told().and(nothing),
            taken => taken,
        }
    }

    /// The newest value, once its version is above this one. Waits for it at most so long.
    ///
    /// # Errors
    /// As [`LatestReader::get`]; and [`Error::TimedOut`], [`Error::Cancelled`].
    pub fn wait_newer_than(&self, version: u64, timeout: Duration) -> Result<Value> {
        let deadline = deadline_in(timeout);
        loop {
            if self.is_elsewhere() {
                return Err(Error::Forked);
            }
            let inbox = &self.taking.member.inbox;
            // Both loaded before the look: see `inbox` and `newest`.
            let signal = inbox.signal_word(inbox.observe());
            let control = &self.taking.member.table().control;
            let seen = newest::load(control);
            if let Some(value) = self.newer_than(version)? {
                return Ok(value);
            }
            if inbox.take_cancelled() {
                return Err(Error::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(Error::TimedOut { what: "waiting for a newer value", after: timeout });
            }
            let line = self.taking.line();
            // Relaxed: for people who ask what is going on.
            line.having().store(version, Ordering::Relaxed);
            line.waiting().store(1, Ordering::Relaxed);
            wait(&[Watched::Word(control.newest(), seen), signal], self.poll, deadline);
            line.waiting().store(0, Ordering::Relaxed);
        }
    }
}

impl Taking {
    fn line(&self) -> HoldLine<'_> {
        self.member.connection.holds(self.line).expect("checked when it was attached")
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        // What is behind the lock is changed by single assignments.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest value, if it is newer.
    fn take(this: &Arc<Self>, than: u64) -> Result<Option<Value>> {
        let control = &this.member.table().control;
        if newest::version(newest::load(control)) <= than {
            return Ok(None);
        }
        let mut holds = this.holds();
        let newest = newest::load(control);
        // One that is held already is held once more, and that takes no hold.
        let is_newest = |held: &Option<Held>| held.is_some_and(|held| held.value.encode() == newest);
        if let Some(index) = holds.held.iter().position(is_newest)
            && let Some(held) = &mut holds.held[index]
        {
            held.handles += 1;
            return Ok(Some(Value { taking: this.clone(), index, value: held.value }));
        }
        let Some(index) = holds.held.iter().position(Option::is_none) else {
            return Err(Error::TooManyHeld { held: HOLDS });
        };
        let taken = hold::take(control, this.member.table().blocks, this.line(), index, than)?;
        let Some(value) = taken else { return Ok(None) };
        holds.held[index] = Some(Held { value, handles: 1 });
        holds.taken += 1;
        // Relaxed: for people who ask what is going on.
        this.line().taken().store(holds.taken, Ordering::Relaxed);
        Ok(Some(Value { taking: this.clone(), index, value }))
    }
}

/// A value, in shared memory, that is not written again while this lives. Cloning it gives another handle to the same.
///
/// It keeps its reader's mapping alive, and can be sent to another thread.
pub struct Value {
    taking: Arc<Taking>,
    index: usize,
    value: ValueWord,
}

impl Value {
    /// Its version: 1 for the first that was published in the table, and one more for each after it.
    pub const fn version(&self) -> u64 {
        self.value.version()
    }

    /// Whether this process was forked from the one that reads, in which the value is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.taking.member.is_elsewhere()
    }

    /// Whether its memory is page-locked for CUDA, by [`LatestReader::pin_host_memory`].
    pub fn is_pinned(&self) -> bool {
        self.taking.member.table().arrays.is_pinned()
    }

    /// How many arrays it has.
    pub fn arrays(&self) -> usize {
        self.taking.member.table().arrays.arrays()
    }

    /// One array.
    ///
    /// # Panics
    /// If the table has no such array, or in a process that was forked from the one that reads.
    pub fn array(&self, array: usize) -> ArrayView<'_> {
        assert!(
            !self.is_elsewhere(),
            "the memory of this value is that of the process that reads, not of a forked one"
        );
        let table = self.taking.member.table();
        // A block of a latest table is one slot.
        let slot = table.slot(self.value.block.get().into());
        let (start, bytes) = table.arrays.range_ptr(array, slot, 1);
        // SAFETY: so many bytes of the mapping (checked by `range_ptr`), initialised, alive while `self` is. The value is
        // complete and held: no writer that keeps to the protocol writes its block before `drop` lets it go. (One that does
        // not can spoil its own table; see the limits of trust in the documentation.)
        let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
        ArrayView::new(&table.spec.arrays[array], None, bytes)
    }

    /// The array of that path, if the table has it.
    pub fn array_named(&self, path: &str) -> Option<ArrayView<'_>> {
        let index = self.taking.member.spec().arrays.iter().position(|array| array.path == path)?;
        Some(self.array(index))
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        if !self.is_elsewhere()
            && let Some(held) = &mut self.taking.holds().held[self.index]
        {
            held.handles += 1;
        }
        Self { taking: self.taking.clone(), index: self.index, value: self.value }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // Before the lock, which another thread of the parent may hold for ever.
        if self.is_elsewhere() {
            return;
        }
        let mut holds = self.taking.holds();
        let Some(held) = &mut holds.held[self.index] else { return };
        held.handles -= 1;
        if held.handles == 0 {
            hold::let_go(self.taking.line(), self.index);
            holds.held[self.index] = None;
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").field("version", &self.version()).finish_non_exhaustive()
    }
}
