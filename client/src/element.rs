//! Rust's types of elements, and what they are called in a spec.

use echo::spec::DType;

/// A type whose values an array holds.
///
/// # Safety
/// Every pattern of bytes is a value, and the size is that of [`Element::DTYPE`].
pub unsafe trait Element: Copy + 'static {
    /// What a spec calls it.
    const DTYPE: DType;
}

macro_rules! element {
    ($($type:ty = $dtype:ident),+ $(,)?) => {
        $(
            // SAFETY: a number: every pattern is one; the size is asserted below.
            unsafe impl Element for $type {
                const DTYPE: DType = DType::$dtype;
            }

            const _: () = assert!(size_of::<$type>() as u64 == DType::$dtype.bytes());
        )+
    };
}

element! {
    u8 = U8, u16 = U16, u32 = U32, u64 = U64,
    i8 = I8, i16 = I16, i32 = I32, i64 = I64,
    f32 = F32, f64 = F64,
}
