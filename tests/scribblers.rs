//! A worker overwrites what it may write of a table: the control region, its client page, the samples. The daemon lives
//! and says what is wrong, who else is attached gets an error, and other tables go on.

#[path = "support/bystanders.rs"]
mod bystanders;
#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};
use std::time::Duration;

use bystanders::Bystanders;
use echo::ids::{MemberId, Position};
use echo::memory::memfd::Sealed;
use echo::memory::{Access, Mapping};
use echo::ring::control::{CLOSED, POSITION_END};
use echo::ring::record::{MAX_CLAIM, PAGE_BYTES, RecordedClaim};
use echo::ring::words::Words;
use echo::sync::Ordering;
use echo::wire::message::{Call, Request};
use echo_client::{Client, Error, ReaderOptions};
use fastrand::Rng;
use stranger::Stranger;
use support::{Daemon, LONG, client_of_role, eventually, numbers, say};

const TABLE: &str = "scribbled";
/// What a scribbler does until it has had enough.
const ROUNDS: u32 = 400;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["daemon", ..] => support::play_daemon(&role[1..]),
        ["scribbler", seed] => scribble(seed.parse().unwrap()),
        ["hoarder"] => fill_the_list_of_orphans(),
        ["honest"] => be_honest(),
        _ => panic!("no such part: {role:?}"),
    }
}

/// What a writer may write, mapped as it likes.
struct Writable {
    stranger: Stranger,
    page: Words,
    control: Words,
    data: Words,
}

impl Writable {
    fn attach() -> Self {
        let (stranger, page) = Stranger::greeted(&support::socket_of_role());
        let (_, data, control) = stranger.attach(1, TABLE, true);
        stranger.attach(2, TABLE, true);
        Self { stranger, page: words(page), control: words(control), data: words(data) }
    }

    fn call(&self, call: Call) {
        self.stranger.call(7, call);
    }
}

fn words(descriptor: std::os::fd::OwnedFd) -> Words {
    let bytes = rustix::fs::fstat(&descriptor).unwrap().st_size as usize;
    let file = Sealed::received(descriptor, bytes as u64, Access::ReadWrite).unwrap();
    Words::mapped(Mapping::new(&file, bytes, Access::ReadWrite).unwrap())
}

/// A value that something may go wrong with.
fn value(random: &mut Rng, now: u64) -> u64 {
    match random.u8(0..10) {
        0 => 0,
        1 => u64::MAX,
        2 => CLOSED,
        3 => POSITION_END - random.u64(0..3),
        4 => now.wrapping_add(1),
        5 => now.wrapping_sub(1),
        6 => now ^ 1 << random.u8(0..64),
        7 => random.u64(0..100),
        8 => random.u64(0..100) << 32 | random.u64(0..100),
        _ => random.u64(..),
    }
}

fn overwrite(random: &mut Rng, words: &Words, bytes: usize) {
    for at in (0..bytes).step_by(8) {
        words.u64(at).store(random.u64(..), Ordering::Relaxed);
    }
}

fn overwrite_one(random: &mut Rng, words: &Words) {
    let word = words.u64(random.usize(0..words.len() / 8) * 8);
    word.store(value(random, word.load(Ordering::Relaxed)), Ordering::Relaxed);
}

