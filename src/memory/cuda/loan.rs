//! What other processes may have of an account's memory.
//!
//! ```text
//!   leased ──export──▶ lent ──the exporter releases it──▶ lent, and others' alone
//!      ▲                │                                       │
//!      └──reclaimed─────┘                                       └──reclaimed──▶ lease given back
//! ```
//!
//! The driver does not say who else has a block, in a mapping, a handle or a descriptor that is under way, and it is
//! free when the last of them has let go. So what was exported stays charged, whatever its exporter does with it, until
//! whoever shares it says that the others have nothing of it any more: that is a protocol's knowledge, and none of ours.

use std::mem;
use std::sync::Arc;

use crate::memory::fork::Birthplace;
use crate::memory::governor::MemoryLease;

/// Blocks that were exported, as they are charged. Dropped without [`reclaimed`](Self::reclaimed), they stay charged for
/// as long as the account's governor lives: better too much is charged than too little.
#[must_use = "what was exported stays charged until it is reclaimed"]
#[derive(Debug)]
pub struct Loan {
    /// Each is shared with its block, for as long as that lives.
    leases: Vec<Arc<MemoryLease>>,
    birthplace: Birthplace,
}

impl Loan {
    pub(super) fn new(leases: Vec<Arc<MemoryLease>>) -> Self {
        Self { leases, birthplace: Birthplace::here() }
    }

    /// Bytes that were lent.
    pub fn bytes(&self) -> u64 {
        self.leases.iter().map(|lease| lease.bytes()).sum()
    }

    /// Nobody else has anything of it any more: every importer has unmapped and released what it got, or is gone, and
    /// no descriptor of it is open here or under way. It is given back as soon as its exporter has released it, if
    /// that has not been.
    pub fn reclaimed(mut self) {
        // In a forked child the budget is the parent's, and its lock may never be free.
        if !self.birthplace.is_elsewhere() {
            self.leases.clear();
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        mem::forget(mem::take(&mut self.leases));
    }
}
