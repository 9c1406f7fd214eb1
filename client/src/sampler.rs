//! The trainer's side of a replay table: batches of samples that were chosen for it.
//!
//! ```text
//! next_batch ──▶ request ──▶ echod chooses, and leases ──▶ gathered by threads of this process ──▶ a batch of its own
//!      ▲             as many ahead as the prefetch depth says                  the leases go back ◀──┘         │
//!      └────────────────────────────────── dropping a batch frees its staging memory ◀────────────────────────┘
//! ```
//!
//! A request is made only where there is staging memory for its answer, so an answer never waits for the trainer, and what is
//! leased of the table is leased for as long as its copy takes. Requests are made ahead from the first
//! [`Sampler::next_batch`] on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use echo::replay::settings::Real;
use echo::ring::buf::Pinned;
use echo::spec::TableSpec;
use echo::table::replay::{MAX_OUTSTANDING, MAX_REQUESTS};
use echo::wire::message::{Answer, Attachment, Call, ItemPriority, MAX_PRIORITIES, MAX_TOKENS, Request};

use crate::connection::Connection;
use crate::gather::Gatherer;
use crate::inbox::{Canceller, Inbox, Sampled};
use crate::member::Member;
use crate::pinning::PinOptions;
use crate::sampled::SampledBatch;
use crate::staging::Staging;
use crate::table::Table;
use crate::wait::{deadline_in, wait};
use crate::{Error, Result};

/// Samples read within so long of those before are told of with the next request.
const QUICK: Duration = Duration::from_millis(1);

/// How a sampler samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SamplerOptions {
    /// Samples in a batch; by default what the table says.
    pub batch: Option<u32>,
    /// How many batches are asked for ahead: while one is used the next ones are gathered. They were chosen by the
    /// priorities of when they were asked for.
    pub prefetch: u16,
    /// Threads that gather. With none, batches are read where they lie, sample by sample, and hold their samples' room until
    /// they are dropped.
    pub threads: u16,
    /// How long a wait polls before it sleeps. See [`ReaderOptions`](crate::ReaderOptions).
    pub poll: Duration,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self { batch: None, prefetch: 2, threads: 1, poll: Duration::ZERO }
    }
}

/// What became of items that were named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// They were there.
    pub applied: u64,
    /// They were gone; their slots may hold newer samples.
    pub skipped: u64,
}

/// The right to sample a replay table. Threads may share it, and then share its batches.
pub struct Sampler {
    // Dropped first: its threads use the rest.
    gatherer: Option<Gatherer>,
    asking: Arc<Asking>,
    poll: Duration,
}

/// What is asked for, and what has come of it.
pub(crate) struct Asking {
    pub(crate) member: Member,
    pub(crate) staging: Option<Arc<Staging>>,
    pub(crate) batch: u32,
    prefetch: usize,
    places: usize,
    state: Mutex<State>,
    /// Held from a request's number to when it is said: numbers ascend.
    saying: Mutex<()>,
}

#[derive(Default)]
struct State {
    last_number: u64,
    /// Places for batches that are free.
    free: Vec<usize>,
    /// Requests that are not answered, and which place each has.
    requested: VecDeque<(u64, usize)>,
    /// Batches that are being gathered.
    gathering: usize,
    /// Batches that nobody has taken, the oldest first.
    ready: VecDeque<Gathered>,
    /// Why nothing more comes.
    failed: Option<String>,
    /// When samples were read last.
    given_back: Option<Instant>,
}

/// A batch in its place, or why there is none.
#[derive(Clone)]
pub(crate) struct Gathered {
    pub(crate) place: usize,
    pub(crate) sampled: Sampled,
}

