//! Whose turn it is to register a table's memory with CUDA. Unregistering takes no turn: it is what a `Drop` does, which
//! must not wait, and it pins nothing.
//!
//! ```text
//!          begin, and it is free                        leave
//!   away ───────────────────────────▶ has the turn ───────────────▶ away
//!     │                                    ▲
//!     │ begin, and it is not               │ the holder leaves, and it is the first
//!     └──────────────────────────────▶ waits ── leaves, or all are refused ──▶ away
//! ```
//!
//! Each process registers its own mapping, but the kernel locks the same pages for each of them: processes that do it at
//! the same time stall each other, and some fail. So one at a time has the turn, and the others get it in the order in
//! which they asked. Nobody waits while it is free, and each member asks at most once, so that members bound the line.
//!
//! It is an agreement and no lock: whoever registers without it risks a failed registration, its own or another's, and no
//! byte of a sample. Therefore it passes on as soon as the holder's connection is gone, although its last registration may
//! still be under way in the kernel: to wait for that could take for ever.

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

use crate::table::member::MemberKey;

/// A member that has the turn, or waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Who.
    pub member: MemberKey,
    /// Its call, which is answered when its turn begins.
    pub call: u32,
    /// Since when it has the turn, or waits.
    pub since: Duration,
}

/// Why a member cannot ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum TurnError {
    #[error("reader {0} has the turn to page-lock the table's memory already: end it first")]
    Has(MemberKey),
    #[error("reader {0} waits for its turn to page-lock the table's memory already: wait, or end it")]
    Waits(MemberKey),
}

/// What follows when a member leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Left {
    /// It waited: this call of its will not be answered by its turn.
    pub gave_up: Option<Asked>,
    /// It had the turn, which is this one's now.
    pub next: Option<Asked>,
}

/// The turn of one table, and the line for it.
#[derive(Debug, Default)]
pub struct Turn {
    holder: Option<Asked>,
    waiting: VecDeque<Asked>,
}

impl Turn {
    /// A member asks for the turn. True if it has it now; else it waits.
    ///
    /// # Errors
    /// If it has it, or waits for it, already.
    pub fn begin(&mut self, member: MemberKey, call: u32, now: Duration) -> Result<bool, TurnError> {
        let asked = Asked { member, call, since: now };
        if self.waiting.iter().any(|asked| asked.member == member) {
            return Err(TurnError::Waits(member));
        }
        match self.holder {
            Some(holder) if holder.member == member => Err(TurnError::Has(member)),
            Some(_) => {
                self.waiting.push_back(asked);
                Ok(false)
            }
            None => {
                self.holder = Some(asked);
                Ok(true)
            }
        }
    }

    /// A member's turn, or its wait for it, is over. Of one that neither has it nor waits this says nothing.
    pub fn leave(&mut self, member: MemberKey, now: Duration) -> Left {
        if self.holder.is_some_and(|holder| holder.member == member) {
            self.holder = self.waiting.pop_front().map(|next| Asked { since: now, ..next });
            return Left { gave_up: None, next: self.holder };
        }
        let place = self.waiting.iter().position(|asked| asked.member == member);
        Left { gave_up: place.and_then(|place| self.waiting.remove(place)), next: None }
    }

