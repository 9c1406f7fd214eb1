//! One connection's I/O: packets in, decoded, to the supervisor; messages out, encoded, in order.
//!
//! It decides nothing but what a peer may do to a socket: say hello in time, send one message a packet, and
//! read what it is sent. At most one message with descriptors is unacknowledged, because descriptors in flight
//! count against the daemon's own limit: without that, a client that never reads could stop it from serving
//! anybody.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use echo::ids::ClientId;
use echo::peer::Peer;
use echo::wire::codec;
use echo::wire::message::{
    BUILD, Call, Event, Hello, LAYOUT_VERSION, MAGIC, MAX_MESSAGE, PROTOCOL_MAX, PROTOCOL_MIN, Refused,
    Request,
};
use echo::wire::socket::{self, Received, Sent, SocketError};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::door::{Admission, Door, Place};
use crate::outbox::{Outbox, Outgoing, Outlet};
use crate::readiness;
use crate::supervisor::Input;

/// How long a closing connection may take to read its last messages.
pub const LAST_WORDS: Duration = Duration::from_secs(1);
/// When to try again where the kernel does not say when that makes sense: too many descriptors in flight.
const RETRY: Duration = Duration::from_millis(20);

/// Serves a connection until it ends. `_alive` tells that it has not ended.
pub async fn serve(
    fd: OwnedFd,
    inputs: mpsc::Sender<Input>,
    door: Arc<Door>,
    hello_timeout: Duration,
    _alive: mpsc::Sender<Infallible>,
) {
    let peer = match Peer::of(fd.as_fd()) {
        Ok(peer) => peer,
        Err(error) => {
            warn!(%error, "a connection whose peer is unknown: are there enough descriptors (RLIMIT_NOFILE)");
            let reason = format!(
                "echod cannot tell who connects ({error}): if it has too many descriptors open, raise its RLIMIT_NOFILE"
            );
            let refused = Outgoing::unqueued(&Event::Refused(refused(reason)));
            // The first message to a new socket fits. A peer that is gone by now need not be told.
            let _ = socket::send(fd.as_fd(), &refused.bytes, &[]);
            return;
        }
    };
    let admission = match door.admit(peer.uid()) {
        Ok(admission) => admission,
        Err(reason) => {
            debug!(uid = peer.uid(), reason, "a connection is refused");
            // Its buffer is empty; one who is gone cannot be told.
            let refused = Outgoing::unqueued(&Event::Refused(refused(reason)));
            let _ = socket::send(fd.as_fd(), &refused.bytes, &[]);
            return;
        }
    };
    let pending = admission.greeting().await;
    let Ok(socket) = readiness::watch(fd, Interest::READABLE | Interest::WRITABLE) else { return };
    let mut wire = Wire { socket, buffer: vec![0; MAX_MESSAGE + 1].into_boxed_slice() };
    let greeted = timeout(hello_timeout, greet(&mut wire, peer, &admission, &inputs)).await;
    drop(pending);
    match greeted {
        Ok(Ok(Some((client, outlet)))) => {
            let reason = match talk(&mut wire, client, outlet, &admission, &inputs).await {
                Ok(()) => "closed by echod".to_owned(),
                Err(end) => {
                    if let End::Codec(_) | End::Socket(SocketError::Truncated(_)) = &end {
                        let closing = Event::Closing { reason: end.to_string() };
                        // One that does not read cannot be told.
                        let _ = timeout(LAST_WORDS, wire.send(&closing)).await;
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
            let reason = format!("there was no hello, or no time to answer it, within {hello_timeout:?}");
            let _ = timeout(LAST_WORDS, wire.send(&Event::Refused(refused(reason)))).await;
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
    mut peer: Peer,
    admission: &Admission,
    inputs: &mpsc::Sender<Input>,
) -> Result<Option<(ClientId, Outlet)>, End> {
    if peer.is_unproven() {
        wire.prove(&mut peer).await?;
    }
    let hello = match wire.receive().await? {
        Request::Hello(hello) => hello,
        Request::Status => {
            let _place = turn(admission).await;
            let (reply, status) = oneshot::channel();
            inputs.send(Input::Status(reply)).await.map_err(|_| End::Stopping)?;
            let status = status.await.map_err(|_| End::Stopping)?;
            wire.send(&Event::Status(status)).await?;
            return Ok(None);
        }
        _ => {
            wire.send(&Event::Refused(refused("the first message must be a hello".into()))).await?;
            return Ok(None);
        }
    };
    if let Hello { magic, .. } = &hello
        && *magic != MAGIC
    {
        wire.send(&Event::Refused(refused("the hello's magic is not echo's".into()))).await?;
        return Ok(None);
    }
    let _place = turn(admission).await;
    let (outbox, outlet) = Outbox::new();
    let (accepted, result) = oneshot::channel();
    inputs.send(Input::Hello { peer, hello, outbox, accepted }).await.map_err(|_| End::Stopping)?;
    match result.await.map_err(|_| End::Stopping)? {
        Ok(client) => Ok(Some((client, outlet))),
        Err(refused) => {
            wire.send(&Event::Refused(refused)).await?;
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
    mut outlet: Outlet,
    admission: &Admission,
    inputs: &mpsc::Sender<Input>,
) -> Result<(), End> {
    let mut acknowledged = true;
    // A call that came too early for its user's rate, and the call or goodbye that came behind it. Until they are handed
    // on, what is not rated passes them: batches that are given back must not wait for a question.
    let mut held: Option<(Request, tokio::time::Instant)> = None;
    let mut behind: Option<Request> = None;
    // One message is taken at a time: the queue behind it is what bounds how much may be unread.
    let mut unsent: Option<Outgoing> = None;
    let mut blocked = false;
    // A peer that can no longer be told anything may still have said something: a goodbye.
    let mut deaf = false;
    loop {
        if let Some(next) = &unsent
            && !blocked
            && (deaf || acknowledged || next.descriptors.is_empty())
        {
            match wire.try_send(next) {
                Ok(Sent::Done) => {
                    acknowledged &= next.descriptors.is_empty();
                    unsent = None;
                }
                Ok(Sent::WouldBlock) => blocked = true,
                Err(_) => {
                    deaf = true;
                    unsent = None;
                }
            }
        }
        if held.is_none()
            && let Some(request) = behind.take()
        {
            let delay = if is_rated(&request) { admission.delay_of_call() } else { Duration::ZERO };
            if delay.is_zero() {
                let is_last = request == Request::Goodbye;
                hand_on(client, request, admission, inputs).await?;
                if is_last {
                    return Err(End::Closed);
                }
            } else {
                held = Some((request, tokio::time::Instant::now() + delay));
            }
        }
        let interest = match (behind.is_some(), blocked) {
            (false, true) => Interest::READABLE | Interest::WRITABLE,
            (false, false) => Interest::READABLE,
            (true, _) => Interest::WRITABLE,
        };
        let until = held.as_ref().map_or_else(tokio::time::Instant::now, |&(_, until)| until);
        tokio::select! {
            biased;
            message = outlet.messages.recv(), if unsent.is_none() => match message {
                Some(message) => unsent = Some(message),
                None => return Ok(()),
            },
            _ = &mut outlet.closed => return wire.last_words(unsent, outlet.messages).await,
            () = tokio::time::sleep(RETRY), if blocked => blocked = false,
            () = tokio::time::sleep_until(until), if held.is_some() => {
                if let Some((request, _)) = held.take() {
                    hand_on(client, request, admission, inputs).await?;
                }
            }
            ready = wire.socket.ready(interest), if behind.is_none() || blocked => {
                let mut ready = ready?;
                if ready.ready().is_writable() {
                    // Cleared before the next attempt, so that what changes meanwhile is noticed.
                    ready.clear_ready_matching(Ready::WRITABLE);
                    blocked = false;
                }
                if behind.is_some() {
                    continue;
                }
                // One request a turn: a client that never stops asking must not keep its answers waiting. Nor may it keep
                // the only thread: readiness alone never gives way to other tasks.
                tokio::task::coop::consume_budget().await;
                match receive_now(&wire.socket, &mut wire.buffer)? {
                    // Said for nothing, and at no cost: it must have none for the others.
                    Some(Request::Received) if acknowledged => tokio::task::yield_now().await,
                    Some(Request::Received) => acknowledged = true,
                    Some(request) if is_rated(&request) || request == Request::Goodbye => behind = Some(request),
                    Some(request) => {
                        drop(ready);
                        hand_on(client, request, admission, inputs).await?;
                    }
                    // What became readable since `ready` was made is not cleared by it.
                    None => ready.clear_ready_matching(Ready::READABLE),
                }
            }
        }
    }
}

/// Whether it counts as a call of its user's. What workers and trainers do all the time does not: batches that are
/// given back, claims that are given up, room that is asked for, samples and their priorities.
pub const fn is_rated(request: &Request) -> bool {
    match request {
        Request::Call { call, .. } => !matches!(
            call,
            Call::DropClaim { .. }
                | Call::NeedSpace { .. }
                | Call::UpdatePriorities { .. }
                | Call::StateVersion { .. }
        ),
        _ => false,
    }
}

/// The turn of a first message: it costs the daemon as much as a call, or more.
async fn turn(admission: &Admission) -> Place {
    let delay = admission.delay_of_call();
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    admission.request().await
}

/// Hands a request to the supervisor, once its user has a place there.
async fn hand_on(
    client: ClientId,
    request: Request,
    admission: &Admission,
    inputs: &mpsc::Sender<Input>,
) -> Result<(), End> {
    let place = admission.request().await;
    inputs.send(Input::Request(client, request, place)).await.map_err(|_| End::Stopping)
}

/// A socket and its receive buffer.
struct Wire {
    socket: AsyncFd<OwnedFd>,
    buffer: Box<[u8]>,
}

impl Wire {
    /// Proves from its first message, which is left where it is, who the peer is.
    async fn prove(&self, peer: &mut Peer) -> Result<(), End> {
        loop {
            let mut ready = self.socket.readable().await?;
            match peer.prove(self.socket.get_ref().as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                result => return Ok(result?),
            }
        }
    }

    async fn receive(&mut self) -> Result<Request, End> {
        loop {
            let mut ready = self.socket.readable().await?;
            match receive_now(&self.socket, &mut self.buffer)? {
                Some(request) => return Ok(request),
                None => ready.clear_ready(),
            }
        }
    }

    fn try_send(&self, message: &Outgoing) -> Result<Sent, End> {
        let fds: Vec<BorrowedFd<'_>> = message.descriptors.iter().map(|fd| fd.as_fd()).collect();
        Ok(socket::send(self.socket.get_ref().as_fd(), &message.bytes, &fds)?)
    }

    async fn send(&self, event: &Event) -> Result<(), End> {
        self.send_bytes(&Outgoing::unqueued(event)).await
    }

    /// Sends a message without descriptors, waiting until it can be sent.
    async fn send_bytes(&self, message: &Outgoing) -> Result<(), End> {
        while self.try_send(message)? == Sent::WouldBlock {
            self.socket.writable().await?.clear_ready();
        }
        Ok(())
    }

    /// Sends what is left, as far as the client reads it.
    async fn last_words(
        &self,
        unsent: Option<Outgoing>,
        mut messages: mpsc::Receiver<Outgoing>,
    ) -> Result<(), End> {
        let left = unsent.into_iter().chain(std::iter::from_fn(|| messages.try_recv().ok()));
        let all = async {
            // Descriptors are of no use to one who is shown out.
            for message in left.filter(|message| message.descriptors.is_empty()) {
                self.send_bytes(&message).await?;
            }
            Ok(())
        };
        timeout(LAST_WORDS, all).await.unwrap_or(Ok(()))
    }
}

/// The next request, if one is there.
fn receive_now(socket: &AsyncFd<OwnedFd>, buffer: &mut [u8]) -> Result<Option<Request>, End> {
    match socket::receive(socket.get_ref().as_fd(), buffer)? {
        // Descriptors from a client are never wanted; they are closed here if the kernel let them through.
        Received::Packet(packet) => Ok(Some(codec::decode_request(&buffer[..packet.bytes])?)),
        Received::WouldBlock => Ok(None),
        Received::Closed => Err(End::Closed),
    }
}
