//! Who is at the other end of a socket, and whether it can still write.
//!
//! The kernel says who a peer is; nothing that the peer says about itself counts. Its pid is for people, since
//! it may be in use again, or zero from another PID namespace. What proves that a process is gone is its pidfd,
//! which becomes readable when it exits and never names another one. Kernels before 6.5 give none for a socket: there
//! one is opened by the peer's pid, and proven by the peer's first message (see [`Peer::prove`]). End of file on the socket proves nothing:
//! a process can drop its client and live on with the memory mapped, and a forked child can keep it open.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, getsockopt, recvmsg, setsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::access::Caller;
use crate::wire::fds::peer_groups;

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    pid: u32,
    caller: Caller,
    pidfd: Option<OwnedFd>,
    /// The kernel gives no pidfd for its socket, and its first message has not been looked at.
    unproven: bool,
    /// Opened by its pid, which may have been another's by then; none if the pid says nothing here.
    by_pid: Option<OwnedFd>,
}

impl Peer {
    /// The process that connected this socket.
    ///
    /// On kernels before 6.5 there is no safe way from a socket to a pidfd, and [`Peer::pidfd`] is none until
    /// [`Peer::prove`].
    ///
    /// # Errors
    /// If the socket has no peer.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Self::with_pidfd(socket, getsockopt(&socket, sockopt::PeerPidfd))
    }

    fn with_pidfd(socket: BorrowedFd<'_>, pidfd: nix::Result<OwnedFd>) -> io::Result<Self> {
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
        let unproven = matches!(pidfd, Err(Errno::ENOPROTOOPT));
        let (pidfd, by_pid) = match pidfd {
            Ok(pidfd) => (Some(pidfd), None),
            Err(Errno::ENOPROTOOPT) => (None, opened(credentials.pid())?),
            Err(errno) => return Err(errno.into()),
        };
        let mut groups = peer_groups(socket)?;
        groups.push(credentials.gid());
        groups.sort_unstable();
        groups.dedup();
        Ok(Self {
            pid: credentials.pid().try_into().unwrap_or(0),
            caller: Caller { uid: credentials.uid(), groups },
            pidfd,
            unproven,
            by_pid,
        })
    }

    /// Whether it takes the first message to know its process.
    pub const fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// Proves from a message that waits at the socket that the pidfd is its sender's.
    ///
    /// The pidfd was opened by pid before the message is looked at. If the kernel says that the message came from
    /// that pid, and the pidfd's process has not exited even now, then whoever sent it had the pid that this process has
    /// now. Either it is this process, or it sent the message, died, and its pid was given away before the pidfd was
    /// opened: then what it leaves is kept until the other one exits, which is late and harms nobody. Without a proof there
    /// stays none: what such a client may do ends with its goodbye, and otherwise only with the daemon.
    ///
    /// # Errors
    /// If the message cannot be looked at.
    pub fn prove(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let sender = sender_of_next(socket)?;
        self.unproven = false;
        self.pidfd = self
            .by_pid
            .take()
            .filter(|pidfd| sender.is_some() && sender == Some(self.pid) && ProofOfExit::of(pidfd).is_none());
        // What is received from now on needs no room for credentials.
        Ok(setsockopt(&socket, sockopt::PassCred, &false)?)
    }

    /// Its process id when it connected, for people; 0 where the kernel does not say.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its user.
    pub const fn uid(&self) -> u32 {
        self.caller.uid
    }

    /// Its user and groups.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What becomes readable when it exits.
    pub fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }
}

/// A pidfd of that pid, if it is that of a process here.
fn opened(pid: i32) -> io::Result<Option<OwnedFd>> {
    use rustix::io::Errno;
    // From another PID namespace it is 0.
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        // Its process is gone. One that cannot be opened for want of descriptors is another matter.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Lets messages to the sockets that are accepted say who sent them, if [`Peer::prove`] will need it.
///
/// # Errors
/// If the socket listens for nobody.
pub fn prepare(listener: BorrowedFd<'_>) -> io::Result<()> {
    // Any other error is of an option that is known.
    match getsockopt(&listener, sockopt::PeerPidfd) {
        Err(Errno::ENOPROTOOPT) => Ok(setsockopt(&listener, sockopt::PassCred, &true)?),
        _ => Ok(()),
    }
}

/// The pid that the kernel gives for the sender of the packet that waits; none if it gives none.
fn sender_of_next(socket: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    use std::os::fd::AsRawFd;
    let mut room = nix::cmsg_space!(nix::sys::socket::UnixCredentials);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut bytes, Some(&mut room), flags)?;
    let sender = message.cmsgs()?.find_map(|part| match part {
        ControlMessageOwned::ScmCredentials(sender) => u32::try_from(sender.pid()).ok(),
        _ => None,
    });
    Ok(sender.filter(|&pid| pid > 0))
}

