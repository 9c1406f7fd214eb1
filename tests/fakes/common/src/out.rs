//! Where a call puts what it has to say.

use std::mem::MaybeUninit;

use crate::Code;
use crate::codes::INVALID_VALUE;

/// None for NULL.
pub type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

pub(crate) fn put<T>(out: Out<'_, T>, value: T) -> Result<(), Code> {
    out.ok_or(INVALID_VALUE)?.write(value);
    Ok(())
}
