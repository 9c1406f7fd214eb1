//! Descriptors that were not opened here: the socket that systemd passes, and what the wrappers of system calls
//! do not cover. All the unsafe of the wire.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::net::sockopt;
use thiserror::Error;

/// First descriptor that systemd passes.
const FIRST_INHERITED: i32 = 3;

/// A socket that systemd passed and that is of no use.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum InheritedError {
    #[error("{0} descriptors were passed, one is expected: give the service one socket unit")]
    Count(String),
    #[error("the inherited descriptor is {what}: use ListenSequentialPacket= in the socket unit")]
    Kind { what: String },
    #[error("the inherited descriptor cannot be used")]
    Os(#[source] io::Error),
}

/// The listening socket that systemd passed to this process, if it passed any. To be called once, before
/// anything else opens descriptors.
///
/// # Errors
/// If what was passed is no listening Unix socket of packets.
pub fn inherited_listener() -> Result<Option<OwnedFd>, InheritedError> {
    let var = |name: &str| std::env::var(name).ok();
    if !is_for(std::process::id(), var("LISTEN_PID").as_deref(), var("LISTEN_FDS").as_deref())? {
        return Ok(None);
    }
    // SAFETY: systemd's protocol says that descriptor 3 was opened for the process that LISTEN_PID names, which
    // is this one (checked by `is_for`), and gives it to nobody else; this is called once, so nothing here owns
    // it.
    let listener = unsafe { OwnedFd::from_raw_fd(FIRST_INHERITED) };
    let family = sockopt::socket_domain(&listener).map_err(|errno| InheritedError::Os(errno.into()))?;
    let kind = sockopt::socket_type(&listener).map_err(|errno| InheritedError::Os(errno.into()))?;
    let listens = sockopt::socket_acceptconn(&listener).map_err(|errno| InheritedError::Os(errno.into()))?;
    if family != rustix::net::AddressFamily::UNIX || kind != rustix::net::SocketType::SEQPACKET || !listens {
        let what = format!("of {family:?} and {kind:?}, listening: {listens}");
        return Err(InheritedError::Kind { what });
    }
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)
        .and_then(|()| rustix::fs::fcntl_getfl(&listener))
        .and_then(|flags| rustix::fs::fcntl_setfl(&listener, flags | rustix::fs::OFlags::NONBLOCK))
        .map_err(|errno| InheritedError::Os(errno.into()))?;
    Ok(Some(listener))
}

/// Whether descriptors were passed to the process of that id.
fn is_for(own: u32, pid: Option<&str>, fds: Option<&str>) -> Result<bool, InheritedError> {
    let (Some(pid), Some(fds)) = (pid, fds) else { return Ok(false) };
    // Meant for a process that started this one.
    if pid.parse() != Ok(own) {
        return Ok(false);
    }
    match fds {
        "1" => Ok(true),
        "0" => Ok(false),
        other => Err(InheritedError::Count(other.to_owned())),
    }
}

/// Sets a socket option of SOL_SOCKET that is on or off.
pub(crate) fn set_socket_flag(socket: BorrowedFd<'_>, option: i32, on: bool) -> io::Result<()> {
    let value: libc::c_int = on.into();
    // SAFETY: the descriptor is borrowed and open; the value points to a c_int that lives past the call, and the
    // length is its size, which is what options of this kind take.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The groups of the process that connected the socket, beside its main one. Neither nix nor rustix knows the option.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    /// Most groups that the kernel lets a process have.
    const NGROUPS_MAX: usize = 65536;
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut bytes = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: the descriptor is borrowed and open; the value points to as many bytes as the length says, which
        // live past the call and of which any pattern is a u32; the length is this function's own.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let needed = bytes as usize / size_of::<u32>();
        match io::Error::last_os_error() {
            _ if result == 0 => {
                groups.truncate(needed);
                return Ok(groups);
            }
            // There are more: the length says how many.
            error if error.raw_os_error() == Some(libc::ERANGE) && needed > groups.len() => {
                groups.resize(needed.min(NGROUPS_MAX), 0);
            }
            error => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_for_another_process_are_left_alone() {
        assert!(!is_for(7, None, None).unwrap());
        assert!(!is_for(7, Some("8"), Some("1")).unwrap());
        assert!(!is_for(7, Some("seven"), Some("1")).unwrap());
        assert!(is_for(7, Some("7"), Some("1")).unwrap());
    }

    #[test]
    fn more_than_one_socket_is_an_error_that_says_so() {
        let error = is_for(7, Some("7"), Some("2")).unwrap_err().to_string();
        assert!(error.starts_with("2 descriptors were passed"), "{error}");
    }
}
