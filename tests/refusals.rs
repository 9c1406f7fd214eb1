//! What is asked for and cannot be is refused in words that say what to do, and costs nobody anything.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use echo_client::message::RefusalKind;
use echo_client::{ArraySpec, Client, ConnectOptions, DType, Error, ReaderOptions, TableSpec, wait_any};
use support::{Daemon, LONG, check_of, eventually, ids, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    if role[0] == "small-daemon" {
        // No file may be larger than this: the kernel refuses what is larger, as it does when memory ends.
        let limit = rustix::process::Rlimit { current: Some(16 << 20), maximum: Some(16 << 20) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    }
    support::play_daemon(&role[1..]);
}

fn refusal(result: Result<impl Sized, Error>) -> (RefusalKind, String) {
    match result.map(drop).unwrap_err() {
        Error::Refused(refusal) => (refusal.kind, refusal.message),
        other => panic!("{other}"),
    }
}

#[test]
fn another_spec_is_refused_with_the_difference() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let spec = numbers("t", 4, 2);
    client.create_table(&spec).unwrap();
    let mut other = spec.clone();
    other.arrays[1] = ArraySpec::new("check", DType::I8, [8]);
    other.batch_size = 8;
    let (kind, message) = refusal(client.create_table(&other));
    assert_eq!(kind, RefusalKind::SpecMismatch);
    for line in ["- check uint8[8]", "+ check int8[8]", "- batch_size 4", "+ batch_size 8"] {
        assert!(message.contains(line), "{message}");
    }
    let (kind, message) = refusal(client.attach_writer("t", Some(&other.arrays)));
    assert_eq!(kind, RefusalKind::SpecMismatch);
    assert!(message.contains("+ check int8[8]") && !message.contains("batch_size"), "{message}");
    let reader = client.attach_reader("t", Some(&other.arrays), ReaderOptions::default());
    assert_eq!(refusal(reader).0, RefusalKind::SpecMismatch);
    assert!(client.show_table("t").unwrap().members.is_empty(), "none of them is attached");
}

#[test]
fn what_no_table_can_be_is_refused_and_what_is_small_is_not() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let spec = numbers("t", 4, 2);
    for wrong in [
        TableSpec { batch_size: 0, ..spec.clone() },
        TableSpec { capacity: 0, ..spec.clone() },
        TableSpec { arrays: vec![], ..spec.clone() },
        TableSpec { name: "a b".into(), ..spec.clone() },
        TableSpec { arrays: vec![ArraySpec::new("x", DType::F64, [u64::MAX, 2])], ..spec.clone() },
    ] {
        assert_eq!(refusal(client.create_table(&wrong)).0, RefusalKind::InvalidSpec, "{wrong:?}");
    }
    // An array without bytes is an array; a table may have nothing else.
    let mut empty = TableSpec { name: "empty".into(), ..spec };
    empty.arrays = vec![ArraySpec::new("nothing", DType::F32, [3, 0])];
    client.create_table(&empty).unwrap();
    let mut writer = client.attach_writer("empty", None).unwrap();
    let mut reader = client.attach_reader("empty", None, ReaderOptions::default()).unwrap();
    writer.append_many(0, &[&[]]).unwrap();
    writer.append_many(4, &[&[]]).unwrap();
    let batch = reader.next_batch(LONG).unwrap();
    assert_eq!((batch.len(), batch.array(0).bytes(), batch.array(0).shape()), (4, &[][..], vec![4, 3, 0]));
    assert_eq!(batch.array(0).as_slice::<f32>().unwrap(), &[0.0_f32; 0]);
    drop(batch);
    // A table whose writers finish without a sample ends without a batch.
    writer.finish().unwrap();
    assert!(matches!(reader.next_batch(LONG), Err(Error::Closed { .. })));
}

#[test]
fn samples_of_another_size_are_refused_before_they_are_written() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 2, 2)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let (id, check) = (1_u64.to_ne_bytes(), check_of(1));
    assert!(matches!(writer.append(&[&id]), Err(Error::Arrays { expected: 2, got: 1 })));
    let error = writer.append(&[&id, &check[1..]]).unwrap_err().to_string();
    assert_eq!(error, "array \"check\" of 1 samples is 8 bytes, and 7 were given");
    assert!(matches!(writer.append_many(2, &[&id, &check]), Err(Error::Length { .. })));
    assert!(matches!(writer.append_many(usize::MAX, &[&id, &check]), Err(Error::Length { .. })));
    assert_eq!(client.show_table("t").unwrap().row.samples.committed, 0);
}

