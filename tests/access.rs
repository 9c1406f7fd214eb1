//! Who may do what with a table, and how much one user may have.

#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;
#[path = "support/user.rs"]
mod user;

use std::os::fd::AsFd;
use std::time::Instant;

use echo::wire::codec;
use echo::wire::message::{Answer, Call, Event, MAX_MESSAGE, PinReport};
use echo::wire::socket::{self, Received};
use echo_client::{AccessList, Client, Error, ReaderOptions};
use stranger::Stranger;
use support::{Actor, Daemon, LONG, check_of, client_of_role, eventually, ids, numbers, say};
use user::{become_user, can_become_others};

const OWNER: u32 = 20_001;
const WRITER: u32 = 20_002;
const READERS: u32 = 30_000;
const PINNERS: u32 = 30_001;
const NOBODY: u32 = 20_009;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        "as" => play_user(&role[1..]),
        other => panic!("{other}"),
    }
}

/// Does one thing as a user, says how it went, and stays until it is killed.
fn play_user(role: &[String]) {
    let number = |i: usize| role[i].parse().unwrap();
    become_user(number(0), &[number(1)]);
    if role[2] == "silent" {
        let path = std::env::var_os("ECHO_SOCKET").unwrap();
        let silent: Vec<_> = (0..number(3))
            .map(|_| socket::connect(std::path::Path::new(&path), Instant::now() + LONG).unwrap())
            .collect();
        let last = silent.last().unwrap();
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        while socket::wait_readable(last.as_fd(), Instant::now() + LONG).unwrap() {
            if let Received::Packet(packet) = socket::receive(last.as_fd(), &mut buffer).unwrap()
                && let Event::Refused(refused) = codec::decode_event(&buffer[..packet.bytes]).unwrap()
            {
                say(&refused.reason);
                break;
            }
        }
        std::thread::park();
    }
    let client = client_of_role();
    if role[2] == "see-pins" {
        let rows = client.list_clients().unwrap();
        let row = rows.iter().find(|row| row.pinned_bytes > 0).unwrap();
        let libraries: Vec<_> = row.pins.iter().map(|pin| &*pin.report.library).collect();
        say(&format!("{} bytes, through {libraries:?} and {} more", row.pinned_bytes, row.pins_left_out));
        return;
    }
    let reader = |options| client.attach_reader("t", None, options);
    let mut kept = None;
    let done = match role[2].as_str() {
        "create" => client.create_table_for(&numbers("t", 1, 4), &rules(&role[3..])).map(drop),
        "create-again" => client.create_table(&numbers("t", 1, 4)).map(drop),
        "write" => client.attach_writer("t", None).map(drop),
        "read" => reader(ReaderOptions::default()).map(drop),
        "pin" => reader(ReaderOptions { registrable: true, ..ReaderOptions::default() }).map(drop),
        "hold" => reader(ReaderOptions::with_prefetch(role[3].parse().unwrap())).map(|r| kept = Some(r)),
        "show" => client.show_table("t").map(drop),
        "why" => client.why("t").map(drop),
        "list" => client.list_tables().map(|rows| assert_eq!(rows.len(), 1)),
        "list-nothing" => client.list_tables().map(|rows| assert_eq!(rows.len(), 0)),
        "set" => client.set_access("t", &rules(&role[3..])),
        "drop" => client.drop_table("t"),
        other => panic!("{other}"),
    };
    match done {
        Ok(()) => say("done"),
        Err(Error::Refused(refusal)) => say(&format!("{:?}: {}", refusal.kind, refusal.message)),
        Err(error) => say(&error.to_string()),
    }
    if role[2] == "hold" {
        std::thread::park();
    }
}

fn rules(texts: &[String]) -> AccessList {
    AccessList(texts.iter().map(|text| text.parse().unwrap()).collect())
}

/// What a user hears who does that.
fn told(daemon: &Daemon, uid: u32, gid: u32, what: &str) -> String {
    daemon.actor_of(&format!("as {uid} {gid} {what}")).line().expect("an answer")
}

