//! Page-locking memory with CUDA, and rolling back cleanly.
//!
//! All of it or nothing: [`pin_all`] registers region after region, piece by piece, and if one is refused, what was
//! registered before it is unregistered. What is registered belongs to a [`Registered`], and one function of that is both
//! the rollback and the normal end, so that neither has a loop of its own that hardly ever runs.
//!
//! CUDA may refuse to unregister, too: after a kernel has failed, it refuses everything. What is still registered then is
//! never let out of hand: it must stay mapped, since a device may still reach it.

use super::api::{Code, CudaApi, Flag};
use super::chunks::{self, CHUNK_BYTES, Chunk};
use super::error::{Failure, Piece, PinError};
use crate::memory::fork::Birthplace;
use crate::memory::syscalls;

/// `cudaErrorInvalidValue`: what a kernel that could not pin the pages looks like, too.
const INVALID_VALUE: Code = 1;
/// Codes by which nothing is registered any more, whatever was: the library is shutting down, or it is not registered.
const NOTHING_LEFT: [Code; 2] = [4, 713];

/// Memory to be page-locked as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// What it is, for people.
    pub name: String,
    /// Its first address.
    pub address: usize,
    /// Its length in bytes. Nothing is done about an empty one.
    pub bytes: usize,
    /// Bytes that are copied as one and must not be cut: those of a batch. 0 or 1 if that does not matter.
    pub row_bytes: usize,
}

/// What the device may do to the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permission {
    /// Read and write: the mapping must be writable.
    ReadWrite,
    /// Read, of a mapping that may be read-only; not every device can do that.
    ReadOnly,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that are registered.
    pub done: u64,
    /// Bytes in all.
    pub of: u64,
}

/// How to register.
pub struct Registration<'a> {
    /// What the device may do to the memory.
    pub permission: Permission,
    /// Most bytes of one call, if a row is not larger.
    pub chunk_bytes: usize,
    /// Called after each piece.
    pub progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Registration<'a> {
    /// Writable memory in pieces of the usual size.
    pub fn new(progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self { permission: Permission::ReadWrite, chunk_bytes: CHUNK_BYTES, progress }
    }
}

/// Memory that is registered. Dropping it unregisters what CUDA lets go of; [`unpin_all`] says what it does not.
#[derive(Debug)]
#[must_use = "dropping it unregisters the memory"]
pub struct Registered {
    api: CudaApi,
    chunks: Vec<Chunk>,
    bytes: u64,
    permission: Permission,
    birthplace: Birthplace,
}

/// An attempt that failed.
#[derive(Debug)]
pub struct Unpinned {
    /// Why.
    pub error: PinError,
    /// What had been registered before and could not be unregistered. Nothing, as a rule.
    pub left: Registered,
}

impl Registered {
    /// The library that it is registered with.
    pub fn library(&self) -> &str {
        self.api.library()
    }

    /// Bytes that are registered.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many calls it took: the pieces.
    pub const fn pieces(&self) -> usize {
        self.chunks.len()
    }

    fn add(&mut self, chunk: Chunk) {
        self.chunks.push(chunk);
        self.bytes += chunk.bytes as u64;
    }

    /// What the device may do to it.
    pub const fn permission(&self) -> Permission {
        self.permission
    }

    /// Unregisters the last piece first. Pieces that cannot be unregistered stay in the list.
    fn unregister(&mut self) -> Result<(), PinError> {
        if self.birthplace.is_elsewhere() {
            // The registrations are the parent's, and CUDA is of no use in a forked child.
            self.chunks.clear();
            self.bytes = 0;
            return Ok(());
        }
        let mut first = None;
        self.chunks.reverse();
        self.chunks.retain(|chunk| match self.api.unregister(chunk.address) {
            Err(code) if !NOTHING_LEFT.contains(&code) => {
                first.get_or_insert(code);
                true
            }
            _ => false,
        });
        self.bytes = self.chunks.iter().map(|chunk| chunk.bytes as u64).sum();
        match first {
            None => Ok(()),
            Some(code) => Err(PinError::Unregister {
                library: self.api.library().into(),
                failure: Failure::of(&self.api, code),
                left: self.chunks.len(),
            }),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Nobody can be told here; who wants to know calls `unpin_all`.
        let _ = self.unregister();
    }
}

/// Page-locks all regions with CUDA, or none of them.
///
/// # Errors
/// [`PinError::Register`] with the piece that was refused, and what is left of those before it.
///
/// # Safety
/// Each region is a mapping that is shared, or anonymous memory of this process: what a private mapping of a file shows,
/// registering copies. It stays mapped until [`unpin_all`] has returned `Ok` for what is returned here, or for what an error
/// has left.
pub unsafe fn pin_all(
    api: &CudaApi,
    regions: &[Region],
    how: &mut Registration<'_>,
) -> Result<Registered, Box<Unpinned>> {
    let (api, permission, birthplace) = (api.clone(), how.permission, Birthplace::here());
    let mut registered = Registered { api, chunks: Vec::new(), bytes: 0, permission, birthplace };
    let of = regions.iter().map(|region| region.bytes as u64).sum();
    for region in regions {
        let pieces = || chunks::of(region, how.chunk_bytes.max(1), syscalls::page_size());
        for (index, chunk) in pieces().enumerate() {
            // SAFETY: part of a region, which is mapped by the caller's word.
            if let Err(code) = unsafe { register(&registered.api, chunk, how.permission) } {
                let piece = Piece {
                    region: region.name.clone(),
                    index,
                    of: pieces().count(),
                    address: chunk.address,
                    bytes: chunk.bytes,
                };
                // Asked before the rollback, whose calls may fail as well.
                let failure = Failure::of(&registered.api, code);
                let left = registered.unregister().err().map_or(0, |_| registered.pieces());
                let library = registered.library().into();
                let error =
                    PinError::Register { library, failure, piece: Box::new(piece), left, probes: Vec::new() };
                return Err(Box::new(Unpinned { error, left: registered }));
            }
            registered.add(chunk);
            (how.progress)(Progress { done: registered.bytes(), of });
        }
    }
    Ok(registered)
}

/// # Safety
/// The piece is mapped, and stays so until it is unregistered.
unsafe fn register(api: &CudaApi, chunk: Chunk, permission: Permission) -> Result<(), Code> {
    let flag = match permission {
        Permission::ReadWrite => Flag::Portable,
        Permission::ReadOnly => Flag::ReadOnly,
    };
    // SAFETY: the caller's word.
    match unsafe { api.register(chunk.address, chunk.bytes, flag) } {
        // A kernel that was just moving one of the pages could not pin it, and will the next time.
        // SAFETY: the caller's word; the attempt before it registered nothing.
        Err(INVALID_VALUE) => unsafe { api.register(chunk.address, chunk.bytes, flag) },
        result => result,
    }
}

/// Unregisters everything, and says what could not be, which stays in `registered`. It can be tried again.
///
/// # Errors
/// [`PinError::Unregister`].
///
/// # Safety
/// As long as something is left in `registered`, its memory stays mapped.
pub unsafe fn unpin_all(registered: &mut Registered) -> Result<(), PinError> {
    registered.unregister()
}
