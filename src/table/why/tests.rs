//! What is said of a queue table.

use std::sync::Arc;

use super::*;
use crate::ids::{LeaseToken, MemberId, Position};
use crate::ring::claim::Claimer;
use crate::ring::commit::commit;
use crate::ring::control::{Control, Geometry};
use crate::ring::record::{ClientPage, PAGE_BYTES};
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::sync::Ordering;
use crate::table::group::DEFAULT_GROUP;
use crate::table::ledger::Ledger;
use crate::table::queue::Queue;

const WRITER: MemberKey = MemberKey { client: ClientId(1), member: MemberId(1) };
const READER: MemberKey = MemberKey { client: ClientId(2), member: MemberId(1) };

/// A table of two blocks of two slots, with a writer, and what it has claimed.
struct Scene {
    table: Machine,
    page: Arc<ClientPage>,
    claimer: Claimer,
    turn: Turn,
    watch: Watch,
}

impl Scene {
    fn new() -> Self {
        let geometry = Geometry::new(2, 2, 1, 2).unwrap();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let ledger = Ledger::create(
            Words::heap(Ledger::bytes(&geometry, TableKind::Queue)),
            geometry,
            TableKind::Queue,
        );
        let mut last = 0;
        let tokens = Box::new(move || {
            last += 1;
            Ok(LeaseToken([last; 16]))
        });
        let mut queue = Queue::create(Arc::new(control), ledger, 2, tokens);
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap());
        queue.attach_writer(WRITER, page.clone(), 0);
        let (claimer, turn, watch) = (Claimer::new(2), Turn::default(), Watch::default());
        Self { table: Machine::Queue(queue), page, claimer, turn, watch }
    }

    fn queue(&mut self) -> &mut Queue {
        match &mut self.table {
            Machine::Queue(queue) => queue,
            Machine::Latest(_) | Machine::Replay(_) => panic!("it is a queue table"),
        }
    }

    fn attach_reader(&mut self, prefetch: u16) {
        self.queue().attach_reader(READER, 0, prefetch, DEFAULT_GROUP, &mut Vec::new()).unwrap();
    }

    fn claim(&mut self) -> crate::ring::claim::Attempt {
        let record = self.page.record(0).unwrap();
        self.claimer.try_claim(self.table.intake().control(), record, 1).unwrap()
    }

    fn append(&mut self) {
        let crate::ring::claim::Attempt::Claimed(claim) = self.claim() else { panic!("no room") };
        commit(self.table.intake().control(), self.page.record(0).unwrap(), &claim).unwrap();
    }

    fn wait_for_space(&self) {
        self.page.record(0).unwrap().waiting().store(1, Ordering::Relaxed);
    }

    /// Seen at second 1, asked at second 3.
    fn told(&mut self) -> Vec<String> {
        self.watch.observe(&self.table, Duration::from_secs(1));
        let who = |client: ClientId| {
            (client.0 as u32 + 40, if client.0 == 1 { "worker" } else { "trainer" }.into())
        };
        waits(&self.table, &self.turn, &self.watch, Duration::from_secs(3), &who)
            .into_iter()
            .map(|wait| {
                let held: Vec<String> = wait
                    .held_by
                    .iter()
                    .map(|h| format!("{} (pid {}) {} for {} ms", h.name, h.pid, h.what, h.for_ms))
                    .collect();
                format!("{} waits {} ms for {} [{}]", wait.who, wait.for_ms, wait.waits_for, held.join(", "))
            })
            .collect()
    }
}

#[test]
fn a_writer_without_room_is_held_up_by_the_reader_that_keeps_batches() {
    let mut scene = Scene::new();
    scene.attach_reader(1);
    assert_eq!(
        scene.told(),
        ["reader trainer (pid 42) waits 2000 ms for batch 0: 0 of 2 samples are committed; one writer is \
          attached and is between samples []"]
    );
    for _ in 0..4 {
        scene.append();
    }
    scene.wait_for_space();
    assert_eq!(
        scene.told(),
        ["writer worker (pid 41) waits 2000 ms for room: all 2 blocks are in use, 2 complete and 0 filling \
          (cursor 4 = limit 4); 1 are granted to nobody, since every reader holds its prefetch [trainer (pid 42) \
          reads batch 0 for 2000 ms]"]
    );
}

