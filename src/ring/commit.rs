//! How a sample becomes final.
//!
//! One bit a slot. A bit is set by CAS and not by a blind OR, since a word that the daemon has RETIRED must
//! not change: its value at that instant is exactly what counted. Whoever fills a word looks at the block's
//! other words, and whoever finds them all full completes the block. In a latest table it then says that the block's
//! value is the newest.

use thiserror::Error;

use crate::ring::claim::Claim;
use crate::ring::control::{Control, RETIRED};
use crate::ring::newest::{self, ValueWord};
use crate::ring::ready::{self, Completion};
use crate::ring::record::Record;
use crate::sync::{Ordering, fence};

/// Why a commit did not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum CommitError {
    #[error("block {block} was retired by the daemon, which this client did not agree to")]
    Retired { block: u32 },
    #[error("position {position} is committed already: another worker spoilt the table's memory")]
    Twice { position: u64 },
}

/// Commits the claim's samples, whose bytes are written, and clears the record.
///
/// When this returns `Ok`, every sample of the claim will be delivered.
#[inline]
pub fn commit(control: &Control, record: Record<'_>, claim: &Claim) -> Result<Completion, CommitError> {
    let completion = set_and_complete(control, claim)?;
    // release: reclaim acquires the records, then looks at the bits, and finds them set
    record.claim().store(0, Ordering::Release);
    Ok(completion)
}

/// As [`commit`], in a latest table: the value that was claimed is the newest when this returns, and who waits for a newer
/// one is woken.
///
/// The record is cleared last: until `newest` says so it is one that the daemon looks after.
pub fn commit_newest(control: &Control, record: Record<'_>, claim: &Claim) -> Result<(), CommitError> {
    set_and_complete(control, claim)?;
    newest::publish(control, ValueWord { seq: claim.seq, block: claim.block });
    // release: as in `commit`
    record.claim().store(0, Ordering::Release);
    Ok(())
}

/// Sets the claim's bits, and completes its block if it is full by them.
#[inline]
fn set_and_complete(control: &Control, claim: &Claim) -> Result<Completion, CommitError> {
    let bits_per_word = control.geometry().bits_per_word();
    let mut filled_a_word = false;
    let (mut slot, end) = (claim.slot, claim.slot + claim.length);
    while slot < end {
        let word = slot / bits_per_word;
        let first_bit = slot % bits_per_word;
        let bits = (end - slot).min(bits_per_word - first_bit);
        filled_a_word |= set_bits(control, claim, word, ((1 << bits) - 1) << first_bit)?;
        slot += bits;
    }
    if filled_a_word {
        // Store buffering: two workers each fill a word and look at the other's. The fence orders our CAS
        // before our look in the one total order of such fences, so the later of the two sees both words full.
        fence(Ordering::SeqCst);
        // acquire, in `is_full`: pairs with the commit CAS of the others, so that `complete` releases their bytes
        if control.is_full(claim.block) {
            return Ok(ready::complete(control, claim.block, claim.seq));
        }
    }
    Ok(Completion::default())
}

/// Sets the bits in one commit word. Whether the word is full by it.
#[inline]
fn set_bits(control: &Control, claim: &Claim, word: u32, bits: u64) -> Result<bool, CommitError> {
    let commits = control.commits(claim.block, word);
    let mut seen = commits.load(Ordering::Relaxed);
    loop {
        if seen & RETIRED != 0 {
            return Err(CommitError::Retired { block: claim.block.get() });
        }
        if seen & bits != 0 {
            return Err(CommitError::Twice { position: claim.position.0 });
        }
        // acq-rel: releases the sample's bytes, and the record before them, to readers, completers and reclaim
        match commits.compare_exchange_weak(seen, seen | bits, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(seen | bits == control.geometry().full_word(word)),
            Err(now) => seen = now,
        }
    }
}
