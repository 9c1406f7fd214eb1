//! The core of echo: what the daemon and its clients agree on.
//!
//! Rollout workers write samples into rings in shared memory, trainers read batches out of them, and a daemon
//! hands out the memory and the rights to it; see `ARCHITECTURE.md` for a sample's way through all of it. This
//! crate is the part that both sides share. Its users are the daemon (`echod`) and the client (`echo-client`);
//! a program that wants to write or read samples wants the client.
//!
//! Reading order:
//!
//! 1. [`ids`], [`sync`]: the typed numbers, and the one door to atomics.
//! 2. [`spec`], [`access`]: what a sample looks like, and who may do what with a table.
//! 3. [`memory`]: from a file descriptor to an array whose base never moves.
//! 4. [`ring`]: the protocol in shared memory; its module page is the essay.
//! 5. [`host_pinning`]: page-locking what is mapped with CUDA, where a trainer asks for it.
//! 6. [`table`]: who may read what, as pure state machines.
//! 7. [`replay`]: tables whose samples are chosen; which, and until when, as pure state machines.
//! 8. [`wire`], [`peer`], [`token`]: the conversation, and who is talking.

pub mod access;
#[cfg(all(test, not(echo_loom)))]
mod cases;
#[cfg(not(echo_loom))]
pub mod host_pinning;
pub mod ids;
#[cfg(not(echo_loom))]
pub mod memory;
#[cfg(not(echo_loom))]
pub mod peer;
pub mod replay;
pub mod ring;
pub mod spec;
pub mod sync;
pub mod table;
#[cfg(not(echo_loom))]
pub mod token;
pub mod wire;
