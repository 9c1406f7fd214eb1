//! Whoever is killed or cut off at a replay table, and when: nobody hangs, no sample is torn, and nothing is left over.

#[path = "support/mod.rs"]
mod support;

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use echo_client::replay::{RateLimiter, ReplaySpec, Selector};
use echo_client::{
    Client, Error, Mark, ReplayWriter, SampledBatch, Sampler, SamplerOptions, TableSpec, status,
};
use support::{Actor, Daemon, LONG, check_of, client_of_role, eventually, numbers, say};

const TABLE: &str = "replay";
const SHORT: Duration = Duration::from_millis(100);

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["holder", what] => hold(what),
        ["gatherer", threads] => gather_until_killed(threads.parse().unwrap()),
        ["appender"] => append_until_killed(),
        ["claimer", what] => claim_and_stay(what),
        ["waiter"] => wait_for_ever(),
        _ => panic!("no such part: {role:?}"),
    }
}

fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

fn table(client: &Client, settings: ReplaySpec) {
    let arrays = numbers(TABLE, 1, 1).arrays;
    client.create_table(&TableSpec::replay(TABLE, arrays, settings)).unwrap();
}

/// Each item is sampled once, in the order in which they came.
fn queue(size: u32) -> ReplaySpec {
    let mut settings = ReplaySpec::new(size, 4);
    (settings.sampler, settings.remover) = (Selector::Fifo, Selector::Fifo);
    (settings.max_times_sampled, settings.limiter) = (1, RateLimiter::Queue(size));
    settings
}

fn writer(client: &Client) -> ReplayWriter {
    let mut writer = client.attach_replay_writer(TABLE, None).unwrap();
    writer.set_timeout(LONG);
    writer
}

fn append(writer: &mut ReplayWriter, id: u64) -> echo_client::Result<()> {
    writer.append(&[&id.to_le_bytes(), &check_of(id)], Mark::default())
}

/// In batches of four. With no thread they are read where they lie.
fn sampler(client: &Client, threads: u16) -> Sampler {
    let options = SamplerOptions { batch: Some(4), threads, prefetch: 1, ..Default::default() };
    client.attach_sampler(TABLE, None, options).unwrap()
}

/// A batch's ids, each checked.
fn check(batch: &SampledBatch) -> Vec<u64> {
    let ids = (0..batch.len()).map(|sample| {
        let id = u64::from_le_bytes(batch.sample(sample, 0).bytes().try_into().unwrap());
        assert_eq!(batch.sample(sample, 1).bytes(), check_of(id), "sample {id} is torn");
        id
    });
    ids.collect()
}

/// Holds a batch where it lies, and loses its connection if that is wanted.
fn hold(what: &str) {
    let client = client_of_role();
    let sampler = sampler(&client, 0);
    let batch = sampler.next_batch(LONG).unwrap();
    if what == "cut-off" {
        hang_up();
        let end = sampler.next_batch(LONG).map(drop).unwrap_err();
        assert!(matches!(end, Error::Gone { .. }), "{end}");
    }
    say(&format!("{:?}", check(&batch)));
    let held = check(&batch);
    // As long as it lives.
    loop {
        std::thread::park_timeout(Duration::from_millis(1));
        assert_eq!(check(&batch), held);
    }
}

/// Ends the connections of this process, whose memory stays.
fn hang_up() {
    for fd in std::fs::read_dir("/proc/self/fd").unwrap() {
        let path = fd.unwrap().path();
        if std::fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")) {
            let fd: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert_ne!(fd, std::io::stdout().as_raw_fd());
            // SAFETY: shuts down a socket of this process, which nothing of this file relies on.
            assert_eq!(unsafe { libc::shutdown(fd, libc::SHUT_RDWR) }, 0);
        }
    }
}

fn gather_until_killed(threads: u16) {
    let sampler = sampler(&client_of_role(), threads);
    loop {
        let batch = sampler.next_batch(LONG).unwrap();
        say(&check(&batch).len().to_string());
    }
}

