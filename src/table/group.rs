//! The groups that read a queue table: each has its own place, and each batch goes to one reader of every group.
//!
//! A table starts with one group, [`DEFAULT_GROUP`], and always has at least one: with none, samples would go to nobody. A
//! block is published again when every group is done with it. A group that may lag by so many bytes skips batches that it
//! has not been granted when it lags by more, and then holds up nobody; one that may lag by any number holds up the workers.
//!
//! What the private record keeps: which groups there are, and of each block which are done with it and to whom in each group
//! it is granted.
//!
//! ```text
//! groups[GROUPS]       {there, most blocks of lag + 1, skipped, batches, name's length, name (8)}
//! blocks[max_blocks]   {done (a bit a group), grants[GROUPS] {client, member, number, token (2)}}
//! ```

use std::collections::BTreeMap;

use thiserror::Error;

use crate::ids::{BlockIndex, BlockSeq, ClientId, GrantNumber, LeaseToken, MemberId};
use crate::ring::control::Geometry;
use crate::spec::TableKind;
use crate::table::ledger::{GrantRecord, Ledger};
use crate::table::member::MemberKey;

/// Groups that one table may have.
pub const GROUPS: usize = 8;
/// The group of readers that name none.
pub const DEFAULT_GROUP: &str = "default";
/// Longest name of a group, in bytes.
pub const MAX_GROUP_NAME: usize = 64;

const HEAD_WORDS: usize = 5;
const GROUP_WORDS: usize = HEAD_WORDS + MAX_GROUP_NAME / 8;
const GRANT_WORDS: usize = 5;
const BLOCK_WORDS: usize = 1 + GROUPS * GRANT_WORDS;

/// Which group, by its place in the record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(u8);

impl GroupId {
    /// Every group that there could be.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..GROUPS as u8).map(Self)
    }

    const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// What a group cannot be, or do.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum GroupError {
    #[error("a group's name is 1 to {MAX_GROUP_NAME} of letters, digits, '.', '_' and '-', and not {0:?}")]
    Name(String),
    #[error("the table has {GROUPS} groups, which is the most: remove one")]
    TooMany,
    #[error("the table has a group {0:?} already")]
    Exists(String),
    #[error("the table has no group {name:?}, only {there}")]
    NoSuchGroup { name: String, there: String },
    #[error("group {name:?} has {readers} readers: it can be removed when they are gone")]
    HasReaders { name: String, readers: usize },
    #[error(
        "group {0:?} is the table's only one, and without a group its samples would go to nobody: add another first"
    )]
    Last(String),
}

/// One group.
#[derive(Debug)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// Blocks by which it may lag, if there is a limit.
    pub most_lag: Option<u32>,
    /// Blocks that live, and that it was neither granted nor is done with.
    pub(super) ungranted: BTreeMap<BlockSeq, BlockIndex>,
}

impl Group {
    pub(super) const fn new(name: String, most_lag: Option<u32>) -> Self {
        Self { name, most_lag, ungranted: BTreeMap::new() }
    }
}

/// Whether a group can be called so.
///
/// # Errors
/// If not.
pub fn check_name(name: &str) -> Result<(), GroupError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match (1..=MAX_GROUP_NAME).contains(&name.len()) && name.chars().all(allowed) {
        true => Ok(()),
        false => Err(GroupError::Name(name.to_owned())),
    }
}

/// Words of the record that groups take.
pub(super) const fn words(kind: TableKind, geometry: &Geometry) -> usize {
    match kind {
        TableKind::Queue => GROUPS * GROUP_WORDS + geometry.max_blocks() as usize * BLOCK_WORDS,
        TableKind::Latest | TableKind::Replay => 0,
    }
}

impl Ledger {
    fn group_at(&self, group: GroupId) -> usize {
        Self::groups_at(self.geometry(), self.kind()) + usize::from(group.0) * GROUP_WORDS
    }

