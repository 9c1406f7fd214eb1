//! Readers that register a table's memory with CUDA take turns: one at a time, in the order in which they asked, and
//! whoever leaves in whatever way keeps nobody waiting.

#[path = "support/stranger.rs"]
mod stranger;
#[path = "support/mod.rs"]
mod support;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use echo::ids::MemberId;
use echo::wire::message::{
    Answer, Call, ClientRow, Event, MAX_LIBRARY, PinReport, RefusalKind, Request, Wait,
};
use echo_client::Client;
use stranger::Stranger;
use support::{Actor, Daemon, eventually, numbers, say, socket_of_role};

const TABLE: &str = "t";
/// The call that asks for the turn.
const BEGIN: u32 = 100;
/// The call that ends it.
const END: u32 = 200;

#[test]
#[ignore = "what other tests start as a process of its own"]
fn role() {
    let Some(role) = support::role() else { return };
    match role[0].as_str() {
        "daemon" => support::play_daemon(&role[1..]),
        "trainer" => {
            let trainer = Trainer::attach(&socket_of_role());
            trainer.begin();
            assert_eq!(trainer.answer(BEGIN), Answer::Done);
            say("has the turn");
            std::thread::park();
        }
        other => panic!("{other}"),
    }
}

/// A reader.
struct Trainer {
    stranger: Stranger,
    member: MemberId,
    _mapped: [OwnedFd; 3],
}

impl Trainer {
    fn attach(socket: &std::path::Path) -> Self {
        let (stranger, page) = Stranger::greeted(socket);
        let (attachment, data, control) = stranger.attach(1, TABLE, false);
        Self { stranger, member: attachment.member, _mapped: [page, data, control] }
    }

    fn of(daemon: &Daemon) -> Self {
        Self::attach(&daemon.socket())
    }

    fn call(&self, id: u32, call: Call) {
        self.stranger.say(&Request::Call { id, call });
    }

    /// Asks for the turn.
    fn begin(&self) {
        self.call(BEGIN, Call::BeginPin { member: self.member });
    }

    fn end(&self, pinned: Option<PinReport>) {
        self.call(END, Call::EndPin { member: self.member, pinned });
    }

    /// Waits for the answer of a call.
    fn answer(&self, id: u32) -> Answer {
        loop {
            match self.stranger.receive().expect("an answer") {
                Event::Answer { id: answered, answer } if answered == id => return answer,
                Event::Answer { id, answer } => panic!("call {id} is answered first: {answer:?}"),
                _ => {}
            }
        }
    }

    fn refused(&self, id: u32) -> (RefusalKind, String) {
        match self.answer(id) {
            Answer::Refused(refusal) => (refusal.kind, refusal.message),
            other => panic!("{other:?}"),
        }
    }

    fn has_the_turn(&self) {
        assert_eq!(self.answer(BEGIN), Answer::Done);
    }
}

/// Says that it is over when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn daemon_with_table() -> (Daemon, Client) {
    let daemon = Daemon::start();
    let client = daemon.client();
    client.create_table(&numbers(TABLE, 4, 4)).unwrap();
    (daemon, client)
}

fn report(bytes: u64, library: &str) -> PinReport {
    PinReport { bytes, registrations: 2, library: library.into(), read_only: true }
}

/// Who waits for the turn, as `why` has it.
fn waits(client: &Client) -> Vec<Wait> {
    let mut waits = client.why(TABLE).unwrap();
    waits.retain(|wait| wait.waits_for.starts_with("its turn to page-lock the table's memory"));
    waits
}

fn so_many_wait(client: &Client, count: usize) {
    eventually("so many wait for the turn", || waits(client).len() == count);
}

/// The others: those that are not the client who asks.
fn rows(client: &Client) -> Vec<ClientRow> {
    let mut rows = client.list_clients().unwrap();
    rows.retain(|row| row.client != client.id());
    rows
}

#[test]
fn one_has_the_turn_and_the_others_get_it_in_the_order_in_which_they_asked() {
    let (daemon, client) = daemon_with_table();
    let trainers = [0; 4].map(|_| Trainer::of(&daemon));
    for (before, trainer) in trainers.iter().enumerate() {
        trainer.begin();
        so_many_wait(&client, before);
    }
    for (i, trainer) in trainers.iter().enumerate() {
        trainer.has_the_turn();
        assert_eq!(waits(&client).len(), trainers.len() - 1 - i, "of the others nobody has it");
        trainer.end(None);
        assert_eq!(trainer.answer(END), Answer::Done);
    }
}

