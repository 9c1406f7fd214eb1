//! The record of a claim: what a worker leaves in its client page, and what the daemon goes by when it is gone.

use crate::packing::Codec;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Record {
    pub first: u8,
    pub length: u8,
    pub dropped: bool,
}

impl Record {
    pub fn covers(self, position: u8) -> bool {
        (self.first..self.first + self.length).contains(&position)
    }

    pub fn fields(record: &mut Option<Record>, codec: &mut impl Codec) {
        let mut first = record.map(|record| record.first);
        let mut two = record.is_some_and(|record| record.length == 2);
        let mut dropped = record.is_some_and(|record| record.dropped);
        codec.option(&mut first, 6);
        codec.flag(&mut two);
        codec.flag(&mut dropped);
        *record = first.map(|first| Record { first, length: 1 + u8::from(two), dropped });
    }
}

/// For traces: `3+2` is two positions from 3 on, `-` is no claim.
pub fn show(record: Option<Record>) -> String {
    match record {
        None => "-".into(),
        Some(Record { first, length, dropped }) => {
            format!("{first}+{length}{}", if dropped { " dropped" } else { "" })
        }
    }
}