    fn done_at(&self, block: BlockIndex) -> usize {
        Self::groups_at(self.geometry(), self.kind()) + GROUPS * GROUP_WORDS + block.index() * BLOCK_WORDS
    }

    fn grant_at(&self, block: BlockIndex, group: GroupId) -> usize {
        self.done_at(block) + 1 + usize::from(group.0) * GRANT_WORDS
    }

    /// The groups that there are.
    pub(super) fn groups(&self) -> BTreeMap<GroupId, Group> {
        let there = GroupId::all().filter(|&group| self.get(self.group_at(group)) != 0);
        let read = |group: GroupId| {
            let at = self.group_at(group);
            let most_lag = self.get(at + 1).checked_sub(1).map(|lag| lag as u32);
            let bytes =
                (0..MAX_GROUP_NAME / 8).flat_map(|word| self.get(at + HEAD_WORDS + word).to_le_bytes());
            let name: Vec<u8> = bytes.take((self.get(at + 4) as usize).min(MAX_GROUP_NAME)).collect();
            (group, Group::new(String::from_utf8_lossy(&name).into_owned(), most_lag))
        };
        there.map(read).collect()
    }

    /// There is a group more, which is done with nothing. None if there is no room.
    pub(super) fn add_group(&self, name: &str, most_lag: Option<u32>) -> Option<GroupId> {
        let group = GroupId::all().find(|&group| self.get(self.group_at(group)) == 0)?;
        // What another group that had its place has left.
        for block in self.all_blocks() {
            self.clear_grant(block, group);
            self.set_undone(block, group);
        }
        let at = self.group_at(group);
        self.set(at + 1, most_lag.map_or(0, |lag| u64::from(lag) + 1));
        self.set(at + 2, 0);
        self.set(at + 3, 0);
        self.set(at + 4, name.len() as u64);
        for (word, bytes) in name.as_bytes().chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            self.set(at + HEAD_WORDS + word, u64::from_le_bytes(padded));
        }
        // last: now it is there
        self.set(at, 1);
        Some(group)
    }

    /// A group is there no more, nor anything of it.
    pub(super) fn remove_group(&self, group: GroupId) {
        self.set(self.group_at(group), 0);
    }

    /// How many batches a group skipped, and how many its readers gave back.
    pub(super) fn group_counts(&self, group: GroupId) -> (u64, u64) {
        let at = self.group_at(group);
        (self.get(at + 2), self.get(at + 3))
    }

    /// A group skipped a batch.
    pub(super) fn count_skipped(&self, group: GroupId) {
        let at = self.group_at(group) + 2;
        self.set(at, self.get(at) + 1);
    }

    /// A group's reader gave a batch back.
    pub(super) fn count_batch(&self, group: GroupId) {
        let at = self.group_at(group) + 3;
        self.set(at, self.get(at) + 1);
    }

    /// Whether a group is done with a block.
    pub(super) fn is_done(&self, block: BlockIndex, group: GroupId) -> bool {
        self.get(self.done_at(block)) & group.bit() != 0
    }

    /// A group is done with a block.
    pub(super) fn set_done(&self, block: BlockIndex, group: GroupId) {
        let at = self.done_at(block);
        self.set(at, self.get(at) | group.bit());
    }

    /// A group is not done with a block.
    pub(super) fn set_undone(&self, block: BlockIndex, group: GroupId) {
        let at = self.done_at(block);
        self.set(at, self.get(at) & !group.bit());
    }

    /// To whom a block is granted in a group.
    pub(super) fn grant(&self, block: BlockIndex, group: GroupId) -> Option<GrantRecord> {
        let at = self.grant_at(block, group);
        let client = self.get(at);
        if client == 0 {
            return None;
        }
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.get(at + 3).to_le_bytes());
        token[8..].copy_from_slice(&self.get(at + 4).to_le_bytes());
        Some(GrantRecord {
            reader: MemberKey { client: ClientId(client), member: MemberId(self.get(at + 1) as u32) },
            number: GrantNumber(self.get(at + 2)),
            token: LeaseToken(token),
        })
    }

    /// Whether a block is granted in some group that is there.
    pub(super) fn is_granted(&self, block: BlockIndex) -> bool {
        let there = |&group: &GroupId| self.get(self.group_at(group)) != 0;
        self.kind() == TableKind::Queue
            && GroupId::all().filter(there).any(|group| self.grant(block, group).is_some())
    }

    /// A block is granted in a group. Before the message is sent.
    pub(super) fn set_grant(&self, block: BlockIndex, group: GroupId, grant: &GrantRecord) {
        let at = self.grant_at(block, group);
        let (low, high) = grant.token.0.split_at(8);
        self.set(at + 1, grant.reader.member.0.into());
        self.set(at + 2, grant.number.0);
        for (i, half) in [low, high].into_iter().enumerate() {
            let bytes = half.try_into().expect("half of 16 bytes");
            self.set(at + 3 + i, u64::from_le_bytes(bytes));
        }
        // last: a client says that there is a grant
        self.set(at, grant.reader.client.0);
    }

    /// A block is granted to nobody of a group.
    pub(super) fn clear_grant(&self, block: BlockIndex, group: GroupId) {
        self.set(self.grant_at(block, group), 0);
    }

    /// A block begins another life: no group has anything to do with it.
    pub(super) fn clear_groups(&self, block: BlockIndex) {
        if self.kind() == TableKind::Queue {
            GroupId::all().for_each(|group| self.clear_grant(block, group));
            self.set(self.done_at(block), 0);
        }
    }
}

