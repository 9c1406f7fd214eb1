//! The end of a table: what is left in its blocks is delivered as it is.
//!
//! When no writer is left, some blocks have slots that nobody will fill: the rest of the last block, and holes
//! that dead workers left. The daemon moves the samples of such a block together, so that they are its first
//! `length` slots, and completes it. Nobody else writes by then: the cursor is closed for good, no offer is
//! open, every writer is gone or has nothing claimed.
//!
//! The order of the steps: `counted`, the commit bits as they were, is in the private record before the first
//! byte moves; [`moves`] follows from it alone and only ever copies from slots that no move writes, so a
//! daemon that died in between does it again from the start; then [`complete`] stores the length *before* the
//! words are full, since a reader that finds full words looks at the length next.

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::control::Control;
use crate::ring::ready::{self, Completion};
use crate::sync::Ordering;

/// The commit words of a block, as they are.
pub fn counted(control: &Control, block: BlockIndex) -> Vec<u64> {
    let geometry = control.geometry();
    (0..geometry.words_per_block())
        // acquire: pairs with the commit CAS; the bytes of what is counted are visible
        .map(|word| control.commits(block, word).load(Ordering::Acquire) & geometry.full_word(word))
        .collect()
}

/// Which slots must be copied, `(from, to)` within the block, so that the counted samples come first.
pub fn moves(counted: &[u64], bits_per_word: u32) -> Vec<(u32, u32)> {
    let length: u32 = counted.iter().map(|bits| bits.count_ones()).sum();
    let is_counted =
        |slot: u32| counted[(slot / bits_per_word) as usize] & (1 << (slot % bits_per_word)) != 0;
    let slots = counted.len() as u32 * bits_per_word;
    let holes = (0..length).filter(|&slot| !is_counted(slot));
    let tail = (length..slots).filter(|&slot| is_counted(slot));
    tail.zip(holes).collect()
}

/// Completes a block whose first `length` slots are its samples.
pub fn complete(control: &Control, block: BlockIndex, seq: BlockSeq, length: u32) -> Completion {
    // Before the words are full: pairs with the reader's loads of the words, or of the state.
    control.length(block).store(length, Ordering::Release);
    let geometry = control.geometry();
    for word in 0..geometry.words_per_block() {
        // release: pairs with the acquire in `Control::is_full`. A store: nobody else writes the word any more, and
        // what a worker spoilt in it is gone.
        control.commits(block, word).store(geometry.full_word(word), Ordering::Release);
    }
    ready::complete(control, block, seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_moves_into_the_holes() {
        // slots 0 2 3 5 of 6, in words of 4 bits
        assert_eq!(moves(&[0b1101, 0b10], 4), [(5, 1)]);
        assert_eq!(moves(&[0b1111, 0b11], 4), []);
        assert_eq!(moves(&[0b0000, 0b00], 4), []);
        assert_eq!(moves(&[0b1000, 0b11], 4), [(3, 0), (4, 1), (5, 2)]);
    }

    #[test]
    fn no_move_reads_what_a_move_wrote() {
        for bits in 0u64..1 << 8 {
            let counted = [bits & 0xf, bits >> 4];
            let length = bits.count_ones();
            let done = moves(&counted, 4);
            assert!(done.iter().all(|&(from, to)| from >= length && to < length));
            let mut slots: Vec<bool> = (0..8).map(|slot| bits & (1 << slot) != 0).collect();
            for _twice in 0..2 {
                for &(from, to) in &done {
                    slots[to as usize] = slots[from as usize];
                }
            }
            assert!(slots[..length as usize].iter().all(|&there| there), "{bits:b}");
        }
    }
}