fn append_until_killed() {
    let mut writer = writer(&client_of_role());
    for id in u64::from(std::process::id()) << 32.. {
        append(&mut writer, id).unwrap();
        say("1");
    }
}

fn claim_and_stay(what: &str) {
    let mut writer = writer(&client_of_role());
    let mut claim = writer.claim(1).unwrap();
    claim.array_mut(1).fill(0xff);
    say(&claim.first_key().to_string());
    match what {
        "aside" => drop(claim.put_aside()),
        _ => stay(),
    }
    stay();
}

fn wait_for_ever() {
    let sampler = sampler(&client_of_role(), 1);
    assert!(sampler.try_next_batch().unwrap().is_none());
    say("waits");
    drop(sampler.next_batch(LONG).map(|batch| say(&check(&batch).len().to_string())));
    stay();
}

fn for_a_moment(random: &mut fastrand::Rng) {
    let until = Instant::now() + Duration::from_micros(random.u64(0..1500));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Nobody is attached, and nothing is leased, waited for, claimed or taken out of a budget.
fn nothing_is_left_of(daemon: &Daemon, client: &Client) {
    eventually("all of them are missed", || {
        let shown = client.show_table(TABLE).unwrap();
        let replay = shown.replay.unwrap();
        (shown.row.readers, shown.row.writers) == (0, 0)
            && (replay.leased, replay.lingering, replay.waiting) == (0, 0, 0)
            && shown.orphaned_claims == 0
            && client.list_leases(None).unwrap().is_empty()
    });
    client.drop_table(TABLE).unwrap();
    eventually("its memory is given back", || status(Some(&daemon.socket()), LONG).unwrap().host_used == 0);
}

#[test]
fn a_reader_that_is_killed_or_cut_off_keeps_its_samples_until_its_process_is_gone() {
    for what in ["killed", "cut-off"] {
        let daemon = Daemon::start();
        let client = daemon.client();
        table(&client, queue(4));
        let mut writer = writer(&client);
        (0..4).for_each(|id| append(&mut writer, id).unwrap());
        let mut holder = daemon.actor_of(&format!("holder {what}"));
        holder.expect("[0, 1, 2, 3]");
        let held = || client.show_table(TABLE).unwrap().replay.unwrap().lingering;
        assert_eq!(held(), 4);
        // Everybody else goes on, many times round.
        let sampler = sampler(&client, 1);
        for id in 4..1000 {
            append(&mut writer, id).unwrap();
            if id % 4 == 3 {
                assert_eq!(check(&sampler.next_batch(LONG).unwrap()), [id - 3, id - 2, id - 1, id]);
            }
        }
        eventually("it alone still holds some", || held() == 4);
        assert_eq!(holder.ended(), None, "what it holds does not change");
        holder.kill();
        drop((writer, sampler));
        nothing_is_left_of(&daemon, &client);
    }
}

#[test]
fn readers_that_are_killed_at_any_moment_hold_nothing() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let mut settings = ReplaySpec::new(50, 4);
    settings.remover = Selector::Uniform;
    table(&client, settings);
    let mut writer = writer(&client);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut ids = 0..;
            while !over.load(Ordering::Relaxed) {
                append(&mut writer, ids.next().unwrap()).unwrap();
            }
        });
        let mut random = fastrand::Rng::with_seed(3);
        for kill in 0..60 {
            let mut gatherer = daemon.actor_of(&format!("gatherer {}", kill % 3));
            assert_eq!(gatherer.line().as_deref(), Some("4"));
            for_a_moment(&mut random);
            gatherer.kill();
        }
        over.store(true, Ordering::Relaxed);
        writing.join().unwrap();
    });
    drop(writer);
    nothing_is_left_of(&daemon, &client);
}

