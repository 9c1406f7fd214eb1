//! The processes of a check: this executable again, in a part.
//!
//! A part ends with its parent, however that ends.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use echo::wire::socket::wait_readable;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::library::Found;
use crate::outcome::Outcome;

/// How long a check may take. Registering is slow on some machines, and never so slow.
const LONG: Duration = Duration::from_secs(300);

/// Of a part: the kernel ends it when its parent is gone.
pub fn end_with_parent() -> Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A process that plays a part.
pub struct Actor {
    child: Child,
    orders: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts a part by its words.
    pub fn start(library: Option<&Path>, part: &[&str]) -> Result<Self> {
        Self::start_with(library, part, |_| ())
    }

    /// With something changed about the process before.
    pub fn start_with(
        library: Option<&Path>,
        part: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(library) = library {
            command.arg("--library").arg(library);
        }
        command.arg("--part").args(part).stdin(Stdio::piped()).stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn()?;
        let orders = child.stdin.take();
        let out = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, orders, out })
    }

    /// The next line that it says.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.out.read_line(&mut line)? > 0, "a process of the check has ended");
        Ok(line.trim_end().to_owned())
    }

    /// Waits until it says this.
    pub fn expect(&mut self, expected: &str) -> Result<()> {
        let said = self.line()?;
        ensure!(said == expected, "a process of the check says {said:?} instead of {expected:?}");
        Ok(())
    }

    /// Says it a line.
    pub fn say(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.orders.as_mut().context("it hears nothing")?, "{line}")?)
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A part's side: says a line, and waits for one.
pub fn say_and_wait(line: &str) -> Result<()> {
    println!("{line}");
    let mut order = String::new();
    ensure!(std::io::stdin().read_line(&mut order)? > 0, "the check is over");
    Ok(())
}

/// What the machine has, found in a process of its own.
pub fn look(library: Option<&Path>) -> Result<Found> {
    let line = Actor::start(library, &["look"])?.line().context("nobody could look for a GPU")?;
    Found::from_json(&line).with_context(|| format!("{line} says nothing of a GPU"))
}

/// Plays a check in a process of its own.
pub fn outcome_of(check: &str, runtime: &Result<PathBuf, String>) -> Outcome {
    let library = runtime.as_ref().ok().map(PathBuf::as_path);
    let mut actor = match Actor::start(library, &[check]) {
        Ok(actor) => actor,
        Err(error) => return Outcome::differs(format!("its process does not start: {error:#}")),
    };
    if !matches!(wait_readable(actor.out.get_ref().as_fd(), Instant::now() + LONG), Ok(true)) {
        return Outcome::differs(format!("nothing came of it in {} s", LONG.as_secs()));
    }
    match actor.line() {
        Ok(line) => {
            Outcome::from_json(&line).unwrap_or_else(|| Outcome::differs(format!("its process said {line}")))
        }
        Err(_) => match actor.child.wait() {
            Ok(status) => Outcome::differs(format!("its process ended without a word: {status}")),
            Err(error) => Outcome::differs(format!("its process: {error}")),
        },
    }
}
