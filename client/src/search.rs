//! Where the daemon listens.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The environment variable that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "ECHO_SOCKET";
const SYSTEM_SOCKET: &str = "/run/echo/echod.sock";

/// Why a path is one to connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketSource {
    /// The caller names it, and no other place counts.
    Named,
    /// [`SOCKET_VARIABLE`] names it, and no other place counts.
    Variable,
    /// A user's daemon listens there.
    RuntimeDirectory,
    /// The machine's daemon listens there.
    System,
}

/// A path to connect to, if it exists or is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SocketPlace {
    /// The path.
    pub path: PathBuf,
    /// Why it.
    pub source: SocketSource,
}

impl SocketPlace {
    /// Whether it is connected to rather than the next place.
    pub fn counts(&self) -> bool {
        match self.source {
            SocketSource::Named | SocketSource::Variable => true,
            // Where one may not look, connecting says so.
            SocketSource::RuntimeDirectory | SocketSource::System => self.path.try_exists().unwrap_or(true),
        }
    }
}

/// The places where a daemon is looked for, in their order; one alone if it is named. Variables are looked up like
/// this, and an empty one is not set.
pub fn socket_places(named: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Vec<SocketPlace> {
    let variable = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let place = |source| move |path| SocketPlace { path, source };
    let of_caller = named.map(Path::to_owned).map(place(SocketSource::Named));
    if let Some(only) = of_caller.or_else(|| variable(SOCKET_VARIABLE).map(place(SocketSource::Variable))) {
        return vec![only];
    }
    let of_user = variable("XDG_RUNTIME_DIR").map(|directory| directory.join("echo/echod.sock"));
    let of_user = of_user.map(place(SocketSource::RuntimeDirectory));
    of_user.into_iter().chain([place(SocketSource::System)(SYSTEM_SOCKET.into())]).collect()
}

/// The socket to connect to: the one that is named, else that of `ECHO_SOCKET`, else the first that exists of
/// `$XDG_RUNTIME_DIR/echo/echod.sock` and `/run/echo/echod.sock`.
///
/// # Errors
/// If none is named and none exists.
pub fn search(named: Option<&Path>) -> Result<PathBuf> {
    search_in(named, |name| env::var_os(name))
}

fn search_in(named: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let places = socket_places(named, variable);
    places.iter().find(|place| place.counts()).map(|place| place.path.clone()).ok_or_else(|| {
        let tried: Vec<String> = places.iter().map(|place| place.path.display().to_string()).collect();
        Error::NoDaemon { tried: tried.join(" or ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_comes_before_the_environment_and_what_exists() {
        let variable = |name: &str| (name == SOCKET_VARIABLE).then(|| OsString::from("/from/environment"));
        assert_eq!(search_in(Some(Path::new("/named")), variable).unwrap(), Path::new("/named"));
        assert_eq!(search_in(None, variable).unwrap(), Path::new("/from/environment"));
    }

    #[test]
    fn what_was_tried_is_told() {
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| OsString::from("/nowhere"));
        match search_in(None, variable) {
            // This machine has a daemon of its own.
            Ok(path) => assert_eq!(path, Path::new(SYSTEM_SOCKET)),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("/nowhere/echo/echod.sock or /run/echo/echod.sock"), "{error}");
            }
        }
    }
}
