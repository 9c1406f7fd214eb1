//! The side that takes the newest value of a latest table.
//!
//! A look costs a load and two locks that nobody else wants, and goes without letting go of the interpreter's lock; waits
//! are made of slices. A reader that holds as many values as it may can take no other: the garbage collector is asked,
//! since values in cycles are nobody's, and then that is an error. It is asked as well by one who waits for long and holds
//! something, since what nobody lets go may be what the publisher waits for.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use echo_client::{Canceller, Error, LatestOptions, LatestReader as Inner, Pinned};
use pyo3::prelude::*;

use crate::connection::{Client, Described};
use crate::failure;
use crate::filling::derived;
use crate::late::Late;
use crate::leaf::Leaves;
use crate::lease::{Held, Lease, Taken};
use crate::pending::Pending;
use crate::pinning::pin;
use crate::shown::Shown;
use crate::structure::Structure;
use crate::value::Value;
use crate::waiting::{Patience, SLICE, Token, duration, look};

/// Longest time without a look where an event may let a value go.
const SHORT: Duration = Duration::from_millis(1);

/// Before each look for values that are nobody's: a collection that finds another thread's going on does nothing.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(5)];

/// The right to take the newest value of a latest table. Threads may share it.
#[pyclass(frozen, subclass, module = "echod._native")]
pub(crate) struct LatestReader {
    reader: Inner,
    canceller: Canceller,
    leaves: Arc<Leaves>,
    structure: Py<Structure>,
    table: Arc<str>,
    /// Values that were handed out and not given back.
    held: Arc<Held>,
    pending: Py<Pending>,
    copy: bool,
    pinned: Mutex<Option<Pinned>>,
}

impl LatestReader {
    pub(crate) fn new(
        py: Python<'_>,
        reader: Inner,
        structure: Option<Py<Structure>>,
        copy: bool,
    ) -> PyResult<Self> {
        let leaves = Arc::new(Leaves::new(py, reader.spec())?);
        let structure = structure.map_or_else(|| derived(py, &leaves), Ok)?;
        Ok(Self {
            canceller: reader.canceller(),
            table: reader.spec().name.as_str().into(),
            reader,
            leaves,
            structure,
            held: Arc::default(),
            pending: Py::new(py, Pending::default())?,
            copy,
            pinned: Mutex::default(),
        })
    }

    fn lease(&self, value: echo_client::Value) -> Arc<Lease> {
        Lease::new(Taken::Value(value), &self.held)
    }

    fn value(&self, py: Python<'_>, lease: Arc<Lease>) -> PyResult<Value> {
        let (structure, pending) = (self.structure.clone_ref(py), self.pending.clone_ref(py));
        let shown = Shown::new(lease, self.leaves.clone(), structure, pending, self.table.clone());
        Ok(Value::new(if self.copy { shown.into_copy(py)? } else { shown }))
    }

