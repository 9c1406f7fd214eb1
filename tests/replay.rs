//! Replay tables between real processes and threads: what is written is sampled, limited, aged and removed.

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use echo_client::replay::{ErrorBuffer, RateLimiter, ReplaySpec, Selector};
use echo_client::{
    ArraySpec, Client, Counted, DType, Error, Largest, Mark, ReplayWriter, Sampler, SamplerOptions, TableSpec,
};
use support::{Daemon, LONG, eventually};

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        _ => panic!("no such part: {role:?}"),
    }
}

const SHORT: Duration = Duration::from_millis(50);

fn arrays() -> Vec<ArraySpec> {
    vec![ArraySpec::new("id", DType::U64, []), ArraySpec::new("pixels", DType::U8, [32])]
}

fn table(client: &Client, settings: ReplaySpec) {
    client.create_table(&TableSpec::replay("r", arrays(), settings)).unwrap();
}

fn append(writer: &mut ReplayWriter, id: u64, mark: Mark) {
    writer.append(&[&id.to_le_bytes(), &[id as u8; 32]], mark).unwrap();
}

fn priority(priority: f64) -> Mark {
    Mark { priority: Some(priority), version: None }
}

fn sampler(client: &Client, batch: u32, threads: u16) -> Sampler {
    let options = SamplerOptions { batch: Some(batch), threads, prefetch: 1, ..Default::default() };
    client.attach_sampler("r", Some(&arrays()), options).unwrap()
}

/// The next batch's ids, each compared with the sample's other bytes and with its key.
fn ids(sampler: &Sampler) -> Vec<u64> {
    let batch = sampler.next_batch(LONG).unwrap();
    let ids = (0..batch.len()).map(|i| {
        let id = u64::from_le_bytes(batch.sample(i, 0).bytes().try_into().unwrap());
        assert_eq!(batch.sample(i, 1).bytes(), [id as u8; 32], "sample {i} of {id}");
        id
    });
    ids.collect()
}

#[test]
fn what_is_written_is_sampled_gathered_and_in_place() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, ReplaySpec::new(1000, 32));
    let mut writer = client.attach_replay_writer("r", Some(&arrays())).unwrap();
    for id in 0..200 {
        append(&mut writer, id, Mark::default());
    }
    for threads in [0, 1, 3] {
        let sampler = sampler(&client, 64, threads);
        for _ in 0..20 {
            let sampled = ids(&sampler);
            assert_eq!(sampled.len(), 64);
            assert!(sampled.iter().all(|&id| id < 200));
        }
    }
    let sampler = client.attach_sampler("r", None, SamplerOptions::default()).unwrap();
    let batch = sampler.next_batch(LONG).unwrap();
    assert_eq!((batch.len(), batch.array(1).shape()), (32, vec![32, 32]));
    assert!(batch.items().iter().all(|item| item.table_size == 200 && item.probability.0 == 1.0 / 200.0));
    assert_eq!(batch.importance_weights(1.0, Largest::OfTable), vec![1.0; 32]);
}

#[test]
fn a_full_table_goes_round_many_times_whatever_removes() {
    let daemon = Daemon::start();
    let client = daemon.client();
    for remover in [Selector::Fifo, Selector::Lifo, Selector::Uniform, Selector::MinHeap] {
        let mut settings = ReplaySpec::new(100, 10);
        settings.remover = remover;
        table(&client, settings);
        let mut writer = client.attach_replay_writer("r", None).unwrap();
        let sampler = sampler(&client, 10, 1);
        for id in 0..5_000 {
            append(&mut writer, id, priority(id as f64));
            if id % 100 == 99 {
                assert!(ids(&sampler).iter().all(|&sampled| sampled <= id));
            }
        }
        let shown = client.show_table("r").unwrap().replay.unwrap();
        assert_eq!((shown.size, shown.evicted + 100), (100, shown.inserts), "{remover}");
        let last = ids(&sampler);
        match remover {
            Selector::Fifo | Selector::MinHeap => assert!(last.iter().all(|&id| id >= 4_800), "{last:?}"),
            Selector::Lifo => assert!(last.iter().all(|&id| id < 100), "{last:?}"),
            _ => {}
        }
        drop((writer, sampler));
        client.drop_table("r").unwrap();
    }
}

