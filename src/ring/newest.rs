//! Which value of a latest table is the newest: one word.
//!
//! A block of a latest table is one value, and its sequence + 1 the value's *version*. The word says which version is the
//! newest and in which block it lies, so that one load tells both:
//!
//! ```text
//! version (63..12) │ block (11..0)         0: there is none yet
//! ```
//!
//! It only grows. The one writer stores it when its value is complete; the daemon does, for a writer that died before. All
//! readers look at it, and those who have the newest value sleep on its low half. That half is the same again after 2^20
//! values: a sleeper who saw one of those wakes when its slice is over.
//!
//! How a reader comes to hold what it names is in [`hold`](super::hold).

use std::time::Duration;

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::control::Control;
use crate::spec::MAX_VALUES;
use crate::sync::{Ordering, futex_wait_low, futex_wake_low};

const BLOCK_BITS: u32 = MAX_VALUES.trailing_zeros();
const BLOCK_MASK: u64 = MAX_VALUES as u64 - 1;

const _: () = assert!(MAX_VALUES.is_power_of_two(), "a block's number is the lowest bits");

/// A value: its block, and whose life of the block it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ValueWord {
    /// The sequence of its block.
    pub seq: BlockSeq,
    /// Where it lies.
    pub block: BlockIndex,
}

impl ValueWord {
    /// The word.
    #[inline]
    pub const fn encode(self) -> u64 {
        (self.seq.0 + 1) << BLOCK_BITS | self.block.get() as u64
    }

    /// What a word says, of a table of so many blocks. None if it says that there is no value, or nonsense.
    #[inline]
    pub const fn decode(word: u64, max_blocks: u32) -> Option<Self> {
        match (version(word), BlockIndex::new((word & BLOCK_MASK) as u32, max_blocks)) {
            (1.., Some(block)) => Some(Self { seq: BlockSeq(version(word) - 1), block }),
            _ => None,
        }
    }

    /// Its version: values are counted from 1.
    #[inline]
    pub const fn version(self) -> u64 {
        self.seq.0 + 1
    }
}

/// The version in a word, of whatever block; 0 if there is none.
#[inline]
pub const fn version(word: u64) -> u64 {
    word >> BLOCK_BITS
}

/// The word.
#[inline]
pub fn load(control: &Control) -> u64 {
    // acquire: pairs with the release in `publish`, behind which are the value's commit and its bytes
    control.newest().load(Ordering::Acquire)
}

/// The writer's: its value is the newest, unless a newer one is. Wakes those who wait.
pub fn publish(control: &Control, value: ValueWord) {
    let word = value.encode();
    // Nobody but the daemon changes it beside the one writer, and at most once, to what the writer has committed. Others
    // keep to nothing, and there is no keeping up with those.
    for _ in 0..3 {
        let seen = control.newest().load(Ordering::Relaxed);
        if seen >= word || advance(control, seen, word) {
            break;
        }
    }
    wake(control);
}

/// The daemon's: a value is the newest whose writer did not say so. One attempt: if the word is not what was seen, somebody
/// else has changed it, and it is looked at again.
pub fn catch_up(control: &Control, seen: u64, value: ValueWord) {
    if advance(control, seen, value.encode()) {
        wake(control);
    }
}

fn advance(control: &Control, seen: u64, word: u64) -> bool {
    // acq-rel: releases the value's bytes, which this process wrote or acquired with its commit, to `load`
    control.newest().compare_exchange(seen, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Sleeps while the word is `seen`, for at most `slice`.
///
/// No wake is lost: whoever changes the word wakes after it, and the kernel compares it under its lock. A writer that dies
/// between the two is missed by the daemon, which wakes in its place.
pub fn sleep(control: &Control, seen: u64, slice: Duration) {
    futex_wait_low(control.newest(), seen, slice);
}

/// Wakes all who wait for a newer value.
pub fn wake(control: &Control) {
    futex_wake_low(control.newest());
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ring::control::{Geometry, POSITION_END};
    use crate::ring::words::Words;

    fn value(seq: u64, block: u32) -> ValueWord {
        ValueWord { seq: BlockSeq(seq), block: BlockIndex::new(block, MAX_VALUES).unwrap() }
    }

    #[test]
    fn a_value_survives_its_word() {
        for (seq, block) in [(0, 0), (0, MAX_VALUES - 1), (POSITION_END, 7)] {
            let value = value(seq, block);
            assert_eq!(ValueWord::decode(value.encode(), MAX_VALUES), Some(value));
            assert_eq!(version(value.encode()), seq + 1);
        }
        assert_eq!(ValueWord::decode(0, MAX_VALUES), None);
        assert_eq!(ValueWord::decode(5, MAX_VALUES), None, "a block without a version");
        assert_eq!(ValueWord::decode(value(1, 4).encode(), 4), None, "a block that there is not");
    }

    #[test]
    fn it_only_grows() {
        let geometry = Geometry::new(1, 4, 1, 1).unwrap();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        publish(&control, value(3, 1));
        publish(&control, value(2, 3));
        assert_eq!(load(&control), value(3, 1).encode());
        catch_up(&control, 0, value(9, 2));
        assert_eq!(load(&control), value(3, 1).encode(), "it is not what was seen");
        catch_up(&control, value(3, 1).encode(), value(9, 2));
        assert_eq!(load(&control), value(9, 2).encode());
    }
}
