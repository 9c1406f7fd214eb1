//! Packets with what may come beside them: descriptors in any number and any number of pieces, and credentials.
//!
//! An input is packets, sent through a real socket as a client could send them, and received by the product. What
//! arrives is what was sent, or an error; and whatever becomes of it, no descriptor stays open. To see that, the
//! descriptors are the writing end of one pipe: its reading end hears when the last copy is closed, wherever in this
//! process it was.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use echo::wire::message::MAX_MESSAGE;
use echo::wire::socket::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, UCred,
};

use crate::input::Input;

/// Most packets of one input. A socket that nobody reads holds no more anyway.
const PACKETS: usize = 8;
/// Most pieces in which one packet's descriptors come.
const PIECES: u32 = 4;
/// Most descriptors of one piece.
const PER_PIECE: u32 = 8;
/// Room for the most that is sent beside a packet.
const SPACE: usize = rustix::cmsg_space!(
    ScmRights(PER_PIECE as usize),
    ScmRights(PER_PIECE as usize),
    ScmRights(PER_PIECE as usize),
    ScmRights(PER_PIECE as usize),
    ScmCredentials(1)
);

/// A packet that was sent.
struct Sent {
    bytes: Vec<u8>,
    descriptors: usize,
}

/// Any bytes, as packets.
///
/// # Panics
/// If something does not hold.
pub fn holds(bytes: &[u8]) {
    let (alive, copied) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    pass(bytes, &copied);
    drop(copied);
    let mut closed = [PollFd::new(&alive, PollFlags::IN)];
    poll(&mut closed, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("a pipe can be polled");
    assert!(
        closed[0].revents().contains(PollFlags::HUP),
        "a descriptor that came with a packet is still open"
    );
}

fn pass(bytes: &[u8], copied: &OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (theirs, ours) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .expect("a pair of sockets");
    let mut input = Input::new(bytes);
    // As a peer may ask of the kernel what the product does not: a receiver must stand it.
    let options = input.u8();
    if options & 1 != 0 {
        rustix::net::sockopt::set_socket_passcred(&ours, true).expect("any socket can");
    }
    let mut sent = Vec::new();
    while !input.is_empty() && sent.len() < PACKETS {
        sent.extend(send(&mut input, theirs.as_fd(), copied.as_fd()));
    }
    if options & 2 != 0 {
        drop(theirs);
    }
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    for packet in sent {
        arrives(ours.as_fd(), &mut buffer, &packet);
    }
    assert!(matches!(
        socket::receive(ours.as_fd(), &mut buffer),
        Ok(Received::WouldBlock | Received::Closed)
    ));
}

/// Sends the packet that the input describes, if the kernel lets it.
fn send(input: &mut Input<'_>, socket: BorrowedFd<'_>, copied: BorrowedFd<'_>) -> Option<Sent> {
    let kind = input.u8();
    let length = usize::from(input.u16());
    let bytes = match kind & 3 {
        0 => input.bytes(length % 64).to_vec(),
        1 => vec![kind; length],
        // Around the most that a message may have, and beyond.
        2 => vec![kind; MAX_MESSAGE - 2 + length % 8],
        _ => vec![kind; MAX_MESSAGE + length],
    };
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let copies = [copied; PER_PIECE as usize];
    let mut descriptors = 0;
    for _ in 0..u32::from(kind >> 2) % (PIECES + 1) {
        let piece = &copies[..input.below(PER_PIECE + 1) as usize];
        // An empty piece is one as well.
        if beside.push(SendAncillaryMessage::ScmRights(piece)) {
            descriptors += piece.len();
        }
    }
    if kind & 0x80 != 0 {
        let (pid, uid, gid) =
            (rustix::process::getpid(), rustix::process::getuid(), rustix::process::getgid());
        beside.push(SendAncillaryMessage::ScmCredentials(UCred { pid, uid, gid }));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, flags).ok()?;
    Some(Sent { bytes, descriptors })
}

fn arrives(socket: BorrowedFd<'_>, buffer: &mut [u8], sent: &Sent) {
    match socket::receive(socket, buffer) {
        Ok(Received::Packet(packet)) => {
            assert_eq!(buffer[..packet.bytes], sent.bytes, "other bytes arrived than were sent");
            assert!(packet.bytes <= MAX_MESSAGE + 1);
            match packet.descriptors_lost {
                true => assert!(packet.descriptors.len() <= sent.descriptors, "more than were sent"),
                false => assert_eq!(packet.descriptors.len(), sent.descriptors, "some were lost, unsaid"),
            }
            for descriptor in &packet.descriptors {
                let flags = fcntl_getfd(descriptor).expect("it is open, and ours");
                assert!(flags.contains(FdFlags::CLOEXEC), "a child would inherit it");
            }
        }
        Ok(Received::Closed) => assert!(sent.bytes.is_empty(), "a packet of bytes is no end"),
        Ok(Received::WouldBlock) => panic!("a packet that was sent did not arrive"),
        // Too long.
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
