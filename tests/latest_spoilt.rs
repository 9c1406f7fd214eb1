//! What somebody writes into a latest table that should not: it harms that table alone, and nobody gets a fault.

#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;
#[path = "support/values.rs"]
mod values;

use std::os::fd::OwnedFd;
use std::path::Path;

use echo::memory::memfd::Sealed;
use echo::memory::{Access, Mapping};
use echo::ring::words::Words;
use echo::sync::Ordering;
use echo::wire::message::{Call, Request};
use echo_client::message::EndReason;
use echo_client::{Error, HOLDS};
use stranger::Stranger;
use support::{Daemon, LONG, client_of_role, eventually, say};
use values::{SHORT, TABLE, check, publish, reader, spec, stay, table, weights};

/// Byte of the control region where the newest value is named.
const NEWEST: usize = 384;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["scribbler", seed] => scribble(seed.parse().unwrap()),
        ["honest"] => be_honest(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// Publishes nothing, and writes over whatever it may, all the time.
fn scribble(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (_stranger, _page, words) = writable_at(&support::socket_of_role());
    say("attached");
    for _ in 0..20_000 {
        let at = match random.u8(0..4) {
            0 => random.usize(0..words.len() / 8) * 8,
            // What all readers look at, and the state of a block.
            _ => [NEWEST, NEWEST, words.len() - 4 * 128 + 64 * random.usize(0..8)][random.usize(0..3)],
        };
        let word = match random.u8(0..4) {
            0 => random.u64(..),
            1 => random.u64(0..4) << 12 | random.u64(0..5),
            2 => random.u64(0..4) << 3 | random.u64(0..8),
            _ => words.u64(at).load(Ordering::Relaxed).wrapping_add(1 << 12),
        };
        words.u64(at).store(word, Ordering::Relaxed);
    }
    say("done");
    stay();
}

/// A reader that knows of nothing. Each call ends, and the last with an error.
fn be_honest() {
    let reader = reader(&client_of_role());
    say("attached");
    let (mut held, mut version) = (Vec::new(), 0);
    let end = loop {
        match reader.wait_newer_than(version, SHORT) {
            // Whatever it is, it can be looked at.
            Ok(value) => {
                let sum: u64 = value.array(1).bytes().iter().map(|&byte| u64::from(byte)).sum();
                version = value.version();
                held.truncate(usize::from(sum.is_multiple_of(2)));
                held.push(value);
            }
            Err(Error::TimedOut { .. } | Error::Hold(_)) => {}
            Err(Error::TooManyHeld { .. }) => held.clear(),
            Err(end) => break end,
        }
    };
    assert!(matches!(end, Error::Closed { .. }), "{end}");
    say("ended");
}

/// The control region, as a writer may write it.
fn writable(daemon: &Daemon) -> (Stranger, OwnedFd, Words) {
    writable_at(&daemon.socket())
}

fn writable_at(socket: &Path) -> (Stranger, OwnedFd, Words) {
    let (stranger, page) = Stranger::greeted(socket);
    let call = Call::AttachPublisher { table: TABLE.into(), arrays: None };
    let (_, _, control) = stranger.attach_by(1, call);
    let bytes = rustix::fs::fstat(&control).unwrap().st_size as usize;
    let file = Sealed::received(control, bytes as u64, Access::ReadWrite).unwrap();
    (stranger, page, Words::mapped(Mapping::new(&file, bytes, Access::ReadWrite).unwrap()))
}

#[test]
fn a_writer_that_scribbles_on_newest_harms_its_own_table_alone() {
    let (daemon, client) = table(3);
    let used = || echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used;
    let old = 1 << 12;
    for word in [u64::MAX, 0, old, 2 << 12 | 7, 9 << 12 | 1, 3 << 12 | 2, 2 << 12] {
        let reader = reader(&client);
        let mut publisher = client.attach_publisher(TABLE, None).unwrap();
        publish(&mut publisher);
        publish(&mut publisher);
        let held = reader.get().unwrap().unwrap();
        publisher.finish().unwrap();
        let (stranger, _page, words) = writable(&daemon);
        eventually("the daemon has looked", || client.show_table(TABLE).unwrap().newest == 2);
        assert_eq!(words.u64(NEWEST).load(Ordering::Relaxed), 2 << 12 | 1);
        words.u64(NEWEST).store(word, Ordering::Relaxed);
        // What a reader finds meanwhile is an error, a value, or nothing: never a fault.
        let seen = reader.newer_than(2);
        assert!(matches!(seen, Ok(None) | Err(Error::Hold(_) | Error::Closed { .. })), "{word:#x}: {seen:?}");
        let end = loop {
            match reader.wait_newer_than(u64::MAX >> 12, LONG) {
                Err(Error::Hold(_)) => {}
                Err(end) => break end,
                Ok(value) => panic!("{value:?}"),
            }
        };
        assert!(matches!(end, Error::Closed { reason: EndReason::Poisoned, .. }), "{word:#x}: {end}");
        let state = client.show_table(TABLE).unwrap().row.state;
        assert!(state.starts_with(&format!("poisoned: the newest value is said to be {word:#x}")), "{state}");
        assert_eq!(check(&held), 2, "what was held stays whole");
        client.drop_table(TABLE).unwrap();
        stranger.say(&Request::Goodbye);
        drop((held, reader));
        eventually("it is gone", || used() == 0);
        client.create_table(&spec(3)).unwrap();
    }
}

#[test]
fn readers_beside_a_writer_that_writes_over_everything_get_errors_and_no_fault() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let used = || echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used;
    for seed in 0..12 {
        client.create_table(&spec(3)).unwrap();
        let mut honest = daemon.actor_of("honest");
        honest.expect("attached");
        let mut scribbler = daemon.actor_of(&format!("scribbler {seed}"));
        scribbler.expect("attached");
        scribbler.expect("done");
        scribbler.kill();
        eventually("it is missed", || client.show_table(TABLE).unwrap().row.writers == 0);
        client.why(TABLE).unwrap();
        client.list_leases(None).unwrap();
        client.drop_table(TABLE).unwrap();
        honest.expect("ended");
        assert!(honest.wait().success(), "seed {seed}");
        eventually("its memory went back", || used() == 0);
    }
}

