//! A GPU's memory behind a [`VirtualBuffer`](crate::memory::VirtualBuffer).
//!
//! The driver parts what `mmap` does in one: addresses are reserved, physical memory is created, and the one is
//! mapped to the other. So a buffer on a device grows behind a base that stays, as one on the host does, and
//! physical memory outlives its mappings: in a pool, or in another process.
//!
//! 1. [`api`]: the driver's calls, found at run time. [`error`]: what it says when it refuses, and what to do.
//! 2. [`device`]: one GPU, by its UUID. [`survey`]: all of them, for people.
//! 3. [`handle`]: one block of its memory. [`loan`]: what others may have of it. [`pool`]: the blocks of one account.
//! 4. [`backing`]: addresses with blocks behind them. [`imported`]: the same with blocks of another process.
//!
//! What always holds: memory is created, mapped and given back in blocks of one size, so whatever is a multiple of
//! the block can be released. Bytes are leased from the governor before a block is created, and given back after
//! the driver has taken it back: a block whose release fails stays charged, and so does one that was exported, until the
//! exporter is told that nobody else has it.
//!
//! # Two processes, one device memory
//!
//! ```text
//!   exporter                                        importer
//!   CudaPool, VirtualBuffer<CudaBacking>            CudaDevice::by_uuid, ImportedBacking::new(device, block)
//!   grow_to(n)
//!   export(0..n): a loan ── UUID, block, fds ──▶    import(block), in order
//!   drop the blocks' descriptors                    grow_to(n); read, write
//!   grow_to(m), export(n..m)  ── fds ──▶            import, grow_to(m)
//!   wait for word       ◀── unmapped ───            finish the device's work; shrink_to or drop
//!   shrink_to or drop; loan.reclaimed()
//! ```
//!
//! Descriptors travel as `SCM_RIGHTS`, in the order of their offsets. [`wire::socket`](crate::wire::socket) carries
//! [two a packet](crate::wire::message::MAX_DESCRIPTORS), so a growth of many blocks is many packets; how the bytes beside
//! them name UUID and size is the protocol's business. Each descriptor and each import holds the
//! memory for itself: whoever dies takes nothing from the other, and the memory is free when the last has let go. The
//! exporter answers for it to the governor. So what it shrinks or drops stays charged until it reclaims the
//! [`Loan`], which it does when every importer has said that it unmapped it, or is gone; and a block that was
//! exported is never used for something else.
//!
//! # What the caller has to see to
//!
//! Unmapping is not ordered after work that is queued on the device, of this process or of another. Who shrinks or
//! drops a buffer has synchronised before, with the device that uses it. What still runs afterwards fails with an
//! illegal address, and takes its context with it.
//!
//! Bytes of a block are not zeroed: what was in it before is in it still, of the same account.
//!
//! None of this makes a CUDA context, or makes one current. As far as CUDA's headers say, these calls want none. Where a
//! driver does and none is current, it answers 201: growing and shrinking then change nothing, and a buffer that is
//! dropped leaves its blocks mapped and charged.
//!
//! # What only a GPU can show
//!
//! The headers leave this open. It is built as said here, the fake driver of the tests does it so, and its table of cases
//! (`tests/fakes/cases.rs`) can be held against a real driver.
//!
//! - One `cuMemUnmap` or `cuMemSetAccess` over several whole mappings is done, as in NVIDIA's samples. If it fails, then as
//!   a whole: `unmap` takes all of the part to be there still.
//! - `cuMemMap`, `cuMemUnmap`, `cuMemSetAccess` and `cuMemAddressFree` do without a current context, on any thread: a
//!   buffer may be dropped on another than grew it.
//! - A descriptor can be closed between import and mapping, and what an import is said to be on is a device by this
//!   process's own number of it.
//! - Of a block that is larger than was announced, a part is mapped; one that is smaller is refused when it is mapped.

pub mod api;
pub mod backing;
pub mod device;
pub mod error;
pub mod handle;
pub mod imported;
pub mod loan;
pub mod pool;
pub mod survey;

pub use api::CudaDriverApi;
pub use backing::{CudaBacking, CudaReservation};
pub use device::{CudaDevice, DeviceUuid};
pub use error::CudaError;
pub use handle::ExportedBlock;
pub use imported::ImportedBacking;
pub use loan::Loan;
pub use pool::{CudaPool, PoolOptions};

#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;
