//! Numbers out of bytes. At the end of the bytes all numbers are zero, so that every input is a whole one.

/// What is left of an input.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// At most so many bytes.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.u8(), self.u8()])
    }

    pub(crate) fn u64(&mut self) -> u64 {
        let mut word = [0; 8];
        let bytes = self.bytes(8);
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    /// A number below a small one that is not zero.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        u32::from(self.u8()) % end
    }
}
