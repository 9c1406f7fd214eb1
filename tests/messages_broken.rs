//! Messages that are cut short, too long, or lie about their lengths end their own connection and cost nobody else
//! anything.

#[path = "support/process.rs"]
mod process;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::AsFd;

use echo::access::AccessList;
use echo::ids::{LeaseToken, MemberId};
use echo::wire::codec;
use echo::wire::message::{
    Call, Event, LAYOUT_VERSION, MAGIC, MAX_MESSAGE, PROTOCOL_MAX, PinReport, Request,
};
use stranger::Stranger;
use support::{Daemon, check_of, eventually, ids, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

/// One message of each kind that may follow a hello.
fn requests() -> Vec<Request> {
    let (name, table) = ("t".to_owned(), "t".to_owned());
    let arrays = Some(numbers("t", 1, 2).arrays);
    let member = MemberId(1);
    let calls = [
        Call::CreateTable { spec: numbers("another", 3, 300), access: None },
        Call::DropTable { name: "nothing".into() },
        Call::AttachWriter { table: table.clone(), arrays: arrays.clone() },
        Call::AttachReader { table, arrays, prefetch: 2, pin: false },
        Call::FinishWriter { member },
        Call::DropClaim { member },
        Call::Detach { member },
        Call::ListTables { after: Some(name.clone()) },
        Call::ShowTable { name: name.clone() },
        Call::ListClients { after: None },
        Call::Why { name: name.clone() },
        Call::SetAccess { table: name.clone(), access: AccessList::owned() },
        Call::ListLeases { table: Some(name), after: None },
        Call::BeginPin { member },
        Call::EndPin {
            member,
            pinned: Some(PinReport { bytes: 1, registrations: 1, library: "lib".into(), read_only: false }),
        },
    ];
    let tokens = vec![LeaseToken([7; 16]); 3];
    let calls = (1..).zip(calls).map(|(id, call)| Request::Call { id, call });
    calls.chain([Request::Release { member, tokens }, Request::Received, Request::Goodbye]).collect()
}

#[test]
fn a_message_that_is_cut_short_at_any_byte_ends_its_connection_alone() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 2)).unwrap();
    let hello = Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION);
    for end in 1..hello.len() {
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(&hello[..end]);
        assert_eq!(stranger.receive(), None, "{end} of {} bytes of a hello", hello.len());
    }
    for request in requests() {
        let bytes = codec::encode_request(&request).unwrap();
        for end in 1..bytes.len() {
            let (stranger, _page) = Stranger::greeted(&daemon.socket());
            stranger.send(&bytes[..end]);
            let reason = stranger.closed();
            assert!(reason.contains("bytes are no message"), "{end} bytes of {request:?}: {reason:?}");
        }
        // Nor may anything follow it.
        let (stranger, _page) = Stranger::greeted(&daemon.socket());
        stranger.send(&[&bytes[..], &[0]].concat());
        assert!(stranger.closed().contains("followed by 1 bytes"), "{request:?}");
    }
    assert_eq!(client.list_tables().unwrap().len(), 1);
    eventually("they are forgotten", || client.list_clients().unwrap().len() == 1);
}

#[test]
fn a_message_that_is_too_long_is_named_and_ends_its_connection_alone() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let (stranger, _page) = Stranger::greeted(&daemon.socket());
    stranger.send(&vec![1; MAX_MESSAGE + 1]);
    let reason = stranger.closed();
    assert!(reason.contains("65537 bytes, more than the 65536"), "{reason}");

    // The largest that the socket takes at all.
    let (stranger, _page) = Stranger::greeted(&daemon.socket());
    let room = rustix::net::sockopt::socket_send_buffer_size(&stranger.socket).unwrap();
    let (mut least, mut most) = (MAX_MESSAGE, room);
    while least + 1 < most {
        let (other, _page) = Stranger::greeted(&daemon.socket());
        let bytes = (least + most) / 2;
        match echo::wire::socket::send(other.socket.as_fd(), &vec![1; bytes], &[]) {
            Ok(_) => least = bytes,
            Err(_) => most = bytes,
        }
    }
    assert!(least > MAX_MESSAGE + 1, "{least}");
    stranger.send(&vec![1; least]);
    let reason = stranger.closed();
    assert!(reason.contains("longer than"), "{reason}");
    // Instead of a hello as well.
    let stranger = Stranger::connect(&daemon.socket());
    stranger.send(&vec![1; least]);
    assert_eq!(stranger.receive(), None);
    eventually("they are forgotten", || client.list_clients().unwrap().len() == 1);
}

