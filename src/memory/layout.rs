//! Where a table's arrays lie in its data file.
//!
//! Each has room for the table at its largest, so that growing moves nothing; the file is sparse, and offsets
//! cost nothing. The owner computes the places, an attacher gets the offsets by message and checks them.

use crate::memory::error::MemoryError;
use crate::memory::syscalls;
use crate::spec::TableSpec;

/// An array has huge pages if it is at least so many of them: rounding it up must not cost much.
const LARGE: u64 = 4;
/// Alignment of large arrays on machines that have no huge pages: it would do no harm to have them one day.
const USUAL_HUGE_PAGE: usize = 2 << 20;

/// The place of one array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayPlace {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes of one slot.
    pub slot_bytes: u64,
    /// Bytes of all slots of the table at its largest.
    pub max_bytes: u64,
}

impl ArrayPlace {
    /// Whether it is worth huge pages.
    pub fn is_large(&self) -> bool {
        self.max_bytes >= LARGE * huge_page() as u64
    }
}

/// The places of all arrays, in the order of the spec.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataLayout {
    places: Vec<ArrayPlace>,
    bytes: u64,
}

impl DataLayout {
    /// The layout of a new table.
    ///
    /// # Errors
    /// If the arrays do not fit into a file; a valid spec's do, but for rounding.
    pub fn of(spec: &TableSpec) -> Result<Self, MemoryError> {
        let mut bytes: u64 = 0;
        let mut places = Vec::with_capacity(spec.arrays.len());
        for (slot_bytes, max_bytes) in sizes(spec)? {
            let mut place = ArrayPlace { offset: 0, slot_bytes, max_bytes };
            let align = if place.is_large() { huge_page() } else { syscalls::page_size() } as u64;
            place.offset = bytes.checked_next_multiple_of(align).ok_or_else(too_large)?;
            // A large array is committed in huge pages, the last of which must not reach into the next array.
            let room = max_bytes.checked_next_multiple_of(align).ok_or_else(too_large)?;
            bytes = place.offset.checked_add(room).ok_or_else(too_large)?;
            places.push(place);
        }
        let bytes = bytes.max(1).checked_next_multiple_of(huge_page() as u64).ok_or_else(too_large)?;
        if bytes > i64::MAX as u64 {
            return Err(too_large());
        }
        Ok(Self { places, bytes })
    }

    /// A layout that was announced, if it can be that of such a table.
    ///
    /// # Errors
    /// If an array is missing, misaligned, outside of the file or on top of another.
    pub fn announced(spec: &TableSpec, offsets: &[u64], bytes: u64) -> Result<Self, MemoryError> {
        let wrong = |what: String| Err(MemoryError::Layout(what));
        if offsets.len() != spec.arrays.len() {
            return wrong(format!("has {} offsets for {} arrays", offsets.len(), spec.arrays.len()));
        }
        let page = syscalls::page_size() as u64;
        let mut places = Vec::with_capacity(offsets.len());
        for ((slot_bytes, max_bytes), &offset) in sizes(spec)?.into_iter().zip(offsets) {
            let end = max_bytes.checked_next_multiple_of(page).and_then(|room| offset.checked_add(room));
            if !offset.is_multiple_of(page) || end.is_none_or(|end| end > bytes) {
                return wrong(format!("puts an array of {max_bytes} bytes at {offset} of {bytes}"));
            }
            places.push(ArrayPlace { offset, slot_bytes, max_bytes });
        }
        let mut by_offset: Vec<&ArrayPlace> = places.iter().filter(|place| place.max_bytes > 0).collect();
        by_offset.sort_by_key(|place| place.offset);
        if let Some(pair) =
            by_offset.windows(2).find(|pair| pair[0].offset + pair[0].max_bytes > pair[1].offset)
        {
            return wrong(format!("has two arrays at {}", pair[1].offset));
        }
        Ok(Self { places, bytes })
    }

    /// The arrays' places.
    pub fn places(&self) -> &[ArrayPlace] {
        &self.places
    }

    /// Bytes of the file.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes of a slot and of all slots, for each array.
fn sizes(spec: &TableSpec) -> Result<Vec<(u64, u64)>, MemoryError> {
    let size = |array: &crate::spec::ArraySpec| {
        let slot = array.slot_bytes()?;
        Some((slot, slot.checked_mul(spec.max_slots())?))
    };
    spec.arrays.iter().map(size).collect::<Option<Vec<_>>>().ok_or_else(too_large)
}

fn too_large() -> MemoryError {
    MemoryError::Layout("is larger than a file can be".into())
}

fn huge_page() -> usize {
    syscalls::huge_page_size().unwrap_or(USUAL_HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ArraySpec, DType};

    fn spec(arrays: Vec<ArraySpec>) -> TableSpec {
        TableSpec::new("t", arrays, 256, 8)
    }

    #[test]
    fn small_arrays_share_no_page_and_large_ones_begin_on_huge_pages() {
        let spec = spec(vec![
            ArraySpec::new("reward", DType::F32, []),
            ArraySpec::new("nothing", DType::F32, [0]),
            ArraySpec::new("obs", DType::U8, [84, 84, 4]),
        ]);
        let layout = DataLayout::of(&spec).unwrap();
        let [reward, nothing, obs] = layout.places() else { panic!("{layout:?}") };
        assert_eq!((reward.offset, reward.max_bytes, reward.is_large()), (0, 8192, false));
        assert_eq!(nothing.max_bytes, 0);
        assert!(obs.is_large() && obs.offset.is_multiple_of(huge_page() as u64), "{obs:?}");
        let offsets: Vec<u64> = layout.places().iter().map(|place| place.offset).collect();
        assert_eq!(DataLayout::announced(&spec, &offsets, layout.bytes()).unwrap(), layout);
    }

    #[test]
    fn a_thousand_scalars_cost_a_few_pages_each() {
        let scalars = (0..1000).map(|i| ArraySpec::new(format!("x{i}"), DType::F32, [])).collect();
        let layout = DataLayout::of(&spec(scalars)).unwrap();
        assert!(layout.bytes() <= 1000 * 8192 + huge_page() as u64, "{}", layout.bytes());
    }

    #[test]
    fn a_layout_that_cannot_be_is_refused() {
        let two = spec(vec![ArraySpec::new("a", DType::F32, []), ArraySpec::new("b", DType::F32, [])]);
        let refused =
            |offsets: &[u64], bytes| DataLayout::announced(&two, offsets, bytes).unwrap_err().to_string();
        assert!(refused(&[0], 1 << 20).contains("1 offsets for 2 arrays"));
        assert!(refused(&[0, 4096], 1 << 20).contains("two arrays at 4096"));
        assert!(refused(&[0, 8193], 1 << 20).contains("at 8193"));
        assert!(refused(&[0, u64::MAX - 4095], 1 << 20).contains("puts an array"));
        assert!(refused(&[0, 8192], 8192).contains("at 8192 of 8192"));
    }
}
