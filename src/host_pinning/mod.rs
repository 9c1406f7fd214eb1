//! Page-locking for CUDA: what makes a copy from a ring to a GPU one DMA instead of a staged copy.
//!
//! A CUDA runtime is found among those that this process could use ([`mod@resolve`], a ladder), and the memory is
//! registered with it ([`register`]). The two meet in [`CudaApi`], a table of function pointers: `resolve` returns one
//! and `register` takes one, so that a test can hand in a table of its own, and nearly all of this runs without a GPU.
//!
//! What always holds: pinning that was asked for is delivered, or is an error that names every path that was probed
//! and CUDA's error by its symbol; within one attempt it is all or nothing; what is registered is unregistered before
//! it is unmapped; a library that was opened is never closed. Nothing here is linked to CUDA: whoever does not ask for
//! pinning loads no library and runs no line of this.
//!
//! Registration is per process, so the daemon does none of it: each trainer registers its own mapping. The memory is
//! shared, and one that is private must never be registered: pinning it for a device's writes makes a copy of each
//! page, and the device would go on reading that.
//!
//! It has no notion of tables or samples, and takes no turns between processes: its callers do.

pub mod advice;
pub mod api;
mod chunks;
mod driver;
mod error;
mod library_name;
mod maps;
pub mod register;
pub mod resolve;

pub use api::{CudaApi, MissingSymbol, Versions};
pub use chunks::CHUNK_BYTES;
pub use error::{Failure, Piece, PinError, Probe, probed};
pub use register::{Permission, Progress, Region, Registered, Registration, Unpinned, pin_all, unpin_all};
pub use resolve::{Candidate, Load, Resolved, Rung, Search, Step, candidates, climb, resolve};
