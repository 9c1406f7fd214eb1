//! Memory that the processes of a limit share: as echo makes it, without echo on the way.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use echo::memory::memfd::{Sealed, Unsealed};
use echo::memory::{Access, Mapping};
use echo::ring::words::Words;

/// A memory file, which others open by its name.
pub struct SharedFile {
    file: OwnedFd,
}

impl SharedFile {
    /// Of so many bytes, all of them touched.
    pub fn create(bytes: usize) -> Result<Self> {
        let bytes = bytes.next_multiple_of(4096);
        let file = Unsealed::create("bench", bytes as u64)?.seal()?.into_fd();
        let zeros = vec![0; 1 << 20];
        for at in (0..bytes).step_by(zeros.len()) {
            rustix::io::pwrite(&file, &zeros[..zeros.len().min(bytes - at)], at as u64)?;
        }
        Ok(Self { file })
    }

    /// What another process opens it by.
    pub fn name(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// The file of that name, mapped twice: for its words, and for its bytes.
pub fn open(name: &str, bytes: usize) -> Result<(Words, Mapping)> {
    let file = std::fs::File::options().read(true).write(true).open(name).context("the shared file")?;
    let file = Sealed::received(file.into(), bytes as u64, Access::ReadWrite)?;
    let words = Words::mapped(Mapping::new(&file, bytes, Access::ReadWrite)?);
    let mapping = Mapping::new(&file, bytes, Access::ReadWrite)?;
    // Every page is entered into this process's tables before anything is measured.
    for at in (0..bytes).step_by(4096) {
        let page = mapping.base().as_ptr().wrapping_add(at);
        // SAFETY: inside the mapping, which is readable; nobody writes before the measurement begins.
        std::hint::black_box(unsafe { page.read_volatile() });
    }
    Ok((words, mapping))
}