fn scribble(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let table = Writable::attach();
    say("attached");
    // Each seed has a liking, so that not all of them end at their first look at the header.
    let liking = seed % 5;
    for _ in 0..ROUNDS {
        match (liking, random.u8(0..16)) {
            (0, 0) => overwrite(&mut random, &table.control, table.control.len()),
            (0 | 1, 1..=3) => overwrite(&mut random, &table.page, PAGE_BYTES),
            (0 | 2, 4..=8) => overwrite_one(&mut random, &table.control),
            // A word of those that are used all the time.
            (3, 4..=8) => {
                let word = table.control.u64([128, 256, 264, 512, 520][random.usize(0..5)]);
                word.store(value(&mut random, word.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
            (_, 9..=12) => {
                let cursor = table.control.u64(128).load(Ordering::Relaxed) & (POSITION_END - 1);
                let claim = RecordedClaim {
                    position: Position(cursor.saturating_sub(random.u64(0..40))),
                    length: random.u32(1..=MAX_CLAIM),
                    dropped: random.bool(),
                };
                let at = [64, 72, 128, 136][random.usize(0..4)];
                table.page.u64(at).store(claim.encode(), Ordering::Relaxed);
            }
            (_, 13) => overwrite(&mut random, &table.data, 4096),
            (_, 14) => table.call(Call::DropClaim { member: MemberId(random.u32(1..4)) }),
            (_, 15) if random.u8(0..20) == 0 => {
                table.call(Call::FinishWriter { member: MemberId(random.u32(1..3)) })
            }
            _ => std::thread::yield_now(),
        }
    }
    say("done");
    loop {
        std::thread::park();
    }
}

/// A worker and a trainer that know of nothing. Each call ends within its deadline, and the last with an error.
fn be_honest() {
    let client = client_of_role();
    let mut writer = client.attach_writer(TABLE, None).unwrap();
    writer.set_timeout(Duration::from_millis(200));
    let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(2)).unwrap();
    say("attached");
    let writing = std::thread::spawn(move || {
        loop {
            match writer.append(&[&1_u64.to_ne_bytes(), &support::check_of(1)]) {
                Ok(()) | Err(Error::TimedOut { .. }) => {}
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
    assert!(matches!(writing, Error::Closed { .. } | Error::Claim(_) | Error::Commit(_)), "{writing}");
    say("ended");
}

fn host_used(daemon: &Daemon) -> u64 {
    echo_client::status(Some(&daemon.socket()), LONG).unwrap().host_used
}

/// Asks everything that there is to be asked.
fn ask(client: &Client, daemon: &Daemon) -> String {
    assert_eq!(echo_client::status(Some(&daemon.socket()), LONG).unwrap().state, "serving");
    client.why(TABLE).unwrap();
    client.list_tables().unwrap();
    client.list_clients().unwrap();
    client.show_table(TABLE).unwrap().row.state
}

#[test]
fn a_table_whose_words_a_worker_overwrites_is_poisoned_or_sane_and_the_others_go_on() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let bystanders = Bystanders::start(&daemon);
    let before = host_used(&daemon);
    let mut named = std::collections::BTreeSet::new();
    for seed in 0..40 {
        eprintln!("seed {seed}");
        client.create_table(&numbers(TABLE, 5, 4)).unwrap();
        let mut honest = daemon.actor_of("honest");
        honest.expect("attached");
        let mut scribbler = daemon.actor_of(&format!("scribbler {seed}"));
        scribbler.expect("attached");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(StdOrdering::Relaxed) {
                    ask(&client, &daemon);
                }
            });
            scribbler.expect("done");
            done.store(true, StdOrdering::Relaxed);
        });
        // Killed with whatever stands in its page.
        scribbler.kill();
        eventually("it is missed", || {
            let members = client.show_table(TABLE).unwrap().members;
            members.iter().all(|member| member.pid != scribbler.pid())
        });
        let state = ask(&client, &daemon);
        assert!(["open", "finished", "poisoned"].iter().any(|start| state.starts_with(start)), "{state}");
        if let Some(poison) = state.strip_prefix("poisoned: ") {
            named.insert(poison.split(' ').take(2).collect::<Vec<_>>().join(" "));
            assert!(client.why(TABLE).unwrap()[0].waits_for.contains(poison), "why says it as well");
            let refused = client.attach_writer(TABLE, None).map(drop).unwrap_err();
            assert!(refused.to_string().contains("drop it and create it again"), "{refused}");
        }
        client.drop_table(TABLE).unwrap();
        honest.expect("ended");
        assert!(honest.wait().success());
        eventually("its memory went back", || host_used(&daemon) == before);
    }
    assert!(named.len() >= 3, "{named:?}");
    bystanders.finish();
}

/// What each word is, and what it is called when it is spoilt.
#[test]
fn each_word_that_only_the_daemon_writes_is_missed_by_its_name() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let geometry = echo::ring::control::Geometry::of(&numbers(TABLE, 5, 4)).unwrap();
    let fill = 512 + 16 * geometry.refill_len() as usize;
    let ready = (fill + 4 * geometry.fill_len() as usize).next_multiple_of(64);
    for (at, value, name) in [
        (0, 1, "the header"),
        (8, u64::MAX, "the header"),
        (24, 0, "the header"),
        (128, 1 << 40, "the cursor is 1099511627776"),
        (256, u64::MAX, "the limit is"),
        (256, 0, "the limit is 0"),
        (512, 77, "refill entry 0 holds 77"),
        (fill, u64::MAX, "the fill ring says that batch 0"),
        (ready, 0, "the state of block 0"),
        (ready, u64::MAX, "the state of block 0"),
    ] {
        client.create_table(&numbers(TABLE, 5, 4)).unwrap();
        let mut reader = client.attach_reader(TABLE, None, ReaderOptions::with_prefetch(1)).unwrap();
        let (stranger, _page) = Stranger::greeted(&daemon.socket());
        let (_, _, control) = stranger.attach(1, TABLE, true);
        words(control).u64(at).store(value, Ordering::Relaxed);
        let end = reader.next_batch(LONG).unwrap_err();
        assert!(end.to_string().contains("is poisoned"), "byte {at} is {value}: {end}");
        let state = client.show_table(TABLE).unwrap().row.state;
        assert!(state.starts_with(&format!("poisoned: {name}")), "byte {at} is {value}: {state}");
        client.drop_table(TABLE).unwrap();
        stranger.say(&Request::Goodbye);
        drop(reader);
        eventually("it is gone", || host_used(&daemon) == 0);
    }
}

