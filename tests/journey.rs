//! A sample travels from a rollout worker to a trainer: the whole of it, in the order in which it happens.

#[path = "support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::time::Duration;

use echo_client::message::{BEING_MADE, EndReason, RefusalKind};
use echo_client::{ArraySpec, DType, Error, GroupFrom, TableSpec};
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

#[test]
fn a_sample_travels_from_a_worker_to_a_trainer() {
    let daemon = Daemon::start();

    // The worker's side makes a table; the trainer's finds it.
    let worker = daemon.client();
    let spec = numbers("rollouts", 4, 2);
    assert!(worker.create_table(&spec).unwrap().created);
    let trainer = daemon.client();
    assert!(!trainer.create_table(&spec).unwrap().created);
    let mut writer = worker.attach_writer("rollouts", Some(&spec.arrays)).unwrap();
    let mut reader = trainer.attach_reader("rollouts", None, Default::default()).unwrap();
    assert_eq!(reader.spec(), &spec);

    // Nothing is there yet.
    assert!(reader.try_next_batch().unwrap().is_none());
    assert!(matches!(reader.next_batch(Duration::from_millis(1)), Err(Error::TimedOut { .. })));

    // One by one, several at once, and in place.
    writer.append(&[&0_u64.to_ne_bytes(), &check_of(0)]).unwrap();
    let many: Vec<u8> = (1..3_u64).flat_map(u64::to_ne_bytes).collect();
    let checks: Vec<u8> = (1..3).flat_map(check_of).collect();
    writer.append_many(2, &[&many, &checks]).unwrap();
    assert!(reader.try_next_batch().unwrap().is_none(), "three of four are no batch");
    let mut claim = writer.claim(9).unwrap();
    assert_eq!(claim.len(), 1, "a claim does not cross the end of its batch");
    claim.array_mut_as::<u64>(0).unwrap()[0] = 3;
    claim.array_mut(1).copy_from_slice(&check_of(3));
    claim.commit().unwrap();

    // The batch lies where it was written.
    let batch = reader.next_batch(LONG).unwrap();
    assert_eq!((batch.seq(), batch.len(), ids(&batch)), (0, 4, vec![0, 1, 2, 3]));
    assert_eq!(batch.array(1).shape(), [4, 8]);
    assert_eq!(batch.array_named("check").unwrap().bytes(), batch.array(1).bytes());
    assert!(matches!(batch.array(0).as_slice::<f64>(), Err(Error::Element { .. })));

    // Back-pressure: there is room for another batch, and then none until this one comes back.
    for id in 4..8_u64 {
        writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
    }
    assert!(!writer.try_append(&[&8_u64.to_ne_bytes(), &check_of(8)]).unwrap());
    drop(batch);
    writer.append(&[&8_u64.to_ne_bytes(), &check_of(8)]).unwrap();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [4, 5, 6, 7]);

    // The end: what is left comes with its true length, and then nothing.
    writer.finish().unwrap();
    let last = reader.next_batch(LONG).unwrap();
    assert_eq!((last.len(), ids(&last)), (1, vec![8]));
    drop(last);
    assert!(matches!(
        reader.next_batch(LONG),
        Err(Error::Closed { ref table, reason: EndReason::Finished }) if table == "rollouts"
    ));
    assert!(matches!(worker.attach_writer("rollouts", None), Err(Error::Refused(_))));

    // Every sample is accounted for.
    let samples = trainer.show_table("rollouts").unwrap().row.samples;
    assert_eq!((samples.committed, samples.delivered, samples.pending), (9, 9, 0));
}