    /// Nobody waits any more: those who did, in their order. Who has the turn keeps it.
    pub fn refuse_all(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.waiting).into()
    }

    /// Who has it.
    pub const fn holder(&self) -> Option<&Asked> {
        self.holder.as_ref()
    }

    /// Who waits for it, in the order in which they will have it.
    pub fn waiting(&self) -> impl Iterator<Item = &Asked> {
        self.waiting.iter()
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{ClientId, MemberId};

    const fn member(client: u64) -> MemberKey {
        MemberKey { client: ClientId(client), member: MemberId(1) }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_turn_goes_round_in_the_order_in_which_it_was_asked_for() {
        let mut turn = Turn::default();
        assert_eq!(turn.begin(member(3), 30, at(1)), Ok(true));
        assert_eq!(turn.begin(member(1), 10, at(2)), Ok(false));
        assert_eq!(turn.begin(member(2), 20, at(3)), Ok(false));
        assert_eq!(turn.holder().unwrap().since, at(1));
        let left = turn.leave(member(3), at(4));
        assert_eq!(left.next, Some(Asked { member: member(1), call: 10, since: at(4) }), "it begins now");
        assert_eq!(
            turn.waiting().map(|asked| asked.since).collect::<Vec<_>>(),
            [at(3)],
            "it waits since then"
        );
        assert_eq!(turn.begin(member(3), 31, at(5)), Ok(false), "at the end of the line");
        assert_eq!(turn.leave(member(1), at(6)).next.unwrap().member, member(2));
    }

    #[test]
    fn nobody_asks_twice() {
        let mut turn = Turn::default();
        turn.begin(member(1), 1, at(0)).unwrap();
        assert_eq!(turn.begin(member(1), 2, at(0)), Err(TurnError::Has(member(1))));
        turn.begin(member(2), 1, at(0)).unwrap();
        assert_eq!(turn.begin(member(2), 2, at(0)), Err(TurnError::Waits(member(2))));
    }

    #[test]
    fn one_that_gives_up_is_passed_over_and_keeps_nobody_waiting() {
        let mut turn = Turn::default();
        for client in 1..=3 {
            turn.begin(member(client), client as u32, at(0)).unwrap();
        }
        let left = turn.leave(member(2), at(1));
        assert_eq!((left.gave_up.unwrap().call, left.next), (2, None));
        assert_eq!(turn.leave(member(2), at(1)), Left::default(), "it is gone");
        assert_eq!(turn.leave(member(1), at(2)).next.unwrap().member, member(3));
    }

    #[test]
    fn those_who_are_refused_wait_no_more_and_the_holder_goes_on() {
        let mut turn = Turn::default();
        for client in 1..=3 {
            turn.begin(member(client), client as u32, at(0)).unwrap();
        }
        assert_eq!(turn.refuse_all().iter().map(|asked| asked.call).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(turn.holder().unwrap().member, member(1));
        assert_eq!(turn.leave(member(1), at(1)), Left::default());
        assert_eq!(turn.begin(member(2), 4, at(1)), Ok(true), "it is free");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin(u64),
        Leave(u64),
        RefuseAll,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (1..6_u64).prop_map(Step::Begin),
            6 => (1..6_u64).prop_map(Step::Leave),
            1 => Just(Step::RefuseAll),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The model is a plain line, whose first has the turn.
        #[test]
        fn it_is_a_line_whose_first_has_the_turn(steps in proptest::collection::vec(step(), 0..60)) {
            let mut turn = Turn::default();
            let mut line: Vec<(MemberKey, u32)> = Vec::new();
            for (call, step) in (1..).zip(steps) {
                let now = at(u64::from(call));
                match step {
                    Step::Begin(client) => {
                        let place = line.iter().position(|(who, _)| *who == member(client));
                        let expected = match place {
                            Some(0) => Err(TurnError::Has(member(client))),
                            Some(_) => Err(TurnError::Waits(member(client))),
                            None => Ok(line.is_empty()),
                        };
                        prop_assert_eq!(turn.begin(member(client), call, now), expected);
                        if expected.is_ok() {
                            line.push((member(client), call));
                        }
                    }
                    Step::Leave(client) => {
                        let place = line.iter().position(|(who, _)| *who == member(client));
                        let left = turn.leave(member(client), now);
                        let gone = place.map(|place| line.remove(place));
                        let told = |asked: Option<Asked>| asked.map(|asked| (asked.member, asked.call));
                        let (waited, had) = (place.is_some_and(|place| place > 0), place == Some(0));
                        prop_assert_eq!(told(left.gave_up), gone.filter(|_| waited));
                        prop_assert_eq!(told(left.next), line.first().copied().filter(|_| had));
                        if let Some(next) = left.next {
                            prop_assert_eq!(next.since, now);
                        }
                    }
                    Step::RefuseAll => {
                        let refused: Vec<_> =
                            turn.refuse_all().iter().map(|asked| (asked.member, asked.call)).collect();
                        prop_assert_eq!(refused, line.split_off(line.len().min(1)));
                    }
                }
                let seen: Vec<_> = turn.holder().into_iter().chain(turn.waiting()).collect();
                prop_assert_eq!(seen.iter().map(|a| (a.member, a.call)).collect::<Vec<_>>(), line.clone());
                prop_assert_eq!(turn.holder().is_some(), !line.is_empty(), "nobody waits while it is free");
            }
        }
    }
}
