//! Tags on the wire: never zero, so that a message of zeros is no message.
//!
//! What bincode derives counts variants from zero, whatever their discriminants. Enums with fields therefore
//! have [`NoTag`] as their first variant, and enums without are encoded by `encode_by_discriminant!`.

use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

/// What has the tag zero: nothing. No bytes decode to it, and no value of it can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoTag {}

impl Encode for NoTag {
    fn encode<E: Encoder>(&self, _: &mut E) -> Result<(), EncodeError> {
        match *self {}
    }
}

impl<Context> Decode<Context> for NoTag {
    fn decode<D: bincode::de::Decoder<Context = Context>>(_: &mut D) -> Result<Self, DecodeError> {
        Err(DecodeError::Other("a tag is zero"))
    }
}

bincode::impl_borrow_decode!(NoTag);

/// Encodes an enum without fields as one byte, its discriminant. The first variant's is 1.
macro_rules! encode_by_discriminant {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl bincode::Encode for $name {
            fn encode<E: bincode::enc::Encoder>(
                &self,
                encoder: &mut E,
            ) -> Result<(), bincode::error::EncodeError> {
                (*self as u8).encode(encoder)
            }
        }

        impl<Context> bincode::Decode<Context> for $name {
            fn decode<D: bincode::de::Decoder<Context = Context>>(
                decoder: &mut D,
            ) -> Result<Self, bincode::error::DecodeError> {
                let tag = u8::decode(decoder)?;
                $(if tag == Self::$variant as u8 {
                    return Ok(Self::$variant);
                })+
                Err(bincode::error::DecodeError::Other(concat!("no such ", stringify!($name))))
            }
        }

        bincode::impl_borrow_decode!($name);

        const _: () = {
            let mut next = 1;
            $(
                assert!($name::$variant as u8 == next, "discriminants count from 1, and all are listed");
                next += 1;
            )+
            let _ = next;
        };
    };
}

pub(crate) use encode_by_discriminant;
