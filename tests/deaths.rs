//! Processes die at every point, and nothing is lost, doubled or torn.

#[path = "support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use echo_client::message::EndReason;
use echo_client::{Client, Error, ReaderOptions};
use rustix::process::Signal;
use support::{Actor, Daemon, LONG, check_of, client_of_role, eventually, ids, numbers, say};

const TABLE: &str = "numbers";

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["worker", first, way] => work(first.parse().unwrap(), way),
        ["hoarder", n] => hoard(n.parse().unwrap()),
        ["claimer"] => claim_and_stay(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// Writes samples from `first` on until it is killed, and says after each that it is committed.
fn work(first: u64, way: &str) {
    let client = client_of_role();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    writer.set_timeout(LONG);
    for id in (first..).step_by(3) {
        let all = [id, id + 1, id + 2];
        let (ids, checks) = (all.map(u64::to_ne_bytes).concat(), all.map(check_of).concat());
        match way {
            "one" => {
                for i in 0..3 {
                    writer.append(&[&ids[i * 8..][..8], &checks[i * 8..][..8]]).unwrap();
                    say(&(id + i as u64).to_string());
                }
            }
            "many" => {
                writer.append_many(3, &[&ids, &checks]).unwrap();
                say(&format!("{id} {} {}", id + 1, id + 2));
            }
            // Drops every other claim.
            _ => {
                for (i, &id) in all.iter().enumerate() {
                    drop(writer.claim(1).unwrap());
                    let mut claim = writer.claim(1).unwrap();
                    claim.array_mut(0).copy_from_slice(&ids[i * 8..][..8]);
                    claim.array_mut(1).copy_from_slice(&checks[i * 8..][..8]);
                    claim.commit().unwrap();
                    say(&id.to_string());
                }
            }
        }
    }
}

/// Takes batches and keeps them.
fn hoard(n: usize) {
    let client = client_of_role();
    let options = ReaderOptions::with_prefetch(n as u16);
    let mut reader = client.attach_reader(TABLE, None, options).unwrap();
    let batches: Vec<_> = (0..n).map(|_| reader.next_batch(LONG).unwrap()).collect();
    for batch in &batches {
        say(&batch.seq().to_string());
    }
    stay();
}

/// Claims a sample and does nothing with it.
fn claim_and_stay() {
    let client = client_of_role();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let claim = writer.claim(1).unwrap();
    say("claimed");
    stay();
    drop(claim);
}

/// Until somebody kills this process.
fn stay() {
    loop {
        std::thread::park();
    }
}

fn append(writer: &mut echo_client::Writer, id: u64) {
    writer.append(&[&id.to_ne_bytes(), &check_of(id)]).unwrap();
}

fn drain(client: &Client) -> Vec<u64> {
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(4)).unwrap();
    let mut all = Vec::new();
    loop {
        match reader.next_batch(LONG) {
            Ok(batch) => all.extend(ids(&batch)),
            Err(Error::Closed { reason: EndReason::Finished, .. }) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Workers are killed at random points of claim, write and commit. What they said is committed is delivered,
/// whole and once; of each worker at most the samples of the append that it was killed in come on top of it.
fn workers_are_killed(way: &str, kills: u64, in_flight: usize) {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 5, 4)).unwrap();
    let reading = std::thread::spawn({
        let client = daemon.client();
        move || drain(&client)
    });
    let mut random = fastrand::Rng::with_seed(kills);
    let mut said = BTreeMap::new();
    for kill in 0..kills {
        let first = kill << 32;
        let mut worker = daemon.actor_of(&format!("worker {first} {way}"));
        // Some time after it began to write, which is not the same as some time after it was started.
        let mut committed: Vec<String> = worker.line().into_iter().collect();
        let until = Instant::now() + Duration::from_micros(random.u64(0..1500));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        worker.kill();
        committed.extend(std::iter::from_fn(|| worker.line()));
        let numbers = committed.iter().flat_map(|line| line.split(' ').map(|id| id.parse::<u64>().unwrap()));
        said.insert(kill, numbers.collect::<BTreeSet<u64>>());
    }
    let writer = client.attach_writer(TABLE, None).unwrap();
    writer.finish().unwrap();
    let delivered = reading.join().unwrap();

    let mut by_worker: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for &id in &delivered {
        assert!(by_worker.entry(id >> 32).or_default().insert(id), "{id} was delivered twice");
    }
    for (kill, said) in said {
        let got = by_worker.remove(&kill).unwrap_or_default();
        let lost: Vec<_> = said.difference(&got).collect();
        assert!(lost.is_empty(), "{lost:?} of worker {kill} are lost");
        assert!(
            got.len() - said.len() <= in_flight,
            "worker {kill} committed {} of {}",
            said.len(),
            got.len()
        );
    }
    assert!(by_worker.is_empty(), "samples of nobody: {by_worker:?}");
    let delivered = delivered.len() as u64;
    // The last batches are told of by another connection than the one that asks.
    eventually("all of it counts as delivered", || {
        let samples = client.show_table(TABLE).unwrap().row.samples;
        assert_eq!(samples.committed, delivered);
        (samples.delivered, samples.pending) == (delivered, 0)
    });
}

#[test]
fn workers_that_are_killed_while_they_append_lose_nothing() {
    workers_are_killed("one", 200, 1);
}

#[test]
fn workers_that_are_killed_while_they_append_many_lose_nothing() {
    workers_are_killed("many", 150, 3);
}

#[test]
fn workers_that_are_killed_while_they_drop_claims_lose_nothing() {
    workers_are_killed("dropping", 100, 1);
}

#[test]
fn a_stopped_worker_holds_up_its_batch_alone_and_is_named() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 2, 4)).unwrap();
    let mut claimer = daemon.actor_of("claimer");
    claimer.expect("claimed");
    claimer.signal(Signal::STOP);
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut first = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(1)).unwrap();
    let mut second = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(1)).unwrap();
    for id in 1..4 {
        append(&mut writer, id);
    }
    assert!(first.try_next_batch().unwrap().is_none(), "the first of its samples is not there");
    assert_eq!(ids(&second.next_batch(LONG).unwrap()), [2, 3]);
    eventually("why names the claimer", || {
        let waits = client.why(TABLE).unwrap();
        waits.iter().flat_map(|wait| &wait.held_by).any(|holder| holder.pid == claimer.pid())
    });
    claimer.kill();
    eventually("its position is offered again", || client.show_table(TABLE).unwrap().holes_offered == 1);
    // It comes before the others.
    append(&mut writer, 0);
    let mut batch = ids(&first.next_batch(LONG).unwrap());
    batch.sort_unstable();
    assert_eq!(batch, [0, 1]);
}

