//! A writer, or a publisher, that threads share, a call at a time.
//!
//! ```text
//!            take                        put back
//! at hand ─────────▶ out: copies much,  ──────────▶ at hand      small samples are written at hand, under the lock
//!                    or waits for others
//! ```
//!
//! What always holds: the lock is held for moments. Who copies much, or waits for room or for the daemon, takes the writer
//! out and lets go of the lock; the others stand in line meanwhile, each for as long as it may, and counters can be read.
//! While a claim is open the writer is its thread's: that one is told at once, the others stand in line.
//!
//! No wake is lost: whether the writer is free, and who stands in line, are behind the lock, which a waiter lets go of and
//! sleeps in one step; whoever frees the writer does it under the lock, and wakes all in line after.
//!
//! One that is free may be taken by whoever comes, in line or not, since a change of threads for each sample costs more
//! than the sample; but not once the first in line has waited for [`TURN`].

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use echo::memory::fork::Birthplace;
use echo_client::{ClaimAside, Error, Mark, TableKind, Writer as Inner};
use pyo3::prelude::*;

use crate::failure;
use crate::late::Late;
use crate::waiting::{Patience, SLICE};

const OUT: &str = "taken out until it is dropped";

/// After so long the first in line is the next.
const TURN: Duration = Duration::from_millis(1);

/// A writer, and what claims keep alive: the mapping.
pub(crate) struct WriterCell {
    /// Looked at before the lock: in a child, a thread of the parent's may hold it for ever.
    birthplace: Birthplace,
    /// What it is called, and what it writes to.
    noun: &'static str,
    table: Box<str>,
    kind: TableKind,
    state: Mutex<WriterState>,
    /// The writer was put back, or its claim has ended, or a call was cancelled.
    free: Condvar,
}

pub(crate) struct WriterState {
    /// What it is called.
    noun: &'static str,
    place: Place,
    /// The claim that is open, in `Claim`'s hands, and whose thread's it is.
    open: Option<(ClaimAside, Thread)>,
    finished: bool,
    counts: Counts,
    line: VecDeque<Ticket>,
    last_ticket: u64,
    /// How often those in line were sent to look at their tokens.
    woken: u64,
}

/// What a writer counts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Samples written.
    pub(crate) committed: u64,
    /// How often it waited for room.
    pub(crate) waits: u64,
    /// Of a latest table: the version that it published last.
    pub(crate) version: u64,
}

impl Counts {
    fn of(writer: &Inner) -> Self {
        Self { committed: writer.committed(), waits: writer.waits(), version: writer.version() }
    }
}

enum Place {
    AtHand(Box<Inner>),
    /// With a thread that copies, and comes to an end by itself.
    Copies,
    /// With a thread that waits for others.
    Waits,
}

/// A thread, as the kernel and Python's `get_native_id` number it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread(pub(crate) i32);

impl Thread {
    pub(crate) fn this() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }
}

/// Who wants the writer.
#[derive(Clone, Copy)]
enum Comes {
    /// One who stands in line, with that number.
    InLine(u64),
    /// One who does not yet.
    New,
    /// One who cannot wait, and holds up nobody for longer than a call.
    Between,
}

struct Ticket {
    number: u64,
    since: Instant,
}

/// Why nothing was written, or nothing more.
pub(crate) enum Stop {
    Failed(Error),
    /// Its time is over.
    Late(Box<Late>),
    /// It has finished; it is called so.
    Finished(&'static str),
    /// A claim of it is open in this thread; it is called so.
    Open(&'static str),
    /// The claim is not its own any more; it is called so.
    Lost(&'static str),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Stop {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Failed(error) => failure::of(py, error),
            Self::Late(late) => late.raise(py),
            Self::Finished(noun) => {
                let message = format!("this {noun} has finished: attach another");
                failure::raise(py, "FinishedError", &message, &[])
            }
            Self::Lost(noun) => {
                let message = format!("this {noun} has lost its claim, and nothing of it was committed");
                failure::raise(py, "ClaimError", &message, &[])
            }
            Self::Open(noun) => {
                let message = format!("a claim of this {noun} is open in this thread: end it first");
                failure::raise(py, "ClaimError", &message, &[])
            }
        }
    }
}

impl WriterCell {
    pub(crate) fn new(writer: Inner, noun: &'static str) -> Self {
        let (table, kind) = (writer.spec().name.as_str().into(), writer.spec().kind);
        let state = WriterState {
            noun,
            counts: Counts::of(&writer),
            place: Place::AtHand(Box::new(writer)),
            open: None,
            finished: false,
            line: VecDeque::new(),
            last_ticket: 0,
            woken: 0,
        };
        Self {
            birthplace: Birthplace::here(),
            noun,
            table,
            kind,
            state: Mutex::new(state),
            free: Condvar::new(),
        }
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        self.birthplace.is_elsewhere()
    }

