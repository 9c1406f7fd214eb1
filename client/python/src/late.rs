//! What a wait says whose time is over: at which table, whose time-out it was, and what to do about it.
//!
//! Nobody is asked: who holds it up is the daemon's to say, by `table.why()`.

use std::time::Duration;

use pyo3::prelude::*;

use crate::failure;

/// Who said how long a wait may take.
#[derive(Clone, Copy)]
pub(crate) enum Whose {
    /// The call.
    Call,
    /// The writer, or the publisher.
    Writer,
    /// The connection, since nobody else did.
    Connection,
}

/// A wait that took too long.
#[derive(Clone)]
pub(crate) struct Late {
    /// What was waited for.
    pub(crate) what: &'static str,
    pub(crate) after: Duration,
    /// All of it.
    pub(crate) message: String,
}

impl Late {
    /// A wait for `what`, which in full is `whole`, and names the table.
    pub(crate) fn new(
        what: &'static str,
        whole: &str,
        (after, whose): (Duration, Whose),
        advice: &str,
    ) -> Self {
        let whose = match whose {
            Whose::Call => "the call's timeout",
            Whose::Writer => "the timeout that it was attached with",
            Whose::Connection => "the connection's timeout",
        };
        let message = format!("{whole} took longer than {} ({whose}): {advice}", seconds(after));
        Self { what, after, message }
    }

    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        let what = self.what.into_pyobject(py).expect("a text is one").into_any();
        let after = self.after.as_secs_f64().into_pyobject(py).expect("a number is one").into_any();
        failure::raise(py, "TimeoutError", &self.message, &[("what", what), ("after", after)])
    }
}

/// `30 s`
pub(crate) fn seconds(after: Duration) -> String {
    format!("{} s", after.as_secs_f64())
}
