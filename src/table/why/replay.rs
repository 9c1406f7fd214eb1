//! What waits at a replay table.

use super::{Condition, Question};
use crate::table::ending::Phase;
use crate::table::replay::{Asked, Replay};
use crate::wire::message::{Holder, Wait};

/// What is so with its readers.
pub(super) fn conditions(replay: &Replay, seen: &mut Vec<Condition>) {
    seen.extend(replay.waiting().iter().map(|asked| Condition::Sampling(asked.reader, asked.number)));
    for (&key, reader) in replay.readers() {
        seen.extend(reader.held().map(|(number, _)| Condition::Sampled(key, number)));
        if !reader.connected {
            seen.push(Condition::Disconnected(key));
        }
    }
    if replay.absent_readers() > 0 {
        seen.push(Condition::Absent);
    }
}

/// The question, put to a replay table.
pub(super) struct Waits<'a> {
    pub(super) question: &'a Question<'a>,
    pub(super) replay: &'a Replay,
}

impl Waits<'_> {
    pub(super) fn all(&self) -> Vec<Wait> {
        let requests = self.replay.waiting().iter().filter_map(|asked| self.request(asked));
        self.writers().into_iter().chain(requests).chain(self.absent()).collect()
    }

    /// Workers that may not go on: held back by the limiter, or by what is still read.
    fn writers(&self) -> Option<Wait> {
        let waiting = self.question.without_room();
        if waiting.is_empty() {
            return None;
        }
        Some(match self.replay.why_not_insert() {
            Some(inequality) => {
                let waits_for = format!("the limiter, until trainers have taken more: {inequality}");
                self.question.no_room(&waiting, waits_for, self.readers_that_wait_or_hold(false))
            }
            None => {
                let waits_for = format!(
                    "room: {} items were removed and are still read, and what readers hold is not overwritten",
                    self.replay.index().lingering()
                );
                let mut held_by = self.readers_that_wait_or_hold(true);
                held_by.extend(self.question.claims(|_| true));
                self.question.no_room(&waiting, waits_for, held_by)
            }
        })
    }

    /// The readers, for whom others wait: those that hold samples, or all.
    fn readers_that_wait_or_hold(&self, only_held: bool) -> Vec<Holder> {
        let holder = |(&key, reader): (_, &crate::table::replay::Sampler)| {
            let first = reader.held().next().map(|(number, _)| number);
            let slots: usize = reader.held().map(|(_, slots)| slots.len()).sum();
            let (what, condition) = match first {
                Some(number) => (format!("holds {slots} samples"), Condition::Sampled(key, number)),
                None if only_held => return None,
                None => ("asks for no samples".into(), Condition::Idle(key)),
            };
            let what = if reader.connected { what } else { what + ", and has disconnected but lives" };
            Some(self.question.holder(key, what, condition))
        };
        self.replay.readers().iter().filter_map(holder).collect()
    }

    fn request(&self, asked: &Asked) -> Option<Wait> {
        if self.question.intake.phase() != Phase::Open {
            return None;
        }
        let Asked { reader, number, count, picks } = asked;
        let (has, why) = (picks.len(), self.replay.why_not_sample());
        let mut waits_for = format!("{count} samples, of which it has {has}: {why}");
        let held_by = self.question.claims(|_| true);
        if held_by.is_empty() {
            waits_for += match self.question.intake.writers().len() {
                0 => "; no writer is attached",
                _ => "; the writers that are attached are between samples",
            };
        }
        let for_ms = self.question.for_ms(Condition::Sampling(*reader, *number));
        Some(Wait { who: format!("reader {}", self.question.name(*reader)), waits_for, held_by, for_ms })
    }

    fn absent(&self) -> Option<Wait> {
        let absent = self.replay.absent_readers();
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
