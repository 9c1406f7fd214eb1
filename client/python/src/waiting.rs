//! Waits that a signal or another thread can end.
//!
//! A wait is made of slices: without the interpreter's lock for at most [`SLICE`], then a look whether a signal came
//! (KeyboardInterrupt) or the wait was cancelled. No lock of ours is held while signal handlers run.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use echo::sync::{AtomicBool, Ordering};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failure;
use crate::late::Whose;

/// Longest time without a look.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// Cancels one call of a reader or writer, from another thread.
#[pyclass(frozen, module = "echod._native")]
#[derive(Default)]
pub(crate) struct Token {
    cancelled: AtomicBool,
}

#[pymethods]
impl Token {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends the call at its next look.
    fn cancel(&self) {
        // Relaxed: the call looks again and again, and nothing else hangs on it.
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Token {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// How long something may still take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    started: Instant,
    timeout: Option<Duration>,
    whose: Whose,
}

impl Patience {
    /// Seconds from now, as the call says; `None` is for ever.
    pub(crate) fn new(seconds: Option<f64>) -> PyResult<Self> {
        Self::of(seconds, Whose::Call)
    }

    /// As somebody says.
    pub(crate) fn of(seconds: Option<f64>, whose: Whose) -> PyResult<Self> {
        Ok(Self { started: Instant::now(), timeout: duration(seconds)?, whose })
    }

    /// The next slice; `None` when the time is over.
    pub(crate) fn slice(&self, longest: Duration) -> Option<Duration> {
        match self.timeout {
            None => Some(longest),
            Some(timeout) => {
                let left = timeout.saturating_sub(self.started.elapsed());
                (!left.is_zero()).then(|| left.min(longest))
            }
        }
    }

    /// All of the time that was given.
    pub(crate) fn total(&self) -> Duration {
        self.timeout.unwrap_or(Duration::MAX)
    }

    /// That, and who gave it.
    pub(crate) fn given(&self) -> (Duration, Whose) {
        (self.total(), self.whose)
    }

    /// How long it has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Seconds as a duration; `None` for none and for infinity.
pub(crate) fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds == f64::INFINITY => Ok(None),
        Some(seconds) if seconds >= 0.0 => {
            // What does not fit is as good as for ever.
            Ok(Duration::try_from_secs_f64(seconds).ok())
        }
        Some(seconds) => Err(PyValueError::new_err(format!("a timeout is 0 seconds or more, not {seconds}"))),
    }
}

/// Looks whether a signal came or the call was cancelled.
pub(crate) fn look(py: Python<'_>, token: Option<&Token>) -> PyResult<()> {
    py.check_signals()?;
    if token.is_some_and(Token::is_cancelled) {
        return Err(failure::of(py, echo_client::Error::Cancelled));
    }
    Ok(())
}

/// Asks the daemon, so that a signal can end the wait for it. What is answered after that is dropped.
pub(crate) fn ask<T: Send + 'static>(
    py: Python<'_>,
    act: impl FnOnce() -> echo_client::Result<T> + Send + 'static,
) -> PyResult<T> {
    interruptible(py, act)?.map_err(|error| failure::of(py, error))
}

/// Does something in a thread, and waits for it unless a signal comes. It goes on then, and what came of it is dropped.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    act: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    interruptible_telling(py, act, || Ok(()))
}

/// As [`interruptible`]; this thread calls `tell` from time to time, which may end the wait.
pub(crate) fn interruptible_telling<T: Send + 'static>(
    py: Python<'_>,
    act: impl FnOnce() -> T + Send + 'static,
    mut tell: impl FnMut() -> PyResult<()>,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    std::thread::Builder::new()
        .name("echod-call".into())
        // If nobody waits any more, what came is dropped here.
        .spawn(move || drop(sender.send(act())))
        .map_err(|error| failure::of(py, echo_client::Error::Thread(error)))?;
    // A receiver is not to be shared between threads; here it is only lent to a closure that runs in this one.
    let receiver = Mutex::new(receiver);
    loop {
        let got = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        match got {
            Ok(result) => {
                tell()?;
                return Ok(result);
            }
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                tell()?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failure::raise(py, "Error", "the call ended without an answer", &[]));
            }
        }
    }
}
