//! Which path the daemon listens on.
//!
//! `--socket`, then `ECHO_SOCKET`, then `socket` in the file, then what a person would look for first: a
//! daemon that a user starts for herself lives in her runtime directory, one that root or a service manager
//! starts for the machine lives in `/run/echo`. A service that runs as an ordinary user has no
//! `XDG_RUNTIME_DIR`, so it counts as the machine's. Root counts as the machine's also from a login that
//! has one.
//!
//! A socket inherited from a service manager is older than any of these: whoever opens the socket looks for
//! it first.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::surroundings::Surroundings;

/// Where the machine's daemon listens.
pub const SYSTEM_SOCKET: &str = "/run/echo/echod.sock";

/// Longest path of a Unix socket in bytes: `sun_path` has 108, one of which is the final zero.
pub const MAX_SOCKET_PATH: usize = 107;

/// A path that no socket can have.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum SocketPathError {
    #[error("the path of a socket cannot be empty")]
    Empty,
    #[error("the path has {0} bytes, a socket's can have {MAX_SOCKET_PATH}: choose a shorter one")]
    TooLong(usize),
    #[error("the path of a socket cannot hold a zero byte")]
    Zero,
    #[error(
        "the path must be absolute, since clients are started in other directories: in a shell, \"$PWD/NAME\""
    )]
    Relative,
}

/// Where the daemon listens if nobody says.
pub fn default_socket(surroundings: &Surroundings<'_>) -> PathBuf {
    let own = if surroundings.is_root() { None } else { surroundings.directory("XDG_RUNTIME_DIR") };
    own.map_or_else(|| SYSTEM_SOCKET.into(), |directory| directory.join("echo/echod.sock"))
}

/// Whether a socket can have that path.
///
/// # Errors
/// [`SocketPathError`], one variant for each reason.
pub fn check_socket(path: &Path) -> Result<(), SocketPathError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() {
        return Err(SocketPathError::Empty);
    }
    if bytes.len() > MAX_SOCKET_PATH {
        return Err(SocketPathError::TooLong(bytes.len()));
    }
    if bytes.contains(&0) {
        return Err(SocketPathError::Zero);
    }
    if path.is_relative() {
        return Err(SocketPathError::Relative);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn default_of(root: bool, runtime_dir: Option<&str>) -> PathBuf {
        let var = |name: &str| (name == "XDG_RUNTIME_DIR").then_some(runtime_dir?.into());
        default_socket(&Surroundings::new(var, |_| Err(io::ErrorKind::NotFound.into()), root, 1))
    }

    #[test]
    fn a_user_listens_in_the_runtime_directory_and_the_machine_in_run() {
        assert_eq!(default_of(false, Some("/run/user/7")), Path::new("/run/user/7/echo/echod.sock"));
        assert_eq!(default_of(true, Some("/run/user/0")), Path::new(SYSTEM_SOCKET));
        assert_eq!(default_of(false, None), Path::new(SYSTEM_SOCKET));
        assert_eq!(default_of(false, Some("")), Path::new(SYSTEM_SOCKET));
        assert_eq!(default_of(false, Some("relative")), Path::new(SYSTEM_SOCKET));
    }

    #[test]
    fn a_path_that_no_socket_can_have_is_refused() {
        let longest = format!("/{}", "x".repeat(MAX_SOCKET_PATH - 1));
        assert_eq!(check_socket(Path::new(&longest)), Ok(()));
        let longer = format!("{longest}x");
        assert_eq!(check_socket(Path::new(&longer)), Err(SocketPathError::TooLong(108)));
        assert_eq!(check_socket(Path::new("")), Err(SocketPathError::Empty));
        assert_eq!(check_socket(Path::new("/a\0b")), Err(SocketPathError::Zero));
        assert_eq!(check_socket(Path::new("echo.sock")), Err(SocketPathError::Relative));
    }
}
