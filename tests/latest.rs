//! Latest tables between real processes: nobody hangs, and no value is torn, whoever is killed or stopped, and when.

#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};
use std::time::{Duration, Instant};

use echo::memory::memfd::Sealed;
use echo::memory::{Access, Mapping};
use echo::ring::words::Words;
use echo::sync::Ordering;
use echo::wire::message::{Call, Request};
use echo_client::message::{EndReason, LeaseState, RefusalKind};
use echo_client::{
    ArraySpec, Client, DType, Error, HOLDS, LatestOptions, LatestReader, Publisher, ReaderOptions, TableSpec,
    Value,
};
use rustix::process::Signal;
use stranger::Stranger;
use support::{Actor, Daemon, LONG, client_of_role, eventually, numbers, say};

const TABLE: &str = "policy";
/// Elements of a value: large enough for a writer to be killed in the middle of it.
const LENGTH: usize = 16 * 1024;
const SHORT: Duration = Duration::from_millis(100);

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["publisher", way] => publish_until_killed(way),
        ["claimer"] => claim_and_stay(),
        ["holder"] => hold_and_stay(),
        ["follower", last] => follow(last.parse().unwrap()),
        ["taker"] => take_until_killed(),
        ["scribbler", seed] => scribble(seed.parse().unwrap()),
        ["honest"] => be_honest(),
        ["waiter"] => wait_for_ever(),
        ["child"] => look_from_a_child(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// Values of a version and what follows from it, so that a torn one is seen.
fn spec(capacity: u32) -> TableSpec {
    let arrays = vec![
        ArraySpec::new("version", DType::U64, []),
        ArraySpec::new("weights", DType::U64, [LENGTH as u64]),
        ArraySpec::new("nothing", DType::F32, [0]),
    ];
    TableSpec { capacity, max_capacity: capacity, ..TableSpec::latest(TABLE, arrays) }
}

fn weights(version: u64) -> Vec<u8> {
    version.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes().repeat(LENGTH)
}

fn publish(publisher: &mut Publisher) -> u64 {
    let version = publisher.version() + 1;
    let published = publisher.publish(&[&version.to_ne_bytes(), &weights(version), &[]]).unwrap();
    assert_eq!(published, version);
    version
}

/// In place, as large values are.
fn publish_in_place(publisher: &mut Publisher) -> u64 {
    let mut claim = publisher.claim().unwrap();
    let version = claim.version();
    claim.array_mut_as::<u64>(0).unwrap()[0] = version;
    claim.array_mut(1).copy_from_slice(&weights(version));
    assert_eq!(claim.publish().unwrap(), version);
    version
}

/// Looks at every byte.
fn check(value: &Value) -> u64 {
    let version = value.version();
    assert_eq!(value.array(0).as_slice::<u64>().unwrap(), [version], "the value of version {version}");
    let expected = version.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let weights: &[u64] = value.array_named("weights").unwrap().as_slice().unwrap();
    assert!(weights.len() == LENGTH && weights.iter().all(|&x| x == expected), "version {version} is torn");
    version
}

fn reader(client: &Client) -> LatestReader {
    client.attach_latest(TABLE, None, LatestOptions::default()).unwrap()
}

fn table(capacity: u32) -> (Daemon, Client) {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&spec(capacity)).unwrap();
    (daemon, client)
}

