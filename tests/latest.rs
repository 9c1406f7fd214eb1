//! Latest tables between processes: every reader takes the newest value where it lies, and holds it as long as it likes.

#[path = "support/mod.rs"]
mod support;
#[path = "support/values.rs"]
mod values;

use std::time::Duration;

use echo_client::message::{EndReason, LeaseState, RefusalKind};
use echo_client::{Error, HOLDS, LatestOptions, ReaderOptions, TableSpec, Value};
use support::{Daemon, LONG, eventually, numbers};
use values::{LENGTH, SHORT, TABLE, check, publish, publish_in_place, reader, spec, table, weights};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        _ => panic!("no such part: {role:?}"),
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
fn a_publisher_can_be_treated_as_a_writer_of_samples() {
    let (_daemon, client) = table(2);
    let reader = reader(&client);
    let mut writer = client.attach_publisher(TABLE, None).unwrap().into_writer();
    for version in 1..=4_u64 {
        writer.append(&[&version.to_ne_bytes(), &weights(version), &[]]).unwrap();
        assert_eq!((writer.version(), check(&reader.get().unwrap().unwrap())), (version, version));
        assert!(!reader.get().unwrap().unwrap().is_pinned(), "nobody asked for it");
    }
    writer.finish().unwrap();
    assert_eq!(client.attach_publisher(TABLE, None).unwrap().version(), 0);
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