#[test]
fn why_names_who_has_the_turn_and_how_many_come_before() {
    let (daemon, client) = daemon_with_table();
    let mut holder = daemon.actor_of("trainer");
    holder.expect("has the turn");
    let others = [Trainer::of(&daemon), Trainer::of(&daemon)];
    for (before, trainer) in others.iter().enumerate() {
        trainer.begin();
        so_many_wait(&client, before + 1);
    }
    for wait in waits(&client) {
        assert_eq!(wait.who, format!("reader stranger (pid {})", std::process::id()));
        let [by] = &wait.held_by[..] else { panic!("{wait:?}") };
        assert_eq!((by.pid, &*by.what), (holder.pid(), "has the turn to page-lock the table's memory"));
    }
    let told: Vec<String> = waits(&client).into_iter().map(|wait| wait.waits_for).collect();
    assert_eq!(
        told.iter().filter(|told| told.ends_with(", after 1 that asked before")).count(),
        1,
        "{told:?}"
    );
}

/// Something ends a process or its connection while it has the turn; another one, which waits, gets it.
fn passes_on_when(the_first_leaves: impl FnOnce(&mut Actor)) {
    let (daemon, client) = daemon_with_table();
    let mut first = daemon.actor_of("trainer");
    first.expect("has the turn");
    let second = Trainer::of(&daemon);
    second.begin();
    so_many_wait(&client, 1);
    the_first_leaves(&mut first);
    second.has_the_turn();
}

#[test]
fn a_killed_process_passes_the_turn_on() {
    passes_on_when(Actor::kill);
}

#[test]
fn a_stopped_process_keeps_the_turn_until_it_is_killed() {
    let (daemon, client) = daemon_with_table();
    let mut first = daemon.actor_of("trainer");
    first.expect("has the turn");
    first.signal(rustix::process::Signal::STOP);
    let second = Trainer::of(&daemon);
    second.begin();
    so_many_wait(&client, 1);
    assert_eq!(waits(&client)[0].held_by[0].pid, first.pid(), "people see whom to kill");
    first.kill();
    second.has_the_turn();
}

#[test]
fn whoever_disconnects_says_goodbye_or_detaches_passes_the_turn_on() {
    let (daemon, client) = daemon_with_table();
    for way in ["disconnects", "says goodbye", "detaches", "waits and disconnects", "waits and detaches"] {
        let (mut first, mut second) = (Trainer::of(&daemon), Trainer::of(&daemon));
        if way.starts_with("waits") {
            std::mem::swap(&mut first, &mut second);
            second.begin();
            second.has_the_turn();
        }
        first.begin();
        so_many_wait(&client, usize::from(way.starts_with("waits")));
        let third = Trainer::of(&daemon);
        if way.starts_with("waits") {
            // One in the middle of the line leaves, and is never given the turn.
            third.begin();
            so_many_wait(&client, 2);
        } else {
            first.has_the_turn();
            third.begin();
            so_many_wait(&client, 1);
        }
        match way {
            "disconnects" | "waits and disconnects" => drop(first),
            "says goodbye" => first.stranger.say(&Request::Goodbye),
            _ => {
                first.call(END, Call::Detach { member: first.member });
                if way.starts_with("waits") {
                    let (kind, message) = first.refused(BEGIN);
                    assert_eq!(kind, RefusalKind::Invalid);
                    assert!(message.contains("gave up its turn"), "{message}");
                }
                assert_eq!(first.answer(END), Answer::Done);
            }
        }
        if way.starts_with("waits") {
            so_many_wait(&client, 1);
            second.end(None);
        }
        third.has_the_turn();
        assert_eq!(waits(&client), [], "{way}");
        third.end(None);
        assert_eq!(third.answer(END), Answer::Done);
    }
}

#[test]
fn one_that_gives_up_is_refused_and_passed_over() {
    let (daemon, client) = daemon_with_table();
    let [first, second, third] = [0; 3].map(|_| Trainer::of(&daemon));
    for (i, trainer) in [&first, &second, &third].into_iter().enumerate() {
        trainer.begin();
        so_many_wait(&client, i);
    }
    second.end(None);
    assert_eq!(second.refused(BEGIN).0, RefusalKind::Invalid);
    assert_eq!(second.answer(END), Answer::Done);
    so_many_wait(&client, 1);
    first.has_the_turn();
    first.end(None);
    third.has_the_turn();
    // It may ask again, and then comes last.
    second.begin();
    so_many_wait(&client, 1);
    third.end(None);
    second.has_the_turn();
}

