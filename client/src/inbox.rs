//! What the daemon told one writer or reader, and how to wake it.
//!
//! A member sleeps on a word in shared memory (its block's state, the table's `space`) *and* on its inbox's
//! signal, in one system call. Whoever has something to say changes the state first and bumps the signal after;
//! the member loads the signal first, then looks at the state, then sleeps while the signal is what it loaded.
//! So no wake is lost: if the bump came before the load, the look came after the change; if it came later, the
//! kernel finds the signal changed, or the wake finds the sleeper.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use echo::ids::{BlockSeq, LeaseToken};
use echo::sync::{AtomicBool, AtomicU32, Ordering, futex_wake_all};
use echo::wire::message::{EndReason, Grant, SampledItem};

use crate::wait::Watched;

/// The answer to one request for samples.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    /// The request's number.
    pub(crate) number: u64,
    /// What was chosen.
    pub(crate) items: Arc<[SampledItem]>,
    /// The probability of the least likely item of the table.
    pub(crate) least: Option<f64>,
    /// Why they are fewer than were wanted.
    pub(crate) short: Option<String>,
}

/// The inbox of one member.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    signal: AtomicU32,
    cancelled: AtomicBool,
}

/// What was told.
#[derive(Default)]
pub(crate) struct InboxState {
    /// Batches granted and not handed out yet, in ascending sequence.
    pub(crate) grants: VecDeque<Grant>,
    /// That the stream ends, why, and with which sequence.
    pub(crate) ended: Option<(EndReason, BlockSeq)>,
    /// Why the connection is gone.
    pub(crate) gone: Option<String>,
    /// It was granted something, or sampled, so it is a reader's.
    pub(crate) reads: bool,
    /// A reader's batches that are out.
    pub(crate) held: Vec<LeaseToken>,
    /// The reader is gone, and takes no more.
    pub(crate) left: bool,
    /// Of a sampler: what was sampled for it, and not handed on yet.
    pub(crate) sampled: VecDeque<Sampled>,
    /// Of a sampler: what came of an answer that comes in several messages.
    pub(crate) arriving: Vec<SampledItem>,
    /// Of a sampler: requests whose samples were read, of which the daemon has not been told.
    pub(crate) read: Vec<u64>,
    /// A reader's batches that came back, of which the daemon has not been told.
    pub(crate) returned: Vec<LeaseToken>,
}

impl InboxState {
    /// A batch to be handed out. One that came back, since another reader died, is older than what was granted before.
    pub(crate) fn add(&mut self, grant: Grant) {
        let place = self.grants.partition_point(|other| other.seq < grant.seq);
        self.grants.insert(place, grant);
    }
}

impl Inbox {
    /// What was told so far.
    pub(crate) fn state(&self) -> MutexGuard<'_, InboxState> {
        // What is behind the lock is changed by single calls that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells something.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut InboxState)) {
        change(&mut self.state());
        self.signal();
    }

    fn signal(&self) {
        // release: pairs with the acquire in `observe`
        self.signal.fetch_add(1, Ordering::Release);
        futex_wake_all(&self.signal);
    }

    /// What the signal is now. To be loaded before looking at the state.
    pub(crate) fn observe(&self) -> u32 {
        // acquire: pairs with the release in `signal`
        self.signal.load(Ordering::Acquire)
    }

    /// The signal, to sleep on while it is what was seen.
    pub(crate) const fn signal_word(&self, seen: u32) -> Watched<'_> {
        Watched::Half(&self.signal, seen)
    }

    /// Whether a wait is to end; asking takes the request back.
    pub(crate) fn take_cancelled(&self) -> bool {
        // Acquire: what the canceller did before is visible to the one who was cancelled.
        self.cancelled.load(Ordering::Relaxed) && self.cancelled.swap(false, Ordering::Acquire)
    }
}

/// Ends waits from another thread.
#[derive(Clone)]
pub struct Canceller {
    pub(crate) inbox: Arc<Inbox>,
}

impl Canceller {
    /// Makes the wait that is going on, or else the next one, fail with [`Error::Cancelled`](crate::Error).
    pub fn cancel(&self) {
        // release: pairs with the acquire in `take_cancelled`
        self.inbox.cancelled.store(true, Ordering::Release);
        self.inbox.signal();
    }
}
