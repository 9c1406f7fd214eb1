//! A hold on pages, as a driver takes one: for as long as it lasts, and whatever the process maps meanwhile.
//!
//! It is a fixed buffer of an io_uring. Bytes are read and written through it, by the pages that were pinned and not by
//! the address, so that pages which the process has lost meanwhile are seen for what they are.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::fs::MemfdFlags;

/// The most that one fixed buffer holds.
const BUFFER: usize = 1 << 30;

pub(crate) struct Pin {
    ring: IoUring,
    start: usize,
    /// Bytes on their way between the pages and a caller.
    passage: File,
}

/// Why there is no pin.
pub(crate) enum Refusal {
    /// The memory cannot be pinned, by a driver no more than by us.
    Memory,
    /// The kernel has no pin for this process.
    Kernel(io::Error),
}

impl Pin {
    pub(crate) fn take(start: usize, bytes: usize) -> Result<Self, Refusal> {
        let ring = IoUring::new(1).map_err(Refusal::Kernel)?;
        let passage = rustix::fs::memfd_create("echo-fake-passage", MemfdFlags::CLOEXEC);
        let passage = File::from(passage.map_err(|error| Refusal::Kernel(error.into()))?);
        let buffers: Vec<libc::iovec> = (0..bytes.div_ceil(BUFFER))
            .map(|i| libc::iovec {
                iov_base: std::ptr::without_provenance_mut(start + i * BUFFER),
                iov_len: BUFFER.min(bytes - i * BUFFER),
            })
            .collect();
        // SAFETY: the caller of a registration keeps its memory until it ends. If it does not, the kernel keeps the pages.
        let done = unsafe { ring.submitter().register_buffers(&buffers) };
        match done {
            Ok(()) => Ok(Self { ring, start, passage }),
            // Older kernels say of a file's pages that it is not supported.
            Err(error) if [Some(libc::EFAULT), Some(libc::EOPNOTSUPP)].contains(&error.raw_os_error()) => {
                Err(Refusal::Memory)
            }
            Err(error) => Err(Refusal::Kernel(error)),
        }
    }

    /// Reads what is in the pages that were pinned.
    pub(crate) fn read(&mut self, address: usize, bytes: &mut [u8]) -> io::Result<()> {
        let into = types::Fd(self.passage.as_raw_fd());
        for (offset, part, buffer) in self.parts(address, bytes.len()) {
            let from = std::ptr::without_provenance(address + offset);
            let entry = opcode::WriteFixed::new(into, from, part as u32, buffer).offset(0).build();
            self.move_bytes(&entry, part)?;
            self.passage.read_exact_at(&mut bytes[offset..][..part], 0)?;
        }
        Ok(())
    }

    /// Writes into the pages that were pinned.
    pub(crate) fn write(&mut self, address: usize, bytes: &[u8]) -> io::Result<()> {
        let from = types::Fd(self.passage.as_raw_fd());
        for (offset, part, buffer) in self.parts(address, bytes.len()) {
            self.passage.write_all_at(&bytes[offset..][..part], 0)?;
            let into = std::ptr::without_provenance_mut(address + offset);
            let entry = opcode::ReadFixed::new(from, into, part as u32, buffer).offset(0).build();
            self.move_bytes(&entry, part)?;
        }
        Ok(())
    }

    /// A range's parts, each within one buffer: offset, bytes, buffer.
    fn parts(&self, address: usize, bytes: usize) -> Vec<(usize, usize, u16)> {
        let mut parts = Vec::new();
        let mut offset = 0;
        while offset < bytes {
            let at = address + offset - self.start;
            let part = (bytes - offset).min(BUFFER - at % BUFFER);
            parts.push((offset, part, (at / BUFFER) as u16));
            offset += part;
        }
        parts
    }

    fn move_bytes(&mut self, entry: &squeue::Entry, bytes: usize) -> io::Result<()> {
        // SAFETY: the entry names the passage, which lives as long as the ring, and a buffer of the ring.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        self.ring.submit_and_wait(1)?;
        let done = self.ring.completion().next().map(|entry| entry.result());
        match done {
            Some(moved) if usize::try_from(moved) == Ok(bytes) => Ok(()),
            Some(error) if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            other => Err(io::Error::other(format!("moved {other:?} of {bytes} bytes"))),
        }
    }
}