#[test]
fn a_budget_that_is_used_up_refuses_with_numbers_and_gives_back_what_is_dropped() {
    let daemon = Daemon::start_with(&["--host-budget", "1MiB", "--uid-budget", "768KiB"]);
    let client = daemon.client();
    // 16 bytes a sample: 512 KiB.
    let half = |name| numbers(name, 1024, 32);
    client.create_table(&half("first")).unwrap();
    let before = echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used;
    assert!(before >= 512 << 10, "{before}");
    let (kind, message) = refusal(client.create_table(&half("second")));
    assert_eq!(kind, RefusalKind::Budget);
    assert!(message.contains("of 786432 bytes") && message.contains("table \"first\""), "{message}");
    assert_eq!(echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used, before);
    client.drop_table("first").unwrap();
    assert!(client.create_table(&half("second")).unwrap().created, "the budget is free again");
}

#[test]
fn memory_that_the_kernel_refuses_is_refused_and_nothing_leaks() {
    let daemon = Daemon::start_as("small-daemon");
    let client = daemon.client();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let before = descriptors();
    for i in 0..20 {
        let (kind, message) = refusal(client.create_table(&numbers(&format!("t{i}"), 1 << 20, 4)));
        assert_eq!(kind, RefusalKind::Memory);
        assert!(message.contains("RLIMIT_FSIZE"), "{message}");
    }
    assert_eq!(descriptors(), before);
    let status = echo_client::status(Some(&daemon.socket()), LONG).unwrap();
    assert_eq!((status.host_used, status.tables), (0, 0));
    client.create_table(&numbers("small", 16, 4)).unwrap();
}

#[test]
fn waits_can_be_cancelled_and_claims_given_up() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 2, 1)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut reader = client.attach_reader("t", None, ReaderOptions::default()).unwrap();
    let forever = Duration::from_secs(3600);
    writer.set_timeout(forever);

    let canceller = reader.canceller();
    let waiting = std::thread::spawn(move || (reader.next_batch(forever).map(drop), reader));
    canceller.cancel();
    let (result, mut reader) = waiting.join().unwrap();
    assert!(matches!(result, Err(Error::Cancelled)));
    assert!(matches!(reader.next_batch(Duration::ZERO), Err(Error::TimedOut { .. })), "once is once");

    // What was given up is written by the next claim.
    drop(writer.claim(2).unwrap());
    for id in [1_u64, 2] {
        writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
    }
    let mut batch = ids(&reader.next_batch(LONG).unwrap());
    batch.sort_unstable();
    assert_eq!(batch, [1, 2]);

    let canceller = writer.canceller();
    let full = std::thread::spawn(move || {
        let many = (0..100_u64).flat_map(u64::to_ne_bytes).collect::<Vec<u8>>();
        let checks = (0..100).flat_map(check_of).collect::<Vec<u8>>();
        writer.append_many(100, &[&many, &checks])
    });
    eventually("it waits", || {
        client.show_table("t").unwrap().members.iter().any(|member| member.state == "waits for space")
    });
    canceller.cancel();
    match full.join().unwrap().unwrap_err() {
        Error::Partly { done: 2, of: 100, source } => assert!(matches!(*source, Error::Cancelled)),
        other => panic!("{other}"),
    }
}

#[test]
fn several_tables_are_waited_for_at_once() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut ends: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            client.create_table(&numbers(name, 1, 2)).unwrap();
            let reader = client.attach_reader(name, None, ReaderOptions::default()).unwrap();
            (client.attach_writer(name, None).unwrap(), reader)
        })
        .collect();
    let readers = |ends: &[(echo_client::Writer, echo_client::Reader)], timeout| {
        wait_any(&ends.iter().map(|(_, reader)| reader).collect::<Vec<_>>(), timeout)
    };
    assert!(matches!(readers(&ends, Duration::from_millis(1)), Err(Error::TimedOut { .. })));
    for i in [2, 0, 1] {
        let mut writer = client.attach_writer(["a", "b", "c"][i], None).unwrap();
        let writing = std::thread::spawn(move || writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]));
        assert_eq!(readers(&ends, LONG).unwrap(), i);
        assert_eq!(ids(&ends[i].1.try_next_batch().unwrap().unwrap()), [7]);
        writing.join().unwrap().unwrap();
    }
    client.drop_table("b").unwrap();
    assert_eq!(readers(&ends, LONG).unwrap(), 1, "an end is something to hear of");
    assert!(matches!(ends[1].1.try_next_batch(), Err(Error::Closed { .. })));
}

