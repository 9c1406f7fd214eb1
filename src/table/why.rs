//! What is being waited for at a table, the numbers that decide it, who holds it up, and since when.
//!
//! There are no clocks in shared memory, so the daemon looks from time to time and remembers since when it has
//! seen the same thing: a duration here is "at least so long". It knows that a writer waits, since that says so;
//! of a reader it knows what it was granted and has not given back, or what it says that it holds. Whose turn it is to page-lock the table's memory it
//! decides itself ([`Turn`]), and knows exactly since when.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{BlockSeq, ClientId};
use crate::ring::record::RecordedClaim;
use crate::table::ending::Phase;
use crate::table::intake::Intake;
use crate::table::machine::Machine;
use crate::table::member::{MemberKey, Writer};
use crate::table::turn::{Asked, Turn};
use crate::wire::message::{Holder, Wait};

mod latest;
mod queue;
mod replay;

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
    /// The reader holds a complete batch, or a value.
    Holding(MemberKey, BlockSeq),
    /// The reader's next batch, or the value that it waits for, is not complete.
    Expecting(MemberKey, BlockSeq),
    /// The reader holds no grant.
    Idle(MemberKey),
    /// The reader waits for this request's samples.
    Sampling(MemberKey, u64),
    /// The reader holds this request's samples.
    Sampled(MemberKey, u64),
    /// The reader's connection is gone, its process is not.
    Disconnected(MemberKey),
    /// Readers of before this daemon are not back.
    Absent,
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
    pub fn observe(&mut self, table: &Machine, now: Duration) {
        let seen = conditions(table);
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
fn conditions(table: &Machine) -> Vec<Condition> {
    let mut seen = Vec::new();
    let intake = table.intake();
    let (_, limit) = intake.cursor_and_limit();
    for (&key, writer) in intake.writers() {
        if writer.is_waiting() {
            seen.push(Condition::Waiting(key, limit));
        }
        seen.extend(writer.held().map(|claim| Condition::Claiming(key, claim.position.0)));
    }
    match table {
        Machine::Queue(queue) => queue::conditions(queue, &mut seen),
        Machine::Latest(latest) => latest::conditions(latest, &mut seen),
        Machine::Replay(replay) => replay::conditions(replay, &mut seen),
    }
    if intake.orphaned_claims() > 0 {
        seen.push(Condition::Orphaned);
    }
    if intake.phase() != Phase::Open {
        seen.push(Condition::Ending);
    }
    seen
}

/// Who a client is: its pid and what it calls itself.
pub type Who<'a> = &'a dyn Fn(ClientId) -> (u32, String);

/// Everything that waits at the table, longest first.
pub fn waits(table: &Machine, turn: &Turn, watch: &Watch, now: Duration, who: Who<'_>) -> Vec<Wait> {
    let intake = table.intake();
    let question = Question { intake, turn, watch, now, who };
    let mut waits = match intake.poison() {
        Some(poison) => vec![Wait {
            who: "everybody".into(),
            waits_for: format!("nothing that can come, since the table is poisoned: {poison}"),
            held_by: vec![],
            for_ms: 0,
        }],
        None => {
            let mut waits = match table {
                Machine::Queue(queue) => queue::Waits::of(&question, queue).all(),
                Machine::Latest(latest) => latest::Waits { question: &question, latest }.all(),
                Machine::Replay(replay) => replay::Waits { question: &question, replay }.all(),
            };
            waits.extend(question.turns().chain(question.orphans()));
            waits
        }
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

/// What is the same for tables of every kind.
struct Question<'a> {
    intake: &'a Intake,
    turn: &'a Turn,
    watch: &'a Watch,
    now: Duration,
    who: Who<'a>,
}

impl Question<'_> {
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

    /// The writers that say they wait for space, if there is none.
    fn without_room(&self) -> Vec<MemberKey> {
        let (cursor, limit) = self.intake.cursor_and_limit();
        if cursor < limit || self.intake.phase() != Phase::Open {
            return Vec::new();
        }
        let waiting = self.intake.writers().iter().filter(|(_, writer)| writer.is_waiting());
        waiting.map(|(&key, _)| key).collect()
    }

    /// The writers without room, together: they all wait for the same thing.
    fn no_room(&self, waiting: &[MemberKey], waits_for: String, held_by: Vec<Holder>) -> Wait {
        let (_, limit) = self.intake.cursor_and_limit();
        let for_ms =
            waiting.iter().map(|&key| self.for_ms(Condition::Waiting(key, limit))).max().unwrap_or(0);
        Wait { who: self.name_writers(waiting), waits_for, held_by, for_ms }
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

    /// The writers whose claims these are.
    fn claims(&self, wanted: impl Fn(&RecordedClaim) -> bool) -> Vec<Holder> {
        let what = |claim: &RecordedClaim| match (claim.length, claim.position.0) {
            (1, first) => format!("is writing the sample at position {first}"),
            (n, first) => format!("is writing the {n} samples from position {first} on"),
        };
        self.claims_as(wanted, what)
    }

    /// The writers whose claims these are, and what that means.
    fn claims_as(
        &self,
        wanted: impl Fn(&RecordedClaim) -> bool,
        what: impl Fn(&RecordedClaim) -> String,
    ) -> Vec<Holder> {
        let claims = self.intake.writers().iter().flat_map(|(&key, writer): (_, &Writer)| {
            writer.held().filter(|claim| wanted(claim)).map(move |claim| (key, claim)).collect::<Vec<_>>()
        });
        let holder = |(key, claim): (MemberKey, RecordedClaim)| {
            self.holder(key, what(&claim), Condition::Claiming(key, claim.position.0))
        };
        claims.map(holder).collect()
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
        let orphans = self.intake.orphaned_claims();
        (orphans > 0).then(|| Wait {
            who: "the table".into(),
            waits_for: format!(
                "{orphans} claims of writers that are gone to be taken over ({} positions are offered)",
                self.intake.holes_offered()
            ),
            held_by: self.claims(|_| true),
            for_ms: self.for_ms(Condition::Orphaned),
        })
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests;