#[test]
fn a_reader_that_is_killed_gives_its_batches_to_another() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 2, 4)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    for id in 0..8 {
        append(&mut writer, id);
    }
    let mut hoarder = daemon.actor_of("hoarder 3");
    for seq in 0..3 {
        hoarder.expect(&seq.to_string());
    }
    writer.finish().unwrap();
    let reading = std::thread::spawn({
        let client = daemon.client();
        move || drain(&client)
    });
    eventually("the other reader has read what is left", || {
        client.show_table(TABLE).unwrap().row.samples.delivered == 2
    });
    hoarder.kill();
    eventually("the daemon has missed it", || {
        client.show_table(TABLE).unwrap().members.iter().all(|member| member.pid != hoarder.pid())
    });
    // The other one was told of the end, and listens still: what comes back is its own.
    let mut all = reading.join().unwrap();
    let mut late = drain(&client);
    all.append(&mut late);
    all.sort_unstable();
    assert_eq!(all, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_reader_that_drops_its_client_gives_its_batches_back_as_well() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 1, 2)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    append(&mut writer, 7);
    let other = daemon.client();
    let mut reader = other.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    let batch = reader.next_batch(LONG).unwrap();
    drop((reader, other));
    assert_eq!(ids(&batch), [7], "a batch keeps its memory");
    drop(batch);
    // It was given back as read, so it does not come again.
    assert_eq!(client.show_table(TABLE).unwrap().row.samples.delivered, 1);
}

#[test]
fn when_the_daemon_is_killed_every_wait_ends_at_once() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 1, 1)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, Default::default()).unwrap();
    append(&mut writer, 1);
    let batch = reader.next_batch(LONG).unwrap();

    let (started, starts) = std::sync::mpsc::channel();
    let waits = |name: &'static str, wait: Box<dyn FnOnce() -> Error + Send>| {
        let started = started.clone();
        let thread = std::thread::spawn(move || {
            started.send(()).unwrap();
            wait()
        });
        (name, thread)
    };
    let forever = Duration::from_secs(3600);
    writer.set_timeout(forever);
    let waiting = [
        waits(
            "a writer",
            Box::new(move || writer.append(&[&2_u64.to_ne_bytes(), &check_of(2)]).unwrap_err()),
        ),
        waits("a reader", Box::new(move || reader.next_batch(forever).unwrap_err())),
    ];
    for _ in &waiting {
        starts.recv().unwrap();
    }
    eventually("the writer waits", || {
        client.show_table(TABLE).unwrap().members.iter().any(|member| member.state == "waits for space")
    });
    daemon.actor().kill();
    for (name, thread) in waiting {
        let error = thread.join().unwrap();
        assert!(matches!(error, Error::Gone { .. }), "{name}: {error}");
    }
    assert_eq!(ids(&batch), [1], "what is mapped stays readable");
    assert!(matches!(client.list_tables(), Err(Error::Gone { .. })));
}

#[test]
fn without_the_daemon_what_it_granted_can_still_be_written_and_read() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 2, 2)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    // A call and its answer: the grants came before.
    client.list_tables().unwrap();
    daemon.actor().kill();
    for id in 0..4 {
        append(&mut writer, id);
    }
    let error = writer.append(&[&4_u64.to_ne_bytes(), &check_of(4)]).unwrap_err();
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    for seq in 0..2 {
        assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [2 * seq, 2 * seq + 1]);
    }
    assert!(matches!(reader.next_batch(LONG), Err(Error::Gone { .. })));
}

