//! The question that every daemon of every version answers.

use std::path::Path;
use std::time::Duration;

use echo::wire::message::{Event, Request, Status};

use crate::connection::{ask, connect};
use crate::wait::deadline_in;
use crate::{Error, Result, search};

/// How the daemon is. Works with any version of it, since the question and its answer are frozen.
///
/// # Errors
/// If no daemon listens, or it does not answer in time.
pub fn status(socket: Option<&Path>, timeout: Duration) -> Result<Status> {
    let path = search(socket)?;
    let deadline = deadline_in(timeout);
    let socket = connect(path, timeout)?;
    match ask(&socket, &Request::Status, deadline)?.0 {
        Event::Status(status) => Ok(status),
        Event::Refused(refused) => Err(Error::Version(Box::new(refused))),
        Event::Closing { reason } => Err(Error::Gone { reason }),
        other => Err(Error::Announced(format!("the answer makes no sense: {other:?}"))),
    }
}