/// Publishes until it is killed, and says which versions are published.
fn publish_until_killed(way: &str) {
    let client = client_of_role();
    // The last one may not be missed yet.
    let mut publisher = loop {
        match client.attach_publisher(TABLE, None) {
            Ok(publisher) => break publisher,
            Err(error) if error.is_retryable() => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    };
    publisher.set_timeout(LONG);
    loop {
        let version = match way {
            "dropping" => {
                drop(publisher.claim().unwrap());
                publish_in_place(&mut publisher)
            }
            // It does not know the table's versions before its first.
            _ => publish_in_place(&mut publisher),
        };
        say(&version.to_string());
    }
}

fn claim_and_stay() {
    let client = client_of_role();
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    let mut claim = publisher.claim().unwrap();
    claim.array_mut(1).fill(0xff);
    say("claimed");
    stay();
    drop(claim);
}

fn hold_and_stay() {
    let client = client_of_role();
    let reader = reader(&client);
    let value = reader.wait_newer_than(0, LONG).unwrap();
    say(&check(&value).to_string());
    stay();
    drop(value);
}

/// Takes values until this version, each newer than the last.
fn follow(last: u64) {
    let reader = reader(&client_of_role());
    let mut version = 0;
    while version < last {
        let value = reader.wait_newer_than(version, LONG).unwrap();
        assert!(value.version() > version);
        version = check(&value);
    }
    say(&version.to_string());
}

/// Takes and holds values, two at a time, and says which.
fn take_until_killed() {
    let reader = reader(&client_of_role());
    let mut last = reader.wait_newer_than(0, LONG).unwrap();
    loop {
        let value = reader.wait_newer_than(last.version(), LONG).unwrap();
        say(&check(&value).to_string());
        assert_eq!(check(&last), last.version());
        last = value;
    }
}

fn wait_for_ever() {
    let reader = reader(&client_of_role());
    say("waits");
    match reader.wait_newer_than(0, LONG).map(|value| value.version()) {
        Ok(version) => say(&version.to_string()),
        Err(error) => say(&error.to_string()),
    }
}

/// Until somebody kills this process.
fn stay() {
    loop {
        std::thread::park();
    }
}

#[test]
fn every_reader_takes_the_newest_value_where_it_lies() {
    let (daemon, client) = table(4);
    let readers: Vec<_> = (0..3).map(|_| reader(&daemon.client())).collect();
    for reader in &readers {
        assert_eq!((reader.version(), reader.get().unwrap().map(|value| value.version())), (0, None));
    }
    let mut publisher = client.attach_publisher(TABLE, Some(&spec(4).arrays)).unwrap();
    assert_eq!(publisher.version(), 0);
    for _ in 0..10 {
        let version = if publisher.version() % 2 == 0 {
            publish(&mut publisher)
        } else {
            publish_in_place(&mut publisher)
        };
        for reader in &readers {
            let value = reader.newer_than(version - 1).unwrap().expect("it is newer");
            assert_eq!(check(&value), version);
            let same = reader.get().unwrap().unwrap();
            assert_eq!(same.array(1).as_ptr(), value.array(1).as_ptr(), "it is not copied");
            assert_eq!(reader.newer_than(version).unwrap().map(|value| value.version()), None);
        }
    }
    let value = readers[0].get().unwrap().unwrap();
    assert_eq!(value.arrays(), 3);
    assert_eq!((value.array(0).shape(), value.array(1).shape()), (vec![], vec![LENGTH as u64]));
    assert!(value.array(2).bytes().is_empty());
    assert!(value.array_named("no such").is_none());
    let shown = client.show_table(TABLE).unwrap();
    assert_eq!((shown.newest, shown.row.samples.committed), (10, 10));
    assert_eq!(shown.row.samples.committed, shown.row.samples.delivered + shown.row.samples.pending);
}

#[test]
fn an_old_value_stays_valid_while_it_is_held_and_publishing_goes_on() {
    let (daemon, client) = table(4);
    let reader = reader(&daemon.client());
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publish(&mut publisher);
    let old = reader.get().unwrap().unwrap();
    let again = old.clone();
    for _ in 0..50 {
        publish(&mut publisher);
        assert_eq!(check(&old), 1);
    }
    let leases = client.list_leases(Some(TABLE)).unwrap();
    let [lease] = &leases[..] else { panic!("{leases:?}") };
    assert_eq!((lease.seq.0 + 1, lease.state, lease.pid), (1, LeaseState::Complete, std::process::id()));
    drop(old);
    assert_eq!(check(&again), 1, "another handle to it");
    drop(again);
    assert!(client.list_leases(None).unwrap().is_empty());
    assert_eq!(check(&reader.get().unwrap().unwrap()), 51);
}

#[test]
fn publishers_that_are_killed_at_any_moment_leave_a_whole_newest_value() {
    for (way, kills) in [("in-place", 100), ("dropping", 40)] {
        let (daemon, client) = table(3);
        let over = AtomicBool::new(false);
        let mut said = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (reader, over) = (reader(&daemon.client()), &over);
                scope.spawn(move || {
                    let mut version = 0;
                    while !over.load(StdOrdering::Relaxed) {
                        match reader.wait_newer_than(version, SHORT) {
                            Ok(value) => version = check(&value),
                            Err(Error::TimedOut { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            let mut random = fastrand::Rng::with_seed(kills);
            for _ in 0..kills {
                let mut publisher = daemon.actor_of(&format!("publisher {way}"));
                let first: u64 = publisher.line().expect("it publishes").parse().unwrap();
                assert!(first > said, "{first} was published before");
                let until = Instant::now() + Duration::from_micros(random.u64(0..1500));
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                publisher.kill();
                let last = std::iter::from_fn(|| publisher.line()).last();
                said = last.map_or(first, |line| line.parse().unwrap());
                // Read after the last was said: the one that it was killed in may be there as well.
                let newest = reader(&daemon.client()).get().unwrap().expect("one was published");
                assert!(
                    check(&newest) == said || newest.version() == said + 1,
                    "{newest:?}, and {said} was said"
                );
            }
            over.store(true, StdOrdering::Relaxed);
        });
        let mut publisher = loop {
            match client.attach_publisher(TABLE, None) {
                Ok(publisher) => break publisher,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        };
        let version = publish_in_place(&mut publisher);
        assert_eq!(check(&reader(&client).get().unwrap().unwrap()), version);
        let shown = client.show_table(TABLE).unwrap();
        assert_eq!(
            (shown.row.samples.committed, shown.orphaned_claims),
            (version, 0),
            "no version is left out"
        );
    }
}

#[test]
fn readers_that_are_killed_at_any_moment_hold_nothing() {
    // Room for the newest, for the next, and for one that somebody holds: not for one of each that was killed.
    let (daemon, client) = table(3);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(LONG);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            while !over.load(StdOrdering::Relaxed) {
                publish(&mut publisher);
            }
            publish(&mut publisher)
        });
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100 {
            let mut taker = daemon.actor_of("taker");
            taker.line().expect("it takes");
            let until = Instant::now() + Duration::from_micros(random.u64(0..1500));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            taker.kill();
        }
        over.store(true, StdOrdering::Relaxed);
        let last = publishing.join().unwrap();
        assert_eq!(check(&reader(&client).get().unwrap().unwrap()), last);
    });
    eventually("all of them are missed", || {
        client.list_leases(None).unwrap().is_empty() && client.show_table(TABLE).unwrap().row.readers == 0
    });
}

#[test]
fn a_claim_that_is_dropped_is_what_is_claimed_next() {
    let (_daemon, client) = table(2);
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    for version in 1..=5 {
        drop(publisher.claim().unwrap());
        std::mem::forget(publisher.claim().unwrap());
        let aside = publisher.claim().unwrap().put_aside();
        assert_eq!(publisher.resume(aside).expect("it is open").version(), version);
        assert_eq!(publish_in_place(&mut publisher), version);
        assert!(publisher.resume(aside).is_none(), "it was published");
        assert_eq!(check(&reader.get().unwrap().unwrap()), version);
    }
}

#[test]
fn a_killed_reader_holds_nothing_and_a_stopped_one_what_it_held() {
    let (daemon, client) = table(2);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(SHORT);
    publish(&mut publisher);
    let mut holder = daemon.actor_of("holder");
    holder.expect("1");
    holder.signal(Signal::STOP);
    publish(&mut publisher);
    // One block is the newest's, the other one's reader sleeps.
    let error = publisher.publish(&[&3_u64.to_ne_bytes(), &weights(3), &[]]).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            publisher.set_timeout(LONG);
            publish(&mut publisher)
        });
        eventually("why names the holder", || {
            let waits = client.why(TABLE).unwrap();
            let waits = waits.iter().filter(|wait| wait.who.starts_with("writer"));
            waits
                .flat_map(|wait| &wait.held_by)
                .any(|holder_| holder_.pid == holder.pid() && holder_.what == "holds version 1 in block 0")
        });
        holder.kill();
        assert_eq!(waiting.join().unwrap(), 3, "nobody holds it any more");
    });
    assert!(publisher.waits() > 0);
}

