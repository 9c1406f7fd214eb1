//! Into which pieces memory is cut to be registered.
//!
//! One large registration fails, or holds locks of the driver for minutes, during which no other process of the node
//! gets anything from it: some kernels pin at most 2 GB in one call, and some drivers fail from 512 GiB on. So it is
//! done in pieces. A copy to the device that crosses from one registration into the next may be refused, so no piece
//! ends within a *row*, the bytes that are copied as one: a batch of one array. And a piece ends at the end of a page
//! where rows allow it, since a page that two pieces share is pinned twice.

use super::register::Region;

/// Most bytes of one registration, if a row is not larger.
pub const CHUNK_BYTES: usize = 1 << 30;

/// A piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    pub(super) address: usize,
    pub(super) bytes: usize,
}

/// The pieces of a region, in ascending order: at most so large, unless a row is.
pub(super) fn of(region: &Region, chunk_bytes: usize, page: usize) -> impl Iterator<Item = Chunk> + use<> {
    let (start, end) = (region.address, region.address.saturating_add(region.bytes));
    let step = step(region.row_bytes.max(1), chunk_bytes, page);
    // A region begins on a page, as arrays do, so that whole steps end on pages.
    (start..end).step_by(step).map(move |address| Chunk { address, bytes: step.min(end - address) })
}

/// How far pieces are apart: a multiple of the row, and of the page too if one fits.
fn step(row: usize, chunk_bytes: usize, page: usize) -> usize {
    let fitting = |unit: usize| (unit <= chunk_bytes).then(|| chunk_bytes / unit * unit);
    let both = (row / greatest_common_divisor(row, page)).checked_mul(page);
    both.and_then(fitting).or_else(|| fitting(row)).unwrap_or(row)
}

fn greatest_common_divisor(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(bytes: usize, row_bytes: usize) -> Region {
        Region { name: "array".into(), address: 0x7000_0000, bytes, row_bytes }
    }

    fn lengths(bytes: usize, row: usize, chunk: usize) -> Vec<usize> {
        of(&region(bytes, row), chunk, 4096).map(|chunk| chunk.bytes).collect()
    }

    #[test]
    fn pieces_end_on_rows_and_pages() {
        assert_eq!(lengths(0, 4096, 1 << 20), [0; 0], "nothing is cut into nothing");
        assert_eq!(lengths(100, 100, 1 << 20), [100]);
        assert_eq!(lengths(3 << 20, 4096, 1 << 20), [1 << 20; 3]);
        assert_eq!(lengths(25 * 4096, 3 * 4096, 10 * 4096), [9 * 4096, 9 * 4096, 7 * 4096]);
        assert_eq!(lengths(30_000, 6000, 12_000), [12_000, 12_000, 6000], "no page ends where a row does");
        assert_eq!(lengths(30_000, 10_000, 4096), [10_000; 3], "a row is larger than a piece should be");
        assert_eq!(lengths(10, 0, 4), [4, 4, 2], "no rows at all");
        assert_eq!(lengths(1 << 40, 28_224, CHUNK_BYTES).len(), 1025);
    }

    proptest! {
        #[test]
        fn pieces_cover_a_region_once_and_cut_no_row(
            bytes in 0usize..2_000_000,
            row in 1usize..70_000,
            chunk in 1usize..300_000,
        ) {
            let region = region(bytes, row);
            let mut at = region.address;
            for piece in of(&region, chunk, 4096) {
                prop_assert_eq!(piece.address, at);
                prop_assert!((at - region.address).is_multiple_of(row));
                prop_assert!(piece.bytes > 0 && (piece.bytes <= chunk || piece.bytes <= row));
                at += piece.bytes;
            }
            prop_assert_eq!(at, region.address + bytes);
        }
    }
}