#[test]
fn a_reader_is_held_up_by_the_writer_that_has_not_committed() {
    let mut scene = Scene::new();
    scene.attach_reader(2);
    scene.append();
    assert!(matches!(scene.claim(), crate::ring::claim::Attempt::Claimed(c) if c.position == Position(1)));
    assert_eq!(
        scene.told(),
        [
            "reader trainer (pid 42) waits 2000 ms for batch 0: 1 of 2 samples are committed [worker (pid 41) is \
          writing the sample at position 1 for 2000 ms]"
        ]
    );
}

#[test]
fn a_lease_is_as_it_was_last_seen() {
    let mut scene = Scene::new();
    scene.attach_reader(2);
    for _ in 0..2 {
        scene.append();
    }
    let one = Duration::from_secs(1);
    assert_eq!(scene.watch.lease(READER, BlockSeq(0)), (false, None), "nobody has looked");
    scene.watch.observe(&scene.table, one);
    assert_eq!(scene.watch.lease(READER, BlockSeq(0)), (true, Some(one)));
    assert_eq!(scene.watch.lease(READER, BlockSeq(1)), (false, Some(one)));
    assert_eq!(scene.watch.lease(WRITER, BlockSeq(0)), (false, None));
}

#[test]
fn nothing_waits_at_a_table_where_nobody_does() {
    assert_eq!(Scene::new().told(), Vec::<String>::new());
}

#[test]
fn what_changes_begins_anew() {
    let mut scene = Scene::new();
    scene.attach_reader(2);
    scene.watch.observe(&scene.table, Duration::from_secs(1));
    scene.append();
    scene.append();
    scene.watch.observe(&scene.table, Duration::from_secs(2));
    let since: Vec<_> = scene.watch.since.iter().map(|(&condition, &since)| (condition, since)).collect();
    let two = Duration::from_secs(2);
    assert_eq!(
        since,
        [(Condition::Holding(READER, BlockSeq(0)), two), (Condition::Expecting(READER, BlockSeq(1)), two),]
    );
}

#[test]
fn a_writer_that_waits_again_and_again_waits_since_the_last_room() {
    let mut scene = Scene::new();
    scene.attach_reader(1);
    for seconds in [1, 2] {
        for _ in 0..4 / seconds {
            scene.append();
        }
        scene.wait_for_space();
        scene.watch.observe(&scene.table, Duration::from_secs(seconds));
        let token = scene.queue().granted_blocks().next().unwrap().2.token;
        scene.queue().release(READER, &[token], &mut Vec::new()).unwrap();
    }
    let waiting = Condition::Waiting(WRITER, 6);
    assert_eq!(scene.watch.since(waiting, Duration::MAX), Duration::from_secs(2));
}

#[test]
fn readers_that_wait_to_page_lock_are_held_up_by_the_one_that_does() {
    let mut scene = Scene::new();
    for (client, seconds) in [(2, 0), (3, 1), (4, 2)] {
        let member = MemberKey { client: ClientId(client), member: MemberId(1) };
        scene.turn.begin(member, 1, Duration::from_secs(seconds)).unwrap();
    }
    let holder = "[trainer (pid 42) has the turn to page-lock the table's memory for 3000 ms]";
    assert_eq!(
        scene.told(),
        [
            format!(
                "reader trainer (pid 43) waits 2000 ms for its turn to page-lock the table's memory {holder}"
            ),
            format!(
                "reader trainer (pid 44) waits 1000 ms for its turn to page-lock the table's memory, after 1 that \
                 asked before {holder}"
            ),
        ]
    );
}

#[test]
fn a_reader_that_disconnected_and_lives_is_named() {
    let mut scene = Scene::new();
    scene.attach_reader(2);
    scene.queue().disconnect(READER);
    assert_eq!(
        scene.told(),
        [
            "2 batches waits 2000 ms for their reader trainer (pid 42), which has disconnected but lives [trainer \
          (pid 42) keeps its grants until its process exits for 2000 ms]"
        ]
    );
}
