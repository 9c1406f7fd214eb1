//! What is being waited for at a table, the numbers that decide it, who holds it up, and since when.
//!
//! There are no clocks in shared memory, so the daemon looks from time to time and remembers since when it has
//! seen the same thing: a duration here is "at least so long". It knows that a writer waits, since that says so;
//! of a reader it knows what it was granted and has not given back. Whose turn it is to page-lock the table's memory it
//! decides itself ([`Turn`]), and knows exactly since when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{BlockIndex, BlockSeq, ClientId};
use crate::ring::record::RecordedClaim;
use crate::table::ending::Phase;
use crate::table::member::{MemberKey, Reader, Writer};
use crate::table::queue::Queue;
use crate::table::turn::{Asked, Turn};
use crate::wire::message::{Holder, Wait};

/// Most waits that are told.
const WAITS: usize = 32;
/// Most holders that are told of one wait.
const HOLDERS: usize = 8;

/// A condition that can last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Condition {
    /// The writer says that it waits for space, beyond this limit.
    Waiting(MemberKey, u64),
    /// The writer holds a claim that begins at this position.
    Claiming(MemberKey, u64),
    /// The reader holds a complete batch.
    Holding(MemberKey, BlockSeq),
    /// The reader's next batch is not complete.
    Expecting(MemberKey, BlockSeq),
    /// The reader holds no grant.
    Idle(MemberKey),
    /// The reader's connection is gone, its process is not.
    Disconnected(MemberKey),
    /// Claims of dead workers wait to be settled.
    Orphaned,
    /// The table is ending.
    Ending,
}

/// Since when each condition has been seen.
#[derive(Default, Debug)]
pub struct Watch {
    since: BTreeMap<Condition, Duration>,
}

impl Watch {
    /// Looks at the table. `now` is counted from any fixed instant. Forgets what is no longer so.
    pub fn observe(&mut self, queue: &Queue, now: Duration) {
        let seen = conditions(queue);
        self.since = seen.into_iter().map(|condition| (condition, self.since(condition, now))).collect();
    }

    /// Whether a batch that a reader holds was complete when it was last looked at, and since when that, or that it is
    /// what the reader waits for, has been seen. O(log n): no sample is counted for it.
    pub fn lease(&self, reader: MemberKey, seq: BlockSeq) -> (bool, Option<Duration>) {
        match self.since.get(&Condition::Holding(reader, seq)) {
            Some(&since) => (true, Some(since)),
            None => (false, self.since.get(&Condition::Expecting(reader, seq)).copied()),
        }
    }

    fn since(&self, condition: Condition, now: Duration) -> Duration {
        self.since.get(&condition).copied().unwrap_or(now)
    }
}

/// What is so now: O(members + grants).
fn conditions(queue: &Queue) -> Vec<Condition> {
    let mut seen = Vec::new();
    let (_, limit) = queue.cursor_and_limit();
    for (&key, writer) in queue.writers() {
        if writer.is_waiting() {
            seen.push(Condition::Waiting(key, limit));
        }
        seen.extend(writer.held().map(|claim| Condition::Claiming(key, claim.position.0)));
    }
    for (key, grants) in grants(queue) {
        seen.extend(grants.complete.iter().map(|&seq| Condition::Holding(key, seq)));
        seen.extend(grants.next.map(|(seq, _)| Condition::Expecting(key, seq)));
    }
    for (&key, reader) in queue.readers() {
        if reader.connected && reader.held == 0 && !reader.ended {
            seen.push(Condition::Idle(key));
        }
        if !reader.connected {
            seen.push(Condition::Disconnected(key));
        }
    }
    if queue.orphaned_claims() > 0 {
        seen.push(Condition::Orphaned);
    }
    if queue.phase() != Phase::Open {
        seen.push(Condition::Ending);
    }
    seen
}

/// What a reader was granted.
#[derive(Default)]
struct Grants {
    /// Complete, and not given back.
    complete: Vec<BlockSeq>,
    /// The first that is not complete.
    next: Option<(BlockSeq, BlockIndex)>,
}

fn grants(queue: &Queue) -> BTreeMap<MemberKey, Grants> {
    let mut grants: BTreeMap<MemberKey, Grants> = BTreeMap::new();
    let mut blocks: Vec<_> = queue.granted_blocks().collect();
    blocks.sort_by_key(|&(seq, ..)| seq);
    for (seq, block, grant) in blocks {
        let of_reader = grants.entry(grant.reader).or_default();
        if queue.is_full(block) {
            of_reader.complete.push(seq);
        } else if of_reader.next.is_none() {
            of_reader.next = Some((seq, block));
        }
    }
    grants
}

/// Who a client is: its pid and what it calls itself.
pub type Who<'a> = &'a dyn Fn(ClientId) -> (u32, String);

