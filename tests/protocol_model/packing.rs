//! Packing a state into a few 64-bit words, and back.
//!
//! The explorer keeps millions of states, so each field takes only the bits that it needs. What always holds: packing
//! and unpacking walk the *same* listing of fields (a type's `fields`), so that they cannot disagree; and a value that
//! does not fit its bits is a panic, never a silent alias of another state.

/// The most words that one packed state may take.
pub const MAX_WORDS_A_STATE: usize = 12;

/// One direction of packing. A type lists its fields once, and the codec either reads or writes each.
pub trait Codec {
    /// The next `width` bits (1 to 8) are this field.
    fn bits(&mut self, field: &mut u8, width: u32);

    /// The next bit is this field.
    fn flag(&mut self, field: &mut bool) {
        let mut bit = u8::from(*field);
        self.bits(&mut bit, 1);
        *field = bit != 0;
    }

    /// The next `width` bits are the number of a variant.
    fn variant<T: Numbered>(&mut self, field: &mut T, width: u32) {
        let mut number = field.number();
        self.bits(&mut number, width);
        *field = T::ALL[usize::from(number)];
    }

    /// The next `width` bits are 0 for `None`, and one more than the value otherwise.
    fn option(&mut self, field: &mut Option<u8>, width: u32) {
        let mut number = field.map_or(0, |value| value + 1);
        self.bits(&mut number, width);
        *field = number.checked_sub(1);
    }
}

/// An enum whose variants are numbered in the order of their listing.
pub trait Numbered: Copy + 'static {
    const ALL: &'static [Self];
    fn number(self) -> u8;
}

/// Declares an enum without payloads that is [`Numbered`].
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_meta])* $variant),* }

        impl $crate::packing::Numbered for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn number(self) -> u8 {
                self as u8
            }
        }
    };
}
pub(crate) use numbered;

/// Writes fields into words.
pub struct Packer {
    pub words: [u64; MAX_WORDS_A_STATE],
    next_bit: usize,
}

impl Packer {
    pub fn new() -> Self {
        Packer { words: [0; MAX_WORDS_A_STATE], next_bit: 0 }
    }

    /// How many words have been begun.
    pub fn words_used(&self) -> usize {
        self.next_bit.div_ceil(64)
    }
}

impl Codec for Packer {
    #[inline]
    fn bits(&mut self, field: &mut u8, width: u32) {
        assert!(*field >> (width - 1) <= 1, "the value {field} does not fit into {width} bits");
        let (word, shift) = (self.next_bit / 64, self.next_bit % 64);
        let value = u64::from(*field);
        self.words[word] |= value << shift;
        let end = shift + width as usize;
        if end > 64 {
            self.words[word + 1] |= value >> (64 - shift);
        }
        self.next_bit += width as usize;
    }
}

/// Reads fields out of words.
pub struct Unpacker<'a> {
    words: &'a [u64],
    next_bit: usize,
}

impl<'a> Unpacker<'a> {
    pub fn new(words: &'a [u64]) -> Self {
        Unpacker { words, next_bit: 0 }
    }
}

impl Codec for Unpacker<'_> {
    #[inline]
    fn bits(&mut self, field: &mut u8, width: u32) {
        let (word, shift) = (self.next_bit / 64, self.next_bit % 64);
        let mut value = self.words[word] >> shift;
        if shift + width as usize > 64 {
            value |= self.words[word + 1] << (64 - shift);
        }
        *field = (value & ((1 << width) - 1)) as u8;
        self.next_bit += width as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_across_a_word_edge_comes_back() {
        let mut packer = Packer::new();
        for number in 0..40 {
            packer.bits(&mut (number % 32), 5);
        }
        assert_eq!(packer.words_used(), 4);
        let mut unpacker = Unpacker::new(&packer.words);
        for number in 0..40 {
            let mut field = 0;
            unpacker.bits(&mut field, 5);
            assert_eq!(field, number % 32);
        }
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_value_too_large_for_its_bits_is_refused() {
        Packer::new().bits(&mut 8, 3);
    }
}
