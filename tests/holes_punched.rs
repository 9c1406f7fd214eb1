//! A worker takes the pages away from under everybody's feet. No seal forbids it that would not forbid its writing as
//! well. The daemon must not fall by it: what it reads is zeros, and zeros are no table.

#[path = "support/bystanders.rs"]
mod bystanders;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::OwnedFd;
use std::time::Duration;

use bystanders::Bystanders;
use echo::memory::{Access, Mapping};
use echo_client::{Error, ReaderOptions};
use rustix::fs::FallocateFlags;
use rustix::mm::Advice;
use stranger::Stranger;
use support::{Daemon, LONG, client_of_role, eventually, numbers, say};

const TABLE: &str = "punched";

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["puncher", what, how] => punch(what, how),
        ["honest"] => be_honest(),
        _ => panic!("no such part: {role:?}"),
    }
}

fn punch(what: &str, how: &str) {
    let (stranger, page) = Stranger::greeted(&support::socket_of_role());
    let (_, data, control) = stranger.attach(1, TABLE, true);
    let file: OwnedFd = match what {
        "data" => data,
        "control" => control,
        _ => page,
    };
    let bytes = rustix::fs::fstat(&file).unwrap().st_size as u64;
    let mapping = Mapping::new(&file, bytes as usize, Access::ReadWrite).unwrap();
    for _ in 0..300 {
        match how {
            "by-descriptor" => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, punch, 0, bytes).unwrap();
            }
            _ => {
                let (at, bytes) = (mapping.base().as_ptr().cast(), bytes as usize);
                // SAFETY: mapped by this process, which holds no reference into it.
                unsafe { rustix::mm::madvise(at, bytes, Advice::LinuxRemove) }.unwrap();
            }
        }
        std::thread::yield_now();
    }
    say("done");
    loop {
        std::thread::park();
    }
}

/// What it reads is not promised any more; that each call ends is.
fn be_honest() {
    let client = client_of_role();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    writer.set_timeout(Duration::from_millis(200));
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    say("attached");
    let writing = std::thread::spawn(move || {
        loop {
            match writer.append(&[&1_u64.to_ne_bytes(), &support::check_of(1)]) {
                Ok(()) | Err(Error::TimedOut { .. } | Error::Commit(_)) => {}
                Err(end) => return end,
            }
        }
    });
    let reading = loop {
        match reader.next_batch(Duration::from_millis(200)) {
            Ok(batch) => drop(batch.array(0).bytes().iter().map(|&byte| u64::from(byte)).sum::<u64>()),
            Err(Error::TimedOut { .. }) => {}
            Err(end) => break end,
        }
    };
    let writing = writing.join().unwrap();
    assert!(matches!(reading, Error::Closed { .. }), "{reading}");
    assert!(matches!(writing, Error::Closed { .. }), "{writing}");
    say("ended");
}

#[test]
fn a_table_whose_pages_a_worker_takes_away_is_poisoned_or_goes_on_and_the_daemon_lives() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let bystanders = Bystanders::start(&daemon);
    let used = || echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used;
    let before = used();
    for what in ["data", "control", "page"] {
        for how in ["by-descriptor", "by-mapping"] {
            client.create_table(&numbers(TABLE, 5, 4)).unwrap();
            let mut honest = daemon.actor_of("honest");
            honest.expect("attached");
            let mut puncher = daemon.actor_of(&format!("puncher {what} {how}"));
            puncher.expect("done");
            if what == "control" {
                eventually("zeros are no table", || {
                    client.show_table(TABLE).unwrap().row.state.starts_with("poisoned: ")
                });
                honest.expect("ended");
            } else {
                let delivered = || client.show_table(TABLE).unwrap().row.samples.delivered;
                let seen = delivered();
                eventually("samples go on", || delivered() > seen);
                assert_eq!(client.show_table(TABLE).unwrap().row.state, "open");
                puncher.kill();
            }
            client.why(TABLE).unwrap();
            client.list_clients().unwrap();
            client.drop_table(TABLE).unwrap();
            if what != "control" {
                honest.expect("ended");
            }
            assert!(honest.wait().success());
            drop(puncher);
            eventually("its memory went back", || used() == before);
        }
    }
    bystanders.finish();
}

/// The rest of a table that ends is moved together by the daemon, in bytes that are not there.
#[test]
fn a_table_without_its_samples_still_ends() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 4, 2)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    let mut other = client.attach_writer(TABLE, None).unwrap();
    let claim = other.claim(1).unwrap();
    for id in 1..3_u64 {
        writer.append(&[&id.to_ne_bytes(), &support::check_of(id)]).unwrap();
    }
    let mut puncher = daemon.actor_of("puncher data by-descriptor");
    puncher.expect("done");
    puncher.kill();
    drop(claim);
    other.finish().unwrap();
    writer.finish().unwrap();
    let batch = reader.next_batch(LONG).unwrap();
    assert_eq!((batch.len(), batch.array(0).as_slice::<u64>().unwrap()), (2, &[0, 0][..]));
    drop(batch);
    assert!(matches!(reader.next_batch(LONG), Err(Error::Closed { .. })));
}

/// The samples of a batch are its reader's until it gives them back, and a device may have them pinned.
#[test]
fn a_daemon_that_stops_takes_nothing_from_under_a_batch_that_is_out() {
    let mut daemon = Daemon::start_with(&["--drain-timeout", "50ms"]);
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 4, 2)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    for id in 1..5_u64 {
        writer.append(&[&id.to_ne_bytes(), &support::check_of(id)]).unwrap();
    }
    let batch = reader.next_batch(LONG).unwrap();
    daemon.actor().signal(rustix::process::Signal::TERM);
    daemon.actor().wait();
    assert_eq!(support::ids(&batch), [1, 2, 3, 4]);
}