    /// The state, which is held for a moment. Nobody runs Python code or waits for anything while holding it.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, WriterState>, Stop> {
        match self.is_elsewhere() {
            true => Err(Stop::Failed(Error::Forked)),
            false => Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// The state, if nobody looks at it just now.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, WriterState>> {
        if self.is_elsewhere() { None } else { self.state.try_lock().ok() }
    }

    /// The place of this call among the others, for as long as it lasts.
    pub(crate) fn line(&self) -> Line<'_> {
        Line { cell: self, caller: None, ticket: None }
    }

    /// That of another thread's call.
    pub(crate) const fn line_of(&self, caller: Thread) -> Line<'_> {
        Line { cell: self, caller: Some(caller), ticket: None }
    }

    /// What a call says whose time is over.
    pub(crate) fn late(&self, patience: Patience) -> Stop {
        let is_claimed = self.lock().is_ok_and(|state| state.is_claimed());
        let Self { noun, table, kind, .. } = self;
        let given = patience.given();
        let late = match (is_claimed, kind) {
            (true, _) => Late::new(
                "waiting for a claim that another thread has open",
                &format!(
                    "waiting for a claim of this {noun} of table {table:?}, which another thread has open,"
                ),
                given,
                &format!("end it there, or attach a {noun} for each thread"),
            ),
            (false, kind) => {
                let advice = match kind {
                    TableKind::Queue => {
                        "no reader gives batches back, or none is attached; table.why() says who holds them, and \
                         writer(timeout=...) waits longer"
                    }
                    TableKind::Latest => {
                        "readers hold every older value; table.why() says who, create_latest(capacity=...) has room \
                         for more, and publisher(timeout=...) waits longer"
                    }
                    TableKind::Replay => {
                        "the rate limiter lets nothing in until somebody samples, or enough is on its way; table.why() \
                         says which, and writer(timeout=...) waits longer"
                    }
                };
                Late::new("waiting for room", &format!("waiting for room in table {table:?}"), given, advice)
            }
        };
        Stop::Late(Box::new(late))
    }

    /// Lets those in line look at their tokens.
    pub(crate) fn wake(&self) {
        if let Ok(mut state) = self.lock() {
            state.woken += 1;
            self.free.notify_all();
        }
    }

    /// Ends the claim that is open: by a commit, for which that is said of each sample, or by giving it up, of which the
    /// daemon is told. What it has counted then.
    pub(crate) fn end(&self, aside: ClaimAside, marks: &[Mark], commit: bool) -> Result<Counts, Stop> {
        let writer = match std::mem::replace(&mut self.lock()?.place, Place::Waits) {
            Place::AtHand(writer) => writer,
            // Nobody takes the writer out while a claim is open, but one who ends it.
            Place::Copies | Place::Waits => return Ok(self.lock()?.counts()),
        };
        let mut out = Out { cell: self, writer: Some(writer), opened: None, finished: false };
        match out.writer.as_mut().expect(OUT).resume(aside) {
            Some(mut claim) if commit => {
                for (i, &mark) in marks.iter().enumerate() {
                    claim.set_mark(i, mark)?;
                }
                claim.commit()?;
            }
            // Dropping it gives the room to others.
            Some(claim) => drop(claim),
            None if commit => return Err(Stop::Lost(self.noun)),
            None => {}
        }
        Ok(out.counts())
    }

    fn say(&self, place: Place) {
        if let Ok(mut state) = self.lock() {
            state.place = place;
        }
    }

    fn tell(&self, state: &WriterState) {
        if !state.line.is_empty() {
            self.free.notify_all();
        }
    }
}

impl WriterState {
    fn at_hand(&mut self) -> Option<&mut Inner> {
        match &mut self.place {
            Place::AtHand(writer) => Some(writer),
            Place::Copies | Place::Waits => None,
        }
    }

    /// The writer, if this thread may use it now.
    #[inline]
    fn usable(&mut self, comes: Comes, caller: impl FnOnce() -> Thread) -> Result<Option<&mut Inner>, Stop> {
        if self.finished {
            return Err(Stop::Finished(self.noun));
        }
        match &self.open {
            Some((_, whose)) if *whose == caller() => return Err(Stop::Open(self.noun)),
            Some(_) => return Ok(None),
            None => {}
        }
        let must_wait = |first: &Ticket| match comes {
            Comes::Between => false,
            Comes::New => first.since.elapsed() >= TURN,
            Comes::InLine(number) => first.number != number && first.since.elapsed() >= TURN,
        };
        if self.line.front().is_some_and(must_wait) {
            return Ok(None);
        }
        Ok(self.at_hand())
    }