#[test]
fn a_reader_that_was_stopped_finds_its_value_as_it_was() {
    let (daemon, client) = table(3);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publish(&mut publisher);
    let mut holder = daemon.actor_of("holder");
    holder.expect("1");
    let mut followers: Vec<Actor> = (0..4).map(|_| daemon.actor_of("follower 300")).collect();
    holder.signal(Signal::STOP);
    for _ in 0..299 {
        publish(&mut publisher);
    }
    for follower in &mut followers {
        follower.expect("300");
        assert!(follower.wait().success());
    }
    let held = client.list_leases(Some(TABLE)).unwrap();
    assert!(held.len() == 1 && held[0].pid == holder.pid() && held[0].seq.0 == 0, "{held:?}");
    holder.signal(Signal::CONT);
    holder.kill();
}

#[test]
fn many_readers_do_not_wait_for_each_other() {
    let (daemon, client) = table(4);
    // One client for each, as they would be in processes of their own; one of them holds each value that it takes for long.
    let readers: Vec<_> = (0..48).map(|_| reader(&daemon.client())).collect();
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(LONG);
    std::thread::scope(|scope| {
        for (i, reader) in readers.iter().enumerate() {
            scope.spawn(move || {
                let mut version = 0;
                let mut slow = None;
                while version < 60 {
                    let value = reader.wait_newer_than(version, LONG).unwrap();
                    version = check(&value);
                    if i == 0 && version % 7 == 0 {
                        slow = Some(value);
                    }
                }
                drop(slow);
            });
        }
        for _ in 0..60 {
            publish(&mut publisher);
        }
    });
    assert_eq!(client.show_table(TABLE).unwrap().row.readers, 48);
}