#[test]
fn workers_that_are_killed_at_any_moment_lose_at_most_what_was_not_written() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, queue(50));
    let sampler = sampler(&client, 2);
    let mut random = fastrand::Rng::with_seed(5);
    let (mut said, mut sampled) = (0, 0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn({
            let (over, sampler) = (&over, &sampler);
            move || {
                let mut sampled = 0;
                loop {
                    let was_over = over.load(Ordering::Relaxed);
                    match sampler.next_batch(SHORT) {
                        Ok(batch) => sampled += check(&batch).len(),
                        Err(Error::NoSamples { .. }) if was_over => return sampled,
                        Err(Error::NoSamples { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
        for _ in 0..40 {
            let mut appender = daemon.actor_of("appender");
            appender.expect("1");
            for_a_moment(&mut random);
            appender.kill();
            said += 1 + std::iter::from_fn(|| appender.line()).count();
        }
        // One who fills what they had claimed.
        let mut writer = writer(&client);
        for id in 0..100 {
            append(&mut writer, id).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        sampled = reading.join().unwrap();
    });
    assert!(sampled >= said + 100 && sampled <= said + 140, "{sampled} of {said} and 100");
    drop(sampler);
    nothing_is_left_of(&daemon, &client);
}

/// The limiter lets nobody go beyond what it had claimed, which is the only room there is.
#[test]
fn a_worker_that_is_killed_over_its_claim_leaves_it_to_those_whom_the_limiter_holds_back() {
    for what in ["open", "aside"] {
        let daemon = Daemon::start();
        let client = daemon.client();
        table(&client, queue(4));
        let mut claimer = daemon.actor_of(&format!("claimer {what}"));
        claimer.expect("0");
        let mut writer = writer(&client);
        (1..4).for_each(|id| append(&mut writer, id).unwrap());
        let sampler = sampler(&client, 1);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| append(&mut writer, 4));
            eventually("the limiter holds it back", || {
                let waits = client.why(TABLE).unwrap();
                waits
                    .iter()
                    .any(|wait| wait.who.starts_with("writer") && wait.waits_for.contains("max_diff 4"))
            });
            claimer.kill();
            writing.join().unwrap().unwrap();
        });
        let mut ids = check(&sampler.next_batch(LONG).unwrap());
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3, 4]);
        drop((writer, sampler));
        nothing_is_left_of(&daemon, &client);
    }
}

#[test]
fn a_trainer_that_dies_while_its_request_waits_holds_up_no_other() {
    let daemon = Daemon::start();
    let client = daemon.client();
    table(&client, queue(8));
    let mut writer = writer(&client);
    let mut waiters: Vec<Actor> = (0..3).map(|_| daemon.actor_of("waiter")).collect();
    waiters.iter_mut().for_each(|waiter| waiter.expect("waits"));
    // Two samples are the first one's already, whichever that is.
    (0..2).for_each(|id| append(&mut writer, id).unwrap());
    eventually("they are given to it", || client.show_table(TABLE).unwrap().replay.unwrap().leased == 2);
    waiters.iter_mut().for_each(Actor::kill);
    let sampler = sampler(&client, 1);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| check(&sampler.next_batch(LONG).unwrap()));
        (2..6).for_each(|id| append(&mut writer, id).unwrap());
        assert_eq!(reading.join().unwrap(), [2, 3, 4, 5], "what the dead one was given is gone with it");
    });
    drop((writer, sampler));
    nothing_is_left_of(&daemon, &client);
}

#[test]
fn when_the_daemon_is_killed_waits_end_and_what_was_gathered_is_still_there() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    table(&client, queue(4));
    let mut writer = writer(&client);
    (0..4).for_each(|id| append(&mut writer, id).unwrap());
    let sampler = sampler(&client, 1);
    let batch = sampler.next_batch(LONG).unwrap();
    let batches = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = || sampler.next_batch(LONG).map(|batch| drop(check(&batch)));
            std::iter::repeat_with(read).find_map(|read| {
                batches.fetch_add(1, Ordering::Relaxed);
                read.err()
            })
        });
        let writing = scope.spawn(|| (4..).find_map(|id| append(&mut writer, id).err()));
        eventually("both go on", || batches.load(Ordering::Relaxed) > 10);
        daemon.actor().kill();
        for end in [reading, writing].map(|ending| ending.join().unwrap().unwrap()) {
            assert!(matches!(end, Error::Gone { .. }), "{end}");
        }
    });
    assert_eq!(check(&batch), [0, 1, 2, 3]);
}
