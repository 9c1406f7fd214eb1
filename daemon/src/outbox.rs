//! What the supervisor has to say to one client.
//!
//! Bounded and never blocking: a client that does not read is disconnected, since otherwise its silence would
//! become the daemon's memory, or everybody's wait. A message is encoded when it is queued, so that what is
//! bounded is bytes.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use echo::wire::codec;
use echo::wire::message::{Answer, Event, Refusal, RefusalKind};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tracing::error;

/// Messages that a client may leave unread.
pub const OUTBOX_MESSAGES: usize = 1024;
/// Bytes that a client may leave unread.
pub const OUTBOX_BYTES: usize = 512 * 1024;

/// A message and the descriptors that go with it.
#[derive(Debug)]
pub struct Outgoing {
    /// The message.
    pub bytes: Vec<u8>,
    /// As many as the message says.
    pub descriptors: Vec<Arc<OwnedFd>>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Outgoing {
    /// A message that is not queued.
    pub fn unqueued(event: &Event) -> Self {
        Self { bytes: encoded(event), descriptors: Vec::new(), _room: None }
    }
}

/// The supervisor's end. Dropping it ends the connection, once what is queued has been said.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::Sender<Outgoing>,
    room: Arc<Semaphore>,
    _open: oneshot::Sender<Infallible>,
}

/// The connection's end.
#[derive(Debug)]
pub struct Outlet {
    /// What is to be said.
    pub messages: mpsc::Receiver<Outgoing>,
    /// Resolves when the supervisor has dropped its end, even while nobody takes messages.
    pub closed: oneshot::Receiver<Infallible>,
}

/// Why a message is not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// The client reads too slowly.
    Full,
    /// The connection is gone, and will say so itself.
    Gone,
}

impl Outbox {
    /// Both ends.
    pub fn new() -> (Self, Outlet) {
        let (sender, messages) = mpsc::channel(OUTBOX_MESSAGES);
        let (open, closed) = oneshot::channel();
        let room = Arc::new(Semaphore::new(OUTBOX_BYTES));
        (Self { sender, room, _open: open }, Outlet { messages, closed })
    }

    /// Queues a message.
    pub fn send(&self, event: &Event) -> Result<(), Unsent> {
        self.send_with(event, Vec::new())
    }

    /// Queues a message with descriptors.
    pub fn send_with(&self, event: &Event, descriptors: Vec<Arc<OwnedFd>>) -> Result<(), Unsent> {
        debug_assert_eq!(event.descriptors(), descriptors.len());
        let bytes = encoded(event);
        let room = self.room.clone().try_acquire_many_owned(bytes.len() as u32).map_err(|_| Unsent::Full)?;
        self.sender.try_send(Outgoing { bytes, descriptors, _room: Some(room) }).map_err(
            |error| match error {
                TrySendError::Full(_) => Unsent::Full,
                TrySendError::Closed(_) => Unsent::Gone,
            },
        )
    }
}

/// The bytes of an event. An answer that is too long for a message is said to be.
fn encoded(event: &Event) -> Vec<u8> {
    codec::encode_event(event).unwrap_or_else(|why| {
        error!(%why, "a message cannot be said");
        let refusal =
            Refusal { kind: RefusalKind::Internal, message: format!("the answer cannot be said: {why}") };
        let instead = match event {
            Event::Answer { id, .. } => Event::Answer { id: *id, answer: Answer::Refused(refusal) },
            _ => Event::Closing { reason: refusal.message },
        };
        codec::encode_event(&instead).expect("a sentence fits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Event {
        let refusal = Refusal { kind: RefusalKind::Invalid, message: "x".repeat(bytes) };
        Event::Answer { id: 7, answer: Answer::Refused(refusal) }
    }

    #[test]
    fn bytes_are_bounded_as_well_as_messages() {
        let (outbox, mut outlet) = Outbox::new();
        let large = answer(60_000);
        let queued = (0..OUTBOX_MESSAGES).take_while(|_| outbox.send(&large).is_ok()).count();
        assert_eq!(queued, OUTBOX_BYTES / 60_000);
        assert_eq!(outbox.send(&large), Err(Unsent::Full));
        drop(outlet.messages.try_recv().unwrap());
        assert_eq!(outbox.send(&large), Ok(()), "what was said makes room");
    }

    #[test]
    fn an_answer_that_is_too_long_is_said_to_be() {
        let event = codec::decode_event(&encoded(&answer(70_000))).unwrap();
        let Event::Answer { id: 7, answer: Answer::Refused(refusal) } = event else { panic!("{event:?}") };
        assert_eq!(refusal.kind, RefusalKind::Internal);
        assert!(refusal.message.contains("65536"), "{}", refusal.message);
    }
}
