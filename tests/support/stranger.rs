//! A peer that keeps to nothing: it says what bytes it likes, and sees what comes.

#![allow(dead_code, unreachable_pub, reason = "each file of tests uses some of it")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use echo::wire::codec;
use echo::wire::message::{
    Answer, Attachment, BUILD, Call, Event, Hello, LAYOUT_VERSION, MAGIC, MAX_MESSAGE, PROTOCOL_MAX, Request,
};
use echo::wire::socket::{self, Received};

use crate::support::LONG;

pub struct Stranger {
    pub socket: OwnedFd,
}

impl Stranger {
    pub fn connect(socket: &Path) -> Self {
        Self { socket: socket::connect(socket, Instant::now() + LONG).unwrap() }
    }

    /// One that has said a good hello, with its client page.
    pub fn greeted(socket: &Path) -> (Self, OwnedFd) {
        let stranger = Self::connect(socket);
        stranger.send(&Self::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION));
        let Some((Event::Welcome(_), mut descriptors)) = stranger.receive_all() else {
            panic!("it is welcome")
        };
        stranger.say(&Request::Received);
        (stranger, descriptors.pop().expect("a client page"))
    }

    pub fn hello(magic: u64, protocol: u16, layout: u32) -> Vec<u8> {
        let (protocol_min, protocol_max) = (protocol, protocol);
        let hello = Hello {
            magic,
            protocol_min,
            protocol_max,
            layout,
            features: 0,
            build: BUILD.into(),
            name: "stranger".into(),
        };
        codec::encode_request(&Request::Hello(hello)).unwrap()
    }

    pub fn say(&self, request: &Request) {
        self.send(&codec::encode_request(request).unwrap());
    }

    /// Asks for something, and waits for its answer. What else comes meanwhile is passed over.
    pub fn call(&self, id: u32, call: Call) -> (Event, Vec<OwnedFd>) {
        self.say(&Request::Call { id, call });
        loop {
            let said = self.receive_all().expect("an answer");
            match said.0 {
                Event::Answer { id: answered, .. } if answered == id => {
                    if !said.1.is_empty() {
                        self.say(&Request::Received);
                    }
                    return said;
                }
                _ => {}
            }
        }
    }

    /// Attaches, and hands out what came: data and control.
    pub fn attach(&self, id: u32, table: &str, writer: bool) -> (Attachment, OwnedFd, OwnedFd) {
        let (table, arrays) = (table.to_owned(), None);
        let call = match writer {
            true => Call::AttachWriter { table, arrays },
            false => Call::AttachReader { table, arrays, prefetch: 1, pin: false },
        };
        self.attach_by(id, call)
    }

    /// Attaches by that call.
    pub fn attach_by(&self, id: u32, call: Call) -> (Attachment, OwnedFd, OwnedFd) {
        let (Event::Answer { answer: Answer::Attached(attachment), .. }, descriptors) = self.call(id, call)
        else {
            panic!("it is attached")
        };
        let [data, control] = descriptors.try_into().unwrap();
        (attachment, data, control)
    }

    pub fn send(&self, bytes: &[u8]) {
        assert!(self.try_send(bytes, &[]), "the daemon has closed");
    }

    /// Whether it could still be sent.
    pub fn try_send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let deadline = Instant::now() + LONG;
        loop {
            match socket::send(self.socket.as_fd(), bytes, descriptors) {
                Ok(socket::Sent::Done) => return true,
                Ok(socket::Sent::WouldBlock) => {
                    assert!(socket::wait_writable(self.socket.as_fd(), deadline).unwrap());
                }
                Err(_) => return false,
            }
        }
    }

    /// The next message, or none at the end.
    pub fn receive(&self) -> Option<Event> {
        self.receive_all().map(|(event, _)| event)
    }

    /// With its descriptors.
    pub fn receive_all(&self) -> Option<(Event, Vec<OwnedFd>)> {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        loop {
            match socket::receive(self.socket.as_fd(), &mut buffer).unwrap() {
                Received::Packet(packet) => {
                    let event = codec::decode_event(&buffer[..packet.bytes]).unwrap();
                    return Some((event, packet.descriptors));
                }
                Received::Closed => return None,
                Received::WouldBlock => {
                    assert!(socket::wait_readable(self.socket.as_fd(), Instant::now() + LONG).unwrap());
                }
            }
        }
    }

    /// Why the daemon closed; empty if it did not say. Waits for the end.
    pub fn closed(&self) -> String {
        let mut reason = String::new();
        while let Some(event) = self.receive() {
            match event {
                Event::Closing { reason: said } => reason = said,
                Event::Refused(refused) => reason = refused.reason,
                _ => {}
            }
        }
        reason
    }
}