    /// The writer, for one who writes a little while holding the lock. None if others have it, or come first.
    #[inline]
    pub(crate) fn usable_now(&mut self) -> Result<Option<&mut Inner>, Stop> {
        self.usable(Comes::New, Thread::this)
    }

    /// Notes what the writer counts.
    #[inline]
    pub(crate) fn count(&mut self) {
        if let Place::AtHand(writer) = &self.place {
            self.counts = Counts::of(writer);
        }
    }

    /// Whether the thread that has it waits for room, or for the daemon.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Waits)
    }

    pub(crate) const fn is_claimed(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// What the writer counted when it was at hand last.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }
}

/// A call's place in line.
pub(crate) struct Line<'c> {
    cell: &'c WriterCell,
    /// None is whoever calls.
    caller: Option<Thread>,
    ticket: Option<u64>,
}

impl<'c> Line<'c> {
    /// Takes the writer out, waiting for it at most so long; one who waits not at all waits for those who only copy. None if
    /// others have it until then, or if there may be a reason to wait no more.
    pub(crate) fn take(&mut self, longest: Duration) -> Result<Option<Out<'c>>, Stop> {
        let deadline = Instant::now().checked_add(longest);
        let mut state = self.cell.lock()?;
        let woken = state.woken;
        loop {
            let comes = match self.ticket {
                Some(number) => Comes::InLine(number),
                None if longest.is_zero() => Comes::Between,
                None => Comes::New,
            };
            if state.usable(comes, || self.caller.unwrap_or_else(Thread::this))?.is_some()
                && let Place::AtHand(writer) = std::mem::replace(&mut state.place, Place::Copies)
            {
                self.leave(&mut state);
                return Ok(Some(Out {
                    cell: self.cell,
                    writer: Some(writer),
                    opened: None,
                    finished: false,
                }));
            }
            if state.woken != woken {
                return Ok(None);
            }
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            let left = match (&state.place, left) {
                (Place::Copies, Duration::ZERO) => SLICE,
                (_, Duration::ZERO) => return Ok(None),
                (_, left) => left.min(SLICE),
            };
            if self.ticket.is_none() {
                state.last_ticket += 1;
                self.ticket = Some(state.last_ticket);
                let ticket = Ticket { number: state.last_ticket, since: Instant::now() };
                state.line.push_back(ticket);
            }
            state = self.cell.free.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn leave(&mut self, state: &mut WriterState) {
        if let Some(ticket) = self.ticket.take() {
            state.line.retain(|other| other.number != ticket);
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.ticket.is_some()
            && let Ok(mut state) = self.cell.lock()
        {
            self.leave(&mut state);
            // It may have been told of what the next one waits for.
            self.cell.tell(&state);
        }
    }
}

/// The writer, in the hands of one thread. Dropping it puts it back.
pub(crate) struct Out<'c> {
    cell: &'c WriterCell,
    /// None when it is put back.
    writer: Option<Box<Inner>>,
    opened: Option<(ClaimAside, Thread)>,
    finished: bool,
}

impl Out<'_> {
    /// Claims room for so many samples at most, waiting for it at most so long. None if there is none until then.
    pub(crate) fn claim(
        &mut self,
        wanted: u32,
        longest: Duration,
    ) -> Result<Option<echo_client::Claim<'_>>, Stop> {
        let Self { cell, writer, .. } = self;
        let writer = writer.as_mut().expect(OUT);
        cell.say(Place::Waits);
        writer.set_timeout(longest);
        let claimed = writer.claim(wanted);
        cell.say(Place::Copies);
        match claimed {
            Ok(claim) => Ok(Some(claim)),
            Err(Error::TimedOut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What it has counted.
    pub(crate) fn counts(&self) -> Counts {
        Counts::of(self.writer.as_ref().expect(OUT))
    }

    /// Claims room that is there.
    pub(crate) fn try_claim(&mut self, wanted: u32) -> Result<Option<echo_client::Claim<'_>>, Stop> {
        Ok(self.writer.as_mut().expect(OUT).try_claim(wanted)?)
    }

    /// Leaves a claim open that was put aside, as that thread's.
    pub(crate) fn keep_open(mut self, aside: ClaimAside, whose: Thread) {
        self.opened = Some((aside, whose));
    }

    /// Says that this writer writes no more.
    pub(crate) fn finish(mut self) -> Result<(), Stop> {
        self.cell.say(Place::Waits);
        self.writer.as_ref().expect(OUT).say_finished()?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Out<'_> {
    fn drop(&mut self) {
        let Ok(mut state) = self.cell.lock() else { return };
        if let Some(writer) = self.writer.take() {
            state.place = Place::AtHand(writer);
        }
        state.open = self.opened.take();
        state.finished |= self.finished;
        state.count();
        self.cell.tell(&state);
    }
}
