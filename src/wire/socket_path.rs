//! The path of the daemon's socket: one daemon per path.
//!
//! A lock beside the socket is held for the daemon's life, so that the kernel decides who is first and forgets
//! a daemon that died. Whoever holds it may remove a socket that a dead one left. The lock file itself is never
//! removed: somebody may be waiting on it under its old name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;

use crate::wire::socket::{self, SocketError};

/// Mode of the socket: whoever may write it may connect.
const SOCKET_MODE: u32 = 0o660;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Why a path cannot be listened on.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum SocketPathError {
    #[error("another echod (pid {pid}) serves {path}: stop it, or choose another --socket")]
    Taken { path: PathBuf, pid: String },
    #[error("cannot {doing} {path}")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot listen at {path}")]
    Listen { path: PathBuf, source: SocketError },
    #[error("{0} exists and is no socket: remove it, or choose another --socket")]
    NotASocket(PathBuf),
}

impl SocketPathError {
    /// Whether another daemon is there.
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken { .. })
    }

    /// What the operating system said, where it said something.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } | Self::Listen { source: SocketError::Os { source, .. }, .. } => {
                Some(source.kind())
            }
            _ => None,
        }
    }
}

/// The right to a path, for as long as it lives.
#[derive(Debug)]
pub struct SocketGuard {
    path: PathBuf,
    /// Device and inode of the socket that was made.
    made: (u64, u64),
    _lock: File,
}

impl SocketGuard {
    /// Listens at the path, whose directory is made if it is missing.
    ///
    /// # Errors
    /// If another daemon does so already, or the file system does not allow it.
    pub fn bind(path: &Path) -> Result<(OwnedFd, Self), SocketPathError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| SocketPathError::Io { doing, path, source }
        };
        if let Some(directory) = path.parent() {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o755);
            builder.create(directory).map_err(failed("make the directory", directory))?;
        }
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.mode()).is_socket() => {
                // Its daemon is dead: it held the lock that we hold.
                fs::remove_file(path).map_err(failed("remove the stale socket", path))?;
            }
            Ok(_) => return Err(SocketPathError::NotASocket(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at", path)(error)),
        }
        let listener = socket::listen(path, BACKLOG)
            .map_err(|source| SocketPathError::Listen { path: path.to_owned(), source })?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))
            .map_err(failed("set the mode of", path))?;
        let made = fs::symlink_metadata(path).map_err(failed("look at", path))?;
        let guard = Self { path: path.to_owned(), made: (made.dev(), made.ino()), _lock: lock };
        Ok((listener, guard))
    }
}

impl Drop for SocketGuard {
    /// Removes the socket, if it is still the one that was made.
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.made);
        if ours {
            // What remains is taken over by the next daemon.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Takes the lock beside the socket, and leaves the pid in it for the next who asks.
fn lock(socket: &Path) -> Result<File, SocketPathError> {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let failed = |doing| {
        let path = path.clone();
        move |source| SocketPathError::Io { doing, path, source }
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Not to be opened by others: whoever can open it can take the lock.
        .mode(0o600)
        .open(&path)
        .map_err(failed("open the lock"))?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed("set the mode of the lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // The pid is for people; without it the message is still true.
            let _ = file.read_to_string(&mut pid);
            return Err(SocketPathError::Taken { path: socket.to_owned(), pid: pid.trim().to_owned() });
        }
        Err(errno) => return Err(failed("lock")(errno.into())),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(failed("write the pid into"))?;
    Ok(file)
}
