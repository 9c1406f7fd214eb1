//! The worker's side: samples in.
//!
//! ```text
//! claim ──▶ write each array ──▶ commit          no system call, no lock, no allocation
//!   └─ no room: sleep on `space` and on the inbox, until room, an end, a cancel or the deadline
//! ```
//!
//! A latest table is written by the same steps ([`publisher`](crate::Publisher)), with two differences. What was claimed and
//! not committed stays this writer's, and is what it claims next: there is nobody else to whom it could be offered, and
//! values are published in the order in which they were claimed. And room comes when the daemon looks which values nobody
//! holds, so it is told where that is wanted. In a replay table room comes when the daemon looks, too, and samples have
//! [marks](echo::ring::marks).

use std::sync::Arc;
use std::time::{Duration, Instant};

use echo::ids::MemberId;
use echo::ring::claim::{Attempt, Claim as Claimed, Claimer};
use echo::ring::commit::{commit, commit_newest};
use echo::ring::marks::{self, Mark};
use echo::ring::record::{Record, RecordedClaim};
use echo::ring::space;
use echo::spec::{TableKind, TableSpec};
use echo::sync::{Ordering, expect_write};
use echo::wire::message::{Attachment, Call};

use crate::claim::{Claim, ClaimAside};
use crate::connection::Connection;
use crate::inbox::{Canceller, Inbox};
use crate::member::Member;
use crate::table::Table;
use crate::wait::{Watched, deadline_in, wait};
use crate::{Error, Result};

/// The right to write samples into a table. One claim at a time: attach a writer for each thread that writes.
pub struct Writer {
    member: Member,
    record: u32,
    claimer: Claimer,
    timeout: Duration,
    poll: Duration,
    committed: u64,
    waits: u64,
    wakes: u64,
    /// A claim that was given up, until the daemon has taken it over.
    dropping: bool,
    /// Of a latest table.
    latest: Option<Publishing>,
    /// Of a replay table.
    marks: bool,
}

/// What a writer of a latest table knows beside.
#[derive(Default)]
struct Publishing {
    /// What is claimed and not committed.
    open: Option<Claimed>,
    /// The version that it published last, or 0.
    version: u64,
}

impl Writer {
    pub(crate) fn new(
        connection: Arc<Connection>,
        table: Table,
        attachment: &Attachment,
        inbox: Arc<Inbox>,
    ) -> Result<Self> {
        let member = Member::new(connection, table, attachment, inbox);
        let record = attachment.record;
        if member.connection.record(record).is_none() {
            return Err(Error::Announced(format!("record {record} is none of the client page's")));
        }
        let (claimer, timeout) = (Claimer::new(member.table().blocks), member.connection.timeout());
        let latest = (member.spec().kind == TableKind::Latest).then(Publishing::default);
        let marks = member.spec().kind == TableKind::Replay;
        let (poll, dropping) = (Duration::ZERO, false);
        Ok(Self {
            member,
            record,
            claimer,
            timeout,
            poll,
            committed: 0,
            waits: 0,
            wakes: 0,
            dropping,
            latest,
            marks,
        })
    }

