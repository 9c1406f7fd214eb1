//! Page-locking what a reader has mapped, so that a signal can end the wait for the turn.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use echo_client::{Error, PinOptions, Pinned};
use pyo3::prelude::*;

use crate::failure;

/// Page-locks by `act`, without the interpreter's lock. Call it before anybody has the reader, since signal handlers run
/// meanwhile.
pub(crate) fn pin(
    py: Python<'_>,
    library: Option<PathBuf>,
    vendor_roots: Vec<PathBuf>,
    act: impl FnOnce(&PinOptions) -> Result<Pinned, Error> + Send,
) -> PyResult<Pinned> {
    let interrupted: Arc<Mutex<Option<PyErr>>> = Arc::default();
    let heard = interrupted.clone();
    let wanted = move || {
        let signals = Python::attach(|py| py.check_signals());
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        *heard = signals.err();
        heard.is_none()
    };
    let options =
        PinOptions { library, vendor_roots, wanted: Some(Arc::new(wanted)), ..PinOptions::default() };
    py.detach(|| act(&options)).map_err(|error| {
        let interrupted = interrupted.lock().unwrap_or_else(PoisonError::into_inner).take();
        interrupted.unwrap_or_else(|| failure::of(py, error))
    })
}