#[test]
fn what_does_not_exist_or_is_too_much_is_refused() {
    let daemon = Daemon::start();
    let client = daemon.client();
    assert_eq!(refusal(client.attach_writer("nothing", None)).0, RefusalKind::NoSuchTable);
    assert_eq!(refusal(client.show_table("nothing")).0, RefusalKind::NoSuchTable);
    assert_eq!(refusal(client.drop_table("nothing")).0, RefusalKind::NoSuchTable);
    client.create_table(&numbers("t", 1, 1)).unwrap();
    for prefetch in [0, 257] {
        let reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(prefetch));
        assert_eq!(refusal(reader).0, RefusalKind::Invalid);
    }
    assert!(matches!(wait_any(&[], Duration::from_millis(1)), Err(Error::TimedOut { .. })));
    let writers: Vec<_> = (0..63).map(|_| client.attach_writer("t", None).unwrap()).collect();
    let (kind, message) = refusal(client.attach_writer("t", None));
    assert_eq!(kind, RefusalKind::Limit);
    assert!(message.contains("connect another client"), "{message}");
    drop(writers);
    client.attach_writer("t", None).unwrap();
}

#[test]
fn a_table_of_the_most_arrays_is_made_attached_and_shown() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let wide = |bytes: usize| {
        let arrays = (0..1024).map(|i| ArraySpec::new(format!("{i:0>bytes$}"), DType::U8, [])).collect();
        TableSpec::new("wide", arrays, 1, 1)
    };
    let (kind, message) = refusal(client.create_table(&wide(50)));
    assert_eq!(kind, RefusalKind::InvalidSpec);
    assert!(message.contains("shorten their paths"), "{message}");
    let spec = wide(42);
    client.create_table(&spec).unwrap();
    let mut writer = client.attach_writer("wide", Some(&spec.arrays)).unwrap();
    let _others: Vec<_> = (0..60).map(|_| client.attach_writer("wide", None).unwrap()).collect();
    writer.append(&vec![&[7_u8][..]; 1024]).unwrap();
    let mut reader = client.attach_reader("wide", Some(&spec.arrays), Default::default()).unwrap();
    assert_eq!(reader.next_batch(LONG).unwrap().array(1023).bytes(), [7]);
    assert_eq!(client.show_table("wide").unwrap().spec, spec);
}

#[test]
fn a_name_of_any_length_is_shown_short() {
    let daemon = Daemon::start();
    let named = || {
        let options = ConnectOptions {
            socket: Some(daemon.socket()),
            name: "ü".repeat(20_000),
            ..ConnectOptions::default()
        };
        Client::connect(&options).unwrap()
    };
    let clients = [named(), named()];
    let rows = clients[0].list_clients().unwrap();
    assert!(rows.iter().all(|row| row.name == "ü".repeat(32)), "{rows:?}");
}

#[test]
fn a_claim_that_was_forgotten_is_given_up_before_the_next() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 2, 2)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    std::mem::forget(writer.claim(1).unwrap());
    for id in 0..4 {
        writer.append(&[&u64::to_ne_bytes(id), &check_of(id)]).unwrap();
    }
    let mut reader = client.attach_reader("t", None, ReaderOptions::default()).unwrap();
    let mut all = ids(&reader.next_batch(LONG).unwrap());
    all.extend(ids(&reader.next_batch(LONG).unwrap()));
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3]);
}

#[test]
fn what_was_given_back_is_told_of_even_if_its_reader_does_nothing_more() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 8)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    for id in 0..8 {
        writer.append(&[&u64::to_ne_bytes(id), &check_of(id)]).unwrap();
    }
    let mut reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(8)).unwrap();
    // Three in quick succession, of which some are held back, since others are at hand.
    for id in 0..3 {
        assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [id]);
    }
    eventually("the workers have their blocks back", || {
        client.show_table("t").unwrap().row.samples.delivered == 3
    });
}
