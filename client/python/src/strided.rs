//! Copying an array of any strides into a slot.
//!
//! Not numpy's own assignment: that wants an array made over the slot for each copy, and the interpreter's lock.

use std::ptr::copy;

/// Copies `dims` elements of `item` bytes, `strides` apart, to where they lie in a row.
///
/// # Safety
/// Every element of the source can be read, and so many bytes can be written. Where the two overlap what comes out is any
/// of their bytes.
pub(crate) unsafe fn copy_strided(
    source: *const u8,
    dims: &[isize],
    strides: &[isize],
    item: usize,
    target: *mut u8,
) {
    if dims.contains(&0) {
        return;
    }
    // What lies in a row at the end is copied in one piece.
    let (mut run, mut outer) = (item, dims.len());
    while outer > 0 && (strides[outer - 1] == run as isize || dims[outer - 1] == 1) {
        run *= dims[outer - 1] as usize;
        outer -= 1;
    }
    let mut target = target;
    // SAFETY: as the caller promises: the same elements, in pieces.
    unsafe { copy_runs(source, &dims[..outer], &strides[..outer], run, &mut target) };
}

/// Copies runs of bytes, and moves the target along.
///
/// # Safety
/// As [`copy_strided`], with runs for elements.
unsafe fn copy_runs(source: *const u8, dims: &[isize], strides: &[isize], run: usize, target: &mut *mut u8) {
    let (Some((&count, dims)), Some((&stride, strides))) = (dims.split_first(), strides.split_first()) else {
        // SAFETY: the caller's promise, of this run.
        unsafe { copy(source, *target, run) };
        *target = target.wrapping_add(run);
        return;
    };
    if dims.is_empty() {
        // A size that the compiler knows is one load and one store.
        let copy_row_of = match run {
            1 => copy_row::<1>,
            2 => copy_row::<2>,
            4 => copy_row::<4>,
            8 => copy_row::<8>,
            16 => copy_row::<16>,
            _ => copy_row::<0>,
        };
        // SAFETY: the caller's promise, of this row.
        unsafe { copy_row_of(source, count, stride, run, *target) };
        *target = target.wrapping_add(run * count as usize);
        return;
    }
    for i in 0..count {
        // SAFETY: the caller's promise, of this part.
        unsafe { copy_runs(source.wrapping_offset(i * stride), dims, strides, run, target) };
    }
}

/// Copies a row of runs of `RUN` bytes, or of `run` if that is 0.
///
/// # Safety
/// As [`copy_strided`], of one dimension.
unsafe fn copy_row<const RUN: usize>(
    source: *const u8,
    count: isize,
    stride: isize,
    run: usize,
    target: *mut u8,
) {
    let run = if RUN == 0 { run } else { RUN };
    for i in 0..count {
        let (from, to) = (source.wrapping_offset(i * stride), target.wrapping_add(i as usize * run));
        // SAFETY: the caller's promise, of this run.
        unsafe { copy(from, to, run) };
    }
}