#[cfg(all(test, not(echo_loom)))]
mod tests {
    use super::*;
    use crate::ring::words::Words;

    #[test]
    fn groups_are_read_back_from_the_region_alone() {
        let geometry = Geometry::new(1, 4, 1, 1).unwrap();
        let kind = TableKind::Queue;
        let ledger = Ledger::create(Words::heap(Ledger::bytes(&geometry, kind)), geometry, kind);
        let block = |i| BlockIndex::new(i, 4).unwrap();
        let grant = |n: u64| GrantRecord {
            reader: MemberKey { client: ClientId(n), member: MemberId(2) },
            number: GrantNumber(3),
            token: LeaseToken([n as u8; 16]),
        };
        let long = "x".repeat(MAX_GROUP_NAME);
        let [first, second] =
            [("a", None), (&long, Some(7))].map(|(name, lag)| ledger.add_group(name, lag).unwrap());
        ledger.set_grant(block(1), first, &grant(5));
        ledger.set_grant(block(3), second, &grant(6));
        ledger.set_done(block(3), first);
        ledger.count_skipped(second);
        ledger.count_batch(second);
        let ledger = Ledger::open(ledger.into_words(), geometry, kind).unwrap();
        let groups = ledger.groups();
        let told: Vec<_> = groups.values().map(|group| (&*group.name, group.most_lag)).collect();
        assert_eq!(told, [("a", None), (&*long, Some(7))]);
        assert_eq!((ledger.grant(block(1), first), ledger.grant(block(1), second)), (Some(grant(5)), None));
        assert_eq!(ledger.grant(block(3), second), Some(grant(6)));
        assert!(ledger.is_done(block(3), first) && !ledger.is_done(block(3), second));
        assert_eq!((ledger.group_counts(first), ledger.group_counts(second)), ((0, 0), (1, 1)));
        // One that comes in another's place has nothing of it.
        ledger.remove_group(first);
        assert_eq!(ledger.add_group("b", None), Some(first));
        assert!(ledger.grant(block(1), first).is_none() && !ledger.is_done(block(3), first));
        assert_eq!(
            (2..=GROUPS).filter(|i| ledger.add_group(&format!("g{i}"), None).is_some()).count(),
            GROUPS - 2
        );
    }
}