#[test]
fn a_user_may_do_what_the_list_says_and_nothing_else() {
    if !can_become_others("a user may do what the list says") {
        return;
    }
    let daemon = Daemon::start().open_to_all();
    let create = format!("create uid:{WRITER}=write gid:{READERS}=read gid:{PINNERS}=pin");
    assert_eq!(told(&daemon, OWNER, OWNER, &create), "done");
    let everything = ["write", "read", "pin", "show", "why", "list", "create-again", "set", "drop"];
    for (uid, gid, allowed) in [
        (WRITER, WRITER, &["write", "show", "why", "list", "create-again"][..]),
        (NOBODY, READERS, &["read", "show", "why", "list", "create-again"]),
        (NOBODY, PINNERS, &["read", "pin", "show", "why", "list", "create-again"]),
        (NOBODY, NOBODY, &["list-nothing"]),
    ] {
        for &what in allowed {
            assert_eq!(told(&daemon, uid, gid, what), "done", "{uid} {gid} {what}");
        }
        for what in everything.into_iter().filter(|what| *what != "list" && !allowed.contains(what)) {
            let told = told(&daemon, uid, gid, what);
            assert!(told.starts_with("NotPermitted: uid "), "{uid} {gid} {what}: {told}");
            assert!(told.contains(&format!("its owner, uid {OWNER}")), "{told}");
        }
    }
    assert_eq!(told(&daemon, OWNER, OWNER, &format!("set uid:{NOBODY}=administer")), "done");
    assert!(told(&daemon, WRITER, WRITER, "write").starts_with("NotPermitted"), "the list was replaced");
    assert_eq!(told(&daemon, NOBODY, NOBODY, "drop"), "done");
}

#[test]
fn a_table_with_another_access_list_is_another_one() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let list = |rule: &str| AccessList(vec![rule.parse().unwrap()]);
    let spec = numbers("t", 1, 2);
    assert!(client.create_table_for(&spec, &list("everyone=read")).unwrap().created);
    assert!(!client.create_table_for(&spec, &list("everyone=read")).unwrap().created);
    assert!(!client.create_table(&spec).unwrap().created, "no list is any");
    let error = client.create_table_for(&spec, &list("everyone=write")).unwrap_err().to_string();
    assert!(error.contains("another access list"), "{error}");
    assert_eq!(client.show_table("t").unwrap().access, list("everyone=read"));
}

#[test]
fn a_reader_that_may_pin_reads_from_writable_memory() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("pinned", 1, 2)).unwrap();
    let mut writer = client.attach_writer("pinned", None).unwrap();
    let options = ReaderOptions { registrable: true, ..ReaderOptions::default() };
    let mut reader = client.attach_reader("pinned", None, options).unwrap();
    writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]).unwrap();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [7]);
    // Of a table whose name no other test of this process uses.
    let writable = |part: &str| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let name = format!("memfd:echo/pinned/{part}");
        maps.lines().filter(|line| line.contains(&name)).map(|line| line.contains("rw-s")).collect::<Vec<_>>()
    };
    drop(writer);
    assert!(writable("data").into_iter().all(|writable| writable), "what CUDA is to register");
    assert!(writable("control").into_iter().all(|writable| !writable), "the words stay the workers'");
}

#[test]
fn how_a_table_is_pinned_is_shown_to_those_who_may_look_at_it() {
    if !can_become_others("how a table is pinned is shown to those who may look at it") {
        return;
    }
    let daemon = Daemon::start().open_to_all();
    let observer = AccessList(vec![format!("uid:{OWNER}=observe").parse().unwrap()]);
    daemon.client().create_table_for(&numbers("t", 1, 2), &observer).unwrap();
    let (trainer, _page) = Stranger::greeted(&daemon.socket());
    let (reader, _, _) = trainer.attach(1, "t", false);
    let library = "/home/somebody/libcudart.so.12".into();
    let pinned = Some(PinReport { bytes: 64, registrations: 1, library, read_only: false });
    let (event, _) = trainer.call(2, Call::EndPin { member: reader.member, pinned });
    assert!(matches!(event, Event::Answer { answer: Answer::Done, .. }), "{event:?}");
    let seen = "64 bytes, through [\"/home/somebody/libcudart.so.12\"] and 0 more";
    assert_eq!(told(&daemon, OWNER, OWNER, "see-pins"), seen);
    assert_eq!(told(&daemon, NOBODY, NOBODY, "see-pins"), "64 bytes, through [] and 1 more");
}

