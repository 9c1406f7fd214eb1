//! Memory: from a file descriptor to an array whose base never moves.
//!
//! Bottom up; each layer calls only those above it in this list. (Errors name what any layer says, and [`cuda`] adds
//! exporting to [`virtual_buffer`].)
//!
//! 1. [`syscalls`], [`error`]: the door to the kernel, and what it says when it refuses.
//! 2. [`fork`]: whether this process is a forked copy, which must leave its parent's memory alone.
//! 3. [`memfd`]: files without a name, sealed before anyone else sees them.
//! 4. [`mapping`], [`reservation`]: a whole small file, and a range of addresses to be filled in parts.
//! 5. [`governor`]: how many bytes may be committed, by whom.
//! 6. [`backing`]: what a range can be made of: [`host`] (private memory), [`shared`] (a window on a memfd) or
//!    [`cuda`] (a GPU's memory).
//! 7. [`virtual_buffer`]: a range that grows and shrinks behind a base that stays.
//! 8. [`layout`], [`pages`]: where a table's arrays lie in its file, and which pages they got.
//! 9. [`probe`]: whether the kernel does what all this asks of it, for `echoctl doctor`.
//!
//! What always holds: committed bytes are leased from the governor *before* they are mapped, and given back
//! *after* they are released; any failure leaves everything as it was (if a device's driver does not let it be undone,
//! then what is left stays charged, and nothing more is committed there); an address that was handed out is valid until
//! the mapping is dropped.
//!
//! It has no notion of samples, and no synchronisation of what it maps.

pub mod backing;
pub mod cuda;
pub mod error;
pub mod fork;
pub mod governor;
pub mod host;
pub mod layout;
pub mod mapping;
pub mod memfd;
pub mod pages;
pub mod probe;
pub mod reservation;
pub mod shared;
pub mod syscalls;
pub mod virtual_buffer;

pub use backing::{HostMemory, PhysicalMemoryAccounting, VirtualBacking};
pub use cuda::{CudaBacking, CudaError};
pub use error::MemoryError;
pub use governor::{Account, BudgetError, MemoryGovernor, Tier};
pub use host::HostBacking;
pub use mapping::{Access, Mapping};
pub use shared::SharedBacking;
pub use virtual_buffer::VirtualBuffer;