    /// The newest value, if it is newer. The client's error, if what was wrong is to be judged by who asks.
    #[inline]
    fn at_once(&self, py: Python<'_>, version: u64) -> PyResult<Result<Option<Value>, Error>> {
        if !self.reader.is_elsewhere() && !self.pending.get().is_empty() {
            self.pending.get().poll(py, false)?;
        }
        let mut taken = self.reader.newer_than(version);
        for pause in PAUSES {
            if !matches!(taken, Err(Error::TooManyHeld { .. })) {
                break;
            }
            py.detach(|| std::thread::sleep(pause));
            collect(py)?;
            taken = self.reader.newer_than(version);
        }
        match taken {
            Ok(None) => Ok(Ok(None)),
            Ok(Some(value)) => Ok(Ok(Some(self.value(py, self.lease(value))?))),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Waits while nothing is newer, and while an event may still let one of those go that it holds.
    #[cold]
    fn wait(
        &self,
        py: Python<'_>,
        version: u64,
        timeout: Option<f64>,
        token: Option<&Token>,
    ) -> PyResult<Value> {
        let patience = Patience::new(timeout)?;
        let mut is_collected = false;
        loop {
            look(py, token)?;
            if !is_collected && patience.elapsed() >= SLICE && self.held.now() > 0 {
                is_collected = true;
                collect(py)?;
            }
            let is_pending = self.pending.get().is_hopeful();
            let slice = patience.slice(if is_pending { SHORT } else { SLICE });
            let got = py.detach(|| {
                let value = self.reader.wait_newer_than(version, slice.unwrap_or_default())?;
                Ok(self.lease(value))
            });
            match got {
                Ok(lease) => return self.value(py, lease),
                Err(Error::TimedOut { what, .. }) if slice.is_none() => {
                    let advice = format!(
                        "nothing newer than version {version} has been published; table.info()[\"writers\"] says whether a \
                         publisher is attached, and table.why() what it waits for"
                    );
                    let whole = format!("{what} of table {:?}", self.table);
                    return Err(Late::new(what, &whole, patience.given(), &advice).raise(py));
                }
                Err(Error::TimedOut { .. } | Error::Cancelled) => {}
                Err(Error::TooManyHeld { .. }) if is_pending && slice.is_some() => {
                    // An event is asked every so often, and not as fast as a core can.
                    py.detach(|| std::thread::sleep(slice.unwrap_or_default()));
                }
                Err(error @ Error::TooManyHeld { .. }) => match self.at_once(py, version)? {
                    Ok(Some(value)) => return Ok(value),
                    Ok(None) => {}
                    Err(_) => return Err(failure::of(py, error)),
                },
                Err(error) => return Err(failure::of(py, error)),
            }
            if is_pending {
                self.pending.get().poll(py, false)?;
            }
        }
    }
}

/// Values in cycles (an exception's traceback, say) are nobody's, and nobody else may look for them.
fn collect(py: Python<'_>) -> PyResult<()> {
    py.import("gc")?.call_method0("collect").map(drop)
}

#[pymethods]
impl LatestReader {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what a reader is; named in Python")]
    #[pyo3(signature = (client, table, structure, registrable, poll, copy, arrays=None))]
    fn attach(
        py: Python<'_>,
        client: &Bound<'_, Client>,
        table: String,
        structure: Option<Py<Structure>>,
        registrable: bool,
        poll: f64,
        copy: bool,
        arrays: Option<Vec<Described>>,
    ) -> PyResult<Self> {
        let poll = duration(Some(poll))?.unwrap_or(Duration::MAX);
        client.get().latest(py, table, structure, LatestOptions { poll, registrable }, copy, arrays)
    }

    /// The newest value, or None if nothing has been published; also when the table has ended or the daemon is gone.
    ///
    /// Raises `TooManyHeldError` if the reader holds four others; `ClosedError` or `GoneError` if there is none and none
    /// will come.
    fn get(&self, py: Python<'_>) -> PyResult<Option<Value>> {
        self.newer_than(py, 0)
    }

    /// The newest value if its version is above this one, else None. It asks nobody: nothing newer costs less than a
    /// microsecond, however many readers there are. Raises as `get`.
    fn newer_than(&self, py: Python<'_>, version: u64) -> PyResult<Option<Value>> {
        self.at_once(py, version)?.map_err(|error| failure::of(py, error))
    }

    /// The newest value, once its version is above this one. Waits for it, for ever unless `timeout` says how many
    /// seconds. Raises as `get`, and `TimeoutError`.
    #[pyo3(signature = (version, timeout=None, *, _token=None))]
    fn wait_newer_than(
        &self,
        py: Python<'_>,
        version: u64,
        timeout: Option<f64>,
        _token: Option<&Bound<'_, Token>>,
    ) -> PyResult<Value> {
        match self.at_once(py, version)? {
            Ok(Some(value)) => Ok(value),
            // What can be done about it is done there.
            Ok(None) | Err(Error::TooManyHeld { .. }) => {
                self.wait(py, version, timeout, _token.map(Bound::get))
            }
            Err(error) => Err(failure::of(py, error)),
        }
    }

    /// Ends the wait that is going on, or else the next one, so that its call looks at its token.
    fn _wake(&self) {
        self.canceller.cancel();
    }

    /// Page-locks the values with CUDA. Called before anybody has the reader, since signal handlers may run meanwhile.
    fn _pin(&self, py: Python<'_>, library: Option<PathBuf>, vendor_roots: Vec<PathBuf>) -> PyResult<()> {
        let pinned = pin(py, library, vendor_roots, |options| self.reader.pin_host_memory(options))?;
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).replace(pinned);
        Ok(())
    }

    /// How many of the values that it holds wait for events.
    fn _pending(&self) -> usize {
        self.pending.get().len()
    }

    /// What is page-locked, as (bytes, library, pieces).
    fn _pinned(&self) -> Option<(u64, String, usize)> {
        let pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        pinned.as_ref().map(|pinned| (pinned.bytes, pinned.library.clone(), pinned.pieces))
    }

    /// The newest version, or 0 if nothing has been published. It takes nothing.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        match self.reader.is_elsewhere() {
            true => Err(failure::forked(py)),
            false => Ok(self.reader.version()),
        }
    }

    /// Values that were handed out and not given back yet, one that was handed out twice counted twice.
    #[getter]
    fn held(&self) -> u32 {
        self.held.now()
    }

    /// The name of the table that it reads.
    #[getter]
    fn table_name(&self) -> &str {
        &self.table
    }
}
