//! Room for samples that are filled in place.

use echo::ids::MemberId;
use echo::ring::claim::Claim as Claimed;
use echo::ring::marks::{self, MAX_VERSION, Mark};

use crate::element::Element;
use crate::writer::Writer;
use crate::{Error, Result};

/// Room for some samples, all in one batch: this thread's alone, until it is committed or dropped. Dropping it
/// gives the room to others.
pub struct Claim<'a> {
    writer: &'a mut Writer,
    claimed: Claimed,
    /// Or put aside.
    committed: bool,
}

/// A claim that was put aside, so that its writer is not borrowed meanwhile: for languages that have no lifetimes. It
/// is still open; one that is never taken up again is given up when the writer claims next.
#[derive(Clone, Copy, Debug)]
pub struct ClaimAside {
    pub(crate) claimed: Claimed,
    pub(crate) member: MemberId,
}

impl<'a> Claim<'a> {
    pub(crate) const fn new(writer: &'a mut Writer, claimed: Claimed) -> Self {
        Self { writer, claimed, committed: false }
    }

    /// Of what was claimed just now: nothing is said of its samples yet.
    pub(crate) fn begin(writer: &'a mut Writer, claimed: Claimed) -> Self {
        let claim = Self::new(writer, claimed);
        if claim.writer.says_marks() {
            (0..claim.len()).for_each(|sample| claim.write_mark(sample, &Mark::default()));
        }
        claim
    }

    /// How many samples.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.claimed.length as usize
    }

    /// Of a replay table: says something of one of the samples; nothing is said of them before.
    ///
    /// # Errors
    /// If the priority or the version is none.
    ///
    /// # Panics
    /// If there is no such sample, or the table is of another kind.
    pub fn set_mark(&mut self, sample: usize, mark: Mark) -> Result<()> {
        assert!(self.writer.says_marks(), "a sample of a replay table has a priority, and no other");
        check_marks(&[mark])?;
        self.write_mark(sample, &mark);
        Ok(())
    }

    fn write_mark(&self, sample: usize, mark: &Mark) {
        assert!(sample < self.len(), "sample {sample} of a claim of {}", self.len());
        if !self.writer.is_elsewhere() {
            marks::write(
                &self.writer.table().control,
                self.claimed.block,
                self.claimed.slot + sample as u32,
                mark,
            );
        }
    }

    /// The first sample's number in the table.
    pub(crate) const fn first_position(&self) -> u64 {
        self.claimed.position.0
    }

    /// The bytes of one array, of all samples in a row. What is in them is left over from before.
    ///
    /// # Panics
    /// If the table has no such array, or in a process that was forked from the one that claimed.
    pub fn array_mut(&mut self, array: usize) -> &mut [u8] {
        assert!(
            !self.writer.is_elsewhere(),
            "the memory of this claim is that of the process that claimed, not of a forked one"
        );
        let table = self.writer.table();
        let first = table.slot(self.claimed.first_slot(&table.control));
        let (start, bytes) = table.arrays.range_ptr(array, first, self.claimed.length);
        // SAFETY: so many bytes of the writable mapping (checked by `range_ptr`), initialised by the kernel or by
        // samples of before. Ours alone until we commit, which takes `self`: that is what a claim is; the slice
        // borrows `self` mutably, and other arrays lie elsewhere.
        unsafe { std::slice::from_raw_parts_mut(start.cast_mut(), bytes) }
    }

    /// The elements of one array, of all samples in a row.
    ///
    /// # Errors
    /// If the array holds another type.
    ///
    /// # Panics
    /// If the table has no such array.
    pub fn array_mut_as<T: Element>(&mut self, array: usize) -> Result<&mut [T]> {
        let spec = &self.writer.spec().arrays[array];
        if spec.dtype != T::DTYPE {
            return Err(Error::Element { array: spec.path.clone(), dtype: spec.dtype, asked: T::DTYPE });
        }
        let bytes = self.array_mut(array);
        // SAFETY: every pattern of bytes is a `T` (the trait's promise).
        let (before, elements, after) = unsafe { bytes.align_to_mut::<T>() };
        debug_assert!(
            before.is_empty() && after.is_empty(),
            "arrays begin on pages and slots are whole elements"
        );
        Ok(elements)
    }

    /// Puts it aside, open, until [`Writer::resume`].
    pub fn put_aside(mut self) -> ClaimAside {
        self.committed = true;
        ClaimAside { claimed: self.claimed, member: self.writer.member() }
    }

    /// Commits the samples. When this returns, they will be delivered, whatever dies afterwards.
    ///
    /// # Errors
    /// If another worker spoilt the table's memory.
    pub fn commit(mut self) -> Result<()> {
        self.committed = true;
        self.writer.commit(&self.claimed)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.writer.abandon(&self.claimed);
        }
    }
}

/// Whether priorities and versions are such. What is written checks that itself; this is for those who want to know before.
///
/// # Errors
/// [`Error::Priority`], [`Error::MarkVersion`]: the first that is none, by its place in the list.
pub fn check_marks(marks: &[Mark]) -> Result<()> {
    for (number, mark) in marks.iter().enumerate() {
        if let Some(priority) = mark.priority.filter(|priority| !(priority.is_finite() && *priority >= 0.0)) {
            return Err(Error::Priority { number, priority });
        }
        if mark.version.is_some_and(|version| version > MAX_VERSION) {
            return Err(Error::MarkVersion { number });
        }
    }
    Ok(())
}
