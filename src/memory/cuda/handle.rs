//! One block of a device's physical memory.
//!
//! ```text
//!   created, leased ──▶ mapped ──▶ idle in its pool ──▶ mapped ... ──▶ released, lease given back
//!                       mapped, exported ────────────────────────────▶ released, lease given back with its loans
//!   imported ─────────▶ mapped ──────────────────────────────────────▶ released
//! ```

use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::memory::cuda::api::{AllocationProp, HandleNumber, ON_DEVICE, PINNED};
use crate::memory::cuda::device::{CudaDevice, DeviceUuid};
use crate::memory::cuda::error::CudaError;
use crate::memory::fork::Birthplace;
use crate::memory::governor::MemoryLease;
use crate::sync::{AtomicBool, Ordering};

/// A block for another process: what to send, and what an importer is told. The descriptor holds the memory for as
/// long as it is open, wherever it is.
#[derive(Debug)]
pub struct ExportedBlock {
    /// The memory. Closed on exec.
    pub fd: OwnedFd,
    /// Its size.
    pub bytes: u64,
    /// The device that it is on.
    pub device: DeviceUuid,
}

/// The block. Dropping it releases it; what is mapped stays until it is unmapped.
#[derive(Debug)]
pub(super) struct PhysicalHandle {
    device: CudaDevice,
    number: HandleNumber,
    bytes: usize,
    /// Shared with loans of it. None of one that was imported: its exporter answers for it.
    lease: Option<Arc<MemoryLease>>,
    /// Another process may have it.
    exported: AtomicBool,
    /// It has been idle in its pool.
    pub(super) recycled: bool,
    /// Once the driver was asked to release it: whether it did.
    released: Option<bool>,
    birthplace: Birthplace,
}

impl PhysicalHandle {
    /// New memory, for which bytes were leased.
    pub(super) fn create(device: &CudaDevice, bytes: usize, lease: MemoryLease) -> Result<Self, CudaError> {
        let number = device.api().create(bytes, &AllocationProp::exportable(device.number()))?;
        Ok(Self::new(device, number, bytes, Some(Arc::new(lease))))
    }

    /// Memory of another process, which says that it is of that size and on that device.
    pub(super) fn import(device: &CudaDevice, block: ExportedBlock) -> Result<Self, CudaError> {
        let other = |said: String| CudaError::OtherDevice { said, here: device.uuid() };
        if block.device != device.uuid() {
            return Err(other(block.device.to_string()));
        }
        let bytes = block.bytes as usize;
        let number = device.api().import(block.fd.as_fd(), bytes)?;
        let handle = Self::new(device, number, bytes, None);
        // What the exporter said is an allegation. Its size is one too, and the driver does not tell the true one: what
        // is smaller than was said cannot be mapped, and of what is larger a part is.
        // SAFETY: imported just now.
        let prop = unsafe { device.api().properties(number) }?;
        if (prop.kind, prop.location.kind) != (PINNED, ON_DEVICE) {
            return Err(other("no device".into()));
        }
        if prop.location.id != device.number() {
            return Err(other("another device than it was said to be".into()));
        }
        Ok(handle)
    }

    fn new(device: &CudaDevice, number: HandleNumber, bytes: usize, lease: Option<Arc<MemoryLease>>) -> Self {
        Self {
            device: device.clone(),
            number,
            bytes,
            lease,
            exported: AtomicBool::new(false),
            recycled: false,
            released: None,
            birthplace: Birthplace::here(),
        }
    }

    pub(super) const fn number(&self) -> HandleNumber {
        self.number
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is charged for it, to be lent with it.
    pub(super) fn lease(&self) -> Option<Arc<MemoryLease>> {
        self.lease.clone()
    }

    /// Of one that was created here.
    pub(super) fn export(&self) -> Result<ExportedBlock, CudaError> {
        // Before it is so. Relaxed: whoever asks later has the block for itself.
        self.exported.store(true, Ordering::Relaxed);
        // SAFETY: released at its end only; created to be exported, as all are.
        let fd = unsafe { self.device.api().export(self.number, self.bytes) }?;
        Ok(ExportedBlock { fd, bytes: self.bytes as u64, device: self.device.uuid() })
    }

    /// Whether it may be used for something else: nobody else can have it.
    pub(super) fn is_reusable(&self) -> bool {
        // Relaxed: as in `export`.
        !self.exported.load(Ordering::Relaxed)
    }

    /// Releases it, and says whether the driver did.
    pub(super) fn release(mut self) -> bool {
        self.release_once()
    }

    fn release_once(&mut self) -> bool {
        if let Some(done) = self.released {
            return done;
        }
        // In a forked child the driver is of no use, and the budget is the parent's (whose lock, if another thread held
        // it while this process was forked, would never be free).
        // SAFETY: made by `create` or `import`; whatever comes of it, it is not released again (checked above).
        let done =
            !self.birthplace.is_elsewhere() && unsafe { self.device.api().release(self.number) }.is_ok();
        if !done {
            // Memory that is still there stays charged.
            mem::forget(self.lease.take());
        }
        self.released = Some(done);
        done
    }

    /// Leaves it charged and never releases it: it is still mapped somewhere, and cannot be unmapped.
    pub(super) fn abandon(self) {
        mem::forget(self);
    }
}

impl Drop for PhysicalHandle {
    fn drop(&mut self) {
        self.release_once();
    }
}
