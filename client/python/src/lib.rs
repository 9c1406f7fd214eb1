//! The native half of the Python package `echod`.
//!
//! Python says what a sample looks like and what is to happen; here is what happens for each sample, batch and value.
//! Reading order: `connection` (a daemon and its tables), `structure` (the pytree, as steps to its leaves), `leaf` (one
//! leaf: what may be written into it), `strided` (copying it), `filling`, `cell`, `claim` and `writer`, then `reader`, `lease`,
//! `pending`, `all_held`, `shown` and `batch`; of latest tables `publisher`, `latest` and `value`, of replay tables `replay_settings`, `marks`,
//! `replay_writer`, `replay_claim`, `sampler` and `sampled`, which add little to these. `array` is the one door to
//! numpy's C interface and `dlpack` that to everybody else's, `pinning` page-locks, `waiting` says how a wait is interrupted,
//! `late` what it says when its time is over, `failure` how errors look.
//!
//! What always holds: the interpreter's lock is not held while anything waits for another process; no lock of ours is held
//! while Python code runs; and a view of a batch or a value holds its lease, so a block goes round only when no array of this
//! process shows it any more.

mod all_held;
mod array;
mod batch;
mod cell;
mod claim;
mod command;
mod connection;
mod dlpack;
mod failure;
mod filling;
mod late;
mod latest;
mod leaf;
mod lease;
mod marks;
mod pending;
mod pinning;
mod publisher;
mod reader;
mod replay_claim;
mod replay_settings;
mod replay_writer;
mod sampled;
mod sampler;
mod shown;
mod strided;
mod structure;
mod value;
mod waiting;
mod writer;

use pyo3::prelude::*;

/// The native module. Import `echod` instead.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::claim::{Claim, ValueClaim};
    #[pymodule_export]
    use crate::command::{run_ctl, run_daemon};
    #[pymodule_export]
    use crate::connection::Client;
    #[pymodule_export]
    use crate::dlpack::DLPackArray;
    #[pymodule_export]
    use crate::latest::LatestReader;
    #[pymodule_export]
    use crate::lease::Hold;
    #[pymodule_export]
    use crate::pending::Pending;
    #[pymodule_export]
    use crate::publisher::Publisher;
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::replay_claim::ReplayClaim;
    #[pymodule_export]
    use crate::replay_writer::ReplayWriter;
    #[pymodule_export]
    use crate::sampled::SampledBatch;
    #[pymodule_export]
    use crate::sampler::Sampler;
    #[pymodule_export]
    use crate::structure::Structure;
    #[pymodule_export]
    use crate::value::Value;
    #[pymodule_export]
    use crate::waiting::Token;
    #[pymodule_export]
    use crate::writer::Writer;
}
