//! What this machine can do, and why not: the checks of `echoctl doctor`.
//!
//! A report is made of sections, a section of checks. A check says what was found and, where something is amiss, what to
//! do about it; it never stops the others. Those that the configuration (or `--pin`) *requires* decide the verdict, and
//! nothing else does: a machine without a GPU is as well as can be if nobody asks for one.
//!
//! What a section needs of the machine comes in as texts and results, through [`Surroundings`] or as arguments, so that
//! a test can be any machine. The rules are not made here: what a table needs, which pages it gets, which file `echod`
//! reads and where it is looked for are asked of the code that acts on it.
//!
//! It changes nothing, and makes no context on a GPU.

mod configuration;
mod cuda;
mod groups;
mod kernel;
mod memory;
mod numa;
mod process;
mod socket;

use echod::surroundings::Surroundings;

use self::process::Process;
use crate::cli::{Connect, Doctor};

/// How something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// As it should be.
    Ok,
    /// It is not there; nothing is broken.
    Missing,
    /// It works, and could be better.
    Warning,
    /// It does not work.
    Failed,
    /// This user may not look, or there is nothing to look at.
    Unknown,
}

impl State {
    /// A word for it, the same for people and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Warning => "warning",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// What it is about.
    pub name: String,
    /// How it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do, where there is something to be done.
    pub advice: Option<String>,
    /// Whether somebody asks for it, so that the verdict depends on it.
    pub required: bool,
}

impl Check {
    fn new(name: impl Into<String>, state: State, found: impl Into<String>) -> Self {
        Self { name: name.into(), state, found: found.into(), advice: None, required: false }
    }

    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(name, State::Ok, found)
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    fn require(self) -> Self {
        Self { required: true, ..self }
    }

    /// Whether it is asked for and does not work, or is not known to.
    pub fn is_unmet(&self) -> bool {
        self.required && !matches!(self.state, State::Ok | State::Warning)
    }
}

/// Checks of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// Its name for programs.
    pub name: &'static str,
    /// And for people.
    pub title: &'static str,
    /// In the order in which they are shown.
    pub checks: Vec<Check>,
}

/// Whether what is asked for would work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All of it.
    Works,
    /// Something does not.
    Fails,
    /// Something could not be looked at, and the rest works.
    Unknown,
}

impl Verdict {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Fails => "fails",
            Self::Unknown => "unknown",
        }
    }
}

/// All that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Always the same ones, in the same order.
    pub sections: Vec<Section>,
}

impl Report {
    /// Whether what is asked for would work.
    pub fn verdict(&self) -> Verdict {
        let states = |state| self.unmet().any(|check| check.state == state);
        match (self.unmet().next().is_some(), states(State::Failed) || states(State::Missing)) {
            (false, _) => Verdict::Works,
            (true, true) => Verdict::Fails,
            (true, false) => Verdict::Unknown,
        }
    }

    fn unmet(&self) -> impl Iterator<Item = &Check> {
        self.sections.iter().flat_map(|section| &section.checks).filter(|check| check.is_unmet())
    }
}

/// Looks at everything.
pub fn examine(doctor: &Doctor, connect: &Connect) -> Report {
    let surroundings = Surroundings::of_this_process();
    let places = echo_client::socket_places(connect.socket.as_deref(), |name| surroundings.var(name));
    let (socket, daemon) = socket::section(&places, &surroundings, connect.timeout);
    let own = Process::read(&surroundings, None);
    let serving =
        daemon.as_ref().and_then(|daemon| daemon.pid).map(|pid| Process::read(&surroundings, Some(pid)));
    // What is configured is done by the daemon that runs, or by one that is started from here.
    let actor = serving.as_ref().unwrap_or(&own);
    let loaded = configuration::load(doctor.config.clone(), &surroundings);
    let asks = cuda::Asks { by_flag: doctor.pin, by_tables: configuration::tables_that_pin(&loaded) };
    let cuda = cuda::section(doctor, &asks, &surroundings);
    Report {
        sections: vec![
            cuda,
            memory::section(&own, daemon.as_ref().map(|_| serving.as_ref()), &surroundings),
            numa::section(actor, &surroundings),
            kernel::section(&kernel::Probed::here(), &surroundings),
            socket,
            configuration::section(&loaded, actor, daemon.as_ref(), &places, &surroundings),
        ],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;

    use super::*;

    /// A machine of these files, without any variable.
    pub(super) fn machine(files: &'static [(&'static str, &'static str)]) -> Surroundings<'static> {
        machine_with(files, |_| None)
    }

    /// A machine of these files and variables.
    pub(super) fn machine_with(
        files: &'static [(&'static str, &'static str)],
        variable: impl Fn(&str) -> Option<OsString> + 'static,
    ) -> Surroundings<'static> {
        let read = move |path: &Path| {
            let found = files.iter().find(|(name, _)| path == Path::new(name));
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Surroundings::new(variable, read, true, 2)
    }

    /// The check of that name.
    pub(super) fn check<'s>(section: &'s Section, name: &str) -> &'s Check {
        let found = section.checks.iter().find(|check| check.name == name);
        found.unwrap_or_else(|| panic!("no check {name:?} in {section:#?}"))
    }

    #[test]
    fn the_verdict_depends_on_what_is_required_alone() {
        let report = |checks: &[(State, bool)]| {
            let checks = checks
                .iter()
                .map(|&(state, required)| Check { required, ..Check::new("x", state, "y") })
                .collect();
            Report { sections: vec![Section { name: "s", title: "S", checks }] }.verdict()
        };
        use State::*;
        assert_eq!(report(&[(Missing, false), (Failed, false), (Unknown, false)]), Verdict::Works);
        assert_eq!(report(&[(Ok, true), (Warning, true)]), Verdict::Works);
        assert_eq!(report(&[(Ok, true), (Missing, true)]), Verdict::Fails);
        assert_eq!(report(&[(Unknown, true), (Failed, true)]), Verdict::Fails);
        assert_eq!(report(&[(Unknown, true), (Failed, false)]), Verdict::Unknown);
    }
}
