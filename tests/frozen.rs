//! The frozen messages, held to what earlier versions send: any `echoctl` can ask any `echod`.

mod support;

#[path = "frozen/v0_1_0.rs"]
mod v0_1_0;

use std::os::fd::AsFd;
use std::time::Instant;

use echo::wire::codec;
use echo::wire::message::{Event, MAX_MESSAGE, Request};
use echo::wire::socket::{self, Received};
use support::{Daemon, LONG};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn requests_are_sent_and_read_as_by_version_0_1_0() {
    for (request, hex) in [(v0_1_0::hello(), v0_1_0::HELLO), (Request::Status, v0_1_0::QUESTION)] {
        assert_eq!(codec::encode_request(&request).unwrap(), bytes(hex), "{request:?}");
        assert_eq!(codec::decode_request(&bytes(hex)).unwrap(), request);
    }
}

#[test]
fn events_are_sent_and_read_as_by_version_0_1_0() {
    for (event, hex) in [(v0_1_0::refused(), v0_1_0::REFUSED), (v0_1_0::status(), v0_1_0::STATUS)] {
        assert_eq!(codec::encode_event(&event).unwrap(), bytes(hex), "{event:?}");
        assert_eq!(codec::decode_event(&bytes(hex)).unwrap(), event);
    }
}

#[test]
fn a_frozen_message_cannot_be_extended() {
    for hex in [v0_1_0::REFUSED, v0_1_0::STATUS] {
        let mut longer = bytes(hex);
        longer.push(1);
        assert!(matches!(codec::decode_event(&longer), Err(codec::CodecError::Trailing(1))));
    }
}

/// What a daemon answers to the first message of a connection.
fn first_answer(daemon: &Daemon, message: &[u8]) -> Event {
    let deadline = Instant::now() + LONG;
    let socket = socket::connect(&daemon.socket(), deadline).unwrap();
    assert_eq!(socket::send(socket.as_fd(), message, &[]).unwrap(), socket::Sent::Done);
    let mut buffer = vec![0; MAX_MESSAGE + 1];
    assert!(socket::wait_readable(socket.as_fd(), deadline).unwrap());
    match socket::receive(socket.as_fd(), &mut buffer).unwrap() {
        Received::Packet(packet) => codec::decode_event(&buffer[..packet.bytes]).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_daemon_answers_what_version_0_1_0_asks() {
    let daemon = Daemon::start();
    let status = first_answer(&daemon, &bytes(v0_1_0::QUESTION));
    assert!(matches!(&status, Event::Status(status) if status.pid == daemon.pid()), "{status:?}");
    // A daemon that has left the version behind refuses it in words, and never by silence.
    let answer = first_answer(&daemon, &bytes(v0_1_0::HELLO));
    assert!(matches!(answer, Event::Welcome(_) | Event::Refused(_)), "{answer:?}");
}
