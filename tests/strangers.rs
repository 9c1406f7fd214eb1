//! Peers that keep to nothing are turned away, and harm nobody.

#[path = "support/process.rs"]
mod process;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::AsFd;
use std::time::Instant;

use echo::ids::MemberId;
use echo::wire::codec;
use echo::wire::message::{Call, Event, LAYOUT_VERSION, MAGIC, PROTOCOL_MAX, PROTOCOL_MIN, Request};
use echo::wire::socket;
use stranger::Stranger;
use support::{Daemon, LONG, eventually, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

#[test]
fn strangers_are_turned_away_and_harm_nobody() {
    let daemon = Daemon::start_with(&["--hello-timeout", "200ms"]);
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 2)).unwrap();
    let good = (MAGIC, PROTOCOL_MAX, LAYOUT_VERSION);
    for ((magic, protocol, layout), reason) in [
        ((1, good.1, good.2), "magic"),
        ((good.0, PROTOCOL_MAX + 1, good.2), "upgrade the older"),
        ((good.0, PROTOCOL_MIN, LAYOUT_VERSION + 1), "upgrade the older"),
    ] {
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(&Stranger::hello(magic, protocol, layout));
        let Some(Event::Refused(refused)) = stranger.receive() else { panic!("{reason}") };
        assert!(refused.reason.contains(reason), "{}", refused.reason);
        assert_eq!(stranger.receive(), None);
    }
    // Nonsense instead of a hello, and nothing at all.
    for nonsense in [&b"GET / HTTP/1.1\r\n"[..], &[0; 64], &[0xff; 300]] {
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(nonsense);
        assert_eq!(stranger.receive(), None);
    }
    let silent = Stranger::connect(&daemon.socket());
    let Some(Event::Refused(refused)) = silent.receive() else { panic!("silence is refused") };
    assert!(refused.reason.contains("no hello"), "{}", refused.reason);
    // Nonsense after a hello.
    let stranger = Stranger::connect(&daemon.socket());
    stranger.send(&Stranger::hello(good.0, good.1, good.2));
    assert!(matches!(stranger.receive(), Some(Event::Welcome(_))));
    stranger.send(&[0xff; 100]);
    assert!(matches!(stranger.receive(), Some(Event::Closing { .. })));
    assert_eq!(stranger.receive(), None);
    eventually("they are forgotten", || client.list_clients().unwrap().len() == 1);
}

#[test]
fn a_client_that_never_reads_is_disconnected_and_the_others_are_served() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 2)).unwrap();
    let stranger = Stranger::connect(&daemon.socket());
    stranger.send(&Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION));
    let call = |id| Request::Call { id, call: Call::ShowTable { name: "t".into() } };
    let flooded = (1..100_000).any(|id| {
        let bytes = codec::encode_request(&call(id)).unwrap();
        let deadline = Instant::now() + LONG;
        loop {
            match socket::send(stranger.socket.as_fd(), &bytes, &[]) {
                Ok(socket::Sent::Done) => return false,
                Ok(socket::Sent::WouldBlock) => {
                    assert!(socket::wait_writable(stranger.socket.as_fd(), deadline).unwrap());
                }
                Err(_) => return true,
            }
        }
    });
    assert!(flooded, "its connection is closed");
    assert_eq!(client.list_tables().unwrap().len(), 1);
}

#[test]
fn requests_behind_a_goodbye_do_nothing() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 2)).unwrap();
    let calls = [
        Call::CreateTable { spec: numbers("other", 1, 2), access: None },
        Call::DropTable { name: "t".into() },
        Call::AttachWriter { table: "t".into(), arrays: None },
        Call::Detach { member: MemberId(1) },
        Call::ListClients { after: None },
    ];
    for call in calls {
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(&Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION));
        stranger.send(&codec::encode_request(&Request::Goodbye).unwrap());
        let bytes = codec::encode_request(&Request::Call { id: 1, call }).unwrap();
        // The daemon may have closed by now.
        let _ = socket::send(stranger.socket.as_fd(), &bytes, &[]);
        assert!(matches!(stranger.receive(), Some(Event::Welcome(_))));
        assert_eq!(stranger.receive(), None);
    }
    assert_eq!(client.list_tables().unwrap().len(), 1);
}

#[test]
fn a_goodbye_counts_although_answers_are_unread() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 4)).unwrap();
    for _ in 0..200 {
        let stranger = Stranger::connect(&daemon.socket());
        stranger.send(&Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION));
        stranger.send(&codec::encode_request(&Request::Received).unwrap());
        let calls = [
            Call::AttachReader { table: "t".into(), arrays: None, prefetch: 2, pin: false },
            Call::AttachWriter { table: "t".into(), arrays: None },
            Call::Detach { member: MemberId(2) },
            Call::Detach { member: MemberId(1) },
        ];
        for (id, call) in (1..).zip(calls) {
            stranger.send(&codec::encode_request(&Request::Call { id, call }).unwrap());
        }
        stranger.send(&codec::encode_request(&Request::Goodbye).unwrap());
    }
    eventually("all of them are gone", || client.list_clients().unwrap().len() == 1);
    assert!(client.show_table("t").unwrap().members.is_empty());
}

#[test]
fn clients_that_come_and_go_while_their_process_lives_leave_nothing() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 4)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let client = daemon.client();
                    let writer = client.attach_writer("t", None).unwrap();
                    let reader = client.attach_reader("t", None, Default::default()).unwrap();
                    drop((writer, reader, client));
                }
            });
        }
    });
    eventually("all of them are gone", || client.list_clients().unwrap().len() == 1);
}

#[test]
fn everybody_hears_why_the_daemon_stops() {
    let mut daemon = Daemon::start();
    let strangers: Vec<Stranger> = (0..150)
        .map(|_| {
            let stranger = Stranger::connect(&daemon.socket());
            stranger.send(&Stranger::hello(MAGIC, PROTOCOL_MAX, LAYOUT_VERSION));
            assert!(matches!(stranger.receive(), Some(Event::Welcome(_))));
            stranger
        })
        .collect();
    daemon.actor().signal(rustix::process::Signal::TERM);
    for stranger in strangers {
        let said = stranger.receive();
        assert!(
            matches!(&said, Some(Event::Closing { reason }) if reason == "echod has stopped"),
            "{said:?}"
        );
    }
    assert!(daemon.actor().wait().success());
}