#[test]
fn nobody_ends_the_turn_of_another() {
    let (daemon, client) = daemon_with_table();
    let [first, second, third] = [0; 3].map(|_| Trainer::of(&daemon));
    first.begin();
    first.has_the_turn();
    second.begin();
    so_many_wait(&client, 1);
    // A member that is not the client's own is none; members are counted by client.
    third.call(END, Call::EndPin { member: MemberId(99), pinned: None });
    let (kind, message) = third.refused(END);
    assert_eq!(kind, RefusalKind::Invalid);
    assert!(message.contains("no member 99"), "{message}");
    // One without the turn, under the same number as the holder's, only says what it has registered itself.
    assert_eq!(third.member, first.member);
    third.end(Some(report(4096, "lib")));
    assert_eq!(third.answer(END), Answer::Done);
    assert_eq!(waits(&client).len(), 1, "the second waits as before");
    first.end(None);
    second.has_the_turn();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (daemon, client) = daemon_with_table();
    let trainer = Trainer::of(&daemon);
    let (writer, _, _) = trainer.stranger.attach(2, TABLE, true);
    for member in [writer.member, MemberId(77)] {
        for call in [Call::BeginPin { member }, Call::EndPin { member, pinned: None }] {
            trainer.call(END, call);
            let (kind, message) = trainer.refused(END);
            assert_eq!(kind, RefusalKind::Invalid);
            assert!(message.contains("attach"), "it says what to do: {message}");
        }
    }
    trainer.begin();
    trainer.has_the_turn();
    trainer.begin();
    assert!(trainer.refused(BEGIN).1.contains("has the turn to page-lock the table's memory already"));
    let second = Trainer::of(&daemon);
    second.begin();
    so_many_wait(&client, 1);
    second.call(BEGIN + 1, Call::BeginPin { member: second.member });
    assert!(second.refused(BEGIN + 1).1.contains("waits for its turn"));
    // A report that cannot be true ends the turn all the same, and is not shown.
    let committed = client.show_table(TABLE).unwrap().row.committed_bytes;
    trainer.end(Some(report(committed + 1, "lib")));
    let (kind, message) = trainer.refused(END);
    assert_eq!(kind, RefusalKind::Invalid);
    assert!(message.contains(&format!("{}", committed + 1)) && message.contains("committed"), "{message}");
    second.has_the_turn();
    assert!(rows(&client).iter().all(|row| row.pinned_bytes == 0 && row.pins.is_empty()));
}

#[test]
fn what_is_registered_is_shown_until_it_is_said_anew_or_its_process_is_gone() {
    let (daemon, client) = daemon_with_table();
    let (trainer, worker) = (Trainer::of(&daemon), Trainer::of(&daemon));
    let _writer = worker.stranger.attach(2, TABLE, true);
    trainer.begin();
    trainer.has_the_turn();
    let library = format!("/usr/lib/{}", "ü".repeat(300));
    trainer.end(Some(report(8192, &library)));
    assert_eq!(trainer.answer(END), Answer::Done);
    let row = || rows(&client).into_iter().find(|row| row.pinned_bytes > 0);
    let [pin] = &row().unwrap().pins[..] else { panic!("{:?}", row()) };
    assert_eq!(pin.member, trainer.member);
    let PinReport { bytes, registrations, library, read_only } = &pin.report;
    assert_eq!((*bytes, *registrations, *read_only), (8192, 2, true));
    assert!(library.starts_with("/usr/lib/üüü") && library.len() == MAX_LIBRARY - 1, "{library}");
    let members = client.show_table(TABLE).unwrap().members;
    let shown: Vec<_> = members.iter().map(|member| (member.writer, member.pinned_bytes)).collect();
    assert_eq!(shown, [(true, 0), (false, 8192), (false, 0)]);

    // Without a turn it says it anew.
    trainer.end(Some(report(4096, "lib")));
    assert_eq!(trainer.answer(END), Answer::Done);
    assert_eq!(row().unwrap().pinned_bytes, 4096);
    trainer.end(None);
    assert_eq!(trainer.answer(END), Answer::Done);
    assert_eq!(row(), None);

    // A process that has closed its connection and lives may have it registered still.
    trainer.end(Some(report(4096, "lib")));
    assert_eq!(trainer.answer(END), Answer::Done);
    drop(trainer);
    eventually("its connection is gone, and what it said is shown", || {
        row().is_some_and(|row| row.state.starts_with("disconnected") && row.pinned_bytes == 4096)
    });
}

