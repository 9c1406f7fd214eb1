//! How free blocks reach the workers: the daemon's side of the ring.
//!
//! Publishing gives a physical block a new sequence: its words are cleared, its state set to *filling*, the
//! fill ring told where it is, the daemon's private record written, and last the limit raised, which releases
//! all of it to the workers. Between [`prepare`] and [`raise_limit`] nobody can see the block. A physical
//! block is published only when nobody can write it any more: every commit of its last life counted, its
//! reader gave it back.

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::control::{CLOSED, Control};
use crate::ring::ready::{BlockState, ReadyWord};
use crate::ring::space;
use crate::sync::Ordering;

/// Sets a free block's words for its next life, and the fill ring's entry.
///
/// The entry is free: a sequence needs it only until it is wholly claimed, sequences not wholly claimed are
/// at most as many as there are blocks, and the ring has at least as many entries.
pub fn prepare(control: &Control, block: BlockIndex, seq: BlockSeq) {
    let geometry = control.geometry();
    // Relaxed throughout: published by the limit.
    for word in 0..geometry.words_per_block() {
        control.commits(block, word).store(0, Ordering::Relaxed);
    }
    control.length(block).store(geometry.block_slots(), Ordering::Relaxed);
    let filling = ReadyWord { seq, state: BlockState::Filling, granted: false };
    control.ready(block).store(filling.encode(), Ordering::Relaxed);
    control.fill(seq).store(block.get(), Ordering::Relaxed);
}

/// Lets workers claim every position below that of `next_seq`, and wakes those who wait.
pub fn raise_limit(control: &Control, next_seq: BlockSeq) {
    // release: pairs with the worker's acquire in `claim`; what `prepare` wrote becomes visible with it
    control.limit().store(control.geometry().first(next_seq).0, Ordering::Release);
    space::announce(control);
}

/// Stops claims: the cursor stays where it is.
pub fn close(control: &Control) {
    // One read-modify-write, no loop that a worker could win for ever. acq-rel: pairs with the worker's CAS,
    // which fails from now on.
    control.cursor().fetch_or(CLOSED, Ordering::AcqRel);
    space::announce(control);
}
