//! Who is at the other end of a socket, and whether it can still write.
//!
//! The kernel says who a peer is; nothing that the peer says about itself counts. Its pid is for people, since
//! it may be in use again, or zero from another PID namespace. What proves that a process is gone is its pidfd,
//! which becomes readable when it exits and never names another one. End of file on the socket proves nothing:
//! a process can drop its client and live on with the memory mapped, and a forked child can keep it open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    pid: u32,
    uid: u32,
    gid: u32,
    pidfd: Option<OwnedFd>,
}

impl Peer {
    /// The process that connected this socket.
    ///
    /// On kernels before 6.5 there is no safe way from a socket to a pidfd, and [`Peer::pidfd`] is none: what
    /// such a client may do ends with its goodbye, and otherwise only with the daemon.
    ///
    /// # Errors
    /// If the socket has no peer.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        Self::with_pidfd(socket, getsockopt(&socket, sockopt::PeerPidfd))
    }

    fn with_pidfd(socket: BorrowedFd<'_>, pidfd: nix::Result<OwnedFd>) -> io::Result<Self> {
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)?;
        let pidfd = match pidfd {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::ENOPROTOOPT) => None,
            Err(errno) => return Err(errno.into()),
        };
        Ok(Self {
            pid: credentials.pid().try_into().unwrap_or(0),
            uid: credentials.uid(),
            gid: credentials.gid(),
            pidfd,
        })
    }

    /// Its process id when it connected, for people; 0 where the kernel does not say.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its user.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// Its group.
    pub const fn gid(&self) -> u32 {
        self.gid
    }

    /// What becomes readable when it exits.
    pub fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }
}

/// That a process can no longer touch memory that it had mapped. Reclaiming asks for it.
#[derive(Debug)]
pub struct ProofOfExit(());

impl ProofOfExit {
    /// If the process of that pidfd has exited. Its mappings are gone, and since they are not inherited by
    /// forked children, so is every way to write through them.
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
        if let Some(pidfd) = peer.pidfd() {
            assert!(ProofOfExit::of(pidfd).is_none(), "this process lives");
        }
        let old_kernel = Peer::with_pidfd(server.as_fd(), Err(Errno::ENOPROTOOPT)).unwrap();
        assert!(old_kernel.pidfd().is_none());
        drop((client, guard));
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