    fn record(&self) -> Record<'_> {
        self.member.connection.record(self.record).expect("checked when it was attached")
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.member.spec()
    }

    /// How long a call may wait for room. The connection's timeout, unless it is set here.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// How long a wait for room polls before it sleeps. Not at all, unless it is set here.
    pub const fn set_poll(&mut self, poll: Duration) {
        self.poll = poll;
    }

    /// Samples committed so far.
    pub const fn committed(&self) -> u64 {
        self.committed
    }

    /// How often it waited for room.
    pub const fn waits(&self) -> u64 {
        self.waits
    }

    /// How often it woke a reader: at most once a batch.
    pub const fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { inbox: self.member.inbox.clone() }
    }

    /// Writes one sample: the bytes of each array, in the order of the spec. When this returns, the sample will
    /// be delivered, whatever dies afterwards. Waits for room if there is none.
    ///
    /// # Errors
    /// If the lengths are not those of the spec, if there is no room in time, if the table has ended, or if the
    /// daemon is gone and what it had allowed is used up. The sample is then not written.
    pub fn append(&mut self, sample: &[&[u8]]) -> Result<()> {
        self.check(1, sample)?;
        self.write(1, sample, &[], Some(self.timeout)).map(drop)
    }

    /// Writes one sample, if there is room now. False if there is none.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn try_append(&mut self, sample: &[&[u8]]) -> Result<bool> {
        self.check(1, sample)?;
        Ok(self.write(1, sample, &[], None)? == 1)
    }

    /// As [`Writer::try_append`], and says something of the sample.
    pub(crate) fn try_append_marked(&mut self, sample: &[&[u8]], marks: &[Mark]) -> Result<bool> {
        self.check(1, sample)?;
        Ok(self.write(1, sample, marks, None)? == 1)
    }

    /// As [`Writer::append_many`], and says something of each sample, or of none.
    pub(crate) fn append_marked(&mut self, n: usize, samples: &[&[u8]], marks: &[Mark]) -> Result<()> {
        self.check(n, samples)?;
        self.write(n, samples, marks, Some(self.timeout)).map(drop)
    }

    /// Writes `n` samples: of each array the bytes of `n` samples in a row, as a vectorised environment gives
    /// them. They are neighbours in as few pieces as possible; other workers' samples may come between those.
    ///
    /// # Errors
    /// As [`Writer::append`]; [`Error::Partly`] if some of them were written.
    pub fn append_many(&mut self, n: usize, samples: &[&[u8]]) -> Result<()> {
        self.check(n, samples)?;
        self.write(n, samples, &[], Some(self.timeout)).map(drop)
    }

    /// Claims room for up to `n` samples (at least one, all in one batch) to be filled in place, and then
    /// committed. Dropping it gives the room to others. Waits for room if there is none.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn claim(&mut self, n: u32) -> Result<Claim<'_>> {
        let timeout = self.timeout;
        let claimed = self.obtain(n, Some(timeout), Instant::now())?;
        let claimed = claimed.ok_or(Error::TimedOut { what: "waiting for room", after: timeout })?;
        self.expect_bytes(&claimed);
        Ok(Claim::begin(self, claimed))
    }

    /// As [`Writer::claim`], if there is room now.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn try_claim(&mut self, n: u32) -> Result<Option<Claim<'_>>> {
        // Without the clock, which costs as much as a small sample.
        let claimed = match self.attempt(n)? {
            Attempt::Claimed(claimed) => Some(claimed),
            Attempt::Full(_) | Attempt::Closed(_) => self.obtain(n, None, Instant::now())?,
        };
        Ok(claimed.map(|claimed| Claim::begin(self, claimed)))
    }

    /// Takes up a claim that was put aside. None if it is another writer's, or is not open any more.
    pub fn resume(&mut self, aside: ClaimAside) -> Option<Claim<'_>> {
        let open = RecordedClaim::decode(self.record().claim().load(Ordering::Relaxed));
        let is_open = open.is_some_and(|open| open.position == aside.claimed.position && !open.dropped);
        (self.member.id == aside.member && is_open).then(|| Claim::new(self, aside.claimed))
    }

    /// Says that this writer commits no more samples. When every writer of the table has said so, what is left
    /// is delivered and the table ends.
    ///
    /// # Errors
    /// If the daemon cannot be told.
    pub fn finish(self) -> Result<()> {
        self.say_finished()
    }

    /// As [`Writer::finish`], for one who must keep the memory mapped a little longer. What is still written after it
    /// may not be delivered.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn say_finished(&self) -> Result<()> {
        let call = Call::FinishWriter { member: self.member.id };
        self.member.connection.call(call, self.member.connection.timeout()).map(drop)
    }

    fn check(&self, n: usize, samples: &[&[u8]]) -> Result<()> {
        let table = self.member.table();
        let arrays = table.arrays.arrays();
        if samples.len() != arrays {
            return Err(Error::Arrays { expected: arrays, got: samples.len() });
        }
        for (i, bytes) in samples.iter().enumerate() {
            // A product that overflows is no slice's length either.
            let expected = table.arrays.slot_bytes(i).saturating_mul(n);
            if bytes.len() != expected {
                let array = table.spec.arrays[i].path.clone();
                return Err(Error::Length { array, samples: n, expected, got: bytes.len() });
            }
        }
        Ok(())
    }

    /// Writes samples whose lengths were checked, in pieces. How many, where not all could be without waiting.
    fn write(
        &mut self,
        n: usize,
        samples: &[&[u8]],
        marks: &[Mark],
        timeout: Option<Duration>,
    ) -> Result<usize> {
        // Read only once there is something to wait for: a clock costs as much as a small sample.
        let mut started = None;
        let mut done = 0;
        while done < n {
            let wanted = u32::try_from(n - done).unwrap_or(u32::MAX);
            let piece = match self.attempt(wanted) {
                Ok(Attempt::Claimed(claimed)) => Ok(Some(claimed)),
                Ok(_) => {
                    let started = *started.get_or_insert_with(Instant::now);
                    self.obtain(wanted, timeout, started)
                }
                Err(error) => Err(error),
            };
            let piece = piece.and_then(|piece| match (piece, timeout) {
                (None, Some(after)) => Err(Error::TimedOut { what: "waiting for room", after }),
                (piece, _) => Ok(piece),
            });
            match piece
                .and_then(|piece| piece.map(|piece| self.fill(&piece, done, samples, marks)).transpose())
            {
                Ok(Some(written)) => done += written,
                Ok(None) => break,
                Err(source) if done > 0 => {
                    return Err(Error::Partly { done, of: n, source: Box::new(source) });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Copies samples into what was claimed, and commits them.
    fn fill(&mut self, claimed: &Claimed, done: usize, samples: &[&[u8]], marks: &[Mark]) -> Result<usize> {
        let (table, length) = (self.member.table(), claimed.length as usize);
        let first = table.slot(claimed.first_slot(&table.control));
        for (i, bytes) in samples.iter().enumerate() {
            let (target, size) = table.arrays.range_ptr(i, first, claimed.length);
            let source = &bytes[done * table.arrays.slot_bytes(i)..][..size];
            // SAFETY: the source is `size` bytes long. The target is as many bytes of the table's writable
            // mapping (checked by `range_ptr`), apart from every slice of this process but those of a batch, and
            // no batch is of a block that is not complete. These slots are ours alone until we commit: that is
            // what a claim is.
            unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target.cast_mut(), size) };
        }
        if self.marks {
            for i in 0..length {
                let mark = marks.get(done + i).copied().unwrap_or_default();
                marks::write(&table.control, claimed.block, claimed.slot + i as u32, &mark);
            }
        }
        self.commit(claimed)?;
        Ok(length)
    }

    /// Asks for the first lines of what was claimed: the last who had them is the reader of a lap ago.
    fn expect_bytes(&self, claimed: &Claimed) {
        /// Arrays for which that is worth it: a core has so many lines on their way.
        const FEW: usize = 8;
        let table = self.member.table();
        let first = table.slot(claimed.first_slot(&table.control));
        for array in 0..table.arrays.arrays().min(FEW) {
            let (target, size) = table.arrays.range_ptr(array, first, claimed.length);
            if size > 0 {
                expect_write(target);
            }
        }
    }

    /// One attempt to claim, without waiting.
    fn attempt(&mut self, wanted: u32) -> Result<Attempt> {
        if self.member.connection.is_elsewhere() {
            return Err(Error::Forked);
        }
        if let Some(open) = self.latest.as_ref().and_then(|latest| latest.open) {
            return Ok(Attempt::Claimed(open));
        }
        // Not by `record`, which borrows all of the writer.
        let record = self.member.connection.record(self.record).expect("checked when it was attached");
        let table = self.member.table();
        if self.dropping {
            // The record is the daemon's until it has cleared it; it then offers the hole, and bumps `space`.
            let seen = space::observe(&table.control);
            // acquire: pairs with the daemon's release when it has taken the claim over
            if record.claim().load(Ordering::Acquire) != 0 {
                return Ok(Attempt::Full(seen));
            }
            self.dropping = false;
        } else if let Some(left) = RecordedClaim::decode(record.claim().load(Ordering::Relaxed)) {
            // A claim that was forgotten, or could not be committed: it is given up before there is another.
            let seen = space::observe(&table.control);
            self.give_up(left);
            return Ok(Attempt::Full(seen));
        }
        let attempt = self.claimer.try_claim(&table.control, record, wanted)?;
        if let (Some(latest), Attempt::Claimed(claimed)) = (&mut self.latest, attempt) {
            latest.open = Some(claimed);
        }
        Ok(attempt)
    }

    /// Claims, waiting for room. None if there is none in time.
    fn obtain(
        &mut self,
        wanted: u32,
        timeout: Option<Duration>,
        started: Instant,
    ) -> Result<Option<Claimed>> {
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout));
        loop {
            // Loaded before the look: see `inbox`.
            let signal = self.member.inbox.observe();
            let space = match self.attempt(wanted)? {
                Attempt::Claimed(claimed) => return Ok(Some(claimed)),
                Attempt::Full(seen) | Attempt::Closed(seen) => seen,
            };
            self.check_told()?;
            match timeout {
                Some(timeout) if started.elapsed() < timeout => {}
                _ => return Ok(None),
            }
            if self.latest.is_some() || self.marks {
                self.ask_for_room();
            }
            self.wait(space, signal, deadline.unwrap_or_else(|| deadline_in(Duration::MAX)));
        }
    }

    /// What was told that makes waiting pointless.
    fn check_told(&self) -> Result<()> {
        if self.member.inbox.take_cancelled() {
            return Err(Error::Cancelled);
        }
        self.member.check_told()
    }

    /// Lets the daemon look for room at once, and not when it would anyway.
    fn ask_for_room(&self) {
        self.member.connection.hint(Call::NeedSpace { member: self.member.id });
    }

    /// Room for the next sample is found while that is made.
    fn ask_for_room_if_none(&self) {
        let control = &self.member.table().control;
        if control.cursor().load(Ordering::Relaxed) >= control.limit().load(Ordering::Relaxed) {
            self.ask_for_room();
        }
    }

    fn wait(&mut self, space: u32, signal: u32, deadline: Instant) {
        self.waits += 1;
        let record = self.record();
        // Relaxed: for people who ask what is going on.
        record.waits().store(self.waits, Ordering::Relaxed);
        record.waiting().store(1, Ordering::Relaxed);
        let space = Watched::Half(self.member.table().control.space(), space);
        wait(&[space, self.member.inbox.signal_word(signal)], self.poll, deadline);
        record.waiting().store(0, Ordering::Relaxed);
    }

    /// Commits what was claimed and written.
    pub(crate) fn commit(&mut self, claimed: &Claimed) -> Result<()> {
        if self.member.connection.is_elsewhere() {
            return Err(Error::Forked);
        }
        let control = &self.member.table().control;
        let record = self.record();
        if self.latest.is_some() {
            commit_newest(control, record, claimed)?;
            self.ask_for_room_if_none();
            self.latest = Some(Publishing { open: None, version: claimed.seq.0 + 1 });
        } else {
            let completion = commit(control, record, claimed)?;
            if self.marks {
                self.ask_for_room_if_none();
            }
            if completion.woke {
                self.wakes += 1;
                self.record().wakes().store(self.wakes, Ordering::Relaxed);
            }
        }
        self.committed += u64::from(claimed.length);
        // Relaxed: for people who ask what is going on.
        self.record().committed().store(self.committed, Ordering::Relaxed);
        Ok(())
    }

    /// Of a latest table: the version that it published last, or 0.
    pub fn version(&self) -> u64 {
        self.latest.as_ref().map_or(0, |latest| latest.version)
    }

    /// Gives up what was claimed, unless it is claimed again next.
    pub(crate) fn abandon(&mut self, claimed: &Claimed) {
        if self.member.connection.is_elsewhere() || self.latest.is_some() {
            return;
        }
        self.give_up(RecordedClaim { position: claimed.position, length: claimed.length, dropped: false });
    }

    fn give_up(&mut self, claim: RecordedClaim) {
        let dropped = RecordedClaim { dropped: true, ..claim };
        // release: the daemon acquires the record. Marked before it is said: if this process dies in between,
        // the daemon finds the mark.
        self.record().claim().store(dropped.encode(), Ordering::Release);
        self.dropping = true;
        // A daemon that cannot be told finds the mark when it looks.
        let _ = self.member.connection.tell(Call::DropClaim { member: self.member.id });
    }

    /// Whether this process was forked from the one that attached, in which the writer is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.member.connection.is_elsewhere()
    }

    /// Whether it writes into a replay table, where something is said of each sample.
    pub(crate) const fn says_marks(&self) -> bool {
        self.marks
    }

    pub(crate) const fn member(&self) -> MemberId {
        self.member.id
    }

    pub(crate) fn table(&self) -> &Table {
        self.member.table()
    }
}
