//! What a limit of the kernel does not allow is an error that names the limit, and leaves nothing behind.

#[path = "support/kernel.rs"]
mod kernel;
#[path = "support/process.rs"]
mod process;
#[path = "support/mod.rs"]
mod support;

use echo_client::message::RefusalKind;
use echo_client::{ArraySpec, DType, Error, Pin, TableSpec};
use kernel::{Argument, Refused, refuse};
use rustix::process::Resource;
use support::{Daemon, check_of, client_of_role, eventually, ids, numbers, said, say};

/// Bytes that are named where one step of making a table is to fail.
const HALFWAY: u64 = 77 * 4096;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    let (part, rest) = role.split_first().unwrap();
    match part.as_str() {
        "daemon" => support::play_daemon(rest),
        "unprivileged-daemon" => {
            let places = support::places(rest);
            process::limit(Resource::Memlock, Some(64 << 10));
            process::become_nobody(&places.each_ref().map(AsRef::as_ref));
            support::play_daemon(rest);
        }
        "daemon-running-out-of-threads" => {
            run_out_of_threads(&support::places(rest)[0]);
            support::play_daemon(rest);
        }
        "daemon-without-pages" => {
            let populate = libc::MADV_POPULATE_WRITE as u32;
            let when = vec![Argument::Is(2, populate), Argument::Is(1, HALFWAY as u32)];
            refuse(&[Refused { call: libc::SYS_madvise, when, errno: rest[0].parse().unwrap() }], None);
            support::play_daemon(&rest[1..]);
        }
        _ => be_short_of_addresses(),
    }
}

fn refused(result: Result<impl Sized, Error>) -> (RefusalKind, String) {
    match result.map(drop).unwrap_err() {
        Error::Refused(refusal) => (refusal.kind, refusal.message),
        other => panic!("{}", said(&other)),
    }
}

fn host_used(daemon: &Daemon) -> u64 {
    echo_client::status(Some(&daemon.socket()), support::LONG).unwrap().host_used
}

/// 1 MiB.
fn megabyte(name: &str, pin: Pin) -> TableSpec {
    TableSpec { pin, ..numbers(name, 1 << 14, 4) }
}

#[test]
fn pages_that_may_not_be_locked_are_an_error_a_note_or_nothing_as_the_table_asks() {
    if !process::may_change_user("locking without the right to") {
        return;
    }
    let daemon = Daemon::start_as("unprivileged-daemon");
    let client = daemon.client();
    let before = process::descriptors(daemon.pid());
    let locked = process::bytes_of(daemon.pid(), "VmLck");
    let (kind, message) = refused(client.create_table(&megabyte("required", Pin::Required)));
    assert_eq!(kind, RefusalKind::Memory);
    assert!(message.contains("RLIMIT_MEMLOCK is 65536 bytes: raise it"), "{message}");
    assert_eq!(host_used(&daemon), 0);
    eventually("nothing of it is left", || {
        process::descriptors(daemon.pid()) == before && process::bytes_of(daemon.pid(), "VmLck") == locked
    });
    for (name, pin, noted) in [("best-effort", Pin::BestEffort, true), ("off", Pin::Off, false)] {
        client.create_table(&megabyte(name, pin)).unwrap();
        let pages = client.show_table(name).unwrap().pages;
        let notes = pages.notes.join("\n");
        assert_eq!(
            notes.contains("not locked") && notes.contains("RLIMIT_MEMLOCK"),
            noted,
            "{name}: {notes}"
        );
        assert!(pages.locked_bytes < pages.resident_bytes && pages.resident_bytes >= 1 << 20, "{pages:?}");
    }
    // What is small enough can be locked, and is.
    let small = TableSpec { pin: Pin::Required, ..numbers("small", 1, 1) };
    client.drop_table("best-effort").unwrap();
    client.create_table(&small).unwrap();
    let pages = client.show_table("small").unwrap().pages;
    assert_eq!(pages.locked_bytes, pages.resident_bytes);
}

#[test]
#[cfg_attr(echo_asan, ignore = "AddressSanitizer takes terabytes of addresses for itself")]
fn a_daemon_without_addresses_refuses_tables_and_serves_on() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let before = process::descriptors(daemon.pid());
    // What a first table takes for good is taken.
    client.create_table(&numbers("first", 1, 1)).unwrap();
    client.drop_table("first").unwrap();
    eventually("it is gone", || host_used(&daemon) == 0);
    let size = process::bytes_of(daemon.pid(), "VmSize");
    // Not enough for the words, and not enough for the samples.
    for room in [2 << 20, 128 << 20] {
        process::limit_of(daemon.pid(), Resource::As, Some(size + room));
        for _ in 0..3 {
            let (kind, message) = refused(client.create_table(&numbers("large", 1 << 20, 16)));
            assert_eq!(kind, RefusalKind::Memory);
            let no_thread = room == 2 << 20 && message.contains("there is no thread");
            assert!(message.contains("RLIMIT_AS is") || no_thread, "{message}");
        }
        assert_eq!(client.list_tables().unwrap(), []);
        assert_eq!(host_used(&daemon), 0);
        eventually("nothing of it is left", || process::descriptors(daemon.pid()) == before);
    }
    process::limit_of(daemon.pid(), Resource::As, None);
    client.create_table(&numbers("small", 16, 16)).unwrap();
}

