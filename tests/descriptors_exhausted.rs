//! Who has no room for another descriptor hears of it, at each descriptor of each message, loses nothing by it, and
//! goes on when there is room again.

#[path = "support/process.rs"]
mod process;
#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use echo_client::message::RefusalKind;
use echo_client::{Client, ConnectOptions, Error};
use rustix::process::{Resource, getrlimit};
use support::{Daemon, check_of, eventually, ids, numbers, said, say};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        _ => be_poor(),
    }
}

/// A client that has room for a few descriptors only.
fn be_poor() {
    let enough = getrlimit(Resource::Nofile).current;
    let own = || process::descriptors(std::process::id());
    let options = ConnectOptions { socket: Some(support::socket_of_role()), ..ConnectOptions::default() };

    // Connecting takes a socket and the client page.
    let before = own();
    for (room, what) in [(0, "Too many open files"), (1, "RLIMIT_NOFILE")] {
        process::leave_room_for(room);
        let error = Client::connect(&options).map(drop).unwrap_err();
        process::limit(Resource::Nofile, enough);
        assert!(said(&error).contains(what), "with room for {room}: {}", said(&error));
        assert_eq!(own(), before);
    }

    // Attaching takes the data and the control region.
    let client = Client::connect(&options).unwrap();
    let before = own();
    for room in [0, 1] {
        process::leave_room_for(room);
        let errors = [
            client.attach_writer("t", None).map(drop).unwrap_err(),
            client.attach_reader("t", None, Default::default()).map(drop).unwrap_err(),
        ];
        process::limit(Resource::Nofile, enough);
        for error in errors {
            assert!(said(&error).contains("RLIMIT_NOFILE"), "with room for {room}: {}", said(&error));
        }
        assert_eq!(own(), before);
    }

    // The same client goes on when there is room.
    let mut writer = client.attach_writer("t", None).unwrap();
    writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]).unwrap();
    let mut reader = client.attach_reader("t", None, Default::default()).unwrap();
    assert_eq!(ids(&reader.next_batch(support::LONG).unwrap()), [7]);
    say("all is well");
}

#[test]
fn a_client_without_room_for_a_descriptor_hears_of_the_limit_and_goes_on_when_it_is_raised() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 4)).unwrap();
    let mut poor = daemon.actor_of("poor");
    poor.expect("all is well");
    assert!(poor.wait().success());
    eventually("nothing of it is left", || {
        client.show_table("t").unwrap().members.is_empty() && client.list_clients().unwrap().len() == 1
    });
}

#[test]
fn a_daemon_without_room_for_a_descriptor_refuses_in_words_and_serves_when_there_is_room() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let before = process::descriptors(daemon.pid());
    let room =
        |more| process::limit_of(daemon.pid(), Resource::Nofile, Some(process::room_for(&before, more)));
    let options = ConnectOptions {
        socket: Some(daemon.socket()),
        timeout: Duration::from_millis(300),
        ..ConnectOptions::default()
    };

    // A connection costs four: a socket, two pidfds, a page.
    let mut refusals = 0;
    for more in 0.. {
        room(more);
        match Client::connect(&options) {
            // It waits to be accepted.
            Err(Error::TimedOut { .. }) if more == 0 => {}
            Err(error @ Error::Version(_)) => {
                let said = said(&error);
                assert!(said.contains("NOFILE") || said.contains("Too many open files"), "{more}: {said}");
                refusals += 1;
            }
            Err(error) => panic!("with room for {more}: {}", said(&error)),
            Ok(_) => break,
        }
        client.list_tables().unwrap();
    }
    assert!(refusals >= 3, "{refusals}");
    eventually("connections cost nothing any more", || process::descriptors(daemon.pid()) == before);

    // A table costs five, and one more for a moment.
    let mut refusals = 0;
    for more in 0.. {
        room(more);
        match client.create_table(&numbers("t", 1, 2)) {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.kind, RefusalKind::Memory);
                assert!(refusal.message.contains("NOFILE"), "{more}: {}", refusal.message);
                refusals += 1;
            }
            Err(error) => panic!("with room for {more}: {}", said(&error)),
            Ok(_) => break,
        }
        assert_eq!(process::descriptors(daemon.pid()), before, "with room for {more}");
    }
    assert!(refusals >= 4, "{refusals}");
    let row = client.show_table("t").unwrap().row;

    // Attaching costs nothing: what is sent is there already.
    let open = process::descriptors(daemon.pid());
    process::limit_of(daemon.pid(), Resource::Nofile, Some(process::room_for(&open, 0)));
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut reader = client.attach_reader("t", None, Default::default()).unwrap();
    writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]).unwrap();
    assert_eq!(ids(&reader.next_batch(support::LONG).unwrap()), [7]);

    process::limit_of(daemon.pid(), Resource::Nofile, getrlimit(Resource::Nofile).current);
    let used = echo_client::status(Some(&daemon.socket()), support::LONG).unwrap().host_used;
    assert_eq!(used, row.committed_bytes, "the attempts left nothing");
}
