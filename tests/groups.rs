//! Groups of readers: each batch goes to one reader of every group, and is there until all are done with it.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use echo_client::message::{GroupRow, RefusalKind};
use echo_client::{Batch, Client, DEFAULT_GROUP, Error, GroupFrom, Reader, Writer};
use support::{Daemon, LONG, check_of, eventually, ids, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["hold", ..] => {
            let client = support::client_of_role();
            let mut reader = reader(&client, "log");
            let batch = reader.next_batch(LONG).unwrap();
            support::say(&format!("has {}", number(&batch)));
            loop {
                std::thread::park();
            }
        }
        _ => panic!("no such part: {role:?}"),
    }
}

const BATCH: u64 = 4;
const CAPACITY: u64 = 4;

fn table(client: &Client) -> Writer {
    client.create_table(&numbers("t", BATCH as u32, CAPACITY as u32)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    writer.set_timeout(Duration::from_millis(50));
    writer
}

fn reader(client: &Client, group: &str) -> Reader {
    client.attach_group_reader("t", group, None, Default::default()).unwrap()
}

fn append(writer: &mut Writer, id: u64) -> Result<(), Error> {
    writer.append(&[&id.to_le_bytes(), &check_of(id)])
}

fn write(writer: &mut Writer, batches: std::ops::Range<u64>) {
    for id in batches.start * BATCH..batches.end * BATCH {
        append(writer, id).unwrap();
    }
}

/// The number of the batch, by what is in it.
fn number(batch: &Batch) -> u64 {
    let ids = ids(batch);
    assert!(ids.iter().zip(ids[0]..).all(|(&id, expected)| id == expected), "{ids:?}");
    ids[0] / BATCH
}

fn next(reader: &mut Reader) -> u64 {
    number(&reader.next_batch(LONG).unwrap())
}

fn group(client: &Client, name: &str) -> GroupRow {
    let groups = client.show_table("t").unwrap().groups;
    groups.into_iter().find(|group| group.name == name).unwrap()
}

#[test]
fn every_group_reads_every_batch_and_the_slowest_holds_the_workers_up() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer = table(&client);
    client.add_group("t", "log", GroupFrom::Oldest, None).unwrap();
    let (mut first, mut second) = (reader(&client, DEFAULT_GROUP), reader(&client, "log"));
    for lap in 0..20 {
        write(&mut writer, lap * CAPACITY..(lap + 1) * CAPACITY);
        let read: Vec<u64> = (0..CAPACITY).map(|_| next(&mut first)).collect();
        assert_eq!(read, (lap * CAPACITY..(lap + 1) * CAPACITY).collect::<Vec<_>>());
        let full = append(&mut writer, 0);
        assert!(matches!(full, Err(Error::TimedOut { .. })), "the other group has not read: {full:?}");
        let read: Vec<u64> = (0..CAPACITY).map(|_| next(&mut second)).collect();
        assert_eq!(read, (lap * CAPACITY..(lap + 1) * CAPACITY).collect::<Vec<_>>());
    }
    let row = group(&client, "log");
    eventually("what was given back is counted", || group(&client, "log").batches == 20 * CAPACITY);
    assert_eq!((row.readers, row.skipped, row.max_lag), (1, 0, None));
}

#[test]
fn a_group_that_may_lag_by_so_many_bytes_skips_and_holds_nobody_up() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer = table(&client);
    writer.set_timeout(LONG);
    let batch_bytes = 16 * BATCH;
    client.add_group("t", "log", GroupFrom::Oldest, Some(2 * batch_bytes + 1)).unwrap();
    let mut first = reader(&client, DEFAULT_GROUP);
    for number in 0..100 {
        write(&mut writer, number..number + 1);
        assert_eq!(next(&mut first), number);
    }
    eventually("it lags by no more than it may", || group(&client, "log").lag <= 2);
    // What it gets is in order, and the newest is not among what it skipped.
    let mut log = reader(&client, "log");
    let row = group(&client, "log");
    assert_eq!((row.lag, row.skipped, row.max_lag), (2, 98, Some(2)));
    assert_eq!([next(&mut log), next(&mut log)], [98, 99]);
}

