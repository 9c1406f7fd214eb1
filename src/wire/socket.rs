//! Packets with descriptors over a Unix SEQPACKET socket. Nothing here blocks but the waits that say so.
//!
//! One message is one packet. A descriptor that arrives is owned before anything else is looked at, so that no
//! error can leak it, and is closed with the packet unless somebody takes it.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use thiserror::Error;

use crate::wire::message::MAX_DESCRIPTORS;

/// Descriptors that fit beside a packet. A buffer for one has room for two on 64-bit, so ask for what is meant.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS));

/// What went wrong on a socket.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum SocketError {
    #[error("cannot {doing} the socket")]
    Os { doing: &'static str, source: io::Error },
    #[error("a packet was longer than the {0} bytes that a message may have")]
    Truncated(usize),
    #[error("descriptors were lost on their way: raise the limit of open files (RLIMIT_NOFILE)")]
    DescriptorsLost,
}

impl SocketError {
    /// Whether the kernel says that a permission is missing.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self, Self::Os { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the peer is gone.
    pub fn is_closed(&self) -> bool {
        let closed = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        matches!(self, Self::Os { source, .. } if closed.contains(&source.kind()))
    }

    /// Whether the same may succeed later: the backlog is full.
    pub fn is_would_block(&self) -> bool {
        matches!(self, Self::Os { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }
}

fn os(doing: &'static str) -> impl FnOnce(Errno) -> SocketError {
    move |errno| SocketError::Os { doing, source: errno.into() }
}

/// What became of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// All of it is on its way.
    Done,
    /// None of it: the peer reads too slowly.
    WouldBlock,
}

/// What a receive found.
#[derive(Debug)]
pub enum Received {
    /// A packet, in the buffer.
    Packet(Packet),
    /// Nothing yet.
    WouldBlock,
    /// The peer is gone.
    Closed,
}

/// A packet that was received.
#[derive(Debug)]
pub struct Packet {
    /// Bytes of the buffer that it fills.
    pub bytes: usize,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
    /// More came, for which this process had no room. What was sent before and after it is unharmed.
    pub descriptors_lost: bool,
}

fn new_socket() -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(os("make"))
}

/// A socket that listens at the path, which must be free.
///
/// # Errors
/// If the path is taken, too long, or not to be written.
pub fn listen(path: &Path, backlog: i32) -> Result<OwnedFd, SocketError> {
    let socket = new_socket()?;
    let address = SocketAddrUnix::new(path).map_err(os("name"))?;
    rustix::net::bind(&socket, &address).map_err(os("bind"))?;
    rustix::net::listen(&socket, backlog).map_err(os("listen on"))?;
    Ok(socket)
}

/// A connection to whoever listens at the path.
///
/// # Errors
/// If nobody does, or the backlog stays full until the deadline.
pub fn connect(path: &Path, deadline: Instant) -> Result<OwnedFd, SocketError> {
    let socket = new_socket()?;
    let address = SocketAddrUnix::new(path).map_err(os("name"))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            // The backlog is full. There is nothing to poll for before the socket is connected.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(errno) => return Err(os("connect")(errno)),
        }
    }
}

/// The path that a socket listens at; `None` if it has none that is a path.
pub fn path_of(listener: BorrowedFd<'_>) -> Option<PathBuf> {
    let address = SocketAddrUnix::try_from(rustix::net::getsockname(listener).ok()?).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(address.path_bytes()?)))
}

/// The next connection, if one waits.
///
/// # Errors
/// What `accept` says, but for connections that are gone by now.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends a packet, if it can be sent now.
///
/// # Errors
/// If the peer is gone.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Sent, SocketError> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "{} descriptors", fds.len());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        return match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(Sent::Done),
            Err(Errno::INTR) => continue,
            // Too many descriptors in flight pass as well when the peers read theirs.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => Ok(Sent::WouldBlock),
            Err(errno) => Err(os("send on")(errno)),
        };
    }
}

/// Receives a packet into the buffer, if one is there. The buffer is longer than any message.
///
/// # Errors
/// If the packet did not fit.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, SocketError> {
    receive_with(socket, buffer, RecvFlags::DONTWAIT)
}

/// As [`receive`], but waits for a packet: one call where polling takes three. The socket has been prepared by
/// [`let_receives_wait`], which says for how long.
///
/// # Errors
/// As [`receive`].
pub fn receive_waiting(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, SocketError> {
    receive_with(socket, buffer, RecvFlags::empty())
}

/// Lets [`receive_waiting`] wait so long, or until the connection ends. Nothing else here waits by it.
///
/// # Errors
/// What the kernel says.
pub fn let_receives_wait(socket: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, false)?;
    Ok(rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, timeout)?)
}

fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8], wait: RecvFlags) -> Result<Received, SocketError> {
    let room = buffer.len();
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = wait | RecvFlags::CMSG_CLOEXEC;
    let mut was_reset = false;
    let message = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Ok(message) => break message,
            // One who waits looks around and waits again, and must come to that however often it is interrupted.
            Err(Errno::INTR) if !wait.is_empty() => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::WouldBlock),
            // A peer that closed with something unread resets the connection, which is said once and before what
            // it sent last: a goodbye, or why it closed.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Received::Closed),
            Err(errno) => return Err(os("receive from")(errno)),
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            descriptors.extend(fds);
        }
    }
    let descriptors_lost = message.flags.contains(ReturnFlags::CTRUNC);
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(SocketError::Truncated(room));
    }
    match message.bytes {
        // An empty packet looks like the end, and is treated as one.
        0 => Ok(Received::Closed),
        bytes => Ok(Received::Packet(Packet { bytes, descriptors, descriptors_lost })),
    }
}

/// Waits until there is something to receive (or the peer is gone). False if the deadline passes first.
///
/// # Errors
/// What `poll` says.
pub fn wait_readable(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    wait(socket, PollFlags::IN, deadline)
}

/// Waits until a packet can be sent. False if the deadline passes first.
///
/// # Errors
/// What `poll` says.
pub fn wait_writable(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<bool> {
    wait(socket, PollFlags::OUT, deadline)
}

fn wait(fd: BorrowedFd<'_>, events: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout =
            Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(fd, events)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Lets no client send descriptors: accepted sockets inherit it.
///
/// # Errors
/// On kernels before 6.16, which cannot; then each packet's descriptors are closed when it is received.
pub fn refuse_descriptors(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SO_PASSRIGHTS, which neither nix nor rustix knows.
    const SO_PASSRIGHTS: i32 = 83;
    crate::wire::fds::set_socket_flag(listener, SO_PASSRIGHTS, false)
}
