//! What version 0.1.0 sends of the frozen messages, byte for byte. Never to be changed: a later version has a file of
//! its own beside this one, with the same bytes for the same values.

use echo::wire::message::{Event, Hello, Refused, Request, Status};

/// [`hello`].
pub(crate) const HELLO: &str = concat!(
    "01",                 // the tag
    "fdff0a0d016f686365", // magic
    "01",                 // protocol, from
    "01",                 // to
    "01",                 // layout
    "00",                 // features
    "05302e312e30",       // build
    "07747261696e6572",   // name
);

/// [`Request::Status`].
pub(crate) const QUESTION: &str = "02";

/// [`refused`].
pub(crate) const REFUSED: &str = concat!(
    "02",                                   // the tag
    "01",                                   // protocol, from
    "01",                                   // to
    "01",                                   // layout
    "05302e312e30",                         // build
    "116563686f642069732073746f7070696e67", // reason
);

/// [`status`].
pub(crate) const STATUS: &str = concat!(
    "03",                 // the tag
    "01",                 // protocol, from
    "01",                 // to
    "01",                 // layout
    "05302e312e30",       // build
    "fcd12f0100",         // pid
    "fc48e80100",         // milliseconds
    "0773657276696e67",   // state
    "01",                 // tables
    "fb2c01",             // clients
    "fd0000000002000000", // budget
    "fc00001800",         // used
);

pub(crate) fn hello() -> Request {
    Request::Hello(Hello {
        magic: u64::from_be_bytes(*b"echo\x01\r\n\xff"),
        protocol_min: 1,
        protocol_max: 1,
        layout: 1,
        features: 0,
        build: "0.1.0".into(),
        name: "trainer".into(),
    })
}

pub(crate) fn refused() -> Event {
    Event::Refused(Refused {
        protocol_min: 1,
        protocol_max: 1,
        layout: 1,
        build: "0.1.0".into(),
        reason: "echod is stopping".into(),
    })
}

pub(crate) fn status() -> Event {
    Event::Status(Status {
        protocol_min: 1,
        protocol_max: 1,
        layout: 1,
        build: "0.1.0".into(),
        pid: 77_777,
        uptime_ms: 125_000,
        state: "serving".into(),
        tables: 1,
        clients: 300,
        host_budget: 8 << 30,
        host_used: 1_572_864,
    })
}
