//! Who is attached to a latest or a replay table, as the private record keeps it.
//!
//! What a reader of a queue table holds is in the record, a grant each. What a reader of a latest table holds is in its
//! client page alone. A daemon that takes the table over does not know the pages before their clients are back, and must
//! not let a block go round meanwhile: from here it knows for whom it waits. It knows the writer as well, so that no other
//! one is let in before that is gone. Of a replay table it is the readers: what they hold was told to them, and is kept
//! nowhere else.

use std::collections::BTreeMap;

use crate::ids::{ClientId, MemberId};
use crate::spec::TableKind;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;

/// Members that such a table may have at a time. Loom makes each word anew for each of its runs.
pub const ROSTER: usize = if cfg!(echo_loom) { 4 } else { 4096 };

const WRITES: u64 = 1 << 32;

/// Words of the record that the roster takes.
pub(super) const fn words(kind: TableKind) -> usize {
    match kind {
        TableKind::Queue => 0,
        TableKind::Latest | TableKind::Replay => 2 * ROSTER,
    }
}

/// What a member does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It publishes.
    Writes,
    /// It takes the newest, or samples.
    Reads,
}

impl Ledger {
    fn entry(&self, index: usize) -> Option<(MemberKey, Part)> {
        let at = Self::roster_at(self.geometry()) + 2 * index;
        let (client, member) = (self.get(at), self.get(at + 1));
        let part = if member & WRITES != 0 { Part::Writes } else { Part::Reads };
        let key = MemberKey { client: ClientId(client), member: MemberId(member as u32) };
        (client != 0).then_some((key, part))
    }

    fn entries(&self) -> std::ops::Range<usize> {
        0..words(self.kind()) / 2
    }

    /// Everybody who is attached.
    pub(super) fn roster(&self) -> BTreeMap<MemberKey, Part> {
        self.entries().filter_map(|index| self.entry(index)).collect()
    }

    /// Somebody is attached. Before it is told how to map the table. False if there is no room.
    pub(super) fn enrol(&self, key: MemberKey, part: Part) -> bool {
        let mut free = None;
        for index in self.entries() {
            match self.entry(index) {
                Some((there, _)) if there == key => return true,
                Some(_) => {}
                None => free = free.or(Some(index)),
            }
        }
        let Some(index) = free else { return false };
        let at = Self::roster_at(self.geometry()) + 2 * index;
        self.set(at + 1, u64::from(key.member.0) | if part == Part::Writes { WRITES } else { 0 });
        // last: a client says that there is somebody
        self.set(at, key.client.0);
        true
    }

    /// Somebody can touch the table's memory no more.
    pub(super) fn strike(&self, key: MemberKey) {
        for index in self.entries() {
            if self.entry(index).is_some_and(|(there, _)| there == key) {
                self.set(Self::roster_at(self.geometry()) + 2 * index, 0);
            }
        }
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ring::control::Geometry;
    use crate::ring::words::Words;

    fn member(client: u64, member: u32) -> MemberKey {
        MemberKey { client: ClientId(client), member: MemberId(member) }
    }

    #[test]
    fn who_is_attached_is_read_back_from_the_region_alone() {
        let geometry = Geometry::new(1, 4, 1, 1).unwrap();
        let kind = TableKind::Latest;
        let ledger = Ledger::create(Words::heap(Ledger::bytes(&geometry, kind)), geometry, kind);
        assert!(ledger.enrol(member(1, 2), Part::Writes));
        for client in 2..=ROSTER as u64 {
            assert!(ledger.enrol(member(client, 1), Part::Reads));
        }
        assert!(!ledger.enrol(member(5000, 1), Part::Reads), "it is full");
        assert!(ledger.enrol(member(7, 1), Part::Reads), "who is there is there");
        ledger.strike(member(7, 1));
        assert!(ledger.enrol(member(5000, 1), Part::Reads));
        let ledger = Ledger::open(ledger.into_words(), geometry, kind).unwrap();
        let roster = ledger.roster();
        assert_eq!(roster.len(), ROSTER);
        assert_eq!((roster[&member(1, 2)], roster[&member(5000, 1)]), (Part::Writes, Part::Reads));
        assert!(!roster.contains_key(&member(7, 1)));
    }
}
