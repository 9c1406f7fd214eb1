//! A number of bytes, as people write it: `64 GiB`, `512MiB`, `4096`.
//!
//! Exact: no fractions, no rounding, an overflow is an error, and what is printed parses to the same
//! number. Only powers of 1024 have a unit. `GB` is refused, since half of its readers would be wrong about
//! it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bytes(pub u64);

/// The units, the largest first.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A text that is no number of bytes.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum BytesError {
    #[error("a size is a whole number and a unit, such as \"64 GiB\", or a plain number of bytes")]
    NotANumber,
    #[error("unknown unit {0:?}, use B, KiB, MiB, GiB or TiB (each 1024 of the one before)")]
    Unit(String),
    #[error("more bytes than 2^64")]
    Overflow,
}

impl FromStr for Bytes {
    type Err = BytesError;

    /// A whole number, then a unit in either case; blanks between them are allowed, no unit means bytes.
    fn from_str(text: &str) -> Result<Self, BytesError> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = (&text[..end], text[end..].trim_start());
        if digits.is_empty() || unit.starts_with(['.', ',', '_']) {
            return Err(BytesError::NotANumber);
        }
        let factor = if unit.is_empty() {
            1
        } else {
            UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .ok_or_else(|| BytesError::Unit(unit.to_owned()))?
                .1
        };
        // Only digits are left, so that a failure to parse can only be an overflow.
        let number: u64 = digits.parse().map_err(|_| BytesError::Overflow)?;
        number.checked_mul(factor).map(Self).ok_or(BytesError::Overflow)
    }
}

impl fmt::Display for Bytes {
    /// In the largest unit that divides it: `64 GiB`, `1536 MiB`, `4095 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |&(_, factor): &(&str, u64)| self.0 != 0 && self.0.is_multiple_of(factor);
        let (name, factor) = UNITS.into_iter().find(divides).unwrap_or(("B", 1));
        write!(f, "{} {name}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("4096 B", 4096),
            ("1KiB", 1024),
            (" 512 mib ", 512 << 20),
            ("64 GiB", 64 << 30),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in good {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_reason() {
        for text in ["", "GiB", "-1", "1.5 GiB", "1_000", "0x10"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!("64 GB".parse::<Bytes>(), Err(BytesError::Unit("GB".into())));
        assert_eq!("64G".parse::<Bytes>(), Err(BytesError::Unit("G".into())));
        assert_eq!("18446744073709551616".parse::<Bytes>(), Err(BytesError::Overflow));
        assert_eq!("16777216 TiB".parse::<Bytes>(), Err(BytesError::Overflow));
    }

    #[test]
    fn what_is_printed_parses_to_the_same_number() {
        for bytes in [0, 1, 1023, 1024, 1536 << 20, 64 << 30, (1 << 40) + 1024, u64::MAX] {
            let text = Bytes(bytes).to_string();
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!(Bytes(64 << 30).to_string(), "64 GiB");
        assert_eq!(Bytes(1536 << 20).to_string(), "1536 MiB");
    }
}
