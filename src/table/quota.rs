//! How many blocks of a table the readers of one user may hold.
//!
//! A trainer that is stopped keeps what it was granted. Where all readers are one user's, that is the user's own
//! affair, and one reader may hold everything. Where several users read the same table, the readers of each hold at most an
//! equal part of the blocks, so that one user's stopped trainer does not stop the others'. What a reader was granted while
//! it shared with nobody it keeps until it gives it back.

use std::collections::BTreeMap;

use crate::table::member::Reader;

/// What the users may hold, and do.
#[derive(Debug)]
pub(super) struct Quota {
    each: u32,
    /// Empty where nobody has to share.
    held: BTreeMap<u32, u32>,
}

impl Quota {
    /// That of these readers, in a table of so many blocks.
    pub(super) fn of<'r>(readers: impl Iterator<Item = &'r Reader> + Clone, blocks: u32) -> Self {
        // One who neither holds nor can get anything has no part.
        let sharing = readers.filter(|reader| reader.connected || reader.held > 0);
        let mut uids = sharing.clone().map(|reader| reader.uid);
        let first = uids.next();
        if uids.all(|uid| Some(uid) == first) {
            return Self { each: blocks, held: BTreeMap::new() };
        }
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for reader in sharing {
            *held.entry(reader.uid).or_default() += reader.held;
        }
        // More users than blocks take turns.
        Self { each: (blocks / held.len() as u32).max(1), held }
    }

    /// Whether the user's readers may be granted one more.
    pub(super) fn allows(&self, uid: u32) -> bool {
        self.held.get(&uid).is_none_or(|&held| held < self.each)
    }

    /// One more was granted.
    pub(super) fn take(&mut self, uid: u32) {
        if let Some(held) = self.held.get_mut(&uid) {
            *held += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::group::GroupId;

    fn reader(uid: u32, held: u32, connected: bool) -> Reader {
        Reader { held, connected, ..Reader::new(uid, 8, GroupId::all().next().unwrap()) }
    }

    #[test]
    fn one_user_may_hold_everything_and_several_share() {
        let alone = [reader(1, 7, true), reader(1, 8, true), reader(2, 0, false)];
        assert!(Quota::of(alone.iter(), 8).allows(1));

        let two = [reader(1, 3, true), reader(1, 0, true), reader(2, 4, false)];
        let mut quota = Quota::of(two.iter(), 8);
        assert!(quota.allows(1) && !quota.allows(2));
        quota.take(1);
        assert!(!quota.allows(1), "half of the blocks are its part");

        let many = [1, 2, 3].map(|uid| reader(uid, 0, true));
        let mut quota = Quota::of(many.iter(), 2);
        assert!(quota.allows(1));
        quota.take(1);
        assert!(!quota.allows(1) && quota.allows(2), "one each, where there are not enough");
    }
}