#[test]
fn a_length_that_lies_makes_the_daemon_allocate_nothing() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let before = process::bytes_of(daemon.pid(), "VmSize");
    // A length of a byte, and then the same as 2^40, 2^63 and all that a length can be.
    let lengths = [1_u64 << 40, 1 << 63, u64::MAX].map(|length| [&[253][..], &length.to_le_bytes()].concat());
    let lie = |bytes: &[u8], at: usize, length: &[u8]| [&bytes[..at], length, &bytes[at + 1..]].concat();
    for length in &lengths {
        let release = Request::Release { member: MemberId(1), tokens: vec![] };
        let release = codec::encode_request(&release).unwrap();
        let create = codec::encode_request(&Request::Call {
            id: 1,
            call: Call::CreateTable { spec: numbers("name", 1, 2), access: None },
        });
        let create = create.unwrap();
        let name = create.windows(4).position(|bytes| bytes == b"name").unwrap();
        let path = create.windows(2).position(|bytes| bytes == b"id").unwrap();
        // The tokens, a table's name, its list of arrays, and the path of one.
        for (bytes, at) in
            [(&release, release.len() - 1), (&create, name - 1), (&create, path - 2), (&create, path - 1)]
        {
            let (stranger, _page) = Stranger::greeted(&daemon.socket());
            stranger.send(&lie(bytes, at, length));
            assert!(stranger.closed().contains("bytes are no message"), "{at} of {bytes:?}");
        }
        let hello = Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION);
        let name = hello.windows(8).position(|bytes| bytes == b"stranger").unwrap();
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(&lie(&hello, name - 1, length));
        assert_eq!(stranger.receive(), None);
    }
    let after = process::bytes_of(daemon.pid(), "VmSize");
    assert!(after < before + (256 << 20), "{before} bytes of addresses became {after}");
    assert!(client.list_tables().unwrap().is_empty());
}

#[test]
fn an_empty_packet_is_an_end() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let stranger = Stranger::connect(&daemon.socket());
    stranger.send(&[]);
    assert_eq!(stranger.receive(), None);
    let (stranger, _page) = Stranger::greeted(&daemon.socket());
    stranger.send(&[]);
    assert_eq!(stranger.receive(), None);
    eventually("they are forgotten", || client.list_clients().unwrap().len() == 1);
}

#[test]
fn descriptors_from_a_client_are_refused_by_the_kernel_where_it_can() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let (stranger, page) = Stranger::greeted(&daemon.socket());
    let before = process::descriptors(daemon.pid());
    let bytes = codec::encode_request(&requests()[0]).unwrap();
    match echo::wire::socket::send(stranger.socket.as_fd(), &bytes, &[page.as_fd()]) {
        Err(error) => assert!(error.is_permission_denied(), "{error:?}"),
        // Before 6.16 it cannot, and what comes is closed: see `old_kernels`.
        Ok(_) => assert!(matches!(stranger.receive(), Some(Event::Answer { .. }))),
    }
    client.list_tables().unwrap();
    let after = process::descriptors(daemon.pid()).len();
    assert!(after <= before.len() + 4, "{before:?} became {after}, a table's at most");
}

#[test]
fn those_who_flood_are_served_in_turn_with_those_who_do_not() {
    let daemon = Daemon::start_with(&["--max-pending", "8", "--hello-timeout", "500ms"]);
    let client = daemon.client();
    client.create_table(&numbers("t", 4, 4)).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for flood in 0..3 {
            let (stranger, _page) = Stranger::greeted(&daemon.socket());
            let request = match flood {
                0 => Request::Call { id: 1, call: Call::ShowTable { name: "t".into() } },
                1 => Request::Release { member: MemberId(9), tokens: vec![LeaseToken([9; 16]); 1000] },
                _ => Request::Call {
                    id: 1,
                    call: Call::AttachWriter { table: "nothing".into(), arrays: None },
                },
            };
            let bytes = codec::encode_request(&request).unwrap();
            scope.spawn(move || {
                while !is_over() {
                    for _ in 0..8 {
                        stranger.send(&bytes);
                    }
                    for _ in 0..8 {
                        assert!(stranger.receive().is_some());
                    }
                }
            });
        }
        // Connections that never say anything take no place for ever.
        let silent: Vec<Stranger> = (0..24).map(|_| Stranger::connect(&daemon.socket())).collect();
        let mut writer = client.attach_writer("t", None).unwrap();
        let mut reader = daemon.client().attach_reader("t", None, Default::default()).unwrap();
        for first in (0..400_u64).step_by(4) {
            for id in first..first + 4 {
                writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
            }
            assert_eq!(
                ids(&reader.next_batch(support::LONG).unwrap()),
                [first, first + 1, first + 2, first + 3]
            );
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(silent);
    });
    eventually("they are forgotten", || client.list_clients().unwrap().len() == 1);
}
