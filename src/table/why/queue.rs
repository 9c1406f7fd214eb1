//! What waits at a queue table.

use std::collections::BTreeMap;

use super::{Condition, Question};
use crate::ids::{BlockIndex, BlockSeq};
use crate::table::ending::Phase;
use crate::table::member::{MemberKey, Reader};
use crate::table::queue::Queue;
use crate::wire::message::{Holder, Wait};

/// What is so with its readers.
pub(super) fn conditions(queue: &Queue, seen: &mut Vec<Condition>) {
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
        if queue.intake().is_full(block) {
            of_reader.complete.push(seq);
        } else if of_reader.next.is_none() {
            of_reader.next = Some((seq, block));
        }
    }
    grants
}

/// The question, put to a queue table.
pub(super) struct Waits<'a> {
    question: &'a Question<'a>,
    queue: &'a Queue,
    grants: BTreeMap<MemberKey, Grants>,
}

impl<'a> Waits<'a> {
    pub(super) fn of(question: &'a Question<'a>, queue: &'a Queue) -> Self {
        Self { question, queue, grants: grants(queue) }
    }

    pub(super) fn all(&self) -> Vec<Wait> {
        let readers = self.queue.readers().iter();
        let of_readers = readers.filter_map(|(&key, reader)| self.reader(key, reader));
        self.writers().into_iter().chain(of_readers).chain(self.ending()).collect()
    }

    fn writers(&self) -> Option<Wait> {
        let waiting = self.question.without_room();
        if waiting.is_empty() {
            return None;
        }
        let (cursor, limit) = self.question.intake.cursor_and_limit();
        let blocks = self.question.intake.block_counts();
        let in_use = blocks.filling + blocks.complete;
        let mut waits_for = format!(
            "room: all {in_use} blocks are in use, {} complete and {} filling (cursor {cursor} = limit {limit})",
            blocks.complete, blocks.filling
        );
        for (&id, group) in self.queue.groups() {
            let of_group = match self.queue.groups().len() {
                1 => String::new(),
                _ => format!(" of group {:?}", group.name),
            };
            let (ungranted, readers) = (group.ungranted.len(), self.queue.readers_of(id));
            if readers == 0 && self.queue.lag(id) > 0 {
                waits_for += &format!("; no reader{of_group} is attached");
            } else if readers > 0 && ungranted > 0 {
                waits_for += &format!(
                    "; {ungranted} are granted to nobody, since every reader{of_group} holds its prefetch"
                );
            }
        }
        let mut held_by = self.readers_that_hold();
        held_by.extend(self.question.claims(|_| true));
        Some(self.question.no_room(&waiting, waits_for, held_by))
    }

    fn readers_that_hold(&self) -> Vec<Holder> {
        let holding = self.grants.iter().filter_map(|(&key, grants)| {
            let (&first, n) = (grants.complete.first()?, grants.complete.len());
            let what = match n {
                1 => format!("reads batch {first}"),
                _ => format!("has {n} complete batches, from {first} on"),
            };
            Some(self.question.holder(key, what, Condition::Holding(key, first)))
        });
        holding.collect()
    }

    fn reader(&self, key: MemberKey, reader: &Reader) -> Option<Wait> {
        if !reader.connected {
            let what = "keeps its grants until its process exits".to_owned();
            return (reader.held > 0).then(|| Wait {
                who: format!("{} batches", reader.held),
                waits_for: format!(
                    "their reader {}, which has disconnected but lives",
                    self.question.name(key)
                ),
                held_by: vec![self.question.holder(key, what, Condition::Disconnected(key))],
                for_ms: self.question.for_ms(Condition::Disconnected(key)),
            });
        }
        let who = format!("reader {}", self.question.name(key));
        let grants = self.grants.get(&key);
        if let Some((seq, block)) = grants.and_then(|grants| grants.next) {
            // With something to read in hand it need not wait. (It may: a loop holds one batch while it asks for the next.)
            // But where nobody writes it will.
            let has_one = grants.is_some_and(|grants| !grants.complete.is_empty());
            let intake = self.question.intake;
            if has_one && !(intake.writers().is_empty() && intake.phase() == Phase::Open) {
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
            held_by: self.readers_that_hold(),
            for_ms: self.question.for_ms(Condition::Idle(key)),
        })
    }

    fn batch(&self, who: String, key: MemberKey, seq: BlockSeq, block: BlockIndex) -> Wait {
        let intake = self.question.intake;
        let geometry = intake.control().geometry();
        let (done, slots) = (intake.control().count(block), geometry.block_slots());
        let mut waits_for = format!("batch {seq}: {done} of {slots} samples are committed");
        let held_by = self.question.claims(|claim| geometry.seq(claim.position) == seq);
        if held_by.is_empty() {
            let writers = intake.writers().len();
            waits_for += &match writers {
                0 => "; no writer is attached".to_owned(),
                1 => "; one writer is attached and is between samples".into(),
                _ => format!("; {writers} writers are attached and between samples"),
            };
        }
        Wait { who, waits_for, held_by, for_ms: self.question.for_ms(Condition::Expecting(key, seq)) }
    }

    fn ending(&self) -> Option<Wait> {
        let (waits_for, held_by) = match self.question.intake.phase() {
            Phase::Open => return None,
            Phase::Closing(_) => {
                ("writers to commit or drop what they have claimed".into(), self.question.claims(|_| true))
            }
            Phase::Closed(_) => {
                let pending = self.question.intake.samples().pending;
                if pending == 0 {
                    return None;
                }
                let none = if self.queue.readers().is_empty() { ": no reader is attached" } else { "" };
                (format!("readers to give back the last {pending} samples{none}"), self.readers_that_hold())
            }
        };
        Some(Wait {
            who: "the table's end".into(),
            waits_for,
            held_by,
            for_ms: self.question.for_ms(Condition::Ending),
        })
    }
}
