//! The groups that read a queue: they come and go, are rewound, and skip what they lag behind by.

use std::collections::BTreeMap;

use super::Queue;
use crate::table::action::Action;
use crate::table::ending::Phase;
use crate::table::group::{self, Group, GroupError, GroupId};
use crate::wire::message::GroupFrom;

impl Queue {
    /// The groups that read it.
    pub const fn groups(&self) -> &BTreeMap<GroupId, Group> {
        &self.groups
    }

    /// The name of a group that is there.
    pub fn group_name(&self, group: GroupId) -> &str {
        self.groups.get(&group).map_or("", |group| &group.name)
    }

    pub(super) fn group_named(&self, name: &str) -> Result<GroupId, GroupError> {
        let found = self.groups.iter().find(|(_, group)| group.name == name);
        found.map(|(&id, _)| id).ok_or_else(|| {
            let there: Vec<&str> = self.groups.values().map(|group| &*group.name).collect();
            GroupError::NoSuchGroup { name: name.to_owned(), there: there.join(", ") }
        })
    }

    /// Of a new table, which nobody reads yet: these groups, and no other, read all of it. Their names were checked.
    pub fn found_groups<'g>(&mut self, groups: impl Iterator<Item = (&'g str, Option<u32>)>) {
        for id in std::mem::take(&mut self.groups).into_keys() {
            self.intake.ledger.remove_group(id);
        }
        for (name, most_lag) in groups {
            if let Some(id) = self.intake.ledger.add_group(name, most_lag) {
                let mut group = Group::new(name.to_owned(), most_lag);
                group.ungranted = self.intake.live.clone();
                self.groups.insert(id, group);
            }
        }
    }

    /// A group more reads the table, from there on.
    ///
    /// # Errors
    /// If it cannot be called so, or there are too many.
    pub fn add_group(
        &mut self,
        name: &str,
        from: GroupFrom,
        most_lag: Option<u32>,
        actions: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        group::check_name(name)?;
        if self.group_named(name).is_ok() {
            return Err(GroupError::Exists(name.to_owned()));
        }
        let id = self.intake.ledger.add_group(name, most_lag).ok_or(GroupError::TooMany)?;
        let mut group = Group::new(name.to_owned(), most_lag);
        let (cursor, _) = self.intake.cursor_and_limit();
        for (&seq, &block) in &self.intake.live {
            match from == GroupFrom::Newest && self.intake.geometry().first(seq).0 < cursor {
                true => self.intake.ledger.set_done(block, id),
                false => drop(group.ungranted.insert(seq, block)),
            }
        }
        self.groups.insert(id, group);
        self.let_laggards_go();
        self.grant(actions);
        Ok(())
    }

    /// A group reads the table no more, and holds up nobody.
    ///
    /// # Errors
    /// If there is none of that name, it has readers, or it is the last one.
    pub fn remove_group(&mut self, name: &str, actions: &mut Vec<Action>) -> Result<(), GroupError> {
        let id = self.group_named(name)?;
        let readers = self.readers.values().filter(|reader| reader.group == id).count();
        if readers > 0 {
            return Err(GroupError::HasReaders { name: name.to_owned(), readers });
        }
        if self.groups.len() == 1 {
            return Err(GroupError::Last(name.to_owned()));
        }
        self.intake.ledger.remove_group(id);
        self.groups.remove(&id);
        for block in self.intake.live.values().copied().collect::<Vec<_>>() {
            self.retire_if_done(block);
        }
        if self.intake.phase == Phase::Open {
            self.publish();
        }
        self.grant(actions);
        Ok(())
    }

    /// A group reads once more what it is done with and others are not. How many batches that are.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn rewind_group(&mut self, name: &str, actions: &mut Vec<Action>) -> Result<u64, GroupError> {
        let id = self.group_named(name)?;
        let mut again = Vec::new();
        if let Some(group) = self.groups.get_mut(&id) {
            for (&seq, &block) in &self.intake.live {
                if self.intake.ledger.is_done(block, id) {
                    // A daemon that died may have left the grant of a batch that is done with.
                    self.intake.ledger.clear_grant(block, id);
                    self.intake.ledger.set_undone(block, id);
                    group.ungranted.insert(seq, block);
                    again.push(seq);
                }
            }
        }
        self.let_laggards_go();
        // Without those that it skipped at once.
        let there = self.groups.get(&id).map(|group| &group.ungranted);
        let again = again.iter().filter(|seq| there.is_some_and(|there| there.contains_key(seq))).count();
        self.grant(actions);
        Ok(again as u64)
    }

    /// How many readers a group has.
    pub fn readers_of(&self, id: GroupId) -> usize {
        self.readers.values().filter(|reader| reader.group == id).count()
    }

    /// How many batches a group skipped, and how many its readers gave back.
    pub fn group_counts(&self, id: GroupId) -> (u64, u64) {
        self.intake.ledger.group_counts(id)
    }

    /// Blocks that are begun and that a group is not done with.
    pub fn lag(&self, id: GroupId) -> u32 {
        let (cursor, _) = self.intake.cursor_and_limit();
        let begun = self.intake.live.iter().filter(|(seq, _)| self.intake.geometry().first(**seq).0 < cursor);
        begun.filter(|(_, block)| !self.intake.ledger.is_done(**block, id)).count() as u32
    }

    /// Groups that lag by more than they may skip the oldest batches that they were not granted. Whether some were.
    pub(super) fn let_laggards_go(&mut self) -> bool {
        let mut skipped = Vec::new();
        self.skips_soon = false;
        // One that may lag by all there is would hold up workers as any other does.
        let all_but_one = self.intake.ledger.usable().saturating_sub(1);
        for (&id, group) in &self.groups {
            let Some(most) = group.most_lag else { continue };
            let over = self.lag(id).saturating_sub(most.min(all_but_one)) as usize;
            // Only what is complete: a block that fills is nobody's past.
            let complete = group.ungranted.iter().filter(|(_, block)| self.intake.control.is_full(**block));
            let before = skipped.len();
            skipped.extend(complete.take(over).map(|(&seq, &block)| (id, seq, block)));
            let of_group = skipped.len() - before;
            self.skips_soon |= of_group < over && of_group < group.ungranted.len();
        }
        for &(id, seq, block) in &skipped {
            self.intake.ledger.set_done(block, id);
            self.intake.ledger.count_skipped(id);
            if let Some(group) = self.groups.get_mut(&id) {
                group.ungranted.remove(&seq);
            }
            self.retire_if_done(block);
        }
        if !skipped.is_empty() && self.intake.phase == Phase::Open {
            self.publish();
        }
        !skipped.is_empty()
    }
}
