//! One connection's I/O: packets in, decoded, to the supervisor; messages out, encoded, in order.
//!
//! It decides nothing but what a peer may do to a socket: say hello in time, send one message a packet, and
//! read what it is sent. At most one message with descriptors is unacknowledged, because descriptors in flight
//! count against the daemon's own limit: without that, a client that never reads could stop it from serving
//! anybody.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use echo::ids::ClientId;
use echo::peer::Peer;
use echo::wire::codec;
use echo::wire::message::{
    BUILD, Event, Hello, LAYOUT_VERSION, MAGIC, MAX_MESSAGE, PROTOCOL_MAX, PROTOCOL_MIN, Refused, Request,
};
use echo::wire::socket::{self, Received, Sent};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout;
use tracing::debug;

use crate::outbox::{Outbox, Outgoing};
use crate::readiness;
use crate::supervisor::Input;

/// How long a closing connection may take to read its last messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves a connection until it ends.
///
/// `pending` is its place among those that have not said hello.
pub async fn serve(
    fd: OwnedFd,
    inputs: mpsc::Sender<Input>,
    hello_timeout: Duration,
    pending: OwnedSemaphorePermit,
) {
    let peer = match Peer::of(fd.as_fd()) {
        Ok(peer) => peer,
        Err(error) => {
            debug!(%error, "a connection whose peer is unknown");
            return;
        }
    };
    let Ok(socket) = readiness::watch(fd, Interest::READABLE | Interest::WRITABLE) else { return };
    let mut wire =
        Wire { socket, buffer: vec![0; MAX_MESSAGE + 1].into_boxed_slice(), unread: VecDeque::new() };
    let greeted = timeout(hello_timeout, greet(&mut wire, peer, &inputs)).await;
    drop(pending);
    match greeted {
        Ok(Ok(Some((client, outbox)))) => {
            let reason = match talk(&mut wire, client, outbox, &inputs).await {
                Ok(()) => "closed by echod".to_owned(),
                Err(end) => {
                    if let End::Codec(error) = &end {
                        let closing = Event::Closing { reason: error.to_string() };
                        // One that does not read cannot be told.
                        let _ = timeout(LAST_WORDS, wire.send(&closing, &[])).await;
                    }
                    end.to_string()
                }
            };
            // A supervisor that is gone has nobody to tell.
            let _ = inputs.send(Input::Disconnected(client, reason)).await;
        }
        Ok(Ok(None)) => {}
        Ok(Err(end)) => debug!(%end, "a connection ended before its hello"),
        Err(_) => {
            let reason = format!("no hello within {hello_timeout:?}");
            let _ = timeout(LAST_WORDS, wire.send(&Event::Refused(refused(reason)), &[])).await;
        }
    }
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("closed by the client")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Socket(#[from] socket::SocketError),
    #[error(transparent)]
    Codec(#[from] codec::CodecError),
    #[error("echod is stopping")]
    Stopping,
}

/// The first message: a hello, or the question for the status.
async fn greet(
    wire: &mut Wire,
    peer: Peer,
    inputs: &mpsc::Sender<Input>,
) -> Result<Option<(ClientId, mpsc::Receiver<Outgoing>)>, End> {
    let hello = match wire.receive().await? {
        Request::Hello(hello) => hello,
        Request::Status => {
            let (reply, status) = oneshot::channel();
            inputs.send(Input::Status(reply)).await.map_err(|_| End::Stopping)?;
            let status = status.await.map_err(|_| End::Stopping)?;
            wire.send(&Event::Status(status), &[]).await?;
            return Ok(None);
        }
        _ => {
            wire.send(&Event::Refused(refused("the first message must be a hello".into())), &[]).await?;
            return Ok(None);
        }
    };
    if let Hello { magic, .. } = &hello
        && *magic != MAGIC
    {
        wire.send(&Event::Refused(refused("the hello's magic is not echo's".into())), &[]).await?;
        return Ok(None);
    }
    let (outbox, messages) = Outbox::new();
    let (accepted, result) = oneshot::channel();
    inputs.send(Input::Hello { peer, hello, outbox, accepted }).await.map_err(|_| End::Stopping)?;
    match result.await.map_err(|_| End::Stopping)? {
        Ok(client) => Ok(Some((client, messages))),
        Err(refused) => {
            wire.send(&Event::Refused(refused), &[]).await?;
            Ok(None)
        }
    }
}

fn refused(reason: String) -> Refused {
    Refused {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        layout: LAYOUT_VERSION,
        build: BUILD.into(),
        reason,
    }
}

/// Both directions, until one ends.
async fn talk(
    wire: &mut Wire,
    client: ClientId,
    mut outbox: mpsc::Receiver<Outgoing>,
    inputs: &mpsc::Sender<Input>,
) -> Result<(), End> {
    let mut acknowledged = true;
    loop {
        // What can be sent is sent before anything else is looked at.
        while let Some(next) = wire.unread.front()
            && (acknowledged || next.descriptors.is_empty())
        {
            let fds: Vec<BorrowedFd<'_>> = next.descriptors.iter().map(|fd| fd.as_fd()).collect();
            match wire.try_send(&next.event, &fds)? {
                Sent::Done => acknowledged &= fds.is_empty(),
                Sent::WouldBlock => break,
            }
            wire.unread.pop_front();
        }
        let blocked = wire.unread.front().is_some_and(|next| acknowledged || next.descriptors.is_empty());
        let interest = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        tokio::select! {
            biased;
            message = outbox.recv(), if wire.unread.len() < crate::outbox::OUTBOX => match message {
                Some(message) => wire.unread.push_back(message),
                None => return wire.last_words(acknowledged).await,
            },
            ready = wire.socket.ready(interest) => {
                // Cleared before it is used up, so that what comes meanwhile is noticed. Sending is tried again
                // at the loop's head.
                ready?.clear_ready();
                while let Some(request) = wire.try_receive()? {
                    match request {
                        Request::Received => acknowledged = true,
                        request => inputs
                            .send(Input::Request(client, request))
                            .await
                            .map_err(|_| End::Stopping)?,
                    }
                }
            }
        }
    }
}

/// A socket, its receive buffer, and what waits to be sent.
struct Wire {
    socket: AsyncFd<OwnedFd>,
    buffer: Box<[u8]>,
    unread: VecDeque<Outgoing>,
}

impl Wire {
    /// The next request, if one is there.
    fn try_receive(&mut self) -> Result<Option<Request>, End> {
        match socket::receive(self.socket.get_ref().as_fd(), &mut self.buffer)? {
            // Descriptors from a client are never wanted; they are closed here if the kernel let them through.
            Received::Packet(packet) => Ok(Some(codec::decode_request(&self.buffer[..packet.bytes])?)),
            Received::WouldBlock => Ok(None),
            Received::Closed => Err(End::Closed),
        }
    }

    async fn receive(&mut self) -> Result<Request, End> {
        loop {
            let mut ready = self.socket.readable().await?;
            ready.clear_ready();
            drop(ready);
            if let Some(request) = self.try_receive()? {
                return Ok(request);
            }
        }
    }

    fn try_send(&self, event: &Event, fds: &[BorrowedFd<'_>]) -> Result<Sent, End> {
        let bytes = codec::encode_event(event)?;
        Ok(socket::send(self.socket.get_ref().as_fd(), &bytes, fds)?)
    }

    async fn send(&self, event: &Event, fds: &[BorrowedFd<'_>]) -> Result<(), End> {
        loop {
            match self.try_send(event, fds)? {
                Sent::Done => return Ok(()),
                Sent::WouldBlock => {
                    let mut ready = self.socket.writable().await?;
                    ready.clear_ready();
                }
            }
        }
    }

    /// Sends what is left, as far as the client reads it.
    async fn last_words(&mut self, acknowledged: bool) -> Result<(), End> {
        let unread = std::mem::take(&mut self.unread);
        let all = async {
            for message in unread {
                if message.descriptors.is_empty() {
                    self.send(&message.event, &[]).await?;
                } else if !acknowledged {
                    break;
                }
            }
            Ok(())
        };
        timeout(LAST_WORDS, all).await.unwrap_or(Ok(()))
    }
}