#[test]
fn a_user_has_so_many_leases_and_others_have_theirs() {
    if !can_become_others("a user has so many leases") {
        return;
    }
    let daemon = Daemon::start_with(&["--max-leases", "10"]).open_to_all();
    let create = "create everyone=read,write";
    assert_eq!(told(&daemon, OWNER, OWNER, create), "done");
    let mut first = daemon.actor_of(&format!("as {OWNER} 1 hold 8"));
    first.expect("done");
    let refused = told(&daemon, OWNER, 1, "hold 3");
    assert!(refused.starts_with("Limit: ") && refused.contains("max_leases"), "{refused}");
    assert_eq!(told(&daemon, WRITER, 1, "hold 10"), "done");
    first.kill();
    let client = daemon.client();
    eventually("its leases are free again", || client.show_table("t").unwrap().members.is_empty());
    assert_eq!(told(&daemon, OWNER, 1, "hold 10"), "done");
}

#[test]
fn a_stopped_trainer_of_one_user_does_not_stop_that_of_another() {
    if !can_become_others("a stopped trainer of one user") {
        return;
    }
    let daemon = Daemon::start().open_to_all();
    assert_eq!(told(&daemon, OWNER, OWNER, "create everyone=read,write"), "done");
    let client = daemon.client();
    let mut reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(1)).unwrap();
    let mut other = daemon.actor_of(&format!("as {WRITER} 1 hold 4"));
    other.expect("done");
    let stopped = Stopped::stop(other);
    let mut writer = client.attach_writer("t", None).unwrap();
    let writing = std::thread::spawn(move || {
        for id in 0..20_u64 {
            writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
        }
    });
    // Two of the four blocks are the stopped one's; the rest goes round.
    for _ in 0..18 {
        assert_eq!(reader.next_batch(LONG).unwrap().len(), 1);
    }
    writing.join().unwrap();
    drop(stopped);
}

/// A process that is stopped.
struct Stopped(Actor);

impl Stopped {
    fn stop(actor: Actor) -> Self {
        actor.signal(rustix::process::Signal::STOP);
        Self(actor)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[test]
fn calls_that_come_too_fast_are_answered_all_the_same() {
    let daemon = Daemon::start_with(&["--max-calls", "50"]);
    let client = daemon.client();
    let hasty: Vec<_> = (0..4)
        .map(|_| {
            let client: Client = daemon.client();
            std::thread::spawn(move || (0..20).all(|_| client.list_tables().is_ok()))
        })
        .collect();
    assert!(hasty.into_iter().all(|thread| thread.join().unwrap()));
    client.create_table(&numbers("t", 1, 1)).unwrap();
}

#[test]
fn silent_connections_of_one_user_keep_no_other_out() {
    if !can_become_others("silent connections of one user") {
        return;
    }
    let limits = ["--max-clients", "3", "--max-pending", "2", "--hello-timeout", "1h"];
    let daemon = Daemon::start_with(&limits).open_to_all();
    let mut silent = daemon.actor_of(&format!("as {NOBODY} 1 silent 6"));
    let reason = silent.line().expect("the sixth is refused");
    assert!(reason.contains(&format!("uid {NOBODY} has 5 connections already")), "{reason}");
    assert!(reason.contains("max_pending"), "{reason}");
    daemon.client().create_table(&numbers("t", 1, 1)).unwrap();
    eventually("it is answered like everybody, and nobody else is a client", || {
        echo_client::status(Some(&daemon.socket()), LONG).unwrap().clients == 0
    });
}
