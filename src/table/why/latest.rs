//! What waits at a latest table.

use std::collections::BTreeMap;

use super::{Condition, Question};
use crate::ids::BlockSeq;
use crate::ring::newest::ValueWord;
use crate::ring::record::RecordedClaim;
use crate::table::ending::Phase;
use crate::table::latest::Latest;
use crate::table::member::{MemberKey, Taker};
use crate::wire::message::{Holder, Wait};

/// What is so with its readers.
pub(super) fn conditions(latest: &Latest, seen: &mut Vec<Condition>) {
    seen.extend(latest.held().map(|(key, value)| Condition::Holding(key, value.seq)));
    for (&key, reader) in latest.readers() {
        seen.extend(expected(latest, reader).map(|seq| Condition::Expecting(key, seq)));
        if !reader.connected {
            seen.push(Condition::Disconnected(key));
        }
    }
    if latest.absent_readers() > 0 {
        seen.push(Condition::Absent);
    }
}

/// The sequence of the value that a reader waits for, if it waits.
fn expected(latest: &Latest, reader: &Taker) -> Option<BlockSeq> {
    let has = reader.waits_with()?;
    // A reader can say any number.
    let newest = latest.newest().map_or(0, ValueWord::version);
    (has >= newest).then_some(BlockSeq(has))
}

/// The question, put to a latest table.
pub(super) struct Waits<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) latest: &'a Latest,
}

impl Waits<'_> {
    pub(super) fn all(&self) -> Vec<Wait> {
        let readers = self.latest.readers().iter();
        let of_readers = readers.filter_map(|(&key, reader)| self.reader(key, reader));
        self.writer().into_iter().chain(of_readers).chain(self.absent()).collect()
    }

    fn writer(&self) -> Option<Wait> {
        let waiting = self.question.without_room();
        if waiting.is_empty() {
            return None;
        }
        let blocks = self.latest.block_counts();
        let in_use = blocks.filling + blocks.complete;
        let newest = self.latest.newest();
        let version = newest.map_or(0, ValueWord::version);
        let waits_for = format!(
            "room: all {in_use} blocks are in use, one by the newest value (version {version}), and what readers hold is not \
             overwritten"
        );
        // The newest goes round for nobody's sake.
        let older = |value: &ValueWord| newest.is_none_or(|newest| value.seq < newest.seq);
        Some(self.question.no_room(&waiting, waits_for, self.readers_that_hold(older)))
    }

    /// The readers that hold such values.
    fn readers_that_hold(&self, wanted: impl Fn(&ValueWord) -> bool) -> Vec<Holder> {
        let mut held: BTreeMap<MemberKey, Vec<ValueWord>> = BTreeMap::new();
        for (key, value) in self.latest.held().filter(|(_, value)| wanted(value)) {
            held.entry(key).or_default().push(value);
        }
        let holding = held.into_iter().map(|(key, values)| {
            let first = values[0];
            let what = match values.len() {
                1 => format!("holds version {} in block {}", first.version(), first.block),
                n => format!("holds {n} older values, from version {} on", first.version()),
            };
            let (connected, condition) =
                (self.latest.readers()[&key].connected, Condition::Holding(key, first.seq));
            let what = if connected { what } else { what + ", and has disconnected but lives" };
            self.question.holder(key, what, condition)
        });
        holding.collect()
    }

    fn reader(&self, key: MemberKey, reader: &Taker) -> Option<Wait> {
        let expected = expected(self.latest, reader)?;
        if self.question.intake.phase() != Phase::Open {
            return None;
        }
        let mut waits_for = format!("a value newer than version {}", expected.0);
        let version = |claim: &RecordedClaim| format!("is writing version {}", claim.position.0 + 1);
        let held_by = self.question.claims_as(|_| true, version);
        if held_by.is_empty() {
            waits_for += match self.question.intake.writers().len() {
                0 => "; no writer is attached",
                _ => "; the writer is attached and between values",
            };
        }
        let for_ms = self.question.for_ms(Condition::Expecting(key, expected));
        Some(Wait { who: format!("reader {}", self.question.name(key)), waits_for, held_by, for_ms })
    }

    fn absent(&self) -> Option<Wait> {
        let absent = self.latest.absent_readers();
        (absent > 0).then(|| Wait {
            who: "the table".into(),
            waits_for: format!(
                "{absent} readers of before to be back, or gone: it does not know what they hold"
            ),
            held_by: vec![],
            for_ms: self.question.for_ms(Condition::Absent),
        })
    }
}
