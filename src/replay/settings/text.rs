//! Settings as people write and read them: a name, and numbers behind colons.
//!
//! What is printed parses to the same settings, bit by bit.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{ErrorBuffer, RateLimiter, Real, Selector};

/// Text that names no setting.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum ParseError {
    #[error("{0:?} is no selector: fifo, lifo, uniform, prioritized:EXPONENT, min-heap or max-heap")]
    Selector(String),
    #[error(
        "{0:?} is no rate limiter: min-size:ITEMS, ratio:RATIO:MIN_SIZE:BUFFER, ratio:RATIO:MIN_SIZE:MIN_DIFF:MAX_DIFF, \
             queue:ITEMS or stack:ITEMS"
    )]
    RateLimiter(String),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str("fifo"),
            Self::Lifo => f.write_str("lifo"),
            Self::Uniform => f.write_str("uniform"),
            Self::Prioritized { exponent } => write!(f, "prioritized:{exponent}"),
            Self::MinHeap => f.write_str("min-heap"),
            Self::MaxHeap => f.write_str("max-heap"),
        }
    }
}

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts: Vec<&str> = text.split(':').collect();
        let selector = match parts[..] {
            ["fifo"] => Some(Self::Fifo),
            ["lifo"] => Some(Self::Lifo),
            ["uniform"] => Some(Self::Uniform),
            ["prioritized", exponent] => real(exponent).map(|exponent| Self::Prioritized { exponent }),
            ["min-heap"] => Some(Self::MinHeap),
            ["max-heap"] => Some(Self::MaxHeap),
            _ => None,
        };
        selector.ok_or_else(|| ParseError::Selector(text.to_owned()))
    }
}

impl fmt::Display for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinSize(size) => write!(f, "min-size:{size}"),
            Self::SampleToInsertRatio { ratio, min_size, error_buffer } => match error_buffer {
                ErrorBuffer::Around(buffer) => write!(f, "ratio:{ratio}:{min_size}:{buffer}"),
                ErrorBuffer::Between(min, max) => write!(f, "ratio:{ratio}:{min_size}:{min}:{max}"),
            },
            Self::Queue(size) => write!(f, "queue:{size}"),
            Self::Stack(size) => write!(f, "stack:{size}"),
        }
    }
}

impl FromStr for RateLimiter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let parts: Vec<&str> = text.split(':').collect();
        parse_limiter(&parts).ok_or_else(|| ParseError::RateLimiter(text.to_owned()))
    }
}

fn parse_limiter(parts: &[&str]) -> Option<RateLimiter> {
    let ratio = |ratio, min_size: &str, error_buffer| {
        let (ratio, min_size) = (real(ratio)?, min_size.parse().ok()?);
        Some(RateLimiter::SampleToInsertRatio { ratio, min_size, error_buffer })
    };
    match *parts {
        ["min-size", size] => Some(RateLimiter::MinSize(size.parse().ok()?)),
        ["ratio", r, min_size, buffer] => ratio(r, min_size, ErrorBuffer::Around(real(buffer)?)),
        ["ratio", r, min_size, min, max] => ratio(r, min_size, ErrorBuffer::Between(real(min)?, real(max)?)),
        ["queue", size] => Some(RateLimiter::Queue(size.parse().ok()?)),
        ["stack", size] => Some(RateLimiter::Stack(size.parse().ok()?)),
        _ => None,
    }
}

/// A number; `nan` and `inf` are refused when the settings are validated, with the name of what they were given for.
fn real(text: &str) -> Option<Real> {
    text.parse().ok().map(Real)
}