/// One claim is kept open, and a thousand others that cover the same position are given up.
fn fill_the_list_of_orphans() {
    let table = Writable::attach();
    // As workers claim a batch, of which one position is kept and none committed.
    let claim =
        |position, length, dropped| RecordedClaim { position: Position(position), length, dropped }.encode();
    table.page.u64(64).store(claim(31, 1, false), Ordering::Relaxed);
    table.control.u64(128).store(64, Ordering::Relaxed);
    for position in 0..=31 {
        for length in 32 - position..=64 - position {
            table.page.u64(128).store(claim(position, length as u32, true), Ordering::Relaxed);
            table.call(Call::DropClaim { member: MemberId(2) });
        }
    }
    say("done");
    loop {
        std::thread::park();
    }
}

/// A worker that is gone could not be forgotten while the list of orphaned claims was full of such as its own record
/// covered: neither it nor its table ever went.
#[test]
fn a_worker_that_fills_the_list_of_orphaned_claims_is_forgotten_when_it_is_gone() {
    for dropped in [false, true] {
        let daemon = Daemon::start();
        let client = daemon.client();
        client.create_table(&numbers(TABLE, 64, 4)).unwrap();
        let mut hoarder = daemon.actor_of("hoarder");
        hoarder.expect("done");
        assert_eq!(client.show_table(TABLE).unwrap().orphaned_claims, 1024, "the list is full");
        if dropped {
            client.drop_table(TABLE).unwrap();
            hoarder.kill();
        } else {
            hoarder.kill();
            eventually("it is missed", || client.show_table(TABLE).unwrap().members.is_empty());
            let mut writer = client.attach_writer(TABLE, None).unwrap();
            let mut reader = client.attach_reader(TABLE, None, ReaderOptions::default()).unwrap();
            for _ in 0..64 {
                writer.append(&[&1_u64.to_ne_bytes(), &support::check_of(1)]).unwrap();
            }
            assert_eq!(reader.next_batch(LONG).unwrap().len(), 64, "others wrote what it had claimed");
            eventually("its claims are settled", || client.show_table(TABLE).unwrap().orphaned_claims == 0);
            drop((reader, writer));
            client.drop_table(TABLE).unwrap();
        }
        eventually("nothing of it is left", || {
            client.list_clients().unwrap().len() == 1 && host_used(&daemon) == 0
        });
    }
}
