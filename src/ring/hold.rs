//! How a reader of a latest table holds a value while it reads it, without asking anybody.
//!
//! It says so in its client page, in a *hold*: the value's word. Only the reader and the daemon map that page, so that a
//! reader harms nobody by it: it keeps one block for each hold from being written again.
//!
//! ```text
//! reader                                 daemon
//!   n = newest                             n = newest
//!   hold = n                               fence
//!   fence                                  looks at every hold
//!   newest is n still: held                lets blocks go round that are older than n and in no hold
//! ```
//!
//! Why no block goes round under its reader. Take a reader that comes to hold a value, and a daemon that has seen a newer
//! one and looks at the holds. Both fences are SeqCst, so one comes first. *The reader's*: then the daemon's looks come
//! behind it, and find the hold, or what the reader put there later, when it had let the value go. *The daemon's*: then the
//! reader's second look comes behind it, and finds the newer value that the daemon had found, or a later one: it does not
//! hold the older one, and tries again with what it found. (Without either fence both can miss each other: store
//! buffering.) And a block that was found old and held by nobody stays so, since nobody comes to hold what is not the
//! newest: a daemon may take its time to publish it, and so may its successor.
//!
//! The bytes: a reader lets go by a release, which the daemon's look acquires, so that what it read it has read before the
//! daemon publishes the block, and the next value's bytes come behind that.
//!
//! This is the hazard pointer of Michael (2004), with the daemon in the part of the one who reclaims.

use thiserror::Error;

use crate::ring::control::Control;
use crate::ring::newest::{self, ValueWord};
use crate::ring::ready::{BlockState, ReadyWord};
use crate::ring::words::Words;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Values that one reader may hold at a time.
pub const HOLDS: usize = 4;

/// Looks at `newest` after which a reader no longer believes that values come so fast.
const TRIES: u32 = 1000;

const TAKEN: usize = HOLDS * 8;
const WAITING: usize = TAKEN + 8;
const HAVING: usize = TAKEN + 16;

/// What a reader of a latest table finds spoilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum HoldError {
    #[error("the newest value is said to be {word:#x}, which is none: its writer spoilt the table's memory")]
    NoSuchValue { word: u64 },
    #[error(
        "the newest value changed {TRIES} times while it was taken: its writer spoilt the table's memory"
    )]
    Unsteady,
}

/// One reader's line in its client page.
#[derive(Clone, Copy)]
pub struct HoldLine<'a> {
    words: &'a Words,
    at: usize,
}

impl<'a> HoldLine<'a> {
    /// The line at that offset of a page.
    pub(super) const fn new(words: &'a Words, at: usize) -> Self {
        Self { words, at }
    }

    /// A hold: a value's word, or 0.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn hold(&self, index: usize) -> &'a AtomicU64 {
        assert!(index < HOLDS, "hold {index}");
        self.words.u64(self.at + 8 * index)
    }

    /// Values taken, by the reader's own account.
    pub fn taken(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + TAKEN)
    }

    /// 1 while it waits for a newer value.
    pub fn waiting(&self) -> &'a AtomicU32 {
        self.words.u32(self.at + WAITING)
    }

    /// While it waits: the version that it has.
    pub fn having(&self) -> &'a AtomicU64 {
        self.words.u64(self.at + HAVING)
    }

    /// The words of its holds, as alleged. Behind a fence: see the module's page.
    pub fn alleged(&self) -> [u64; HOLDS] {
        // acquire: pairs with the release in `let_go` and `take`
        std::array::from_fn(|index| self.hold(index).load(Ordering::Acquire))
    }

    /// Zeroes the line for its next user. The last one can no longer read: its process is gone, or it said that it
    /// unmapped.
    pub fn reset(&self) {
        for index in 0..HOLDS {
            self.hold(index).store(0, Ordering::Release);
        }
        self.taken().store(0, Ordering::Release);
        self.having().store(0, Ordering::Release);
        self.waiting().store(0, Ordering::Release);
    }
}

/// Takes the newest value, if its version is above `than`, into a hold that holds nothing. It is held until [`let_go`].
///
/// `blocks` is how many the reader has mapped.
///
/// # Errors
/// If the words say what no writer of ours does.
pub fn take(
    control: &Control,
    blocks: u32,
    line: HoldLine<'_>,
    index: usize,
    than: u64,
) -> Result<Option<ValueWord>, HoldError> {
    let hold = line.hold(index);
    let mut word = newest::load(control);
    for _ in 0..TRIES {
        if newest::version(word) <= than {
            break;
        }
        // release: what was read under the hold's last value comes before; pairs with the daemon's acquire
        hold.store(word, Ordering::Release);
        // pairs with the fence of the daemon that looks at the holds
        fence(Ordering::SeqCst);
        let again = newest::load(control);
        if again == word {
            return match checked(control, blocks, word) {
                Some(value) => Ok(Some(value)),
                None => {
                    let_go(line, index);
                    Err(HoldError::NoSuchValue { word })
                }
            };
        }
        word = again;
    }
    let_go(line, index);
    if newest::version(word) <= than { Ok(None) } else { Err(HoldError::Unsteady) }
}