#[test]
fn a_page_of_clients_that_say_much_is_followed_by_others() {
    let (daemon, client) = daemon_with_table();
    let strangers: Vec<_> = (0..10).map(|_| Stranger::greeted(&daemon.socket())).collect();
    let library = "l".repeat(MAX_LIBRARY);
    for (stranger, _) in &strangers {
        for id in 1..=9 {
            let (reader, _, _) = stranger.attach(id, TABLE, false);
            let pinned = Some(report(1, &library));
            let (event, _) = stranger.call(END, Call::EndPin { member: reader.member, pinned });
            assert!(matches!(event, Event::Answer { answer: Answer::Done, .. }), "{event:?}");
        }
    }
    let (stranger, _page) = Stranger::greeted(&daemon.socket());
    let (event, _) = stranger.call(1, Call::ListClients { after: None });
    let Event::Answer { answer: Answer::Clients { rows: first, more: true }, .. } = event else {
        panic!("{event:?}")
    };
    assert!(first.len() < strangers.len(), "a page has room for so many reports");
    let rows = rows(&client);
    assert_eq!(rows.len(), strangers.len() + 1);
    for row in &rows[..strangers.len()] {
        assert_eq!((row.pinned_bytes, row.pins.len(), row.pins_left_out), (9, 8, 1));
    }
}

#[test]
fn a_dropped_table_ends_the_wait() {
    let (daemon, client) = daemon_with_table();
    let [first, second] = [0; 2].map(|_| Trainer::of(&daemon));
    first.begin();
    first.has_the_turn();
    second.begin();
    so_many_wait(&client, 1);
    client.drop_table(TABLE).unwrap();
    assert_eq!(second.refused(BEGIN), (RefusalKind::NoSuchTable, "table \"t\" was dropped".into()));
    first.begin();
    assert_eq!(first.refused(BEGIN).0, RefusalKind::NoSuchTable);
    // What it has registered it may say, and unmap, as ever.
    first.end(Some(report(4096, "lib")));
    assert_eq!(first.answer(END), Answer::Done);
}

#[test]
fn a_poisoned_table_ends_the_wait() {
    let (daemon, client) = daemon_with_table();
    let [first, second] = [0; 2].map(|_| Trainer::of(&daemon));
    first.begin();
    first.has_the_turn();
    second.begin();
    so_many_wait(&client, 1);
    let (worker, _page) = Stranger::greeted(&daemon.socket());
    let (_, _, control) = worker.attach(1, TABLE, true);
    rustix::io::pwrite(&control, &[0xff; 8], 0).unwrap();
    let (kind, message) = second.refused(BEGIN);
    assert_eq!(kind, RefusalKind::Poisoned);
    assert!(message.contains("drop it and create it again"), "{message}");
    second.begin();
    assert_eq!(second.refused(BEGIN).0, RefusalKind::Poisoned);
}

#[test]
fn a_daemon_that_stops_ends_the_wait() {
    let (mut daemon, client) = daemon_with_table();
    let [first, second] = [0; 2].map(|_| Trainer::of(&daemon));
    first.begin();
    first.has_the_turn();
    second.begin();
    so_many_wait(&client, 1);
    daemon.actor().signal(rustix::process::Signal::TERM);
    assert_eq!(second.refused(BEGIN).0, RefusalKind::Draining);
}

#[test]
fn whoever_asks_without_end_keeps_nobody_from_the_turn() {
    const CALLS: u32 = 300;
    let (daemon, client) = daemon_with_table();
    let (flooder, other) = (Trainer::of(&daemon), Trainer::of(&daemon));
    // All at once: the first has it, and the others are refused, each in its own answer.
    for id in 1..=CALLS {
        flooder.call(id, Call::BeginPin { member: flooder.member });
    }
    assert_eq!(flooder.answer(1), Answer::Done);
    for id in 2..=CALLS {
        assert_eq!(flooder.refused(id).0, RefusalKind::Invalid);
    }
    // Calls that wait take no places: many readers of one connection wait, and it is answered all the same.
    let readers: Vec<MemberId> =
        (1..=20).map(|id| other.stranger.attach(CALLS + id, TABLE, false).0.member).collect();
    for (id, &member) in (1..).zip(&readers) {
        other.call(id, Call::BeginPin { member });
    }
    so_many_wait(&client, readers.len());
    // Begun and ended again and again, the turn comes to the others in between.
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also when an assertion fails: the scope waits for the thread.
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                flooder.call(END, Call::EndPin { member: flooder.member, pinned: None });
                assert_eq!(flooder.answer(END), Answer::Done);
                flooder.begin();
                flooder.has_the_turn();
            }
        });
        let mut turns = Vec::new();
        while turns.len() < readers.len() {
            match other.stranger.receive().expect("an answer") {
                Event::Answer { id: END, answer } => assert_eq!(answer, Answer::Done),
                Event::Answer { id, answer } => {
                    assert_eq!(answer, Answer::Done, "call {id}");
                    turns.push(id);
                    other.call(END, Call::EndPin { member: readers[id as usize - 1], pinned: None });
                }
                _ => {}
            }
        }
        assert!(turns.is_sorted(), "in the order in which they asked: {turns:?}");
    });
}
