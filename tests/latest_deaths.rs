//! Whoever is killed or stopped at a latest table, and when: nobody hangs, and no value is torn.

#[path = "support/mod.rs"]
mod support;
#[path = "support/values.rs"]
mod values;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use echo_client::Error;
use echo_client::message::{EndReason, RefusalKind};
use rustix::process::Signal;
use support::{Actor, LONG, client_of_role, eventually, say};
use values::{SHORT, TABLE, check, publish, publish_in_place, reader, stay, table, weights};

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
        ["waiter"] => wait_for_ever(),
        ["child"] => look_from_a_child(),
        _ => panic!("no such part: {role:?}"),
    }
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
                    while !over.load(Ordering::Relaxed) {
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
            over.store(true, Ordering::Relaxed);
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
            while !over.load(Ordering::Relaxed) {
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
        over.store(true, Ordering::Relaxed);
        let last = publishing.join().unwrap();
        assert_eq!(check(&reader(&client).get().unwrap().unwrap()), last);
    });
    eventually("all of them are missed", || {
        client.list_leases(None).unwrap().is_empty() && client.show_table(TABLE).unwrap().row.readers == 0
    });
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
fn a_forked_child_gets_errors_and_lets_go_of_nothing() {
    let (daemon, client) = table(2);
    publish(&mut client.attach_publisher(TABLE, None).unwrap());
    let mut parent = daemon.actor_of("child");
    parent.expect("the parent still holds it");
    assert!(parent.wait().success());
}
