//! The blocks of device memory of one account.
//!
//! Creating a block is the slow part of committing, so a pool keeps some that nobody uses. Bytes are charged when a
//! block is created and given back when it is released: idle ones stay charged, since they are not to be had by
//! anybody else.
//!
//! A pool is one account's and one device's. A block that is used again still holds what its last user wrote, so a
//! pool for several users would show the bytes of one to another. All blocks of a pool are of one size: any idle one
//! is as good as any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::cuda::device::CudaDevice;
use crate::memory::cuda::handle::PhysicalHandle;
use crate::memory::error::MemoryError;
use crate::memory::governor::{Account, BudgetError, Tier};

/// What a pool is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolOptions {
    /// Bytes of a block, rounded up to a power of two and to the device's granularity.
    ///
    /// Each block is a call to create, one to map and, if it is exported, a descriptor: large ones are for large
    /// buffers. A buffer is made of whole blocks, so small ones are for many small buffers.
    pub block_bytes: usize,
    /// Bytes that may lie idle. More are given back at once.
    pub keep_idle_bytes: usize,
}

impl Default for PoolOptions {
    /// 16 blocks a GiB, of which four may lie idle.
    fn default() -> Self {
        Self { block_bytes: 64 << 20, keep_idle_bytes: 256 << 20 }
    }
}

/// The pool. Its clones are the same pool.
#[derive(Clone, Debug)]
pub struct CudaPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    device: CudaDevice,
    account: Account,
    block: usize,
    keep: usize,
    idle: Mutex<Vec<PhysicalHandle>>,
}

impl CudaPool {
    /// A pool without blocks.
    ///
    /// # Panics
    /// If the account is not one of device memory.
    pub fn new(device: CudaDevice, account: Account, options: PoolOptions) -> Self {
        assert_eq!(account.tier(), Tier::Device, "device memory is charged as such");
        let block = options.block_bytes.max(device.granularity());
        let block = block.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1));
        let keep = options.keep_idle_bytes;
        Self { shared: Arc::new(Shared { device, account, block, keep, idle: Mutex::default() }) }
    }

    /// The device.
    pub fn device(&self) -> &CudaDevice {
        &self.shared.device
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.shared.block
    }

    /// Bytes that are charged and that nobody uses.
    pub fn idle_bytes(&self) -> usize {
        self.idle().len() * self.shared.block
    }

    /// Gives back what nobody uses, and says how many bytes the driver took.
    pub fn trim(&self) -> usize {
        let idle = std::mem::take(&mut *self.idle());
        idle.into_iter().filter_map(|block| block.release().then_some(self.shared.block)).sum()
    }

    /// Whether the account could ever hold so much.
    pub(super) fn could_hold(&self, bytes: usize) -> Result<(), BudgetError> {
        self.shared.account.could_hold(bytes as u64)
    }

    /// Blocks to be used, idle ones first. On an error the pool is as it was.
    pub(super) fn take(&self, count: usize) -> Result<Vec<PhysicalHandle>, MemoryError> {
        let mut blocks = {
            let mut idle = self.idle();
            let kept = idle.len().saturating_sub(count);
            idle.split_off(kept)
        };
        match self.create(count - blocks.len()) {
            Ok(fresh) => {
                blocks.extend(fresh);
                Ok(blocks)
            }
            Err(error) => {
                self.put_back(blocks);
                Err(error)
            }
        }
    }

    fn create(&self, count: usize) -> Result<Vec<PhysicalHandle>, MemoryError> {
        let Shared { device, account, block, .. } = &*self.shared;
        let mut lease = account.clone().lease();
        // All of it before any: a refusal names what was asked, and nothing has to be created for it.
        lease.grow((count * block) as u64)?;
        let fresh = (0..count).map(|_| PhysicalHandle::create(device, *block, lease.split(*block as u64)));
        Ok(fresh.collect::<Result<_, _>>()?)
    }

    /// What was taken and not used: idle ones are idle again, the others are gone.
    pub(super) fn put_back(&self, blocks: Vec<PhysicalHandle>) {
        let recycled = blocks.into_iter().filter(|block| block.recycled);
        self.recycle(recycled.collect());
    }

    /// Blocks that nobody uses any more: kept or released.
    pub(super) fn recycle(&self, blocks: Vec<PhysicalHandle>) {
        let mut over = Vec::new();
        {
            let mut idle = self.idle();
            for mut block in blocks {
                if block.is_reusable()
                    && (idle.len() + 1).saturating_mul(self.shared.block) <= self.shared.keep
                {
                    block.recycled = true;
                    idle.push(block);
                } else {
                    over.push(block);
                }
            }
        }
        // The driver's time is spent without the lock.
        drop(over);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PhysicalHandle>> {
        // Blocks are moved in and out whole, so what a panicking thread leaves is whole.
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