#[test]
fn a_daemon_that_is_told_to_stop_lets_readers_finish() {
    let mut daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 2, 4)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(4)).unwrap();
    for id in 0..3 {
        append(&mut writer, id);
    }
    daemon.actor().signal(Signal::TERM);
    eventually("the writer is told", || {
        let result = writer.try_append(&[&3_u64.to_ne_bytes(), &check_of(3)]);
        matches!(result, Err(Error::Closed { reason: EndReason::Draining, .. }))
    });
    assert!(matches!(writer.claim(1).map(drop), Err(Error::Closed { reason: EndReason::Draining, .. })));
    let mut all = Vec::new();
    let end = loop {
        match reader.next_batch(LONG) {
            Ok(batch) => all.extend(ids(&batch)),
            Err(end) => break end,
        }
    };
    assert!(matches!(end, Error::Closed { reason: EndReason::Draining, .. }), "{end}");
    assert!(all.starts_with(&[0, 1, 2]), "{all:?}");
    assert!(daemon.actor().wait().success());
    assert!(!daemon.socket().exists(), "its socket is removed");
}

#[test]
fn a_second_signal_ends_the_draining() {
    let mut daemon = Daemon::start_with(&["--drain-timeout", "1h"]);
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 1, 4)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let _reader = client.attach_reader(TABLE, None, Default::default()).unwrap();
    append(&mut writer, 1);
    daemon.actor().signal(Signal::TERM);
    eventually("it drains", || {
        echo_client::status(Some(&daemon.socket()), LONG).is_ok_and(|status| status.state == "draining")
    });
    daemon.actor().signal(Signal::INT);
    assert!(daemon.actor().wait().success());
}

#[test]
fn two_daemons_do_not_share_a_socket_and_a_dead_one_leaves_it() {
    let mut daemon = Daemon::start();
    let mut rival = daemon.rival();
    assert!(!rival.wait().success());
    assert!(daemon.client().list_tables().unwrap().is_empty(), "the first one serves on");
    daemon.actor().kill();
    assert!(daemon.socket().exists(), "a killed daemon leaves its socket");
    let mut heir = daemon.rival();
    eventually("another takes it over", || echo_client::status(Some(&daemon.socket()), LONG).is_ok());
    assert_eq!(echo_client::status(Some(&daemon.socket()), LONG).unwrap().pid, heir.pid());
    heir.kill();
}

#[test]
fn a_forked_child_can_touch_nothing_of_its_parents() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 1, 4)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    let mut reader = client.attach_reader(TABLE, None, Default::default()).unwrap();
    append(&mut writer, 1);
    let batch = reader.next_batch(LONG).unwrap();
    let other = daemon.client();
    let mut claimer = other.attach_writer(TABLE, None).unwrap();
    let claim = claimer.claim(1).unwrap();
    // SAFETY: the child calls what allocates at most, which glibc allows after a fork, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = [
            writer.append(&[&2_u64.to_ne_bytes(), &check_of(2)]).err(),
            reader.try_next_batch().err(),
            client.list_tables().err(),
            claim.commit().err(),
        ];
        let mut all = forked.iter().all(|error| matches!(error, Some(Error::Forked)));
        // It can connect anew, and what is its own works.
        let own = daemon.client();
        all &= own.attach_writer(TABLE, None).unwrap().append(&[&3_u64.to_ne_bytes(), &check_of(3)]).is_ok();
        drop(own);
        drop((writer, reader, client, batch));
        // SAFETY: ends the child without running what its parent registered.
        unsafe { libc::_exit(i32::from(!all)) };
    }
    let mut status = 0;
    // SAFETY: the child of this process, waited for once.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "every call says that it is forked, and every drop does nothing");
    assert_eq!(ids(&batch), [1]);
    append(&mut writer, 2);
    claim.commit().unwrap();
    assert_eq!(client.list_tables().unwrap()[0].samples.committed, 4);
}

#[test]
fn a_process_that_lives_on_without_its_client_keeps_its_batches() {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 1, 1)).unwrap();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    append(&mut writer, 1);
    let mut hoarder: Actor = daemon.actor_of("hoarder 1");
    hoarder.expect("0");
    cut_off(hoarder.pid());
    eventually("the daemon tells of it", || {
        let waits = client.why(TABLE).unwrap();
        waits.iter().any(|wait| wait.waits_for.contains("disconnected but lives"))
    });
    hoarder.kill();
    let mut reader = client.attach_reader(TABLE, None, Default::default()).unwrap();
    assert_eq!(ids(&reader.next_batch(LONG).unwrap()), [1]);
}

/// Shuts down the sockets that another process has connected, as if its client's code had crashed.
fn cut_off(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut found = 0;
    for entry in std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap() {
        let entry = entry.unwrap();
        let is_socket =
            std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        let Some(number) = entry.file_name().to_string_lossy().parse::<i32>().ok().filter(|_| is_socket)
        else {
            continue;
        };
        let flags = rustix::process::PidfdGetfdFlags::empty();
        let Ok(socket) = rustix::process::pidfd_getfd(&pidfd, number, flags) else { continue };
        found += i32::from(rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).is_ok());
    }
    assert!(found > 0, "it has a connection");
}
