//! Host memory that is registered, with a pin for each range where the kernel lets us have one.
//!
//! Ranges are bytes, not pages: two may lie on one page, and none overlaps another. No entry means no pin.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use rustix::fs::FlockOperation;

use crate::Code;
use crate::codes::{
    ALREADY_REGISTERED, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_REGISTERED, NOT_SUPPORTED, OUT_OF_MEMORY,
};
use crate::devices::{self, HOST_PAGE_TABLES, HOST_REGISTER, READ_ONLY_REGISTER};
use crate::journal;
use crate::knobs::Knobs;
use crate::maps::{self, Memory};
use crate::pin::{Pin, Refusal};

const IO_MEMORY: u32 = 4;
const READ_ONLY: u32 = 8;
const FLAGS: u32 = 15;
/// Portable and mapped, which all memory is where addresses are unified.
const ALWAYS: u32 = 3;
/// From here on a driver cannot keep its books in one allocation.
const TOO_LARGE: usize = 512 << 30;

#[derive(Default)]
pub(crate) struct Registrations {
    ranges: BTreeMap<usize, Range>,
}

struct Range {
    bytes: usize,
    flags: u32,
    pin: Option<Pin>,
    /// The context under which it was registered, for the driver.
    context: usize,
}

impl Registrations {
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.ranges.values().map(|range| range.bytes).sum()
    }

    pub(crate) fn register(
        &mut self,
        library: &str,
        knobs: &Knobs,
        context: usize,
        (start, bytes, flags): (usize, usize, u32),
    ) -> Result<(), Code> {
        let end = start.checked_add(bytes).ok_or(INVALID_VALUE)?;
        // Memory of a device's registers is not what a process has.
        if start == 0 || bytes == 0 || flags & !FLAGS != 0 || flags & IO_MEMORY != 0 {
            return Err(INVALID_VALUE);
        }
        if bytes >= TOO_LARGE {
            return Err(OUT_OF_MEMORY);
        }
        let has = |attribute| devices::attribute(knobs, attribute) != 0;
        let by_host_tables = has(HOST_PAGE_TABLES);
        let read_only = flags & READ_ONLY != 0;
        if !has(HOST_REGISTER) || (read_only && !by_host_tables && !has(READ_ONLY_REGISTER)) {
            return Err(NOT_SUPPORTED);
        }
        if self.ranges.range(..end).next_back().is_some_and(|(&at, range)| at + range.bytes > start) {
            return Err(ALREADY_REGISTERED);
        }
        if (bytes as u64).saturating_add(self.bytes() as u64) > knobs.registered {
            return Err(OUT_OF_MEMORY);
        }
        let memory = maps::look(start, bytes).ok_or(INVALID_VALUE)?;
        if !memory.is_readable || memory.is_on_disk || !(memory.is_writable || read_only || by_host_tables) {
            return Err(INVALID_VALUE);
        }
        let _alone = alone(knobs, &memory)?;
        if let Some(fifo) = &knobs.hold {
            journal::note(library, "held");
            drop(File::open(fifo));
        }
        let pin = if by_host_tables {
            journal::note(library, "unpinned: the device uses the host's page tables");
            None
        } else if !knobs.pin {
            journal::note(library, "unpinned: by ECHO_FAKE_CUDA_PIN");
            None
        } else {
            match Pin::take(start, bytes) {
                Ok(pin) => Some(pin),
                Err(Refusal::Memory) if read_only && !memory.is_writable => {
                    journal::note(library, "unpinned: the kernel pins for writing, and this is to be read");
                    None
                }
                Err(Refusal::Memory) => return Err(INVALID_VALUE),
                Err(Refusal::Kernel(error)) => {
                    journal::note(library, format_args!("unpinned: {error}"));
                    None
                }
            }
        };
        self.ranges.insert(start, Range { bytes, flags, pin, context });
        Ok(())
    }

    /// By the address that was registered, and no other.
    pub(crate) fn unregister(&mut self, start: usize) -> Result<(), Code> {
        if self.ranges.remove(&start).is_some() {
            return Ok(());
        }
        Err(if start == 0 || self.find(start, 1).is_some() { INVALID_VALUE } else { NOT_REGISTERED })
    }

    pub(crate) fn flags(&mut self, address: usize) -> Result<u32, Code> {
        self.find(address, 1).map(|(_, range)| range.flags | ALWAYS).ok_or(INVALID_VALUE)
    }

    /// The context under which something was registered.
    pub(crate) fn context(&self, start: usize) -> Option<usize> {
        self.ranges.get(&start).map(|range| range.context)
    }

    /// Copies. What is registered is read and written by the pages that are pinned, whatever is mapped there now.
    ///
    /// # Safety
    /// What is not registered is valid for so many bytes, and nobody else uses it meanwhile.
    pub(crate) unsafe fn copy(&mut self, to: usize, from: usize, bytes: usize) -> Result<(), Code> {
        const PIECE: usize = 1 << 20;
        let mut piece = vec![0; PIECE.min(bytes)];
        for offset in (0..bytes).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(bytes - offset)];
            let (to, from) = (to + offset, from + offset);
            match self.pin_of(from, piece.len()) {
                Some(pin) => pin.read(from, piece).map_err(illegal)?,
                None => {
                    let from = std::ptr::with_exposed_provenance::<u8>(from);
                    // SAFETY: valid by our caller's promise; the piece is our own, and as long.
                    unsafe { from.copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len()) };
                }
            }
            match self.pin_of(to, piece.len()) {
                Some(pin) => pin.write(to, piece).map_err(illegal)?,
                None => {
                    let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
                    // SAFETY: as above.
                    unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
                }
            }
        }
        Ok(())
    }

    fn pin_of(&mut self, address: usize, bytes: usize) -> Option<&mut Pin> {
        self.find(address, bytes)?.1.pin.as_mut()
    }

    /// The range that holds all of this.
    fn find(&mut self, address: usize, bytes: usize) -> Option<(usize, &mut Range)> {
        let end = address.checked_add(bytes)?;
        let (&start, range) = self.ranges.range_mut(..=address).next_back()?;
        (end <= start + range.bytes).then_some((start, range))
    }
}

fn illegal(error: io::Error) -> Code {
    eprintln!("a fake GPU cannot reach what is pinned: {error}");
    ILLEGAL_ADDRESS
}

/// Holds the files of the memory against other processes, if that is asked for.
fn alone(knobs: &Knobs, memory: &Memory) -> Result<Vec<File>, Code> {
    let Some(directory) = &knobs.exclusive else { return Ok(Vec::new()) };
    let hold = |(device, inode): &(String, u64)| {
        let file = File::create(directory.join(format!("{device}-{inode}"))).map_err(|_| INVALID_VALUE)?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        locked.map(|()| file).map_err(|_| INVALID_VALUE)
    };
    memory.files.iter().map(hold).collect()
}
