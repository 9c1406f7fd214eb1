//! A directory that only this user can enter, gone when the run is.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, io};

use thiserror::Error;

/// The directory; dropping it removes it with all that it holds. A killed process leaves it behind.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
}

#[derive(Debug, Error)]
#[error("cannot make a private directory at {path}: set TMPDIR to a place with room")]
pub struct PrivateDirError {
    path: PathBuf,
    source: io::Error,
}

impl PrivateDir {
    /// A new directory with a random name, in the system's place for temporary files.
    pub fn new() -> Result<Self, PrivateDirError> {
        let path = env::temp_dir().join(format!("cartpole-{:016x}", fastrand::u64(..)));
        // Not recursive: it fails if the name is taken, so nobody can have prepared the directory for us.
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(Self { path }),
            Err(source) => Err(PrivateDirError { path, source }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // What cannot be removed is a few kilobytes of temporary files, and there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_its_owner_can_enter_it_and_it_goes_with_its_contents() {
        let directory = PrivateDir::new().unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(path.join("file"), "contents").unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
