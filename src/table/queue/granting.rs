//! Which batch is granted to which reader.

use std::collections::{BTreeMap, HashSet};

use super::Queue;
use crate::ids::{BlockIndex, BlockSeq, GrantNumber};
use crate::ring::ready;
use crate::table::action::Action;
use crate::table::group::{Group, GroupId};
use crate::table::ledger::GrantRecord;
use crate::table::member::{MemberKey, Reader};
use crate::table::poison::Poison;
use crate::table::quota::Quota;
use crate::wire::message::Grant;

/// What is found out once while batches of a group are granted.
#[derive(Default)]
struct Known {
    /// Who has something to read.
    reading: Option<HashSet<MemberKey>>,
    /// Blocks that readers of groups hold which may lag so far only.
    lent: Option<HashSet<BlockIndex>>,
}

impl Known {
    fn granted(&mut self, key: MemberKey, block: BlockIndex) {
        if let Some(reading) = &mut self.reading {
            // Nobody who may have more is left by the time that this is looked at, so it was complete.
            reading.insert(key);
        }
        if let Some(lent) = &mut self.lent {
            lent.insert(block);
        }
    }
}

impl Queue {
    /// Grants what is not granted, to the readers that hold least, and tells those for whom nothing is left.
    pub(super) fn grant(&mut self, actions: &mut Vec<Action>) {
        let mut quota = Quota::of(self.readers.values(), self.intake.ledger.usable());
        for group in self.groups.keys().copied().collect::<Vec<_>>() {
            self.grant_in(group, &mut quota, actions);
        }
        self.end_readers(actions);
    }

    fn grant_in(&mut self, group: GroupId, quota: &mut Quota, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() {
            return;
        }
        let mut granted: BTreeMap<MemberKey, Vec<Grant>> = BTreeMap::new();
        let mut known = Known::default();
        while let Some((key, seq, block)) = self.next_grant(group, quota, &mut known) {
            let token = match (self.tokens)() {
                Ok(token) => token,
                Err(error) => {
                    self.poisoned(Poison::Tokens(error.to_string()), actions);
                    return;
                }
            };
            let Some(reader) = self.readers.get_mut(&key) else { break };
            self.turn += 1;
            reader.turn = self.turn;
            reader.held += 1;
            quota.take(reader.uid);
            reader.last_number = GrantNumber(reader.last_number.0 + 1);
            let number = reader.last_number;
            // GRANTED before the record: a daemon that dies in between leaves a needless wake, not a lost one.
            ready::set_granted(&self.intake.control, block);
            self.intake.ledger.set_grant(block, group, &GrantRecord { reader: key, number, token });
            self.by_token.insert(token, (block, group));
            if let Some(of_group) = self.groups.get_mut(&group) {
                of_group.ungranted.remove(&seq);
                of_group.last_granted = of_group.last_granted.max(seq);
            }
            known.granted(key, block);
            granted.entry(key).or_default().push(Grant { number, seq, block: block.get(), token });
        }
        actions.extend(granted.into_iter().map(|(reader, grants)| Action::Grant { reader, grants }));
    }

    /// The next batch of a group that somebody is to have, and who.
    fn next_grant(
        &self,
        group: GroupId,
        quota: &Quota,
        known: &mut Known,
    ) -> Option<(MemberKey, BlockSeq, BlockIndex)> {
        let of_group = self.groups.get(&group)?;
        let allowed = self
            .readers
            .iter()
            .filter(|(_, reader)| reader.group == group && reader.listens() && quota.allows(reader.uid));
        let order = |(_, reader): &(&MemberKey, &Reader)| (reader.ended, reader.held, reader.turn);
        if let Some((&key, _)) = allowed.clone().filter(|(_, reader)| reader.wants()).min_by_key(order) {
            let mut ungranted = of_group.ungranted.iter();
            let (&seq, &block) = ungranted.find(|(_, block)| self.may_lend(of_group, **block, known))?;
            return Some((key, seq, block));
        }
        let mut came_back = of_group.ungranted.range(..of_group.last_granted);
        let (&seq, &block) = came_back.find(|(_, block)| self.intake.control.is_full(**block))?;
        if !self.may_lend(of_group, block, known) {
            return None;
        }
        let reading = known.reading.get_or_insert_with(|| self.readers_of_complete(group));
        // One beyond its depth at most, whatever workers say of what is complete.
        let has_room = |reader: &Reader| reader.held <= u32::from(reader.prefetch);
        let waiting = allowed.filter(|(key, reader)| has_room(reader) && !reading.contains(key));
        waiting.min_by_key(order).map(|(&key, _)| (key, seq, block))
    }

    /// Readers of a group that were granted batches that are complete, and have not given them back.
    fn readers_of_complete(&self, group: GroupId) -> HashSet<MemberKey> {
        let granted = self.by_token.values().filter(|(_, of_group)| *of_group == group);
        let complete = granted.filter(|(block, _)| self.intake.control.is_full(*block));
        complete.filter_map(|&(block, _)| Some(self.intake.ledger.grant(block, group)?.reader)).collect()
    }

    /// Whether a group's readers may hold that block. Groups that may lag so far only hold up nobody: what their readers hold
    /// cannot be skipped, so together they leave a block.
    fn may_lend(&self, group: &Group, block: BlockIndex, known: &mut Known) -> bool {
        if group.most_lag.is_none() {
            return true;
        }
        let lent = known.lent.get_or_insert_with(|| {
            let limited = |group| self.groups.get(group).is_some_and(|group| group.most_lag.is_some());
            self.by_token.values().filter(|(_, group)| limited(group)).map(|&(block, _)| block).collect()
        });
        let most = self.intake.ledger.usable().saturating_sub(1).max(1) as usize;
        lent.contains(&block) || lent.len() < most
    }

    /// Whether a batch that came back is complete by now, and somebody may wait for it.
    pub(super) fn has_come_back(&self) -> bool {
        let came_back = |group: &Group| {
            let mut before = group.ungranted.range(..group.last_granted);
            before.any(|(_, block)| self.intake.control.is_full(*block))
        };
        self.groups.values().any(came_back)
    }
}