#[test]
fn priorities_choose_and_can_be_changed_and_items_that_are_gone_are_counted() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(64, 16);
    settings.sampler = Selector::Prioritized { exponent: 1.0.into() };
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let sampler = sampler(&client, 16, 1);
    for id in 0..10 {
        append(&mut writer, id, priority(if id == 3 { 1.0 } else { 0.0 }));
    }
    assert_eq!(ids(&sampler), [3; 16]);
    let done = sampler.update_priorities(&[(3, 0.0), (7, 2.0), (99, 1.0)]).unwrap();
    assert_eq!(done, Counted { applied: 2, skipped: 1 });
    // One was asked for ahead, by the priorities of before.
    ids(&sampler);
    assert_eq!(ids(&sampler), [7; 16]);
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        let refused = sampler.update_priorities(&[(7, 1.0), (4, wrong)]);
        assert!(matches!(refused, Err(Error::ItemPriority { key: 4, number: 1, .. })), "{refused:?}");
        let refused = writer.append(&[&[0; 8], &[0; 32]], priority(wrong));
        assert!(matches!(refused, Err(Error::Priority { number: 0, .. })), "{refused:?}");
    }
    assert_eq!(sampler.delete_items(&[7, 8, 8]).unwrap(), Counted { applied: 2, skipped: 1 });
    // All that are left have priority 0: each is as likely as another.
    ids(&sampler);
    assert!(ids(&sampler).iter().all(|&id| id != 7 && id != 8));
}

#[test]
fn a_limiter_holds_trainers_and_workers_back_and_says_why() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(1000, 10);
    settings.limiter = RateLimiter::SampleToInsertRatio {
        ratio: 2.0.into(),
        min_size: 10,
        error_buffer: ErrorBuffer::Around(10.0.into()),
    };
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let sampler = sampler(&client, 10, 1);
    let nothing = sampler.next_batch(SHORT);
    let Err(Error::NoSamples { why, .. }) = nothing else { panic!("{nothing:?}") };
    assert_eq!(why, "inserts 0 - deletes 0 = 0 is less than min_size 10");
    for id in 0..10 {
        append(&mut writer, id, Mark::default());
    }
    // 10 inserts * 2 - samples >= 10.
    assert_eq!(ids(&sampler).len(), 10);
    let batch = sampler.next_batch(SHORT);
    let Err(Error::NoSamples { why, .. }) = batch else { panic!("{batch:?}") };
    assert_eq!(why, "inserts 10 * ratio 2 - samples 10 - 1 = 9 is less than min_diff 10");
    // Up to inserts * 2 - 10 <= 30.
    writer.set_timeout(SHORT);
    for id in 10..20 {
        append(&mut writer, id, Mark::default());
    }
    let refused = writer.append(&[&[0; 8], &[0; 32]], Mark::default());
    assert!(matches!(refused, Err(Error::TimedOut { .. })), "{refused:?}");
    let other = daemon.client();
    std::thread::scope(|scope| {
        writer.set_timeout(LONG);
        let writer = scope.spawn(|| append(&mut writer, 20, Mark::default()));
        eventually("why says so", || {
            let waits = other.why("r").unwrap();
            waits.iter().any(|wait| {
                wait.who.starts_with("writer")
                    && wait
                        .waits_for
                        .contains("(inserts 20 + 1) * ratio 2 - samples 10 = 32 is more than max_diff 30")
            })
        });
        assert_eq!(ids(&sampler).len(), 10);
        writer.join().unwrap();
    });
}

#[test]
fn a_deadline_gives_what_was_sampled_so_far() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(100, 10);
    (settings.sampler, settings.remover) = (Selector::Fifo, Selector::Fifo);
    (settings.max_times_sampled, settings.limiter) = (1, RateLimiter::Queue(50));
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let sampler = sampler(&client, 10, 1);
    for id in 0..14 {
        append(&mut writer, id, Mark::default());
    }
    assert_eq!(ids(&sampler), (0..10).collect::<Vec<_>>());
    let batch = sampler.next_batch(SHORT).unwrap();
    assert_eq!((batch.len(), batch.keys().collect::<Vec<_>>()), (4, vec![10, 11, 12, 13]));
    assert_eq!(batch.short(), Some("inserts 14 - deletes 14 = 0 is less than min_size 1"));
    drop(batch);
    assert!(matches!(sampler.next_batch(SHORT), Err(Error::NoSamples { .. })));
    // Workers run as far ahead as the queue is long.
    writer.set_timeout(SHORT);
    let written = (14..).take_while(|id: &u64| {
        writer.append(&[&id.to_le_bytes(), &[*id as u8; 32]], Mark::default()).is_ok()
    });
    assert_eq!(written.count(), 50);
    assert_eq!(ids(&sampler), (14..24).collect::<Vec<_>>());
}