/// The value that a word names, if it is complete. A value that is held stays so.
fn checked(control: &Control, blocks: u32, word: u64) -> Option<ValueWord> {
    let value = ValueWord::decode(word, blocks)?;
    // acquire: pairs with the completer's CAS; the word's own release came behind it
    let ready = ReadyWord::decode(control.ready(value.block).load(Ordering::Acquire))?;
    (ready.seq == value.seq && ready.state == BlockState::Complete).then_some(value)
}

/// Lets a value go, which is not read any more.
pub fn let_go(line: HoldLine<'_>, index: usize) {
    // release: pairs with the daemon's acquire; its bytes were read before
    line.hold(index).store(0, Ordering::Release);
}

/// The daemon's, between its look at `newest` and its looks at the holds.
pub fn before_looking() {
    // pairs with the fence in `take`
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ids::{BlockIndex, BlockSeq};
    use crate::ring::control::Geometry;
    use crate::ring::fill_ring;
    use crate::ring::record::{ClientPage, PAGE_BYTES};

    const BLOCKS: u32 = 4;

    fn control() -> Control {
        let geometry = Geometry::new(1, BLOCKS, 1, 1).unwrap();
        Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap()
    }

    fn publish(control: &Control, seq: u64) -> ValueWord {
        let block = BlockIndex::new(seq as u32 % BLOCKS, BLOCKS).unwrap();
        let value = ValueWord { seq: BlockSeq(seq), block };
        fill_ring::prepare(control, block, value.seq);
        crate::ring::ready::complete(control, block, value.seq);
        newest::publish(control, value);
        value
    }

    fn page() -> ClientPage {
        ClientPage::create(Words::heap(PAGE_BYTES)).unwrap()
    }

    #[test]
    fn only_what_is_newer_is_taken_and_it_is_held_until_it_is_let_go() {
        let (control, page) = (control(), page());
        let line = page.holds(3).unwrap();
        assert_eq!(take(&control, BLOCKS, line, 0, 0), Ok(None), "there is none");
        let value = publish(&control, 5);
        assert_eq!(take(&control, BLOCKS, line, 1, 5), Ok(Some(value)));
        assert_eq!(line.alleged(), [0, value.encode(), 0, 0]);
        assert_eq!(take(&control, BLOCKS, line, 0, 6), Ok(None), "it is version 6");
        let_go(line, 1);
        assert_eq!(line.alleged(), [0; HOLDS]);
    }

    #[test]
    fn a_value_that_is_none_is_an_error_and_not_held() {
        let (control, page) = (control(), page());
        let line = page.holds(0).unwrap();
        let value = publish(&control, 1);
        let elsewhere = ValueWord { block: BlockIndex::new(3, BLOCKS).unwrap(), ..value }.encode();
        for word in [elsewhere, value.encode() | 0xfff, ValueWord { seq: BlockSeq(9), ..value }.encode()] {
            control.newest().store(word, Ordering::Relaxed);
            assert_eq!(take(&control, BLOCKS, line, 0, 0), Err(HoldError::NoSuchValue { word }));
            assert_eq!(line.alleged(), [0; HOLDS]);
        }
        control.newest().store(value.encode(), Ordering::Relaxed);
        let too_few = 1;
        assert!(take(&control, too_few, line, 0, 0).is_err(), "of the blocks that are mapped");
    }

    #[test]
    fn a_line_does_not_reach_into_the_next() {
        let page = page();
        let line = page.holds(0).unwrap();
        for index in 0..HOLDS {
            line.hold(index).store(u64::MAX, Ordering::Relaxed);
        }
        line.taken().store(u64::MAX, Ordering::Relaxed);
        line.having().store(u64::MAX, Ordering::Relaxed);
        line.waiting().store(u32::MAX, Ordering::Relaxed);
        let next = page.record(1).unwrap();
        assert_eq!(next.alleged(), [None, None]);
        line.reset();
        assert_eq!(page.record(0).unwrap().alleged(), [None, None]);
        assert_eq!(line.alleged(), [0; HOLDS]);
    }
}