#[test]
fn a_claim_that_was_put_aside_is_taken_up_once_and_by_its_writer() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers("aside", 2, 2)).unwrap();
    let mut writer = client.attach_writer("aside", None).unwrap();
    let mut other = client.attach_writer("aside", None).unwrap();
    let mut reader = client.attach_reader("aside", None, Default::default()).unwrap();

    let aside = writer.claim(1).unwrap().put_aside();
    assert!(other.resume(aside).is_none(), "it is not this one's");
    let mut claim = writer.resume(aside).expect("it is open");
    claim.array_mut_as::<u64>(0).unwrap()[0] = 7;
    claim.array_mut(1).copy_from_slice(&check_of(7));
    claim.commit().unwrap();
    assert!(writer.resume(aside).is_none(), "it was committed");

    // One that is forgotten is given up by the next claim, and its room is written by that or another one.
    let forgotten = writer.claim(1).unwrap().put_aside();
    writer.append(&[&8_u64.to_ne_bytes(), &check_of(8)]).unwrap();
    assert!(writer.resume(forgotten).is_none(), "it was given up");
    let batch = reader.next_batch(LONG).unwrap();
    assert_eq!(ids(&batch), [7, 8]);
}

#[test]
fn a_table_that_is_being_made_is_shown_with_what_is_resident_and_cannot_be_attached_to() {
    const BYTES: u64 = 1 << 30;
    let daemon = Daemon::start_with(&["--prefault-threads", "1", "--host-budget", "2GiB"]);
    let (client, other) = (daemon.client(), daemon.client());
    let spec = TableSpec::new("large", vec![ArraySpec::new("x", DType::U8, [1 << 20])], 64, 16);
    let seen = Mutex::new(Vec::new());
    // One that is made before it can be looked at is made once more.
    eventually("it is seen", || {
        let told = Mutex::new(Vec::new());
        let made = client.create_table_telling(&spec, None, |resident, total| {
            told.lock().unwrap().push((resident, total));
            let attached = other.attach_reader("large", None, Default::default());
            let row = other.list_tables().unwrap().remove(0);
            if row.state == BEING_MADE {
                // It was so before as well.
                assert_eq!(attached.err().unwrap().refusal(), Some(RefusalKind::NoSuchTable));
                seen.lock().unwrap().push(row);
            }
        });
        assert!(made.unwrap().created);
        let told = told.into_inner().unwrap();
        assert!(told.is_sorted() && told.iter().all(|&(_, total)| total == BYTES), "{told:?}");
        assert_eq!(told.last(), Some(&(BYTES, BYTES)));
        client.drop_table("large").unwrap();
        !seen.lock().unwrap().is_empty()
    });
    for row in seen.into_inner().unwrap() {
        assert_eq!((&*row.name, row.sample_bytes, row.writers + row.readers), ("large", 1 << 20, 0));
    }
    assert_eq!(client.list_tables().unwrap(), []);
}

#[test]
fn a_table_that_has_served_is_made_anew_by_who_creates_it_again() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let spec = numbers("t", 2, 2);
    for run in 0..3 {
        assert!(client.create_table(&spec).unwrap().created, "run {run}");
        let mut writer = client.attach_writer("t", None).unwrap();
        writer.append(&[&0_u64.to_ne_bytes(), &check_of(0)]).unwrap();
        writer.finish().unwrap();
        let ended = || matches!(client.attach_writer("t", None), Err(Error::Refused(_)));
        eventually("the table has ended", ended);
        // What nobody has read is kept.
        assert!(!client.create_table(&spec).unwrap().created);
        let refused = client.attach_writer("t", None).err().unwrap();
        assert!(refused.to_string().contains("1 samples of it are not read"), "{refused}");
        let mut reader = client.attach_reader("t", None, Default::default()).unwrap();
        drop(reader.next_batch(LONG).unwrap());
        // As long as somebody may ask it why it has ended it stays, too.
        eventually("the batch is back", || client.show_table("t").unwrap().row.samples.pending == 0);
        assert!(!client.create_table(&spec).unwrap().created);
        drop(reader);
        eventually("the reader is gone", || client.show_table("t").unwrap().row.readers == 0);
    }
    // Somebody else's groups are not thrown away.
    client.add_group("t", "eval", GroupFrom::Oldest, None).unwrap();
    assert!(!client.create_table(&spec).unwrap().created);
}