impl Sampler {
    pub(crate) fn new(
        connection: Arc<Connection>,
        table: Table,
        attachment: &Attachment,
        inbox: Arc<Inbox>,
        options: SamplerOptions,
    ) -> Result<Self> {
        let default = table.spec.replay.as_ref().map_or(1, |settings| settings.batch_size);
        let batch = options.batch.unwrap_or(default).max(1);
        let member = Member::new(connection, table, attachment, inbox);
        if u64::from(batch) > MAX_OUTSTANDING {
            return Err(Error::BatchTooLarge { batch, most: MAX_OUTSTANDING });
        }
        let most = ((MAX_OUTSTANDING / u64::from(batch)) as usize).min(MAX_REQUESTS as usize);
        let prefetch = usize::from(options.prefetch.max(1)).min(most);
        // One more than are on their way: that is with the trainer. If it lies in the table, it is leased as they are.
        let places = match options.threads {
            0 => (prefetch + 1).min(most),
            _ => prefetch + 1,
        };
        let staging = match options.threads {
            0 => None,
            _ => Some(Arc::new(Staging::new(member.table(), batch, places)?)),
        };
        let state = State { free: (0..places).rev().collect(), ..State::default() };
        let (state, saying) = (Mutex::new(state), Mutex::default());
        let asking = Arc::new(Asking { member, staging, batch, prefetch, places, state, saying });
        let gatherer = match &asking.staging {
            Some(staging) => Some(Gatherer::start(&asking, staging, options.threads)?),
            None => None,
        };
        Ok(Self { gatherer, asking, poll: options.poll })
    }

    /// The table's spec.
    pub fn spec(&self) -> &TableSpec {
        self.asking.member.spec()
    }

    /// Samples in a batch.
    pub fn batch_size(&self) -> usize {
        self.asking.batch as usize
    }