/// That a process can no longer touch memory that it had mapped. Reclaiming asks for it.
#[derive(Debug)]
pub struct ProofOfExit(());

impl ProofOfExit {
    /// If the process of that pidfd has exited. Its mappings are gone, and forked children do not inherit those of
    /// our client. (One that is made otherwise can keep its table's memory, which it could spoil anyway.)
    pub fn of(pidfd: &OwnedFd) -> Option<Self> {
        let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let readable = matches!(poll(&mut fds, Some(&now)), Ok(1));
        readable.then_some(Self(()))
    }

    /// If the client itself said that it unmapped. A client that lies harms the table whose memory it kept, and
    /// that table's workers could do so anyway.
    pub const fn unmapped() -> Self {
        Self(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::wire::socket;
    use crate::wire::socket_path::SocketGuard;

    #[test]
    fn a_peer_is_who_the_kernel_says_and_is_gone_when_it_exited() {
        let path = std::env::temp_dir().join(format!("echo-peer-{}.sock", std::process::id()));
        let (listener, guard) = SocketGuard::bind(&path).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let client = socket::connect(&path, deadline).unwrap();
        assert!(socket::wait_readable(listener.as_fd(), deadline).unwrap());
        let server = socket::accept(listener.as_fd()).unwrap().unwrap();

        let peer = Peer::of(server.as_fd()).unwrap();
        assert_eq!(peer.pid(), std::process::id());
        assert_eq!(peer.uid(), rustix::process::getuid().as_raw());
        assert!(peer.caller().groups.contains(&rustix::process::getgid().as_raw()));
        for group in rustix::process::getgroups().unwrap() {
            assert!(peer.caller().groups.contains(&group.as_raw()), "{group:?}");
        }
        if let Some(pidfd) = peer.pidfd() {
            assert!(ProofOfExit::of(pidfd).is_none(), "this process lives");
        }
        drop((client, guard));
    }

    #[test]
    fn without_help_of_the_kernel_the_first_message_proves_who_a_peer_is() {
        let path = std::env::temp_dir().join(format!("echo-unproven-{}.sock", std::process::id()));
        let (listener, _guard) = SocketGuard::bind(&path).unwrap();
        // As `prepare` does on an old kernel.
        setsockopt(&listener, sockopt::PassCred, &true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let accepted = || {
            let client = socket::connect(&path, deadline).unwrap();
            assert!(socket::wait_readable(listener.as_fd(), deadline).unwrap());
            let server = socket::accept(listener.as_fd()).unwrap().unwrap();
            socket::send(client.as_fd(), b"hello", &[]).unwrap();
            (client, server)
        };
        let (_client, server) = accepted();
        let mut peer = Peer::with_pidfd(server.as_fd(), Err(Errno::ENOPROTOOPT)).unwrap();
        assert!(peer.pidfd().is_none() && peer.is_unproven());
        peer.prove(server.as_fd()).unwrap();
        assert!(ProofOfExit::of(peer.pidfd().expect("proven")).is_none(), "this process lives");
        let mut buffer = [0; 64];
        let received = socket::receive(server.as_fd(), &mut buffer).unwrap();
        assert!(
            matches!(received, socket::Received::Packet(packet) if packet.bytes == 5),
            "it was only looked at"
        );

        // A pid that is another's proves nothing.
        let (_client, server) = accepted();
        let mut peer = Peer::with_pidfd(server.as_fd(), Err(Errno::ENOPROTOOPT)).unwrap();
        peer.pid += 1;
        peer.prove(server.as_fd()).unwrap();
        assert!(peer.pidfd().is_none() && !peer.is_unproven());
    }

    #[test]
    fn a_pidfd_proves_the_exit_of_its_process() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        assert!(ProofOfExit::of(&pidfd).is_none());
        drop(child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        assert!(socket::wait_readable(pidfd.as_fd(), deadline).unwrap(), "cat ends with its input");
        assert!(ProofOfExit::of(&pidfd).is_some(), "before it is waited for");
        child.wait().unwrap();
        assert!(ProofOfExit::of(&pidfd).is_some(), "and after");
    }
}