#[test]
fn a_wait_in_pieces_gets_a_whole_batch_and_can_be_cut() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(100, 4);
    (settings.sampler, settings.remover) = (Selector::Fifo, Selector::Fifo);
    (settings.max_times_sampled, settings.limiter) = (1, RateLimiter::Queue(50));
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let sampler = sampler(&client, 4, 1);
    for id in 0..4 {
        assert!(sampler.wait_batch(Duration::from_millis(5)).unwrap().is_none());
        append(&mut writer, id, Mark::default());
    }
    let batch = sampler.wait_batch(LONG).unwrap().unwrap();
    assert_eq!(
        (batch.number(), batch.short(), batch.keys().collect::<Vec<_>>()),
        (1, None, vec![0, 1, 2, 3])
    );
    let chosen = batch.chosen();
    drop(batch);
    assert_eq!((chosen.items().len(), chosen.importance_weights(1.0, Largest::OfBatch)), (4, vec![1.0; 4]));
    sampler.cut().unwrap();
    let nothing = sampler.wait_batch(LONG);
    assert!(matches!(nothing, Err(Error::NoSamples { .. })), "{nothing:?}");
}

#[test]
fn a_claim_of_a_plain_writer_says_nothing_unless_it_is_told() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(1, 1);
    (settings.sampler, settings.remover) = (Selector::MaxHeap, Selector::Fifo);
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap().into_writer();
    let sampler = sampler(&client, 1, 1);
    for (round, said) in [Some(5.0), None, Some(2.0), None].into_iter().enumerate() {
        // So many that each slot was marked before.
        for _ in 0..200 {
            let mut claim = writer.claim(1).unwrap();
            claim.array_mut(0).fill(0);
            claim.array_mut(1).fill(0);
            if let Some(said) = said {
                assert!(claim.set_mark(0, priority(f64::NAN)).is_err());
                claim.set_mark(0, priority(said)).unwrap();
            }
            claim.commit().unwrap();
        }
        sampler.next_batch(LONG).unwrap();
        let batch = sampler.next_batch(LONG).unwrap();
        // One of which nothing was said has the largest that was there: its predecessor's, all along.
        assert_eq!(batch.items()[0].priority.0, if round < 2 { 5.0 } else { 2.0 });
    }
}

#[test]
fn what_is_too_old_for_the_trainer_is_never_sampled() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(100, 8);
    settings.staleness.max = Some(2);
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let sampler = sampler(&client, 8, 1);
    for id in 0..50 {
        append(&mut writer, id, Mark { priority: None, version: Some(id / 10) });
    }
    // Versions 0 and 1 are more than 2 behind 4.
    assert_eq!(sampler.state_version(4).unwrap(), 20);
    for _ in 0..20 {
        let batch = sampler.next_batch(LONG).unwrap();
        assert!(batch.items().iter().all(|item| item.version.is_some_and(|version| version >= 2)));
    }
    append(&mut writer, 50, Mark { priority: None, version: Some(1) });
    eventually("it came too late", || client.show_table("r").unwrap().replay.unwrap().stale == 21);
    let shown = client.show_table("r").unwrap().replay.unwrap();
    assert_eq!((shown.size, shown.version), (30, Some(4)));
    assert!(
        shown.lags[0] > 0 && shown.lags[1] > 0 && shown.lags[2] > 0 && shown.lags[3] == 0,
        "{:?}",
        shown.lags
    );
}

#[test]
fn batches_that_are_held_hold_no_worker_back_and_all_of_them_are_an_error() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(50, 10);
    settings.remover = Selector::Uniform;
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    for id in 0..50 {
        append(&mut writer, id, Mark::default());
    }
    let sampler = sampler(&client, 10, 1);
    let held = [sampler.next_batch(LONG).unwrap(), sampler.next_batch(LONG).unwrap()];
    assert!(matches!(sampler.next_batch(LONG), Err(Error::AllHeld { batches: 2 })));
    let before: Vec<u8> = held.iter().flat_map(|batch| batch.array(1).bytes().to_vec()).collect();
    for id in 50..5_000 {
        append(&mut writer, id, Mark::default());
    }
    let after: Vec<u8> = held.iter().flat_map(|batch| batch.array(1).bytes().to_vec()).collect();
    assert!(before == after, "a copy is a copy");
    drop((sampler, client));
    assert_eq!(held[0].array(0).shape(), [10]);
}

