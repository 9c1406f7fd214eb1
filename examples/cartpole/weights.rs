//! How the newest policy gets from the trainer to the workers: one small file in a private directory.
//!
//! The trainer renames each version into place, so a worker reads a whole one, old or new. It is a file and not
//! a pipe since a worker only wants the newest: the trainer never waits for a slow worker, and a worker that was
//! started late finds the weights there. Not durable: it lives as long as the run.

use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;

use crate::policy::{PARAMETERS, Policy};

/// Bytes of the file: the version and the parameters, four bytes each, little-endian.
const BYTES: usize = 4 + 4 * PARAMETERS;

/// The file. It has one writer and any number of readers.
#[derive(Clone, Debug)]
pub struct WeightsFile {
    path: PathBuf,
}

#[derive(Debug, Error)]
pub enum WeightsError {
    #[error("cannot write the weights to {path}: is its directory still there")]
    Publish { path: PathBuf, source: io::Error },
    #[error("cannot read the weights from {path}: has the trainer published any")]
    Load { path: PathBuf, source: io::Error },
    #[error("{path} holds {found} bytes and not the {BYTES} of this policy: was it written by another build")]
    Size { path: PathBuf, found: usize },
}

impl WeightsFile {
    /// The file in `directory`, which only the processes of this run should be able to write.
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join("weights") }
    }

    /// Makes `policy` the one that workers find from now on.
    pub fn publish(&self, policy: &Policy) -> Result<(), WeightsError> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(policy.version.to_le_bytes());
        policy.parameters.iter().for_each(|p| bytes.extend(p.to_le_bytes()));
        let partial = self.path.with_extension("partial");
        fs::write(&partial, bytes)
            .and_then(|()| fs::rename(&partial, &self.path))
            .map_err(|source| WeightsError::Publish { path: self.path.clone(), source })
    }

    /// The policy that was published last.
    pub fn load(&self) -> Result<Policy, WeightsError> {
        let bytes =
            fs::read(&self.path).map_err(|source| WeightsError::Load { path: self.path.clone(), source })?;
        if bytes.len() != BYTES {
            return Err(WeightsError::Size { path: self.path.clone(), found: bytes.len() });
        }
        let (words, _) = bytes.as_chunks::<4>();
        let mut policy = Policy { version: u32::from_le_bytes(words[0]), parameters: [0.0; PARAMETERS] };
        for (parameter, word) in policy.parameters.iter_mut().zip(&words[1..]) {
            *parameter = f32::from_le_bytes(*word);
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::private_dir::PrivateDir;

    fn policy(version: u32) -> Policy {
        Policy { version, parameters: [version as f32; PARAMETERS] }
    }

    #[test]
    fn what_was_published_last_is_loaded() {
        let directory = PrivateDir::new().unwrap();
        let weights = WeightsFile::new(directory.path());
        for _ in 0..2 {
            let published = Policy::new(&mut fastrand::Rng::with_seed(3));
            weights.publish(&policy(1)).unwrap();
            weights.publish(&published).unwrap();
            assert_eq!(weights.load().unwrap(), published);
        }
    }

    #[test]
    fn a_reader_never_sees_two_versions_in_one_policy() {
        let directory = PrivateDir::new().unwrap();
        let weights = WeightsFile::new(directory.path());
        weights.publish(&policy(0)).unwrap();
        thread::scope(|scope| {
            let writer =
                scope.spawn(|| (1..=300).for_each(|version| weights.publish(&policy(version)).unwrap()));
            let mut newest = 0;
            while !writer.is_finished() {
                let loaded = weights.load().unwrap();
                assert_eq!(loaded, policy(loaded.version));
                assert!(loaded.version >= newest, "{} came after {newest}", loaded.version);
                newest = loaded.version;
            }
        });
        assert_eq!(weights.load().unwrap(), policy(300));
    }

    #[test]
    fn a_missing_file_and_one_of_another_size_are_refused_with_the_reason() {
        let directory = PrivateDir::new().unwrap();
        let weights = WeightsFile::new(directory.path());
        assert!(matches!(weights.load(), Err(WeightsError::Load { .. })));
        fs::write(&weights.path, [0; BYTES - 1]).unwrap();
        assert!(matches!(weights.load(), Err(WeightsError::Size { found, .. }) if found == BYTES - 1));
    }
}
