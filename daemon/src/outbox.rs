//! What the supervisor has to say to one client.
//!
//! Bounded and never blocking: a client that does not read is disconnected, since otherwise its silence would
//! become the daemon's memory, or everybody's wait.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use echo::wire::message::Event;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// Messages that a client may leave unread.
pub const OUTBOX: usize = 1024;

/// A message and the descriptors that go with it.
#[derive(Debug)]
pub struct Outgoing {
    /// The message.
    pub event: Event,
    /// As many as the message says.
    pub descriptors: Vec<Arc<OwnedFd>>,
}

/// The supervisor's end. Dropping it ends the connection, once what is queued has been said.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::Sender<Outgoing>,
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
        let (sender, messages) = mpsc::channel(OUTBOX);
        let (open, closed) = oneshot::channel();
        (Self { sender, _open: open }, Outlet { messages, closed })
    }

    /// Queues a message.
    pub fn send(&self, event: Event) -> Result<(), Unsent> {
        self.send_with(event, Vec::new())
    }

    /// Queues a message with descriptors.
    pub fn send_with(&self, event: Event, descriptors: Vec<Arc<OwnedFd>>) -> Result<(), Unsent> {
        debug_assert_eq!(event.descriptors(), descriptors.len());
        self.sender.try_send(Outgoing { event, descriptors }).map_err(|error| match error {
            TrySendError::Full(_) => Unsent::Full,
            TrySendError::Closed(_) => Unsent::Gone,
        })
    }
}
