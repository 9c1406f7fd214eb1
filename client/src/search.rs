//! Where the daemon listens.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The environment variable that names the daemon's socket.
pub const SOCKET_VARIABLE: &str = "ECHO_SOCKET";
const SYSTEM_SOCKET: &str = "/run/echo/echod.sock";

/// The socket to connect to: the one that is named, else that of `ECHO_SOCKET`, else the first that exists of
/// `$XDG_RUNTIME_DIR/echo/echod.sock` and `/run/echo/echod.sock`.
///
/// # Errors
/// If none is named and none exists.
pub fn search(named: Option<&Path>) -> Result<PathBuf> {
    search_in(named, |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
}

fn search_in(named: Option<&Path>, variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf> {
    if let Some(path) = named.map(Path::to_owned).or_else(|| variable(SOCKET_VARIABLE)) {
        return Ok(path);
    }
    let of_user = variable("XDG_RUNTIME_DIR").map(|directory| directory.join("echo/echod.sock"));
    let candidates: Vec<PathBuf> = of_user.into_iter().chain([PathBuf::from(SYSTEM_SOCKET)]).collect();
    // Where one may not look, connecting says so.
    let found = candidates.iter().find(|path| path.try_exists().unwrap_or(true));
    found.cloned().ok_or_else(|| {
        let tried: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Error::NoDaemon { tried: tried.join(" or ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_comes_before_the_environment_and_what_exists() {
        let variable = |name: &str| (name == SOCKET_VARIABLE).then(|| PathBuf::from("/from/environment"));
        assert_eq!(search_in(Some(Path::new("/named")), variable).unwrap(), Path::new("/named"));
        assert_eq!(search_in(None, variable).unwrap(), Path::new("/from/environment"));
    }

    #[test]
    fn what_was_tried_is_told() {
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| PathBuf::from("/nowhere"));
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
