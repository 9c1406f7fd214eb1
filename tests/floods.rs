//! A user that asks without end keeps no other from being answered.

#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;
#[path = "support/user.rs"]
mod user;

use std::path::PathBuf;
use std::time::Instant;

use echo::wire::message::Request;
use echo_client::{ArraySpec, DType, Error, Pin, TableSpec};
use stranger::Stranger;
use support::{Daemon, LONG, client_of_role, connect, numbers, say};
use user::{become_user, can_become_others};

const FLOODER: u32 = 20_011;
/// Threads of a flood.
const THREADS: usize = 8;
/// What the other user asks for meanwhile.
const CALLS: u32 = 50;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        "flood" => flood(&role[1]),
        other => panic!("{other}"),
    }
}

/// Until it is killed.
fn flood(kind: &str) {
    become_user(FLOODER, &[FLOODER]);
    let socket = PathBuf::from(std::env::var_os("ECHO_SOCKET").unwrap());
    match kind {
        "acknowledgements" => {
            let (stranger, _page) = Stranger::greeted(&socket);
            say("flooding");
            loop {
                stranger.say(&Request::Received);
            }
        }
        "hellos" => in_threads(|| drop(connect(&socket))),
        "dropped-claims" => {
            let client = client_of_role();
            client.create_table(&numbers("flood", 4, 4)).unwrap();
            let writers = || client.attach_writer("flood", None).unwrap();
            std::thread::scope(|scope| {
                for mut writer in (0..THREADS).map(|_| writers()).collect::<Vec<_>>() {
                    scope.spawn(move || {
                        loop {
                            drop(writer.claim(1).unwrap());
                        }
                    });
                }
                say("flooding");
            });
        }
        "large-tables" => {
            let client = client_of_role();
            let arrays = vec![ArraySpec::new("x", DType::U8, [])];
            let spec = TableSpec { pin: Pin::Off, ..TableSpec::new("flood", arrays, 1 << 20, 16) };
            client.create_table(&spec).unwrap();
            in_threads(|| drop(client.show_table("flood").unwrap()));
        }
        other => panic!("{other}"),
    }
}

fn in_threads(again: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    again();
                }
            });
        }
        say("flooding");
    });
}

fn others_are_answered_beside(kind: &str) {
    if !can_become_others(kind) {
        return;
    }
    let daemon = Daemon::start().open_to_all();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 2)).unwrap();
    let mut flooder = daemon.actor_of(&format!("flood {kind}"));
    flooder.expect("flooding");
    let deadline = Instant::now() + LONG;
    for call in 0..CALLS {
        let answer: Result<_, Error> = client.show_table("t");
        answer.unwrap_or_else(|error| panic!("call {call} beside {kind}: {error}"));
        assert!(Instant::now() < deadline, "{call} calls were answered in time beside {kind}");
    }
    assert!(flooder.ended().is_none(), "it floods all the time");
}

#[test]
fn others_are_answered_beside_a_flood_of_acknowledgements() {
    others_are_answered_beside("acknowledgements");
}

#[test]
fn others_are_answered_beside_a_flood_of_connections() {
    others_are_answered_beside("hellos");
}

#[test]
fn others_are_answered_beside_a_flood_of_claims_that_are_given_up() {
    others_are_answered_beside("dropped-claims");
}

#[test]
fn others_are_answered_beside_a_flood_of_questions_about_a_large_table() {
    others_are_answered_beside("large-tables");
}
