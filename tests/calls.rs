//! What a batch costs in messages, waits and wakes: counted, since a time cannot be tested.

#[path = "support/mod.rs"]
mod support;

use echo_client::ReaderOptions;
use support::{Daemon, LONG, check_of, eventually, ids, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some(role) = support::role() {
        support::play_daemon(&role[1..]);
    }
}

/// Batches of one lap.
const LAP: u32 = 64;

#[test]
fn batches_that_come_back_in_quick_succession_are_told_of_together() {
    const PREFETCH: u16 = 16;
    let daemon = Daemon::start();
    let (client, trainer) = (daemon.client(), daemon.client());
    client.create_table(&numbers("t", 1, LAP)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut reader = trainer.attach_reader("t", None, ReaderOptions::with_prefetch(PREFETCH)).unwrap();
    let messages = || {
        let row = client.list_clients().unwrap().into_iter().find(|row| row.client == trainer.id()).unwrap();
        (row.requests, row.events)
    };
    let mut batches = 0_u64;
    // One that is interrupted for long tells of each at once, so that it may take several laps to see one without.
    eventually("a lap costs half a depth of batches a message, and as many grants", || {
        let before = messages();
        for _ in 0..LAP {
            writer.append(&[&batches.to_ne_bytes(), &check_of(batches)]).unwrap();
            batches += 1;
        }
        for i in 0..LAP.into() {
            assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [batches - u64::from(LAP) + i]);
        }
        eventually("all are told of", || client.show_table("t").unwrap().row.samples.delivered == batches);
        let after = messages();
        // And what is left over each time before it waits.
        let allowed = u64::from(LAP) / (u64::from(PREFETCH) / 2) * 2;
        after.0 - before.0 <= allowed && after.1 - before.1 <= allowed
    });
    assert!(writer.wakes() <= batches, "{} wakes for {batches} batches", writer.wakes());
}

#[test]
fn a_batch_that_is_granted_and_ready_is_read_without_a_wait() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 2, LAP)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(LAP as u16)).unwrap();
    let sample = |id: u64| (id.to_ne_bytes(), check_of(id));
    for id in 0..u64::from(LAP) * 2 {
        let (id, check) = sample(id);
        writer.append(&[&id, &check]).unwrap();
    }
    eventually("its grants are here", || reader.try_next_batch().unwrap().is_some());
    for _ in 1..LAP {
        reader.next_batch(LONG).unwrap();
    }
    assert_eq!(reader.waits(), 0);
    assert_eq!(writer.waits(), 0, "there was room for all of it");
    assert!(writer.wakes() <= LAP.into());
}

#[test]
fn the_daemon_works_by_the_batch_and_not_by_the_sample() {
    let daemon = Daemon::start();
    let (client, trainer) = (daemon.client(), daemon.client());
    let messages = |batch_size: u32| {
        let name = format!("t{batch_size}");
        client.create_table(&numbers(&name, batch_size, 8)).unwrap();
        let mut writer = client.attach_writer(&name, None).unwrap();
        let mut reader = trainer.attach_reader(&name, None, ReaderOptions::with_prefetch(4)).unwrap();
        let count = || {
            let rows = client.list_clients().unwrap();
            rows.iter()
                .map(|row| (row.client == trainer.id(), row.requests))
                .filter(|r| r.0)
                .map(|r| r.1)
                .sum::<u64>()
        };
        let before = count();
        let writing = std::thread::spawn(move || {
            for id in 0..u64::from(batch_size) * 100 {
                writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
            }
        });
        for _ in 0..100 {
            assert_eq!(reader.next_batch(LONG).unwrap().len(), batch_size as usize);
        }
        writing.join().unwrap();
        count() - before
    };
    for batch_size in [1, 1000] {
        let sent = messages(batch_size);
        assert!(sent <= 110, "{sent} messages for 100 batches of {batch_size}");
    }
}
