//! What must hold in every step: the checks that the steps call, none of which the real system could make.
//!
//! They look at the whole state at once, which no process can. Liveness is not here but in the explorer.

use crate::configuration::Configuration;
use crate::ledger::BlockState;
use crate::state::{FILLER, Fate, State};
use crate::successors::Successors;

/// Bytes are written only into a block that holds their sequence, that nobody reads, and over no committed sample.
pub fn check_write(
    config: &Configuration,
    state: &State,
    writer: &str,
    block: usize,
    position: u8,
    out: &mut Successors,
) {
    let record = &state.ledger.blocks[block];
    let slot = config.slot_of(position);
    if record.is(BlockState::Free) || record.sequence != config.sequence_of(position) {
        out.violate(|| {
            format!(
                "{writer} writes position {position} into block {block}, which now holds sequence {} ({:?})",
                record.sequence, record.state
            )
        });
    }
    check_no_reader(config, state, writer, block, slot, out);
    if state.shared.is_committed(config, block, slot) && record.is(BlockState::Published) {
        out.violate(|| format!("{writer} overwrites the committed slot {slot} of block {block}"));
    }
}

/// Bytes do not change under a reader.
pub fn check_no_reader(
    config: &Configuration,
    state: &State,
    writer: &str,
    block: usize,
    slot: usize,
    out: &mut Successors,
) {
    if state.is_being_read(config, block) {
        out.violate(|| format!("{writer} writes into slot {slot} of block {block} while a reader reads it"));
    }
}

/// A claimed position lives in a published block, is not committed, and belongs to nobody else.
pub fn check_claim(
    config: &Configuration,
    state: &State,
    claimer: usize,
    position: u8,
    out: &mut Successors,
) {
    let Some(block) = state.ledger.block_of(config, position) else {
        out.violate(|| format!("w{claimer} claims {position}, which is in no live block"));
        return;
    };
    let committed = state.shared.is_committed(config, block, config.slot_of(position));
    if committed && state.ledger.blocks[block].is(BlockState::Published) {
        out.violate(|| format!("w{claimer} claims {position}, which is committed"));
    }
    if let Some(owner) = owner_of(config, state, position).find(|&owner| owner != claimer) {
        out.violate(|| format!("w{claimer} claims {position}, which w{owner} owns"));
    }
}

/// A hole is offered only if it is one: not committed, and no live worker's.
pub fn check_offer(config: &Configuration, state: &State, block: usize, position: u8, out: &mut Successors) {
    if state.shared.is_committed(config, block, config.slot_of(position)) {
        out.violate(|| format!("the daemon offers {position}, which is committed"));
    }
    if let Some(owner) = owner_of(config, state, position).next() {
        out.violate(|| format!("the daemon offers {position}, which live w{owner} owns"));
    }
}

/// The live workers that took a position and have not committed in it.
fn owner_of(config: &Configuration, state: &State, position: u8) -> impl Iterator<Item = usize> {
    (0..config.workers).filter(move |&who| state.workers[who].is_alive() && state.workers[who].owns(position))
}

/// A sample is committed once.
pub fn count_commit(state: &mut State, sample: u8, out: &mut Successors) {
    if sample == FILLER {
        return;
    }
    let fate = &mut state.fates[usize::from(sample)];
    if *fate != Fate::Unwritten {
        out.violate(|| format!("sample {sample} is committed, but it is {fate:?} already"));
    }
    *fate = Fate::Committed;
}

/// A slot is read only from its own sequence, with its commit bit set, and what lies there is delivered once.
pub fn count_delivery(
    config: &Configuration,
    state: &mut State,
    reader: usize,
    slot: usize,
    out: &mut Successors,
) {
    let (block, sequence) = (usize::from(state.readers[reader].block), state.readers[reader].sequence);
    let record = &state.ledger.blocks[block];
    if record.is(BlockState::Free) || record.sequence != sequence {
        out.violate(|| {
            format!("r{reader} reads block {block} for sequence {sequence}, but it holds {}", record.sequence)
        });
    }
    if !state.shared.is_committed(config, block, slot) {
        out.violate(|| format!("r{reader} reads slot {slot} of sequence {sequence}, which is not committed"));
    }
    let Some(sample) = state.shared.data[block][slot].checked_sub(1) else {
        out.violate(|| format!("r{reader} delivers slot {slot} of sequence {sequence}, which nobody wrote"));
        return;
    };
    if sample == FILLER {
        return;
    }
    let fate = &mut state.fates[usize::from(sample)];
    match *fate {
        Fate::Committed => {}
        Fate::Delivered => out.violate(|| format!("sample {sample} is delivered twice, now by r{reader}")),
        Fate::Unwritten | Fate::Abandoned | Fate::Unused => {
            out.violate(|| format!("r{reader} delivers sample {sample}, which is {fate:?}"));
        }
    }
    *fate = Fate::Delivered;
}

/// A reader is told that there is nothing left for it only when every sample is delivered, or with a reader.
pub fn check_closing(config: &Configuration, state: &State, reader: usize, out: &mut Successors) {
    let is_with_a_reader = |sample: usize| {
        (0..config.blocks).any(|block| {
            let is_there = state.shared.data[block][..config.slots].contains(&(sample as u8 + 1));
            is_there && state.ledger.blocks[block].grant.is_some()
        })
    };
    let mut committed = (0..state.fates.len()).filter(|&sample| state.fates[sample] == Fate::Committed);
    if let Some(sample) = committed.find(|&sample| !is_with_a_reader(sample)) {
        out.violate(|| format!("r{reader} is closed while sample {sample} is committed and with nobody"));
    }
}