#[test]
fn a_wait_ends_by_its_deadline_a_cancel_a_value_or_the_end() {
    let (daemon, client) = table(2);
    let reader = reader(&daemon.client());
    assert!(matches!(reader.wait_newer_than(0, SHORT), Err(Error::TimedOut { .. })));
    assert!(matches!(reader.wait_newer_than(0, Duration::ZERO), Err(Error::TimedOut { .. })));
    reader.canceller().cancel();
    assert!(matches!(reader.wait_newer_than(0, LONG), Err(Error::Cancelled)));
    std::thread::scope(|scope| {
        let waits = |version| {
            let reader = &reader;
            scope.spawn(move || reader.wait_newer_than(version, LONG).map(|value| value.version()))
        };
        let waiting = waits(0);
        eventually("why says for what", || {
            let waits = client.why(TABLE).unwrap();
            waits.iter().any(|wait| wait.waits_for == "a value newer than version 0; no writer is attached")
        });
        let mut publisher = client.attach_publisher(TABLE, None).unwrap();
        publish(&mut publisher);
        assert_eq!(waiting.join().unwrap().unwrap(), 1);
        let waiting = waits(1);
        eventually("it waits", || {
            client.why(TABLE).unwrap().iter().any(|wait| wait.waits_for.contains("version 1;"))
        });
        client.drop_table(TABLE).unwrap();
        let end = waiting.join().unwrap().unwrap_err();
        assert!(matches!(end, Error::Closed { reason: EndReason::Dropped, .. }), "{end}");
    });
    assert!(matches!(reader.newer_than(1), Err(Error::Closed { .. })));
    assert_eq!(check(&reader.get().unwrap().unwrap()), 1, "what is the newest can still be read");
}

#[test]
fn a_value_outlives_its_table_and_its_memory_goes_back_with_it() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let used = || echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used;
    let before = used();
    client.create_table(&spec(2)).unwrap();
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publish(&mut publisher);
    let value = reader.get().unwrap().unwrap();
    client.drop_table(TABLE).unwrap();
    assert!(matches!(publisher.claim().map(drop), Err(Error::Closed { .. })));
    drop((reader, publisher));
    client.create_table(&spec(2)).unwrap();
    assert_eq!(check(&value), 1);
    client.drop_table(TABLE).unwrap();
    assert!(used() > before);
    drop(value);
    eventually("its memory went back", || used() == before);
}

#[test]
fn when_the_daemon_is_killed_waits_end_and_what_was_published_is_still_there() {
    let (mut daemon, client) = table(2);
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(LONG);
    publish(&mut publisher);
    let value = reader.get().unwrap().unwrap();
    let mut waiter = daemon.actor_of("waiter");
    waiter.expect("waits");
    waiter.expect("1");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| reader.wait_newer_than(1, LONG).map(|value| value.version()));
        daemon.actor().kill();
        let end = waiting.join().unwrap().unwrap_err();
        assert!(matches!(end, Error::Gone { .. }), "{end}");
    });
    // There is room for one more, and for no other.
    publish(&mut publisher);
    assert_eq!(check(&reader.get().unwrap().unwrap()), 2);
    let end = publisher.claim().map(drop).unwrap_err();
    assert!(matches!(end, Error::Gone { .. }), "{end}");
    assert_eq!(check(&value), 1);
}

#[test]
fn a_daemon_that_stops_waits_for_no_value_to_be_taken() {
    let (mut daemon, client) = table(2);
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publish(&mut publisher);
    let value = reader.get().unwrap().unwrap();
    daemon.actor().signal(Signal::TERM);
    let end = reader.wait_newer_than(1, LONG).map(drop).unwrap_err();
    assert!(matches!(end, Error::Closed { reason: EndReason::Draining, .. } | Error::Gone { .. }), "{end}");
    assert!(daemon.actor().wait().success());
    assert_eq!(check(&value), 1);
}