/// Everything that waits at the table, longest first.
pub fn waits(queue: &Queue, turn: &Turn, watch: &Watch, now: Duration, who: Who<'_>) -> Vec<Wait> {
    let question = Question { queue, turn, watch, now, who, grants: grants(queue) };
    let mut waits = match queue.poison() {
        Some(poison) => vec![Wait {
            who: "everybody".into(),
            waits_for: format!("nothing that can come, since the table is poisoned: {poison}"),
            held_by: vec![],
            for_ms: 0,
        }],
        None => question.all(),
    };
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.for_ms));
    waits.truncate(WAITS);
    for wait in &mut waits {
        wait.held_by.sort_by_key(|holder| std::cmp::Reverse(holder.for_ms));
        let more = wait.held_by.len().saturating_sub(HOLDERS);
        wait.held_by.truncate(HOLDERS);
        if more > 0 {
            wait.waits_for += &format!(" (and {more} more hold it up)");
        }
    }
    waits
}

struct Question<'a> {
    queue: &'a Queue,
    turn: &'a Turn,
    watch: &'a Watch,
    now: Duration,
    who: Who<'a>,
    grants: BTreeMap<MemberKey, Grants>,
}

impl Question<'_> {
    fn all(&self) -> Vec<Wait> {
        let readers = self.queue.readers().iter();
        let of_readers = readers.filter_map(|(&key, reader)| self.reader(key, reader));
        let of_table = self.orphans().into_iter().chain(self.ending());
        self.writers().into_iter().chain(of_readers).chain(self.turns()).chain(of_table).collect()
    }

    fn for_ms(&self, condition: Condition) -> u64 {
        self.ms_since(self.watch.since(condition, self.now))
    }

    fn ms_since(&self, since: Duration) -> u64 {
        self.now.saturating_sub(since).as_millis() as u64
    }

    fn holder(&self, key: MemberKey, what: String, condition: Condition) -> Holder {
        let (pid, name) = (self.who)(key.client);
        Holder { pid, name, what, for_ms: self.for_ms(condition) }
    }

    /// The writers that wait for space, together: they all wait for the same thing.
    fn writers(&self) -> Option<Wait> {
        let waiting: Vec<MemberKey> = self
            .queue
            .writers()
            .iter()
            .filter(|(_, writer)| writer.is_waiting())
            .map(|(&key, _)| key)
            .collect();
        let (cursor, limit) = self.queue.cursor_and_limit();
        if waiting.is_empty() || cursor < limit || self.queue.phase() != Phase::Open {
            return None;
        }
        let blocks = self.queue.block_counts();
        let in_use = blocks.filling + blocks.complete;
        let mut waits_for = format!(
            "room: all {in_use} blocks are in use, {} complete and {} filling (cursor {cursor} = limit {limit})",
            blocks.complete, blocks.filling
        );
        let ungranted = self.queue.ungranted_blocks();
        let readers = self.queue.readers().len();
        if readers == 0 {
            waits_for += "; no reader is attached";
        } else if ungranted > 0 {
            waits_for +=
                &format!("; {ungranted} are granted to nobody, since every reader holds its prefetch");
        }
        let mut held_by: Vec<Holder> = self.readers_that_hold(&self.grants);
        held_by.extend(self.claims(|_| true));
        let for_ms =
            waiting.iter().map(|&key| self.for_ms(Condition::Waiting(key, limit))).max().unwrap_or(0);
        Some(Wait { who: self.name_writers(&waiting), waits_for, held_by, for_ms })
    }

    fn name_writers(&self, keys: &[MemberKey]) -> String {
        match keys {
            [key] => format!("writer {}", self.name(*key)),
            [first, ..] => format!("{} writers, such as {}", keys.len(), self.name(*first)),
            [] => "no writer".into(),
        }
    }

    fn name(&self, key: MemberKey) -> String {
        let (pid, name) = (self.who)(key.client);
        format!("{name} (pid {pid})")
    }

    fn readers_that_hold(&self, grants: &BTreeMap<MemberKey, Grants>) -> Vec<Holder> {
        let holding = grants.iter().filter_map(|(&key, grants)| {
            let (&first, n) = (grants.complete.first()?, grants.complete.len());
            let what = match n {
                1 => format!("reads batch {first}"),
                _ => format!("has {n} complete batches, from {first} on"),
            };
            Some(self.holder(key, what, Condition::Holding(key, first)))
        });
        holding.collect()
    }

    /// The writers whose claims these are.
    fn claims(&self, wanted: impl Fn(&RecordedClaim) -> bool) -> Vec<Holder> {
        let claims = self.queue.writers().iter().flat_map(|(&key, writer): (_, &Writer)| {
            writer.held().filter(|claim| wanted(claim)).map(move |claim| (key, claim)).collect::<Vec<_>>()
        });
        let holder = |(key, claim): (MemberKey, RecordedClaim)| {
            let first = claim.position.0;
            let what = match claim.length {
                1 => format!("is writing the sample at position {first}"),
                n => format!("is writing the {n} samples from position {first} on"),
            };
            self.holder(key, what, Condition::Claiming(key, first))
        };
        claims.map(holder).collect()
    }

    fn reader(&self, key: MemberKey, reader: &Reader) -> Option<Wait> {
        if !reader.connected {
            let what = "keeps its grants until its process exits".to_owned();
            return (reader.held > 0).then(|| Wait {
                who: format!("{} batches", reader.held),
                waits_for: format!("their reader {}, which has disconnected but lives", self.name(key)),
                held_by: vec![self.holder(key, what, Condition::Disconnected(key))],
                for_ms: self.for_ms(Condition::Disconnected(key)),
            });
        }
        let who = format!("reader {}", self.name(key));
        let grants = self.grants.get(&key);
        if let Some((seq, block)) = grants.and_then(|grants| grants.next) {
            // With something to read in hand, it does not wait.
            if grants.is_some_and(|grants| !grants.complete.is_empty()) {
                return None;
            }
            return Some(self.batch(who, key, seq, block));
        }
        if reader.held > 0 || reader.ended {
            return None;
        }
        Some(Wait {
            who,
            waits_for: "a batch: all blocks are granted to other readers, or complete and not given back"
                .into(),
            held_by: self.readers_that_hold(&self.grants),
            for_ms: self.for_ms(Condition::Idle(key)),
        })
    }

    fn batch(&self, who: String, key: MemberKey, seq: BlockSeq, block: BlockIndex) -> Wait {
        let geometry = self.queue.control().geometry();
        let (done, slots) = (self.queue.control().count(block), geometry.block_slots());
        let mut waits_for = format!("batch {seq}: {done} of {slots} samples are committed");
        let held_by = self.claims(|claim| geometry.seq(claim.position) == seq);
        if held_by.is_empty() {
            let writers = self.queue.writers().len();
            waits_for += &match writers {
                0 => "; no writer is attached".to_owned(),
                1 => "; one writer is attached and is between samples".into(),
                _ => format!("; {writers} writers are attached and between samples"),
            };
        }
        Wait { who, waits_for, held_by, for_ms: self.for_ms(Condition::Expecting(key, seq)) }
    }

    /// The readers that wait for their turn to page-lock the table's memory.
    fn turns(&self) -> impl Iterator<Item = Wait> {
        let holder = |asked: &Asked| {
            let (pid, name) = (self.who)(asked.member.client);
            let what = "has the turn to page-lock the table's memory".into();
            Holder { pid, name, what, for_ms: self.ms_since(asked.since) }
        };
        let held_by: Vec<Holder> = self.turn.holder().map(holder).into_iter().collect();
        self.turn.waiting().enumerate().map(move |(before, asked)| {
            let before = match before {
                0 => String::new(),
                n => format!(", after {n} that asked before"),
            };
            Wait {
                who: format!("reader {}", self.name(asked.member)),
                waits_for: format!("its turn to page-lock the table's memory{before}"),
                held_by: held_by.clone(),
                for_ms: self.ms_since(asked.since),
            }
        })
    }

    fn orphans(&self) -> Option<Wait> {
        let orphans = self.queue.orphaned_claims();
        (orphans > 0).then(|| Wait {
            who: "the table".into(),
            waits_for: format!(
                "{orphans} claims of writers that are gone to be taken over ({} positions are offered)",
                self.queue.holes_offered()
            ),
            held_by: self.claims(|_| true),
            for_ms: self.for_ms(Condition::Orphaned),
        })
    }

    fn ending(&self) -> Option<Wait> {
        let (waits_for, held_by) = match self.queue.phase() {
            Phase::Open => return None,
            Phase::Closing(_) => {
                ("writers to commit or drop what they have claimed".into(), self.claims(|_| true))
            }
            Phase::Closed(_) => {
                let pending = self.queue.samples().pending;
                if pending == 0 {
                    return None;
                }
                let none = if self.queue.readers().is_empty() { ": no reader is attached" } else { "" };
                (
                    format!("readers to give back the last {pending} samples{none}"),
                    self.readers_that_hold(&self.grants),
                )
            }
        };
        Some(Wait {
            who: "the table's end".into(),
            waits_for,
            held_by,
            for_ms: self.for_ms(Condition::Ending),
        })
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{LeaseToken, MemberId, Position};
    use crate::ring::claim::Claimer;
    use crate::ring::commit::commit;
    use crate::ring::control::{Control, Geometry};
    use crate::ring::record::{ClientPage, PAGE_BYTES};
    use crate::ring::words::Words;
    use crate::sync::Ordering;
    use crate::table::ledger::Ledger;

    const WRITER: MemberKey = MemberKey { client: ClientId(1), member: MemberId(1) };
    const READER: MemberKey = MemberKey { client: ClientId(2), member: MemberId(1) };

    /// A table of two blocks of two slots, with a writer, and what it has claimed.
    struct Scene {
        queue: Queue,
        page: Arc<ClientPage>,
        claimer: Claimer,
        turn: Turn,
        watch: Watch,
    }

    impl Scene {
        fn new() -> Self {
            let geometry = Geometry::new(2, 2, 1, 2).unwrap();
            let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
            let ledger = Ledger::create(Words::heap(Ledger::bytes(&geometry)), geometry);
            let mut last = 0;
            let tokens = Box::new(move || {
                last += 1;
                Ok(LeaseToken([last; 16]))
            });
            let mut queue = Queue::create(Arc::new(control), ledger, 2, tokens);
            let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap());
            queue.attach_writer(WRITER, page.clone(), 0);
            let (claimer, turn, watch) = (Claimer::new(2), Turn::default(), Watch::default());
            Self { queue, page, claimer, turn, watch }
        }

        fn attach_reader(&mut self, prefetch: u16) {
            self.queue.attach_reader(READER, 0, prefetch, &mut Vec::new());
        }

        fn claim(&mut self) -> crate::ring::claim::Attempt {
            let record = self.page.record(0).unwrap();
            self.claimer.try_claim(self.queue.control(), record, 1).unwrap()
        }

        fn append(&mut self) {
            let crate::ring::claim::Attempt::Claimed(claim) = self.claim() else { panic!("no room") };
            commit(self.queue.control(), self.page.record(0).unwrap(), &claim).unwrap();
        }

        fn wait_for_space(&self) {
            self.page.record(0).unwrap().waiting().store(1, Ordering::Relaxed);
        }

        /// Seen at second 1, asked at second 3.
        fn told(&mut self) -> Vec<String> {
            self.watch.observe(&self.queue, Duration::from_secs(1));
            let who = |client: ClientId| {
                (client.0 as u32 + 40, if client.0 == 1 { "worker" } else { "trainer" }.into())
            };
            waits(&self.queue, &self.turn, &self.watch, Duration::from_secs(3), &who)
                .into_iter()
                .map(|wait| {
                    let held: Vec<String> = wait
                        .held_by
                        .iter()
                        .map(|h| format!("{} (pid {}) {} for {} ms", h.name, h.pid, h.what, h.for_ms))
                        .collect();
                    format!(
                        "{} waits {} ms for {} [{}]",
                        wait.who,
                        wait.for_ms,
                        wait.waits_for,
                        held.join(", ")
                    )
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
            [
                "reader trainer (pid 42) waits 2000 ms for batch 0: 0 of 2 samples are committed; one writer is \
              attached and is between samples []"
            ]
        );
        for _ in 0..4 {
            scene.append();
        }
        scene.wait_for_space();
        assert_eq!(
            scene.told(),
            [
                "writer worker (pid 41) waits 2000 ms for room: all 2 blocks are in use, 2 complete and 0 filling \
              (cursor 4 = limit 4); 1 are granted to nobody, since every reader holds its prefetch [trainer (pid 42) \
              reads batch 0 for 2000 ms]"
            ]
        );
    }

    #[test]
    fn a_reader_is_held_up_by_the_writer_that_has_not_committed() {
        let mut scene = Scene::new();
        scene.attach_reader(2);
        scene.append();
        assert!(
            matches!(scene.claim(), crate::ring::claim::Attempt::Claimed(c) if c.position == Position(1))
        );
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
        scene.watch.observe(&scene.queue, one);
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
        scene.watch.observe(&scene.queue, Duration::from_secs(1));
        scene.append();
        scene.append();
        scene.watch.observe(&scene.queue, Duration::from_secs(2));
        let since: Vec<_> = scene.watch.since.iter().map(|(&condition, &since)| (condition, since)).collect();
        let two = Duration::from_secs(2);
        assert_eq!(
            since,
            [
                (Condition::Holding(READER, BlockSeq(0)), two),
                (Condition::Expecting(READER, BlockSeq(1)), two),
            ]
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
            scene.watch.observe(&scene.queue, Duration::from_secs(seconds));
            let token = scene.queue.granted_blocks().next().unwrap().2.token;
            scene.queue.release(READER, &[token], &mut Vec::new()).unwrap();
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
        scene.queue.disconnect(READER);
        assert_eq!(
            scene.told(),
            [
                "2 batches waits 2000 ms for their reader trainer (pid 42), which has disconnected but lives [trainer \
              (pid 42) keeps its grants until its process exits for 2000 ms]"
            ]
        );
    }
}
