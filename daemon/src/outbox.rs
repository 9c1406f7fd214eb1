//! What the supervisor has to say to one client.
//!
//! Bounded and never blocking: a client that does not read is disconnected, since otherwise its silence would
//! become the daemon's memory, or everybody's wait.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use echo::wire::message::Event;
use tokio::sync::mpsc;

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

/// The supervisor's end.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: mpsc::Sender<Outgoing>,
}

/// The client reads too slowly, or is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl Outbox {
    /// Both ends. When the supervisor drops its end, the connection sends what is left and closes.
    pub fn new() -> (Self, mpsc::Receiver<Outgoing>) {
        let (sender, receiver) = mpsc::channel(OUTBOX);
        (Self { sender }, receiver)
    }

    /// Queues a message.
    pub fn send(&self, event: Event) -> Result<(), Full> {
        self.send_with(event, Vec::new())
    }

    /// Queues a message with descriptors.
    pub fn send_with(&self, event: Event, descriptors: Vec<Arc<OwnedFd>>) -> Result<(), Full> {
        debug_assert_eq!(event.descriptors(), descriptors.len());
        self.sender.try_send(Outgoing { event, descriptors }).map_err(|_| Full)
    }
}
