//! The state of a block, in one word: `seq << 3 | state << 1 | GRANTED`.
//!
//! ```text
//!              publish                 completer, finish
//!   (free) ───────────────▶ filling ─────────────────────▶ complete ──▶ (free)
//!                              │       rescue
//!                              └─────────────────────────▶ broken ────▶ (free)
//! ```
//!
//! - *filling*: workers may hold claims to its slots; a committed slot is final.
//! - *complete*: the first `length` slots are committed and final, and no writer exists.
//! - *broken*: some slots were given up; what was committed comes again in another block.
//!
//! The word carries the sequence, so a completer that slept through a lap cannot mark the block's next life.
//! It is the futex that a reader sleeps on: the kernel compares its low half, Rust loads it only whole.

use std::time::Duration;

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::control::Control;
use crate::sync::{Ordering, futex_wait_low, futex_wake_low};

/// A reader holds a grant for the block, and may sleep on its word.
pub const GRANTED: u64 = 1;

/// What is true of a block's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Some slots may not be committed yet.
    Filling,
    /// All samples are there and final.
    Complete,
    /// It will never be complete.
    Broken,
}

/// A state word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyWord {
    /// Whose life of the block it speaks of.
    pub seq: BlockSeq,
    /// In which state it is.
    pub state: BlockState,
    /// [`GRANTED`].
    pub granted: bool,
}

impl ReadyWord {
    /// The word.
    pub const fn encode(self) -> u64 {
        self.seq.0 << 3 | (self.state as u64) << 1 | self.granted as u64
    }

    /// What a word says; `None` if no one of ours wrote it.
    pub const fn decode(word: u64) -> Option<Self> {
        let state = match (word >> 1) & 3 {
            0 => BlockState::Filling,
            1 => BlockState::Complete,
            2 => BlockState::Broken,
            _ => return None,
        };
        Some(Self { seq: BlockSeq(word >> 3), state, granted: word & GRANTED != 0 })
    }
}

/// What a reader sees of a block that it was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// Not yet; sleep while the word is this.
    Filling(u64),
    /// That many samples may be read.
    Complete(u32),
    /// The grant is worth nothing: the daemon took the block back or gave it up.
    Lost,
}

/// Looks once, without a system call.
///
/// A completer can die between its commit and the state word, so the reader looks at the commit words itself.
pub fn look(control: &Control, block: BlockIndex, seq: BlockSeq) -> Readiness {
    // acquire: pairs with the completer's CAS, behind which are the commits and with them the bytes
    let word = control.ready(block).load(Ordering::Acquire);
    match ReadyWord::decode(word) {
        Some(ready) if ready.seq == seq => match ready.state {
            BlockState::Complete => Readiness::Complete(length(control, block)),
            BlockState::Broken => Readiness::Lost,
            BlockState::Filling if control.is_full(block) => {
                // The words were full, but of this life? Nobody else can read or recycle the block while we
                // hold its grant, so that if the state still says so, they were. `is_full` loads with acquire:
                // pairs with the commit CAS, and orders this load behind it.
                let again = control.ready(block).load(Ordering::Acquire);
                match ReadyWord::decode(again) {
                    Some(ready) if ready.seq == seq && ready.state != BlockState::Broken => {
                        Readiness::Complete(length(control, block))
                    }
                    _ => Readiness::Lost,
                }
            }
            BlockState::Filling => Readiness::Filling(word),
        },
        _ => Readiness::Lost,
    }
}

/// Samples of a complete block. The daemon stores it before the words are full, so it is read behind them.
fn length(control: &Control, block: BlockIndex) -> u32 {
    // A worker can spoil the word; what is read with it stays inside the block all the same.
    control.length(block).load(Ordering::Relaxed).min(control.geometry().block_slots())
}

/// Sleeps while the state word is `seen`, for at most `slice`.
///
/// No wake is lost: the kernel compares the word under its lock, and whoever changes it changes it before
/// waking. A completer wakes only if it saw GRANTED; the daemon sets that before it sends the grant, and both
/// are read-modify-writes of this one word, so that either the completer sees GRANTED, or the reader, whose
/// `seen` was loaded after the grant arrived, sees *complete*. A completer that dies before its wake leaves a
/// reader that looks again when its slice is over.
pub fn sleep(control: &Control, block: BlockIndex, seen: u64, slice: Duration) {
    futex_wait_low(control.ready(block), seen, slice);
}