/// What made tables elsewhere panicked where there could be no thread, and took the daemon with it.
#[test]
fn a_daemon_that_can_start_no_thread_refuses_tables_and_serves_on() {
    let daemon = Daemon::start_as("daemon-running-out-of-threads");
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 1)).unwrap();
    let directory = daemon.socket().parent().unwrap().to_owned();
    std::fs::write(directory.join("no-more-threads"), "").unwrap();
    eventually("there are no more", || directory.join("there-are-none").exists());
    for name in ["a", "b"] {
        let (kind, message) = refused(client.create_table(&numbers(name, 1, 1)));
        assert_eq!(kind, RefusalKind::Memory);
        assert!(message.contains("there is no thread to make it on"), "{message}");
    }
    let mut writer = client.attach_writer("t", None).unwrap();
    writer.append(&[&7_u64.to_ne_bytes(), &check_of(7)]).unwrap();
    drop(writer);
    client.drop_table("t").unwrap();
    eventually("a table goes without a thread", || host_used(&daemon) == 0);
}

/// Lets this process start no thread once a file says so.
fn run_out_of_threads(directory: &std::path::Path) {
    let (wanted, done) = (directory.join("no-more-threads"), directory.join("there-are-none"));
    std::thread::spawn(move || {
        eventually("threads are to end", || wanted.exists());
        let calls = [libc::SYS_clone, libc::SYS_clone3];
        refuse(&calls.map(|call| Refused { call, when: vec![], errno: libc::EAGAIN }), None);
        std::fs::write(done, "").unwrap();
    });
}

/// A client that has no room for a table.
fn be_short_of_addresses() {
    let client = client_of_role();
    let own = || process::descriptors(std::process::id());
    let before = own();
    process::limit(Resource::As, Some(process::bytes_of(std::process::id(), "VmSize") + (16 << 20)));
    let errors = [
        client.attach_writer("t", None).map(drop).unwrap_err(),
        client.attach_reader("t", None, Default::default()).map(drop).unwrap_err(),
    ];
    process::limit(Resource::As, None);
    for error in errors {
        assert!(said(&error).contains("RLIMIT_AS"), "{}", said(&error));
    }
    assert_eq!(own(), before);
    let mut writer = client.attach_writer("t", None).unwrap();
    let many: Vec<u8> = vec![7; 8 << 20];
    writer.append_many(1 << 20, &[&many, &many]).unwrap();
    say("all is well");
}

#[test]
#[cfg_attr(echo_asan, ignore = "AddressSanitizer takes terabytes of addresses for itself")]
fn a_client_without_addresses_hears_of_the_limit_and_goes_on_when_it_is_raised() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&TableSpec { pin: Pin::Off, ..numbers("t", 1 << 20, 2) }).unwrap();
    let mut short = daemon.actor_of("short");
    short.expect("all is well");
    assert!(short.wait().success());
    eventually("nothing of it is left", || client.show_table("t").unwrap().members.is_empty());
}

#[test]
fn pages_that_cannot_be_had_halfway_give_back_what_was_had() {
    for errno in [libc::ENOMEM, libc::EFAULT] {
        let daemon = Daemon::start_as(&format!("daemon-without-pages {errno}"));
        let client = daemon.client();
        let before = (process::descriptors(daemon.pid()), process::bytes_of(daemon.pid(), "RssShmem"));
        // The first array is made, the second not; a third would come.
        let arrays =
            [1 << 20, HALFWAY, 1 << 20].map(|bytes| ArraySpec::new(format!("{bytes}"), DType::U8, [bytes]));
        let mut arrays = arrays.to_vec();
        arrays[2].path = "third".into();
        for _ in 0..3 {
            let (kind, message) = refused(client.create_table(&TableSpec::new("t", arrays.clone(), 1, 1)));
            assert_eq!(kind, RefusalKind::Memory);
            let why = if errno == libc::ENOMEM { "has not so much left" } else { "could not be had" };
            assert!(
                message.contains("make shared memory resident (315392 bytes)") && message.contains(why),
                "{message}"
            );
        }
        assert_eq!(host_used(&daemon), 0);
        eventually("nothing of it is left", || {
            before == (process::descriptors(daemon.pid()), process::bytes_of(daemon.pid(), "RssShmem"))
        });
        client.create_table(&numbers("another", 16, 4)).unwrap();
        let mut writer = client.attach_writer("another", None).unwrap();
        let mut reader = client.attach_reader("another", None, Default::default()).unwrap();
        for id in 0..16_u64 {
            writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
        }
        assert_eq!(ids(&reader.next_batch(support::LONG).unwrap()), (0..16).collect::<Vec<_>>());
    }
}

#[test]
fn a_table_larger_than_the_machine_is_refused_by_the_budget_before_a_page_is_touched() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let before = process::bytes_of(daemon.pid(), "RssShmem");
    let arrays = vec![ArraySpec::new("obs", DType::U8, [1 << 30])];
    let table = |capacity| TableSpec::new("huge", arrays.clone(), 4, capacity);
    let (kind, message) = refused(client.create_table(&table(1 << 8)));
    assert_eq!(kind, RefusalKind::Budget);
    assert!(
        message.contains("1099511627776 bytes of host memory") && message.contains("do not fit"),
        "{message}"
    );
    // So large that the kernel has not even addresses for it.
    let (kind, message) = refused(client.create_table(&table(1 << 20)));
    assert_eq!(kind, RefusalKind::Memory, "{message}");
    assert_eq!((process::bytes_of(daemon.pid(), "RssShmem"), host_used(&daemon)), (before, 0));
}
