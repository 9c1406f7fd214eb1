//! `echod` and `echoctl` as functions: what the console scripts are.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

/// How long the daemon may take to end when its parent is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Is `echod`: `arguments` begin with the program's name. Returns the exit code when the daemon has ended.
///
/// With `parent`, the number of the process that started this one, the daemon ends when that process does.
#[pyfunction]
#[pyo3(signature = (arguments, parent=None))]
pub(crate) fn run_daemon(py: Python<'_>, arguments: Vec<OsString>, parent: Option<i32>) -> PyResult<u8> {
    if let Some(parent) = parent {
        end_with(parent).map_err(|error| PyOSError::new_err(error.to_string()))?;
    }
    Ok(py.detach(|| echod::command::main(arguments)).code())
}

/// Is `echoctl`: `arguments` begin with the program's name. Returns the exit code.
#[pyfunction]
pub(crate) fn run_ctl(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| echoctl::command::main(arguments)).code()
}

/// Ends this process when that one has.
///
/// Not by PR_SET_PDEATHSIG, which fires when the *thread* that started this process ends; nor by a pipe, whose other end
/// children of the parent inherit.
fn end_with(parent: i32) -> std::io::Result<()> {
    let gone = || std::io::Error::other("the process that wanted a daemon is gone");
    let pid = Pid::from_raw(parent).ok_or_else(gone)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    // Only a living parent is the one that was meant: its number may be another's by now.
    if getppid() != Some(pid) {
        return Err(gone());
    }
    std::thread::Builder::new().name("parent-watch".into()).spawn(move || {
        loop {
            let mut watched = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
            if poll(&mut watched, None).is_ok() {
                break;
            }
        }
        for signal in [Signal::TERM, Signal::TERM, Signal::KILL] {
            // This process cannot be gone.
            let _ = kill_process(getpid(), signal);
            std::thread::sleep(PATIENCE);
        }
    })?;
    Ok(())
}
