//! Waiting until a descriptor is readable or writable, without a thread.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the event loop.
///
/// # Errors
/// If the kernel refuses it.
#[expect(
    deprecated,
    reason = "its successors are unsafe, since a type may answer with another descriptor each time; an OwnedFd cannot"
)]
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}
