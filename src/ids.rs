//! Every number that names something has its own type.
//!
//! A number read from shared memory or from the socket is an allegation: it becomes one of these types only
//! through a check (`BlockIndex::new`), or by arithmetic on one that was checked.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, bincode::Encode, bincode::Decode)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($label, " {}"), self.0)
            }
        }
    };
}

id! {
    /// A sample's absolute number in its table. Grows for ever, masked late.
    Position(u64), "position"
}
id! {
    /// A block's absolute number: `position / block_slots`.
    BlockSeq(u64), "seq"
}
id! {
    /// A table, for as long as the daemon knows it. Never zero.
    TableId(u32), "table"
}
id! {
    /// One connection and the process behind it. Never zero, never used again.
    ClientId(u64), "client"
}
id! {
    /// A writer or a reader of one table, within its client. Never zero.
    MemberId(u32), "member"
}
id! {
    /// Counts the grants of one reader, from 1.
    GrantNumber(u64), "grant"
}

/// A physical block, known to be below the table's `max_blocks`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(u32);

impl BlockIndex {
    /// The only door from a number to an index.
    pub const fn new(raw: u32, max_blocks: u32) -> Option<Self> {
        if raw < max_blocks { Some(Self(raw)) } else { None }
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number, for indexing.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BlockIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for BlockIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

/// A slot in the arrays, counted over all blocks: `block * block_slots + position % block_slots`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotIndex(u64);

impl SlotIndex {
    /// The only door from a number to an index.
    pub const fn new(raw: u64, slots: u64) -> Option<Self> {
        if raw < slots { Some(Self(raw)) } else { None }
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What a reader shows to give a grant back: 128 bits from the kernel's random source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, bincode::Encode, bincode::Decode)]
pub struct LeaseToken(pub [u8; 16]);

impl fmt::Debug for LeaseToken {
    /// A token that stands in a log is a token that was given away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(hidden)")
    }
}
