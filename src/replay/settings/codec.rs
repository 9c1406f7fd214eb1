//! Settings on the wire: a tag that is never zero, and the numbers behind it.

use bincode::de::Decoder;
use bincode::enc::Encoder;
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

use super::{ErrorBuffer, RateLimiter, Real, Selector};

impl Encode for Selector {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        match *self {
            Self::Fifo => 1_u8.encode(encoder),
            Self::Lifo => 2_u8.encode(encoder),
            Self::Uniform => 3_u8.encode(encoder),
            Self::Prioritized { exponent } => (4_u8, exponent).encode(encoder),
            Self::MinHeap => 5_u8.encode(encoder),
            Self::MaxHeap => 6_u8.encode(encoder),
        }
    }
}

impl<Context> Decode<Context> for Selector {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(match u8::decode(decoder)? {
            1 => Self::Fifo,
            2 => Self::Lifo,
            3 => Self::Uniform,
            4 => Self::Prioritized { exponent: Real::decode(decoder)? },
            5 => Self::MinHeap,
            6 => Self::MaxHeap,
            _ => return Err(DecodeError::Other("no such selector")),
        })
    }
}

impl Encode for ErrorBuffer {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        match *self {
            Self::Around(buffer) => (1_u8, buffer).encode(encoder),
            Self::Between(min, max) => (2_u8, min, max).encode(encoder),
        }
    }
}

impl<Context> Decode<Context> for ErrorBuffer {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(match u8::decode(decoder)? {
            1 => Self::Around(Real::decode(decoder)?),
            2 => Self::Between(Real::decode(decoder)?, Real::decode(decoder)?),
            _ => return Err(DecodeError::Other("no such error buffer")),
        })
    }
}

impl Encode for RateLimiter {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        match *self {
            Self::MinSize(size) => (1_u8, size).encode(encoder),
            Self::SampleToInsertRatio { ratio, min_size, error_buffer } => {
                (2_u8, ratio, min_size, error_buffer).encode(encoder)
            }
            Self::Queue(size) => (3_u8, size).encode(encoder),
            Self::Stack(size) => (4_u8, size).encode(encoder),
        }
    }
}

impl<Context> Decode<Context> for RateLimiter {
    fn decode<D: Decoder<Context = Context>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(match u8::decode(decoder)? {
            1 => Self::MinSize(u32::decode(decoder)?),
            2 => Self::SampleToInsertRatio {
                ratio: Real::decode(decoder)?,
                min_size: u32::decode(decoder)?,
                error_buffer: ErrorBuffer::decode(decoder)?,
            },
            3 => Self::Queue(u32::decode(decoder)?),
            4 => Self::Stack(u32::decode(decoder)?),
            _ => return Err(DecodeError::Other("no such rate limiter")),
        })
    }
}

bincode::impl_borrow_decode!(Selector);
bincode::impl_borrow_decode!(ErrorBuffer);
bincode::impl_borrow_decode!(RateLimiter);
