//! Errors, as exceptions of the classes in `echod._errors`: a sentence, and its numbers as attributes.

use std::error::Error as _;

use echo_client::Error;
use echo_client::host_pinning::{PinError, Rung};
use echo_client::message::{EndReason, RefusalKind};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An exception of that class, with these attributes.
pub(crate) fn raise<'py>(
    py: Python<'py>,
    class: &str,
    message: &str,
    attributes: &[(&str, Bound<'py, PyAny>)],
) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let class = py.import("echod._errors")?.getattr(class)?;
        let named = PyDict::new(py);
        for (name, value) in attributes {
            named.set_item(name, value)?;
        }
        Ok(PyErr::from_value(class.call((message,), Some(&named))?))
    };
    made().unwrap_or_else(|error| error)
}

/// A child process has used what its parent made.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    of(py, Error::Forked)
}

/// What the client says, as an exception.
pub(crate) fn of(py: Python<'_>, error: Error) -> PyErr {
    let mut message = error.to_string();
    let mut source = match &error {
        // Its message has its cause's.
        Error::Partly { source, .. } => source.source(),
        _ => error.source(),
    };
    while let Some(cause) = source {
        message += &format!(": {cause}");
        source = cause.source();
    }
    let any = |value: Option<&str>| value.into_pyobject(py).expect("a text is one");
    let number = |value: usize| value.into_pyobject(py).expect("a number is one").into_any();
    match error {
        Error::NoDaemon { tried } => raise(py, "NoDaemonError", &message, &[("tried", any(Some(&tried)))]),
        Error::Connect { path, .. } => {
            let path = path.to_string_lossy().into_owned();
            raise(py, "ConnectError", &message, &[("path", any(Some(&path)))])
        }
        Error::Version(_) => raise(py, "VersionError", &message, &[]),
        Error::Refused(refusal) => {
            let (class, kind) = refused(refusal.kind);
            if refusal.kind == RefusalKind::Budget {
                message += "; budgets are set by `echod --host-budget` and `--uid-budget`, or echod.local(host_budget=...)";
            }
            raise(py, class, &message, &[("kind", any(Some(kind)))])
        }
        Error::Gone { reason } => {
            message += "; `echoctl status` says whether one runs";
            raise(py, "GoneError", &message, &[("reason", any(Some(&reason)))])
        }
        Error::TimedOut { what, after } => {
            // Waits for others say more (`late`); what is left are the daemon's answers, and the turn to page-lock.
            if !what.starts_with("waiting") {
                message += ": is it stopped, or very busy? connect(timeout=...) gives it longer";
            }
            let after = after.as_secs_f64().into_pyobject(py).expect("a number is one").into_any();
            raise(py, "TimeoutError", &message, &[("what", any(Some(what))), ("after", after)])
        }
        Error::Cancelled => raise(py, "CancelledError", &message, &[]),
        Error::Forked => {
            message += ", or start processes by multiprocessing.get_context(\"spawn\"), to which a table can be pickled";
            raise(py, "ForkedError", &message, &[])
        }
        Error::Closed { table, reason } => {
            let reason = any(Some(end(reason)));
            raise(py, "ClosedError", &message, &[("table", any(Some(&table))), ("reason", reason)])
        }
        Error::Partly { done, of: all, source } => {
            let error = raise(py, "PartlyError", &message, &[("done", number(done)), ("of", number(all))]);
            error.set_cause(py, Some(of(py, *source)));
            error
        }
        Error::NoSamples { after, why } => {
            let after = after.as_secs_f64().into_pyobject(py).expect("a number is one").into_any();
            let why = ("why", any(Some(&why)));
            raise(
                py,
                "NoSamplesError",
                &message,
                &[("what", any(Some("waiting for samples"))), ("after", after), why],
            )
        }
        Error::Priority { number: at, priority } => {
            let priority = priority.into_pyobject(py).expect("a number is one").into_any();
            let none = py.None().into_bound(py);
            raise(
                py,
                "PriorityError",
                &message,
                &[("number", number(at)), ("priority", priority), ("key", none)],
            )
        }
        Error::ItemPriority { key, number: at, priority } => {
            let priority = priority.into_pyobject(py).expect("a number is one").into_any();
            let key = key.into_pyobject(py).expect("a number is one").into_any();
            raise(
                py,
                "PriorityError",
                &message,
                &[("number", number(at)), ("priority", priority), ("key", key)],
            )
        }
        Error::BatchTooLarge { .. } => PyValueError::new_err(message),
        Error::TooManyHeld { held } => raise(py, "TooManyHeldError", &message, &[("held", number(held))]),
        Error::Pin(error) => pin(py, &error, &message),
        Error::Memory(_) | Error::Claim(_) | Error::Commit(_) | Error::Hold(_) => {
            raise(py, "SpoiltError", &message, &[])
        }
        _ => raise(py, "Error", &message, &[]),
    }
}

/// The reason of an end, in a word that stays.
pub(crate) const fn end(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Finished => "finished",
        EndReason::Dropped => "dropped",
        EndReason::Draining => "draining",
        EndReason::Poisoned => "poisoned",
    }
}

const fn refused(kind: RefusalKind) -> (&'static str, &'static str) {
    match kind {
        RefusalKind::NoSuchTable => ("NoSuchTableError", "no_such_table"),
        RefusalKind::SpecMismatch => ("SpecMismatchError", "spec_mismatch"),
        RefusalKind::InvalidSpec => ("InvalidSpecError", "invalid_spec"),
        RefusalKind::Budget => ("BudgetError", "budget"),
        RefusalKind::Memory => ("BudgetError", "memory"),
        RefusalKind::Limit => ("RefusedError", "limit"),
        RefusalKind::Finished => ("RefusedError", "finished"),
        RefusalKind::NoSuchGroup => ("RefusedError", "no_such_group"),
        RefusalKind::Draining => ("RefusedError", "draining"),
        RefusalKind::Poisoned => ("RefusedError", "poisoned"),
        RefusalKind::NotPermitted => ("NotPermittedError", "not_permitted"),
        RefusalKind::Invalid => ("RefusedError", "invalid"),
        RefusalKind::Internal => ("RefusedError", "internal"),
    }
}

fn pin(py: Python<'_>, error: &PinError, message: &str) -> PyErr {
    let failure = match error {
        PinError::Initialise { failure, .. }
        | PinError::Register { failure, .. }
        | PinError::Unregister { failure, .. } => Some(failure),
        _ => None,
    };
    let mut probes: Vec<(String, String, Option<String>)> = error
        .probes()
        .iter()
        .map(|probe| (probe.rung.to_string(), probe.what.clone(), probe.reason.clone()))
        .collect();
    if let PinError::Override { path, reason, .. } = error {
        // The one step that there was.
        probes.push((Rung::Override.to_string(), path.clone(), Some(reason.clone())));
    }
    let attributes = || -> PyResult<_> {
        Ok([
            ("code", failure.map(|failure| failure.code).into_pyobject(py)?.into_any()),
            ("name", failure.map(|failure| &failure.name).into_pyobject(py)?.into_any()),
            ("probes", probes.into_pyobject(py)?.into_any()),
        ])
    };
    match attributes() {
        Ok(attributes) => raise(py, "PinError", message, &attributes),
        Err(error) => error,
    }
}