#[test]
fn groups_come_and_go_and_are_rewound_to_what_is_still_there() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer = table(&client);
    write(&mut writer, 0..2);
    append(&mut writer, 2 * BATCH).unwrap();
    client.add_group("t", "old", GroupFrom::Oldest, None).unwrap();
    client.add_group("t", "new", GroupFrom::Newest, None).unwrap();
    let (mut first, mut old, mut new) =
        (reader(&client, DEFAULT_GROUP), reader(&client, "old"), reader(&client, "new"));
    assert_eq!([next(&mut first), next(&mut first), next(&mut old)], [0, 1, 0]);
    (2 * BATCH + 1..4 * BATCH).for_each(|id| append(&mut writer, id).unwrap());
    // What was begun before it came is not the newer one's.
    assert_eq!(next(&mut new), 3);
    // Batch 0 is gone, since all are done with it; 1 is not.
    eventually("what was given back is known", || group(&client, DEFAULT_GROUP).batches == 2);
    assert_eq!(client.rewind_group("t", DEFAULT_GROUP).unwrap(), 1);
    // What it was granted before comes first.
    assert_eq!([next(&mut first), next(&mut first), next(&mut first)], [2, 3, 1]);

    for (name, kind, said) in [
        ("default", RefusalKind::NoSuchGroup, "has 1 readers"),
        ("nobody", RefusalKind::NoSuchGroup, "the table has no group \"nobody\", only default, old, new"),
    ] {
        let refused = client.remove_group("t", name).unwrap_err();
        assert!(refused.refusal() == Some(kind) && refused.to_string().contains(said), "{refused}");
    }
    let refused = client.attach_group_reader("t", "nobody", None, Default::default()).err().unwrap();
    assert_eq!(refused.refusal(), Some(RefusalKind::NoSuchGroup));
    for name in ["", "a b", &"x".repeat(65), "new"] {
        assert!(client.add_group("t", name, GroupFrom::Oldest, None).is_err(), "{name:?}");
    }
    // A group that goes holds nobody up.
    drop(old);
    client.remove_group("t", "old").unwrap();
    drop(new);
    client.remove_group("t", "new").unwrap();
    drop(first);
    eventually("the last one stays", || {
        client.remove_group("t", DEFAULT_GROUP).unwrap_err().to_string().contains("the table's only one")
    });
    writer.set_timeout(LONG);
    let mut first = reader(&client, DEFAULT_GROUP);
    for number in 4..20 {
        write(&mut writer, number..number + 1);
        assert_eq!(next(&mut first), number);
    }
}

#[test]
fn a_group_whose_only_reader_dies_goes_on_with_the_next_and_the_others_go_on_meanwhile() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer = table(&client);
    client.add_group("t", "log", GroupFrom::Oldest, None).unwrap();
    let mut first = reader(&client, DEFAULT_GROUP);
    let mut dying = daemon.actor_of("hold");
    write(&mut writer, 0..CAPACITY);
    dying.expect("has 0");
    let read: Vec<u64> = (0..CAPACITY).map(|_| next(&mut first)).collect();
    assert_eq!(read, [0, 1, 2, 3]);
    let full = append(&mut writer, 0);
    assert!(matches!(full, Err(Error::TimedOut { .. })), "{full:?}");
    dying.kill();
    // What it held is the next one's, too.
    let mut log = reader(&client, "log");
    assert_eq!((0..CAPACITY).map(|_| next(&mut log)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    writer.set_timeout(LONG);
    write(&mut writer, 4..5);
    assert_eq!((next(&mut first), next(&mut log)), (4, 4));
}

#[test]
fn the_end_is_told_to_each_group_when_it_has_read_all() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut writer = table(&client);
    client.add_group("t", "log", GroupFrom::Oldest, None).unwrap();
    let (mut first, mut log) = (reader(&client, DEFAULT_GROUP), reader(&client, "log"));
    (0..6).for_each(|id| append(&mut writer, id).unwrap());
    writer.finish().unwrap();
    for reader in [&mut first, &mut log] {
        assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [0, 1, 2, 3]);
        assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [4, 5]);
        assert!(matches!(reader.next_batch(LONG), Err(Error::Closed { .. })));
    }
    eventually("all was delivered, once", || {
        let samples = client.show_table("t").unwrap().row.samples;
        (samples.committed, samples.delivered, samples.pending) == (6, 6, 0)
    });
}