#[test]
fn threads_share_a_sampler_and_drop_its_batches_where_they_like() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, ReplaySpec::new(100, 1));
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    for id in 0..100 {
        append(&mut writer, id, Mark::default());
    }
    for threads in [0, 2] {
        let options = SamplerOptions { batch: Some(1), threads, prefetch: 600, ..Default::default() };
        let sampler = client.attach_sampler("r", None, options).unwrap();
        // Fewer than there are places: it is no error of theirs that the one who drops is slow.
        let (send, receive) = std::sync::mpsc::sync_channel(100);
        std::thread::scope(|scope| {
            scope.spawn(|| receive.into_iter().for_each(drop));
            for _ in 0..3 {
                let (sampler, send) = (&sampler, send.clone());
                scope.spawn(move || {
                    for _ in 0..1000 {
                        send.send(sampler.next_batch(LONG).unwrap()).unwrap();
                    }
                });
            }
            drop(send);
        });
        // One who has taken what another waits for leaves it its place.
        let options = SamplerOptions { prefetch: 1, ..options };
        let sampler = client.attach_sampler("r", None, options).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        drop(sampler.next_batch(LONG).unwrap());
                    }
                });
            }
        });
    }
}

#[test]
fn the_largest_batch_is_leased_once_and_not_twice() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, ReplaySpec::new(100, 1));
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    append(&mut writer, 0, Mark::default());
    for threads in [0, 1] {
        let sampler = sampler(&client, 8192, threads);
        let batch = sampler.next_batch(LONG).unwrap();
        assert_eq!(batch.len(), 8192);
        if threads == 0 {
            assert!(matches!(sampler.next_batch(LONG), Err(Error::AllHeld { batches: 1 })));
        }
        drop(batch);
        assert_eq!(sampler.next_batch(LONG).unwrap().len(), 8192);
    }
    let too_many = SamplerOptions { batch: Some(8193), ..Default::default() };
    let refused = client.attach_sampler("r", None, too_many);
    assert!(matches!(refused, Err(Error::BatchTooLarge { batch: 8193, most: 8192 })), "{refused:?}");
}

#[test]
fn a_queue_shorter_than_a_batch_gives_what_it_has_room_for() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(20, 500);
    (settings.sampler, settings.remover) = (Selector::Fifo, Selector::Fifo);
    (settings.max_times_sampled, settings.limiter) = (1, RateLimiter::Queue(20));
    table(&client, settings);
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    let canceller = writer.canceller();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut ids = 0_u64..;
            ids.find_map(|id| writer.append(&[&id.to_le_bytes(), &[id as u8; 32]], Mark::default()).err())
        });
        let sampler = sampler(&client, 500, 1);
        let mut next = 0;
        while next < 900 {
            let batch = sampler.next_batch(LONG).unwrap();
            assert!(batch.keys().eq(next..next + batch.len() as u64));
            next += batch.len() as u64;
            let short = batch.short().expect("there is never room for 500");
            assert!(short.contains("the table has no room for more than"), "{short}");
        }
        canceller.cancel();
        assert!(matches!(writing.join().unwrap(), Some(Error::Cancelled)));
    });
}

#[test]
fn a_reset_empties_the_table_and_a_table_is_what_it_is() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, ReplaySpec::new(100, 8));
    let mut writer = client.attach_replay_writer("r", None).unwrap();
    for id in 0..500 {
        append(&mut writer, id, Mark::default());
    }
    client.reset_table("r").unwrap();
    let sampler = sampler(&client, 8, 1);
    assert!(matches!(sampler.next_batch(SHORT), Err(Error::NoSamples { .. })));
    append(&mut writer, 500, Mark::default());
    assert_eq!(ids(&sampler), [500; 8]);
    for refused in [
        client.attach_writer("r", None).err().unwrap(),
        client.attach_reader("r", None, Default::default()).err().unwrap(),
        client.attach_latest("r", None, Default::default()).err().unwrap(),
    ] {
        let said = refused.to_string();
        assert!(
            said.contains("\"r\" is a replay table, which has writers of samples with priorities"),
            "{said}"
        );
    }
}
