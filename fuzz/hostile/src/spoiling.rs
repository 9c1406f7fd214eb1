//! Writing over words that a process may write: any of them, with anything.

use echo::ids::{BlockIndex, BlockSeq, Position};
use echo::ring::control::Control;
use echo::ring::hold::{HOLDS, HoldLine};
use echo::ring::ready::{BlockState, ReadyWord};
use echo::ring::record::{MAX_CLAIM, Record, RecordedClaim};
use echo::sync::{AtomicU32, AtomicU64, Ordering};
use echo::table::ledger::ORPHANS;

use crate::input::Input;

/// Writes over a word of the control region.
pub(crate) fn control(input: &mut Input<'_>, control: &Control) {
    let geometry = *control.geometry();
    let which = input.below(9);
    let block = |input: &mut Input<'_>| {
        BlockIndex::new(input.below(geometry.max_blocks()), geometry.max_blocks()).expect("below it")
    };
    match which {
        0 => word(control.cursor(), input),
        1 => word(control.limit(), input),
        2 => half(control.space(), input),
        3 => word(control.refill(input.below(geometry.refill_len())), input),
        4 => half(control.refill_block(input.below(geometry.refill_len())), input),
        5 => half(control.fill(BlockSeq(input.below(geometry.fill_len()).into())), input),
        6 => word(control.ready(block(input)), input),
        7 => half(control.length(block(input)), input),
        _ => {
            let (block, word_of_block) = (block(input), input.below(geometry.words_per_block()));
            word(control.commits(block, word_of_block), input);
        }
    }
}

/// Writes over a word of a writer's line in its client page.
pub(crate) fn record(input: &mut Input<'_>, record: Record<'_>) {
    match input.below(6) {
        0 => word(record.claim(), input),
        1 => word(record.moving(), input),
        2 => word(record.committed(), input),
        3 => word(record.wakes(), input),
        4 => word(record.waits(), input),
        _ => half(record.waiting(), input),
    }
}

/// Writes over the word that names a latest table's newest value.
pub(crate) fn newest(input: &mut Input<'_>, control: &Control) {
    value(control.newest(), input);
}

/// Writes over a word of a reader's line in its client page.
pub(crate) fn holds(input: &mut Input<'_>, line: HoldLine<'_>) {
    match input.below(6) {
        0 => half(line.waiting(), input),
        1 => word(line.having(), input),
        2 => word(line.taken(), input),
        _ => value(line.hold(input.below(HOLDS as u32) as usize), input),
    }
}

/// Writes over what is said of a sample of a replay table.
pub(crate) fn mark(input: &mut Input<'_>, mark: [&AtomicU64; 2]) {
    let of = mark[input.below(2) as usize];
    match input.below(3) {
        0 => of.store(f64::NEG_INFINITY.to_bits(), Ordering::Release),
        1 => of.store(u64::MAX - u64::from(input.below(3)), Ordering::Release),
        _ => word(of, input),
    }
}

/// A word that names a value, or nearly.
fn value(of: &AtomicU64, input: &mut Input<'_>) {
    match input.below(3) {
        0 => word(of, input),
        _ => of.store(u64::from(input.u8()) << 12 | u64::from(input.below(8)), Ordering::Release),
    }
}

/// Says of many claims, one after the other, that they are given up, as fast as the daemon takes them over.
pub(crate) fn many_dropped_claims(input: &mut Input<'_>, record: Record<'_>, mut say: impl FnMut()) {
    let from = u64::from(input.u8());
    // Either a few, or more than the daemon keeps, which takes it long.
    let count = match input.u8() {
        u8::MAX => ORPHANS as u32 + 2,
        few => few.into(),
    };
    for i in 0..count {
        // Lengths differ, since the same claim twice is one claim.
        let (position, length) = (Position(from + u64::from(i % 3)), i / 3 % MAX_CLAIM + 1);
        let dropped = RecordedClaim { position, length, dropped: true };
        record.claim().store(dropped.encode(), Ordering::Release);
        say();
    }
}

fn word(word: &AtomicU64, input: &mut Input<'_>) {
    let old = word.load(Ordering::Relaxed);
    let new = match input.below(6) {
        0 => input.u64(),
        1 => old ^ 1 << input.below(64),
        2 => old.wrapping_add_signed(i64::from(input.u8() as i8)),
        3 => u64::from(input.u8()),
        4 => {
            let states = [BlockState::Filling, BlockState::Complete, BlockState::Broken];
            let (seq, state) = (BlockSeq(input.u8().into()), states[input.below(3) as usize]);
            ReadyWord { seq, state, granted: input.u8() & 1 != 0 }.encode()
        }
        _ => {
            let (position, length) = (Position(input.u8().into()), u32::from(input.u8()) + 1);
            RecordedClaim { position, length, dropped: input.u8() & 1 != 0 }.encode()
        }
    };
    word.store(new, Ordering::Release);
}

fn half(half: &AtomicU32, input: &mut Input<'_>) {
    let old = half.load(Ordering::Relaxed);
    let new = match input.below(3) {
        0 => input.u64() as u32,
        1 => old ^ 1 << input.below(32),
        _ => u32::from(input.u8()),
    };
    half.store(new, Ordering::Release);
}