    /// Whether this process was forked from the one that attached, in which the sampler is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.asking.member.is_elsewhere()
    }

    /// How many batches are asked for ahead: as the options say, or as many as so large ones may be.
    pub fn prefetch(&self) -> usize {
        self.asking.prefetch
    }

    /// Ends a wait from another thread.
    pub fn canceller(&self) -> Canceller {
        Canceller { inbox: self.asking.member.inbox.clone() }
    }

    /// The next batch. Waits for it at most so long; what was sampled by then, if anything, is then the batch, and
    /// [`SampledBatch::short`] says why that is all. So it is at once where the table has no room for a whole one: a queue
    /// that is shorter than a batch.
    ///
    /// # Errors
    /// [`Error::NoSamples`] if nothing was sampled, with the inequality of the rate limiter that says so;
    /// [`Error::AllHeld`], [`Error::Closed`], [`Error::Gone`], [`Error::Cancelled`], [`Error::Forked`].
    pub fn next_batch(&self, timeout: Duration) -> Result<SampledBatch> {
        if let Some(batch) = self.wait_batch(timeout)? {
            return Ok(batch);
        }
        // What is being gathered, and the answer, come soon.
        let patience = self.asking.member.connection.timeout();
        let (inbox, deadline) = (&self.asking.member.inbox, deadline_in(patience));
        let mut cut = None;
        loop {
            let signal = inbox.observe();
            // Another one if another thread took what came of the first.
            cut = self.cut_oldest(cut)?;
            match self.look() {
                Ok(Some(batch)) => return Ok(batch),
                Ok(None) => {}
                Err(Error::NoSamples { why, .. }) => return Err(Error::NoSamples { after: timeout, why }),
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                return Err(Error::TimedOut { what: "the answer of echod", after: patience });
            }
            wait(&[inbox.signal_word(signal)], self.poll, deadline);
        }
    }

    /// The next batch, if it comes within that time. If not, it is waited for all the same: a next call may get it. For those
    /// who wait piece by piece; [`Sampler::cut`] ends such a wait.
    ///
    /// # Errors
    /// As [`Sampler::next_batch`]; [`Error::NoSamples`] only for a request that was cut.
    pub fn wait_batch(&self, timeout: Duration) -> Result<Option<SampledBatch>> {
        let (inbox, deadline) = (&self.asking.member.inbox, deadline_in(timeout));
        loop {
            // Loaded before the look: see `inbox`.
            let signal = inbox.observe();
            if let Some(batch) = self.look()? {
                return Ok(Some(batch));
            }
            if inbox.take_cancelled() {
                return Err(Error::Cancelled);
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            wait(&[inbox.signal_word(signal)], self.poll, deadline);
        }
    }

    /// Has the oldest request answered with what there is for it: the next batch is then that, or [`Error::NoSamples`].
    ///
    /// # Errors
    /// If the daemon cannot be told.
    pub fn cut(&self) -> Result<()> {
        self.cut_oldest(None).map(drop)
    }

    /// Cuts the oldest request, unless that was cut already or something comes anyway. The one that is cut.
    fn cut_oldest(&self, cut: Option<u64>) -> Result<Option<u64>> {
        let member = &self.asking.member;
        let oldest = self.asking.oldest_request().filter(|_| !self.asking.is_gathering());
        match oldest.filter(|&number| cut != Some(number)) {
            Some(number) => {
                member.connection.say(&Request::CutSample { member: member.id, number })?;
                Ok(Some(number))
            }
            None => Ok(cut),
        }
    }

    /// The next batch, if one is there now. The first call only asks for it.
    ///
    /// # Errors
    /// As [`Sampler::next_batch`].
    pub fn try_next_batch(&self) -> Result<Option<SampledBatch>> {
        self.look()
    }

    /// Asks for what may be asked for, and takes a batch if one is there.
    fn look(&self) -> Result<Option<SampledBatch>> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        loop {
            let asked = self.asking.ask();
            if self.gatherer.is_none() {
                self.asking.take_what_came(|asking, gathered| asking.finish(gathered));
            }
            if let Some(gathered) = self.asking.pop() {
                return self.batch(gathered).map(Some);
            }
            self.asking.member.check_told()?;
            asked?;
            let state = self.asking.state();
            if let Some(why) = &state.failed {
                return Err(Error::Announced(why.clone()));
            }
            if !(state.requested.is_empty() && state.gathering == 0 && state.ready.is_empty()) {
                return Ok(None);
            }
            if state.free.is_empty() {
                return Err(Error::AllHeld { batches: self.asking.places });
            }
            // Another thread has taken the last one since we asked.
        }
    }

    fn batch(&self, gathered: Gathered) -> Result<SampledBatch> {
        let Gathered { place, sampled } = gathered;
        if sampled.items.is_empty() {
            self.asking.free(place);
            let why = sampled.short.unwrap_or_else(|| "nothing was chosen".into());
            return Err(Error::NoSamples { after: Duration::ZERO, why });
        }
        Ok(SampledBatch::new(&self.asking, place, sampled))
    }

    /// Page-locks the memory that batches are gathered into, with the CUDA runtime that is found, until the sampler and its
    /// last batch are gone. See [`Reader::pin_host_memory`](crate::Reader::pin_host_memory); no other process is waited for,
    /// since the memory is this process's own.
    ///
    /// # Errors
    /// [`Error::Pin`], [`Error::Forked`]; [`Error::NotGathered`] if batches are read where they lie.
    pub fn pin_host_memory(&self, options: &PinOptions) -> Result<Pinned> {
        if self.is_elsewhere() {
            return Err(Error::Forked);
        }
        self.asking.staging.as_ref().ok_or(Error::NotGathered)?.pin_host_memory(options)
    }

    /// Sets priorities of items, in the order of the list. Items that are gone are skipped and counted.
    ///
    /// # Errors
    /// [`Error::ItemPriority`] if one is not finite or negative: nothing has changed then. Otherwise as a call.
    pub fn update_priorities(&self, items: &[(u64, f64)]) -> Result<Counted> {
        self.check_priorities(items)?;
        let mut counted = Counted::default();
        for some in items.chunks(MAX_PRIORITIES) {
            counted = counted.and(self.counted(self.priorities(some))?);
        }
        Ok(counted)
    }

    /// As [`Sampler::update_priorities`], without waiting for the answer: what becomes of it the table's details say.
    ///
    /// # Errors
    /// As that, if it cannot be sent.
    pub fn send_priorities(&self, items: &[(u64, f64)]) -> Result<()> {
        self.check_priorities(items)?;
        items
            .chunks(MAX_PRIORITIES)
            .try_for_each(|some| self.asking.member.connection.tell(self.priorities(some)))
    }

    fn check_priorities(&self, items: &[(u64, f64)]) -> Result<()> {
        let wrong = items.iter().position(|&(_, priority)| !(priority.is_finite() && priority >= 0.0));
        match wrong {
            Some(number) => {
                let (key, priority) = items[number];
                Err(Error::ItemPriority { key, number, priority })
            }
            None => Ok(()),
        }
    }

    fn priorities(&self, items: &[(u64, f64)]) -> Call {
        let items =
            items.iter().map(|&(key, priority)| ItemPriority { key, priority: Real(priority) }).collect();
        Call::UpdatePriorities { member: self.asking.member.id, items }
    }

    /// Removes items. Those that are gone are skipped and counted.
    ///
    /// # Errors
    /// As a call.
    pub fn delete_items(&self, keys: &[u64]) -> Result<Counted> {
        let mut counted = Counted::default();
        for some in keys.chunks(MAX_PRIORITIES) {
            let call = Call::DeleteItems { member: self.asking.member.id, keys: some.to_vec() };
            counted = counted.and(self.counted(call)?);
        }
        Ok(counted)
    }

    /// Says which version the trainer's policy has: lags are counted from it, and what lags too far leaves the table. How
    /// many items did.
    ///
    /// # Errors
    /// As a call.
    pub fn state_version(&self, version: u64) -> Result<u64> {
        let call = Call::StateVersion { member: self.asking.member.id, version };
        self.counted(call).map(|counted| counted.applied)
    }

    fn counted(&self, call: Call) -> Result<Counted> {
        let connection = &self.asking.member.connection;
        match connection.call(call, connection.timeout())?.answer {
            Answer::Counted { applied, skipped } => Ok(Counted { applied, skipped }),
            other => Err(Error::Announced(format!("an answer makes no sense here: {other:?}"))),
        }
    }
}

