//! Section 1: whether a trainer could page-lock a table for CUDA.
//!
//! Nothing here makes a context on a GPU.

use std::path::Path;

use echod::surroundings::Surroundings;

use super::{Check, Section, State};
use crate::cli::Doctor;

/// Who asks for CUDA.
pub(super) struct Asks {
    /// `--pin`.
    pub(super) by_flag: bool,
    /// Tables whose access lists give somebody the role `pin`.
    pub(super) by_tables: Vec<String>,
}

impl Asks {
    /// For people; none if nobody does.
    fn who(&self) -> Option<String> {
        let flag = self.by_flag.then(|| "--pin".to_owned());
        let tables = self.by_tables.iter().map(|table| format!("the access list of table {table}"));
        let all: Vec<_> = flag.into_iter().chain(tables).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

pub(super) fn section(_doctor: &Doctor, asks: &Asks, surroundings: &Surroundings<'_>) -> Section {
    let mut checks = vec![kernel_driver(surroundings)];
    if let Some(who) = asks.who() {
        let state = if checks[0].state == State::Ok { State::Unknown } else { State::Missing };
        checks.push(Check::new("asked for", state, format!("by {who}")).require());
    }
    Section { name: "cuda", title: "CUDA", checks }
}

const MODULE: &str = "/proc/driver/nvidia/version";

fn kernel_driver(surroundings: &Surroundings<'_>) -> Check {
    let name = "kernel driver";
    match surroundings.read(Path::new(MODULE)) {
        Ok(text) => match text.lines().find_map(|line| line.strip_prefix("NVRM version:")) {
            Some(version) => Check::ok(name, version.split_whitespace().collect::<Vec<_>>().join(" ")),
            None => Check::new(name, State::Unknown, format!("{MODULE} does not say its version")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::new(name, State::Missing, "NVIDIA's kernel module is not loaded, or this container does not see it")
                .advise("install NVIDIA's driver on the host; start a container with '--gpus all' (docker) or a GPU resource (Kubernetes)")
        }
        Err(error) => Check::new(name, State::Unknown, format!("{MODULE} cannot be read: {error}")),
    }
}