/// Wakes whoever sleeps on the block.
pub fn wake(control: &Control, block: BlockIndex) {
    futex_wake_low(control.ready(block));
}

/// What a completer did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Completion {
    /// It was this one that marked the block complete.
    pub completed: bool,
    /// And it woke the block's reader.
    pub woke: bool,
}

/// Marks a block whose words are all full as complete, in this life of it and no other.
pub fn complete(control: &Control, block: BlockIndex, seq: BlockSeq) -> Completion {
    let filling = |granted| ReadyWord { seq, state: BlockState::Filling, granted }.encode();
    let word = control.ready(block);
    // GRANTED is set once in a life of the block, most often long before: if it was not yet, and then is, the third
    // attempt sees it.
    for expected in [filling(true), filling(false), filling(true)] {
        let done = expected | (BlockState::Complete as u64) << 1;
        // acq-rel: releases the commits that this completer acquired, to the reader's acquire in `look`
        if word.compare_exchange(expected, done, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let woke = expected & GRANTED != 0;
            if woke {
                wake(control, block);
            }
            return Completion { completed: true, woke };
        }
    }
    Completion::default()
}

/// The daemon's: the block will never be complete, and nobody writes it any more.
pub fn give_up(control: &Control, block: BlockIndex, seq: BlockSeq) {
    let broken = ReadyWord { seq, state: BlockState::Broken, granted: true };
    // release: pairs with the reader's acquire in `look`
    control.ready(block).store(broken.encode(), Ordering::Release);
    wake(control, block);
}

/// The daemon's: from now on the completer wakes. Before the grant is sent.
pub fn set_granted(control: &Control, block: BlockIndex) {
    // acq-rel, same word as the completer's CAS
    control.ready(block).fetch_or(GRANTED, Ordering::AcqRel);
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ring::control::Geometry;
    use crate::ring::fill_ring;
    use crate::ring::words::Words;

    fn control() -> (Control, BlockIndex) {
        let geometry = Geometry::new(2, 1, 1, 1).unwrap();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        (control, BlockIndex::new(0, 1).unwrap())
    }

    #[test]
    fn a_state_survives_its_word() {
        for seq in [0, 1, (1 << 52) - 1] {
            for state in [BlockState::Filling, BlockState::Complete, BlockState::Broken] {
                for granted in [false, true] {
                    let ready = ReadyWord { seq: BlockSeq(seq), state, granted };
                    assert_eq!(ReadyWord::decode(ready.encode()), Some(ready));
                }
            }
        }
        assert_eq!(ReadyWord::decode(0b110), None);
    }

    #[test]
    fn a_completer_of_an_earlier_life_marks_nothing() {
        let (control, block) = control();
        fill_ring::prepare(&control, block, BlockSeq(5));
        assert_eq!(complete(&control, block, BlockSeq(4)), Completion::default());
        assert!(matches!(look(&control, block, BlockSeq(5)), Readiness::Filling(_)));
        assert_eq!(look(&control, block, BlockSeq(4)), Readiness::Lost);
    }

    #[test]
    fn granted_survives_completion_and_asks_for_a_wake() {
        let (control, block) = control();
        fill_ring::prepare(&control, block, BlockSeq(1));
        set_granted(&control, block);
        assert_eq!(complete(&control, block, BlockSeq(1)), Completion { completed: true, woke: true });
        assert_eq!(look(&control, block, BlockSeq(1)), Readiness::Complete(2));
        let word = ReadyWord::decode(control.ready(block).load(Ordering::Relaxed)).unwrap();
        assert!(word.granted);
    }

    #[test]
    fn a_reader_sees_full_words_when_the_completer_died() {
        let (control, block) = control();
        fill_ring::prepare(&control, block, BlockSeq(0));
        control.commits(block, 0).store(1, Ordering::Relaxed);
        assert!(matches!(look(&control, block, BlockSeq(0)), Readiness::Filling(_)));
        control.commits(block, 1).store(1, Ordering::Relaxed);
        assert_eq!(look(&control, block, BlockSeq(0)), Readiness::Complete(2));
    }
}