impl Counted {
    const fn and(self, other: Self) -> Self {
        Self { applied: self.applied + other.applied, skipped: self.skipped + other.skipped }
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("table", &self.spec().name).finish_non_exhaustive()
    }
}

impl State {
    /// The place of a request, which is none any more.
    fn requested(&mut self, number: u64) -> Option<usize> {
        let at = self.requested.iter().position(|&(requested, _)| requested == number)?;
        self.requested.remove(at).map(|(_, place)| place)
    }
}

impl Asking {
    fn state(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is changed by single calls that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the requests for whose answers there is a place.
    pub(crate) fn ask(&self) -> Result<()> {
        self.ask_by(|request| self.member.connection.say(request).map(|()| true))
    }

    /// Makes those that can be made without waiting.
    pub(crate) fn ask_now(&self) {
        // What cannot be asked for now is asked for when it is waited for, and the error told there.
        let _ = self.ask_by(|request| self.member.connection.try_say(request));
    }

    fn ask_by(&self, say: impl Fn(&Request) -> Result<bool>) -> Result<()> {
        loop {
            let _alone = self.saying.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.may_ask() {
                return Ok(());
            }
            // After the look: what was on its way until then is told of.
            if !self.say_read(&say)? {
                return Ok(());
            }
            let number = {
                let mut state = self.state();
                let Some(place) = state.free.pop() else { return Ok(()) };
                state.last_number += 1;
                let number = state.last_number;
                // Before it is sent: the answer may come at once.
                state.requested.push_back((number, place));
                number
            };
            let request = Request::Sample { member: self.member.id, number, count: self.batch };
            match say(&request) {
                Ok(true) => {}
                Ok(false) => {
                    self.take_back(number);
                    return Ok(());
                }
                Err(error) => {
                    self.take_back(number);
                    return Err(error);
                }
            }
        }
    }

    /// Whether there is a place for another answer. Nobody else asks meanwhile.
    fn may_ask(&self) -> bool {
        let state = self.state();
        let on_their_way = state.requested.len() + state.gathering + state.ready.len();
        on_their_way < self.prefetch && !state.free.is_empty()
    }

    fn take_back(&self, number: u64) {
        let mut state = self.state();
        if let Some(place) = state.requested(number) {
            state.free.push(place);
        }
    }

    /// A request is answered, and its batch is on its way through the gathering threads. Its place, if it was made.
    fn begin_gathering(&self, number: u64) -> Option<usize> {
        let mut state = self.state();
        let place = state.requested(number)?;
        // In one step: a batch that is on its way is never nowhere.
        state.gathering += 1;
        Some(place)
    }

    /// Whether something comes without being waited for.
    fn is_gathering(&self) -> bool {
        let state = self.state();
        state.gathering > 0 || !state.ready.is_empty()
    }

    fn oldest_request(&self) -> Option<u64> {
        self.state().requested.front().map(|&(number, _)| number)
    }

    /// Takes the answers that came, and has each turned into a batch.
    pub(crate) fn take_what_came(&self, mut turn: impl FnMut(&Self, Gathered)) {
        loop {
            let Some(sampled) = self.member.inbox.state().sampled.pop_front() else { return };
            let slots = self.member.table().arrays.slots();
            let is_none = sampled.items.len() > self.batch as usize
                || sampled.items.iter().any(|item| u64::from(item.slot) >= slots);
            if is_none {
                self.state().failed =
                    Some(format!("answer {} names no samples of this table", sampled.number));
                continue;
            }
            if let Some(place) = self.begin_gathering(sampled.number) {
                turn(self, Gathered { place, sampled });
            }
        }
    }

    /// A batch is ready to be taken.
    pub(crate) fn finish(&self, gathered: Gathered) {
        let mut state = self.state();
        state.gathering -= 1;
        let at = state.ready.partition_point(|ready| ready.sampled.number < gathered.sampled.number);
        state.ready.insert(at, gathered);
    }

    fn pop(&self) -> Option<Gathered> {
        self.state().ready.pop_front()
    }

    /// A place is free again.
    pub(crate) fn free(&self, place: usize) {
        self.state().free.push(place);
    }

    /// The samples of a request were read. Where batches come in quick succession that is said with the next request, of
    /// which there is one soon, so that the daemon wakes once for both; else at once.
    pub(crate) fn give_back(&self, number: u64) {
        let Member { connection, id, inbox, .. } = &self.member;
        let now = Instant::now();
        let last = self.state().given_back.replace(now);
        let is_quick = last.is_some_and(|last| now - last < QUICK);
        inbox.state().read.push(number);
        connection.tell_read(*id, inbox, if is_quick { self.places } else { 1 });
    }

    /// Tells which samples were read. To be done before others are asked for: the daemon counts how many are out.
    fn say_read(&self, say: impl Fn(&Request) -> Result<bool>) -> Result<bool> {
        let read = std::mem::take(&mut self.member.inbox.state().read);
        for (said, numbers) in read.chunks(MAX_TOKENS).enumerate() {
            let request = Request::ReturnSamples { member: self.member.id, numbers: numbers.to_vec() };
            let done = say(&request);
            if !matches!(done, Ok(true)) {
                self.member.inbox.state().read.extend(&read[said * MAX_TOKENS..]);
                return done;
            }
        }
        Ok(true)
    }
}
