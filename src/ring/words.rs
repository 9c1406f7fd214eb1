//! Where control words live: in a mapping that processes share, on the heap, or in loom.
//!
//! The protocol takes every word through this accessor, by byte offset, so the same code runs over a memfd in
//! production, over the heap in unit tests, and over loom's atomics (which cannot be laid over mapped bytes)
//! when loom explores it. All offsets come from a `Geometry` that was checked; the accessor checks them again,
//! since what lies behind a wrong one is somebody else's memory.
//!
//! It has no notion of what a word means and no synchronisation of its own.

#[cfg(not(echo_loom))]
mod imp {
    use std::ptr::NonNull;

    use crate::memory::Mapping;
    use crate::sync::{AtomicU32, AtomicU64};

    /// A range of words. Cheap to index, not to make.
    pub struct Words {
        base: NonNull<u8>,
        bytes: usize,
        _owner: Owner,
    }

    #[expect(dead_code, reason = "held for its Drop")]
    enum Owner {
        Heap(Box<[AtomicU64]>),
        Mapping(Mapping),
    }

    // SAFETY: the base points into memory that `_owner` keeps for as long as the value lives, both owners are
    // Send, and all access goes through atomics.
    unsafe impl Send for Words {}
    // SAFETY: as above; `&Words` hands out references to atomics only.
    unsafe impl Sync for Words {}

    impl Words {
        /// Zeroed words of this process alone.
        pub fn heap(bytes: usize) -> Self {
            let words: Box<[AtomicU64]> = (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
            let base = NonNull::from(&*words).cast::<u8>();
            Self { base, bytes: words.len() * 8, _owner: Owner::Heap(words) }
        }

        /// The words of a mapping. Of a read-only one they are only ever loaded, or the process dies.
        pub fn mapped(mapping: Mapping) -> Self {
            let (base, bytes) = (mapping.base(), mapping.len());
            Self { base, bytes, _owner: Owner::Mapping(mapping) }
        }

        /// Bytes of the range.
        pub fn len(&self) -> usize {
            self.bytes
        }

        /// Whether there are none.
        pub fn is_empty(&self) -> bool {
            self.bytes == 0
        }

        /// The word at a byte offset.
        ///
        /// # Panics
        /// If the offset is out of range or not aligned, which only our own arithmetic can cause.
        #[inline]
        pub fn u64(&self, offset: usize) -> &AtomicU64 {
            assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "word offset {offset}");
            // SAFETY: in bounds of the owner's memory (checked above).
            let word = unsafe { self.base.add(offset) }.cast::<AtomicU64>();
            // SAFETY: aligned, since the base is page- or 8-byte-aligned and the offset a multiple of 8; alive
            // for `&self`, which `_owner` guarantees; initialised, since mapped and heap bytes start as zeros;
            // other processes access it by atomic operations of the same size. On a read-only mapping it is
            // only ever loaded, which for 8 bytes is a plain load on every 64-bit target.
            unsafe { word.as_ref() }
        }

        /// The half word at a byte offset.
        ///
        /// # Panics
        /// As [`Words::u64`].
        #[inline]
        pub fn u32(&self, offset: usize) -> &AtomicU32 {
            assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "half word offset {offset}");
            // SAFETY: in bounds of the owner's memory (checked above).
            let word = unsafe { self.base.add(offset) }.cast::<AtomicU32>();
            // SAFETY: as in `u64`, with 4 bytes.
            unsafe { word.as_ref() }
        }
    }
}

#[cfg(echo_loom)]
mod imp {
    use crate::sync::{AtomicU32, AtomicU64};

    /// Loom's atomics are larger than the words they stand for: one of each kind for every offset.
    pub struct Words {
        words: Vec<AtomicU64>,
        halves: Vec<AtomicU32>,
    }

    impl Words {
        /// Zeroed words of one loom execution.
        pub fn heap(bytes: usize) -> Self {
            Self {
                words: (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
                halves: (0..bytes.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(),
            }
        }

        /// Bytes of the range.
        pub fn len(&self) -> usize {
            self.words.len() * 8
        }

        /// Whether there are none.
        pub fn is_empty(&self) -> bool {
            self.words.is_empty()
        }

        /// The word at a byte offset.
        #[inline]
        pub fn u64(&self, offset: usize) -> &AtomicU64 {
            assert!(offset.is_multiple_of(8));
            &self.words[offset / 8]
        }

        /// The half word at a byte offset; never the same bytes as a word.
        #[inline]
        pub fn u32(&self, offset: usize) -> &AtomicU32 {
            assert!(offset.is_multiple_of(4));
            &self.halves[offset / 4]
        }
    }
}

pub use imp::Words;