#[test]
fn a_table_has_one_writer_at_a_time_and_says_who_it_is() {
    let (daemon, client) = table(2);
    let mut first = daemon.actor_of("claimer");
    first.expect("claimed");
    let error = client.attach_publisher(TABLE, None).map(drop).unwrap_err();
    assert_eq!(error.refusal(), Some(RefusalKind::Limit));
    assert!(error.is_retryable() && error.to_string().contains(&format!("(pid {})", first.pid())), "{error}");
    first.kill();
    let mut second = None;
    eventually("the next one may come", || {
        second = client.attach_publisher(TABLE, None).ok();
        second.is_some()
    });
    let mut second = second.unwrap();
    assert_eq!(publish(&mut second), 1, "what the first had claimed");
    second.finish().unwrap();
    let mut third = client.attach_publisher(TABLE, None).unwrap();
    assert_eq!(publish_in_place(&mut third), 2);
    assert_eq!(client.show_table(TABLE).unwrap().row.state, "open", "it goes on when a writer finishes");
}

#[test]
fn a_reader_holds_so_many_different_values_and_no_more() {
    let (_daemon, client) = table(8);
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    let held: Vec<Value> = (0..HOLDS)
        .map(|_| {
            publish(&mut publisher);
            reader.get().unwrap().unwrap()
        })
        .collect();
    let same = reader.get().unwrap().unwrap();
    assert_eq!(check(&same), HOLDS as u64, "it holds that one already");
    publish(&mut publisher);
    let error = reader.get().map(drop).unwrap_err();
    assert!(matches!(error, Error::TooManyHeld { held: HOLDS }), "{error}");
    drop(held);
    assert_eq!(check(&reader.get().unwrap().unwrap()), HOLDS as u64 + 1);
    assert_eq!(check(&same), HOLDS as u64, "a handle to it is left");
    let members = client.show_table(TABLE).unwrap().members;
    let shown = members.iter().find(|member| !member.writer).unwrap();
    assert_eq!((shown.grants, shown.state.as_str()), (1, "holds values"));
}

#[test]
fn threads_share_a_reader() {
    let (_daemon, client) = table(6);
    let reader = reader(&client);
    let mut publisher = client.attach_publisher(TABLE, None).unwrap();
    publisher.set_timeout(LONG);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut version = 0;
                while version < 100 {
                    let value = reader.wait_newer_than(version, LONG).unwrap();
                    version = check(&value);
                    assert_eq!(check(&value.clone()), version);
                }
            });
        }
        for _ in 0..100 {
            publish(&mut publisher);
        }
    });
    assert!(client.list_leases(Some(TABLE)).unwrap().is_empty());
}

#[test]
fn members_of_another_kind_of_table_are_refused_by_name() {
    let (_daemon, client) = table(2);
    client.create_table(&numbers("rollouts", 2, 2)).unwrap();
    let errors = [
        client.attach_writer(TABLE, None).map(drop).unwrap_err(),
        client.attach_reader(TABLE, None, ReaderOptions::default()).map(drop).unwrap_err(),
        client.attach_publisher("rollouts", None).map(drop).unwrap_err(),
        client.attach_latest("rollouts", None, LatestOptions::default()).map(drop).unwrap_err(),
    ];
    for (error, kind) in errors.iter().zip(["latest", "latest", "queue", "queue"]) {
        assert_eq!(error.refusal(), Some(RefusalKind::SpecMismatch), "{error}");
        assert!(error.to_string().contains(&format!("is a {kind} table")), "{error}");
    }
    let other = client.attach_latest(TABLE, Some(&spec(2).arrays[..1]), LatestOptions::default());
    assert!(other.map(drop).unwrap_err().to_string().contains("- weights uint64"));
    let queue = TableSpec { kind: echo_client::TableKind::Queue, ..spec(2) };
    let error = client.create_table(&queue).map(drop).unwrap_err();
    assert!(error.to_string().contains("- kind Latest"), "{error}");
}

fn look_from_a_child() {
    let client = client_of_role();
    let reader = reader(&client);
    let value = reader.wait_newer_than(0, LONG).unwrap();
    let copy = value.clone();
    // SAFETY: the child does what its parent could; no other thread of this process holds a lock that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = matches!(reader.get(), Err(Error::Forked))
            && matches!(reader.wait_newer_than(0, LONG), Err(Error::Forked))
            && value.is_elsewhere();
        drop((copy, value, reader));
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(i32::from(!forked)) };
    }
    let mut status = 0;
    // SAFETY: the child of just now, and room for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(check(&value), check(&copy));
    say("the parent still holds it");
}

#[test]
fn a_forked_child_gets_errors_and_lets_go_of_nothing() {
    let (daemon, client) = table(2);
    publish(&mut client.attach_publisher(TABLE, None).unwrap());
    let mut parent = daemon.actor_of("child");
    parent.expect("the parent still holds it");
    assert!(parent.wait().success());
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

/// Byte of the control region where the newest value is named.
const NEWEST: usize = 384;

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
                held.truncate(usize::from(sum % 2 == 0));
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
