//! A reader that is dropped while its batches live: it keeps these, and takes no more.

#[path = "support/mod.rs"]
mod support;

use echo_client::{Error, ReaderOptions, Writer};
use support::{Daemon, LONG, check_of, eventually, ids, numbers};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    if let Some([role, args @ ..]) = support::role().as_deref()
        && role == "daemon"
    {
        support::play_daemon(args);
    }
}

fn append(writer: &mut Writer, id: u64) {
    writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
}

#[test]
fn a_reader_that_is_dropped_leaves_what_it_has_not_handed_out_to_others() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 4)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut first = client.attach_reader("t", None, ReaderOptions::with_prefetch(4)).unwrap();
    for id in 0..3 {
        append(&mut writer, id);
    }
    let held = [first.next_batch(LONG).unwrap(), first.next_batch(LONG).unwrap()];
    drop(first);
    // The third was granted and is complete, the fourth was granted and is not.
    let mut second = client.attach_reader("t", None, ReaderOptions::with_prefetch(4)).unwrap();
    assert_eq!(ids(&second.next_batch(LONG).unwrap()), [2]);
    append(&mut writer, 3);
    assert_eq!(ids(&second.next_batch(LONG).unwrap()), [3]);
    let members = client.show_table("t").unwrap().members;
    assert!(
        members.iter().any(|member| member.state == "takes no more" && member.grants == 2),
        "{members:?}"
    );

    // What it kept is as it was, comes back, and goes round; to those who read.
    assert_eq!(held.each_ref().map(ids), [[0], [1]]);
    drop(held);
    for id in 4..20 {
        append(&mut writer, id);
        assert_eq!(ids(&second.next_batch(LONG).unwrap()), [id]);
    }
    eventually("the first one is detached", || client.show_table("t").unwrap().row.readers == 1);
    writer.finish().unwrap();
    assert!(matches!(second.next_batch(LONG), Err(Error::Closed { .. })));
    let samples = client.show_table("t").unwrap().row.samples;
    assert_eq!((samples.committed, samples.delivered), (20, 20));
}

#[test]
fn what_is_granted_to_one_who_is_leaving_is_not_lost() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 8)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut next = 0_u64;
    let mut seen = Vec::new();
    for round in 0..200 {
        // Batches are given back, and so granted, while readers leave.
        let mut reader =
            client.attach_reader("t", None, ReaderOptions::with_prefetch(1 + round % 3)).unwrap();
        while writer.try_append(&[&next.to_ne_bytes(), &check_of(next)]).unwrap() {
            next += 1;
        }
        let one = reader.next_batch(LONG).unwrap();
        let other = reader.try_next_batch().unwrap();
        seen.extend(ids(&one));
        drop(one);
        drop(reader);
        seen.extend(other.iter().flat_map(ids));
    }
    writer.finish().unwrap();
    let mut last = client.attach_reader("t", None, ReaderOptions::default()).unwrap();
    while let Ok(batch) = last.next_batch(LONG) {
        seen.extend(ids(&batch));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..next).collect::<Vec<_>>());
}

#[test]
fn a_batch_that_is_put_back_is_the_next_one_and_goes_to_others_if_its_reader_does() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("t", 1, 4)).unwrap();
    let mut writer = client.attach_writer("t", None).unwrap();
    let mut reader = client.attach_reader("t", None, ReaderOptions::with_prefetch(4)).unwrap();
    for id in 0..3 {
        append(&mut writer, id);
    }
    let batches = [0, 1, 2].map(|_| reader.next_batch(LONG).unwrap());
    let [zero, one, two] = batches;
    one.put_back();
    zero.put_back();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [0]);
    drop(reader);
    let mut other = client.attach_reader("t", None, ReaderOptions::with_prefetch(4)).unwrap();
    assert_eq!(ids(&other.next_batch(LONG).unwrap()), [1]);
    two.put_back(); // of a reader that is gone
    // After what was granted before it, as what a dead reader held.
    for id in 3.. {
        append(&mut writer, id);
        let got = ids(&other.next_batch(LONG).unwrap());
        if got == [2] {
            break;
        }
        assert!(got == [id] && id < 10, "{got:?}");
    }
}
