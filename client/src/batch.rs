//! A batch, read where it lies.

use std::fmt;
use std::sync::Arc;

use echo::ids::BlockIndex;
use echo::spec::{ArraySpec, DType};
use echo::wire::message::Grant;

use crate::element::Element;
use crate::reader::Attached;
use crate::{Error, Result};

/// Samples that no one writes any more, in shared memory. Dropping it gives the memory back to the workers.
///
/// It keeps its reader's mapping alive, and can be sent to another thread.
pub struct Batch {
    attached: Arc<Attached>,
    block: BlockIndex,
    samples: u32,
    grant: Grant,
    /// It is another one's to give back.
    is_put_back: bool,
}

impl Batch {
    pub(crate) const fn new(attached: Arc<Attached>, block: BlockIndex, samples: u32, grant: Grant) -> Self {
        Self { attached, block, samples, grant, is_put_back: false }
    }

    /// Its number in the table. Ascending within one reader, but for batches that came back: a reader which died held
    /// them before, or the group was rewound.
    pub const fn seq(&self) -> u64 {
        self.grant.seq.0
    }

    /// Gives it to nobody: it is its reader's next one again, or if that is gone another reader's.
    pub fn put_back(mut self) {
        self.is_put_back = true;
        self.attached.put_back(self.grant);
    }

    /// Samples in it: the table's batch size, but for the last ones of a table that has ended.
    pub const fn len(&self) -> usize {
        self.samples as usize
    }

    /// Whether it has none, which does not happen unless a worker spoilt the table.
    pub const fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Whether this process was forked from the one that reads, in which the batch is of no use.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        self.attached.is_elsewhere()
    }

    /// Whether its memory is page-locked for CUDA, by [`Reader::pin_host_memory`](crate::Reader::pin_host_memory).
    pub fn is_pinned(&self) -> bool {
        self.attached.table().arrays.is_pinned()
    }

    /// How many arrays a sample has.
    pub fn arrays(&self) -> usize {
        self.attached.table().arrays.arrays()
    }

    /// One array of all samples.
    ///
    /// # Panics
    /// If the table has no such array, or in a process that was forked from the one that reads.
    pub fn array(&self, array: usize) -> ArrayView<'_> {
        assert!(
            !self.attached.is_elsewhere(),
            "the memory of this batch is that of the process that reads, not of a forked one"
        );
        let table = self.attached.table();
        let first = u64::from(self.block.get()) * u64::from(table.spec.batch_size);
        let (start, bytes) = table.arrays.range_ptr(array, table.slot(first), self.samples);
        // SAFETY: so many bytes of the mapping (checked by `range_ptr`), initialised, alive while `self` is. The
        // block is complete and its lease is ours: no worker that keeps to the protocol writes it before the
        // lease comes back, which takes `self`. (One that does not can spoil its own table; see the limits of
        // trust in the documentation.)
        let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
        ArrayView::new(&table.spec.arrays[array], Some(self.len()), bytes)
    }

    /// The array of that path, if the table has it.
    pub fn array_named(&self, path: &str) -> Option<ArrayView<'_>> {
        let index = self.attached.table().spec.arrays.iter().position(|array| array.path == path)?;
        Some(self.array(index))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.is_put_back {
            self.attached.give_back(self.grant.token);
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("seq", &self.seq()).field("len", &self.samples).finish_non_exhaustive()
    }
}

/// One array of a batch or of a value: contiguous, and of a batch samples first.
#[derive(Clone, Copy)]
pub struct ArrayView<'a> {
    spec: &'a ArraySpec,
    /// None of a value, which is one and has no axis for it.
    samples: Option<usize>,
    bytes: &'a [u8],
}

impl<'a> ArrayView<'a> {
    pub(crate) const fn new(spec: &'a ArraySpec, samples: Option<usize>, bytes: &'a [u8]) -> Self {
        Self { spec, samples, bytes }
    }

    /// Its path in the pytree.
    pub fn path(&self) -> &'a str {
        &self.spec.path
    }

    /// The type of its elements.
    pub const fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// Its shape: of a batch the number of samples, then the shape of one.
    pub fn shape(&self) -> Vec<u64> {
        self.samples
            .map(|samples| samples as u64)
            .into_iter()
            .chain(self.spec.shape.iter().copied())
            .collect()
    }

    /// All of it, as bytes.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The address of its first byte.
    pub const fn as_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    /// All of it, as elements.
    ///
    /// # Errors
    /// If it holds another type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        if self.spec.dtype != T::DTYPE {
            let (array, dtype) = (self.spec.path.clone(), self.spec.dtype);
            return Err(Error::Element { array, dtype, asked: T::DTYPE });
        }
        // SAFETY: every pattern of bytes is a `T` (the trait's promise).
        let (before, elements, after) = unsafe { self.bytes.align_to::<T>() };
        debug_assert!(
            before.is_empty() && after.is_empty(),
            "arrays begin on pages and slots are whole elements"
        );
        Ok(elements)
    }
}

impl fmt::Debug for ArrayView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{:?}", self.path(), self.dtype(), self.shape())
    }
}