/// A reader that says it holds everything keeps the writer waiting, as one that holds everything does, and is named.
#[test]
fn a_reader_that_lies_about_what_it_holds_is_one_that_holds_it() {
    let (daemon, client) = table(3);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(SHORT);
    let (stranger, page) = Stranger::greeted(&daemon.socket());
    let call = Call::AttachLatest { table: TABLE.into(), arrays: None, pin: false };
    let (attachment, ..) = stranger.attach_by(1, call);
    let file = Sealed::received(page, 4096, Access::ReadWrite).unwrap();
    let page = Words::mapped(Mapping::new(&file, 4096, Access::ReadWrite).unwrap());
    let line = 64 * (attachment.record as usize + 1);
    for word in [u64::MAX, 5, 9 << 12, 1 << 12 | 2] {
        page.u64(line).store(word, Ordering::Relaxed);
        for _ in 0..5 {
            publish(&mut publisher);
        }
    }
    let newest = publisher.version();
    for hold in 0..HOLDS {
        let (version, block) = (newest - 2 + hold as u64, (newest - 3 + hold as u64) % 3);
        page.u64(line + 8 * hold).store(version << 12 | block, Ordering::Relaxed);
    }
    let error = (0..4).find_map(|i| {
        let version = newest + 1 + i;
        publisher.publish(&[&version.to_ne_bytes(), &weights(version), &[]]).err()
    });
    assert!(matches!(error, Some(Error::TimedOut { .. })), "{error:?}");
    stranger.say(&Request::Goodbye);
    publisher.set_timeout(LONG);
    publish(&mut publisher);
}
