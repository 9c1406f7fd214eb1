//! A queue table: each batch to exactly one reader of every group, in the order in which it filled.
//!
//! A pure state machine over a ring's words and the private record: no socket, no clock, no log; randomness
//! comes in. Calls change it and push what must be said to clients as [`Action`]s. It never waits: what cannot
//! be done yet is done by a later call or by [`Queue::tick`].
//!
//! How samples come in is [`Intake`]'s; this is what becomes of complete blocks: `granting` says who gets which, `grouping` has
//! the groups.
//!
//! What always holds: a block is free, or it is live and then in each group either granted to one
//! reader, or in the group's `ungranted`, or done with. A reader is granted a batch only while it holds fewer than its prefetch depth and its user no more than a fair part
//! of the blocks (`quota`), the lowest sequence first. A complete batch that came back (its reader died, or its group was
//! rewound) goes beyond the depth to a reader that has none to read, so that it need not wait for blocks that fill. A block is published
//! again only after every group is done with it *and* every slot was committed, so that no claim to it can be open.
//!
//! It works per block and per death, never per sample.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use crate::ids::{BlockIndex, BlockSeq, LeaseToken};
use crate::ring::control::Control;
use crate::ring::ready::{self, BlockState, ReadyWord};
use crate::ring::record::ClientPage;
use crate::sync::Ordering;
use crate::table::action::{Action, Violation};
use crate::table::ending::{MoveSamples, Phase};
use crate::table::group::{DEFAULT_GROUP, Group, GroupError, GroupId};
use crate::table::intake::Intake;
use crate::table::ledger::{GrantRecord, Ledger};
use crate::table::member::{MemberKey, Reader, UNKNOWN_UID};
use crate::table::poison::{Poison, RebuildError};
use crate::wire::message::EndReason;

mod granting;
mod grouping;

/// Where lease tokens come from.
pub type Tokens = Box<dyn FnMut() -> io::Result<LeaseToken> + Send>;

/// The state machine.
pub struct Queue {
    intake: Intake,
    readers: BTreeMap<MemberKey, Reader>,
    groups: BTreeMap<GroupId, Group>,
    by_token: HashMap<LeaseToken, (BlockIndex, GroupId)>,
    /// Blocks that every group is done with, and that are not full yet: those were done before they began to read.
    unwanted: BTreeSet<BlockIndex>,
    tokens: Tokens,
    turn: u64,
    /// A group lags by more than it may, and what it would skip is not complete.
    skips_soon: bool,
}

impl Queue {
    /// A new table over zeroed words, whose first `usable` blocks have memory. They are published.
    pub fn create(control: Arc<Control>, ledger: Ledger, usable: u32, tokens: Tokens) -> Self {
        let mut queue = Self::over(Intake::create(control, ledger, usable), tokens);
        if let Some(group) = queue.intake.ledger.add_group(DEFAULT_GROUP, None) {
            queue.groups.insert(group, Group::new(DEFAULT_GROUP.into(), None));
        }
        queue.publish();
        queue
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever
    /// instruction. Its clients come back by [`Queue::attach_writer`] and [`Queue::attach_reader`] with their
    /// old keys; until then what they hold stays theirs.
    pub fn rebuild(control: Arc<Control>, ledger: Ledger, tokens: Tokens) -> Result<Self, RebuildError> {
        let mut queue = Self::over(Intake::rebuild(control, ledger)?, tokens);
        queue.groups = queue.intake.ledger.groups();
        for (&seq, &block) in &queue.intake.live {
            for (&group, of_group) in &mut queue.groups {
                match queue.intake.ledger.grant(block, group) {
                    // The last daemon may have died between the two.
                    _ if queue.intake.ledger.is_done(block, group) => {
                        queue.intake.ledger.clear_grant(block, group);
                    }
                    Some(grant) => {
                        ready::set_granted(&queue.intake.control, block);
                        queue.by_token.insert(grant.token, (block, group));
                        let reader = queue.readers.entry(grant.reader);
                        let reader = reader.or_insert_with(|| Reader::new(UNKNOWN_UID, 0, group));
                        reader.connected = false;
                        reader.held += 1;
                        reader.last_number = reader.last_number.max(grant.number);
                        of_group.last_granted = of_group.last_granted.max(seq);
                    }
                    None => drop(of_group.ungranted.insert(seq, block)),
                }
            }
        }
        // The last daemon may have died between the two.
        for block in queue.intake.live.values().copied().collect::<Vec<_>>() {
            queue.retire_if_done(block);
        }
        if queue.intake.phase == Phase::Open {
            queue.publish();
        }
        Ok(queue)
    }

    fn over(intake: Intake, tokens: Tokens) -> Self {
        Self {
            intake,
            readers: BTreeMap::new(),
            groups: BTreeMap::new(),
            by_token: HashMap::new(),
            unwanted: BTreeSet::new(),
            tokens,
            turn: 0,
            skips_soon: false,
        }
    }

    /// How samples come in.
    pub const fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        !self.intake.writers.is_empty() || !self.readers.is_empty()
    }

    /// Its readers.
    pub const fn readers(&self) -> &BTreeMap<MemberKey, Reader> {
        &self.readers
    }

    /// The blocks that are granted, in no order; one that several groups read comes for each.
    pub fn granted_blocks(&self) -> impl Iterator<Item = (BlockSeq, BlockIndex, GrantRecord)> {
        let ledger = &self.intake.ledger;
        let granted = self.by_token.values();
        granted.filter_map(|&(block, group)| Some((ledger.seq(block), block, ledger.grant(block, group)?)))
    }

    /// How many blocks in use are granted to nobody, of the group that has most of them.
    pub fn ungranted_blocks(&self) -> usize {
        self.groups.values().map(|group| group.ungranted.len()).max().unwrap_or(0)
    }

    /// A process may write from now on.
    pub fn attach_writer(&mut self, key: MemberKey, page: Arc<ClientPage>, record: u32) {
        self.intake.attach_writer(key, page, record);
    }

    /// A process of that user may read from now on, as one of that group; one of that key that was here before goes on, in
    /// the group that it was of.
    ///
    /// # Errors
    /// If there is no such group.
    pub fn attach_reader(
        &mut self,
        key: MemberKey,
        uid: u32,
        prefetch: u16,
        group: &str,
        actions: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        let group = self.group_named(group)?;
        let reader = self.readers.entry(key).or_insert_with(|| Reader::new(uid, prefetch, group));
        reader.uid = uid;
        reader.prefetch = prefetch;
        reader.connected = true;
        self.grant(actions);
        Ok(())
    }

    /// A writer commits no more samples.
    pub fn finish_writer(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.finish_writer(key)
    }

    /// A writer gave up its claim: it marked its record, and says so.
    pub fn drop_claim(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.drop_claim(key)
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds and gets no more.
    pub fn disconnect(&mut self, key: MemberKey) {
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.connected = false;
        }
    }

    /// A member can no longer touch the table's memory: its process is gone, or it said that it unmapped. What
    /// a reader holds goes to others; what a writer had claimed is orphaned. False if that cannot be done yet: then the
    /// call is to be made again.
    ///
    /// Calling it for a member that is gone does nothing.
    pub fn detach(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> bool {
        if !self.intake.detach_writer(key) {
            return false;
        }
        if let Some(reader) = self.readers.remove(&key) {
            self.take_back_grants(key, reader.group, &HashSet::new());
            self.let_laggards_go();
            self.grant(actions);
        }
        true
    }

    /// A reader takes no more batches. What it was granted goes to others, but for what it keeps, and will give back; it has
    /// not looked at the rest, and will not. Saying it again does no harm.
    pub fn leave_reader(
        &mut self,
        key: MemberKey,
        keeps: &[LeaseToken],
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        let Some(reader) = self.readers.get_mut(&key) else { return Err(Violation::NoMember(key)) };
        reader.left = true;
        let group = reader.group;
        let taken_back = self.take_back_grants(key, group, &keeps.iter().copied().collect());
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.held -= taken_back;
        }
        self.let_laggards_go();
        self.grant(actions);
        Ok(())
    }

    /// Nobody has the reader's grants any more, but for those that it keeps. How many these are.
    fn take_back_grants(&mut self, key: MemberKey, group: GroupId, keeps: &HashSet<LeaseToken>) -> u32 {
        let (ledger, mut taken_back) = (&self.intake.ledger, 0);
        let Some(of_group) = self.groups.get_mut(&group) else { return 0 };
        for (&seq, &block) in &self.intake.live {
            let grant = ledger
                .grant(block, group)
                .filter(|grant| grant.reader == key && !keeps.contains(&grant.token));
            if let Some(grant) = grant {
                self.by_token.remove(&grant.token);
                ledger.clear_grant(block, group);
                of_group.ungranted.insert(seq, block);
                taken_back += 1;
            }
        }
        taken_back
    }

    /// A reader gives batches back. A token that is worth nothing is passed over: it was given back before.
    pub fn release(
        &mut self,
        key: MemberKey,
        tokens: &[LeaseToken],
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        if !self.readers.contains_key(&key) {
            return Err(Violation::NoMember(key));
        }
        // A batch that was not complete is no right of anybody's, but the reader may have seen what a worker spoilt:
        // its other tables must not suffer for it.
        let before = self.by_token.len();
        if let Err(poison) = tokens.iter().try_for_each(|token| self.release_one(key, token)) {
            self.poisoned(poison, actions);
            return Ok(());
        }
        // Whoever gives back nothing gets nothing, and costs nothing.
        if self.by_token.len() == before {
            return Ok(());
        }
        self.let_laggards_go();
        if self.intake.phase == Phase::Open {
            self.publish();
        }
        self.grant(actions);
        Ok(())
    }

    fn release_one(&mut self, key: MemberKey, token: &LeaseToken) -> Result<(), Poison> {
        let Some(&(block, group)) = self.by_token.get(token) else { return Ok(()) };
        if self.intake.ledger.grant(block, group).is_none_or(|grant| grant.reader != key) {
            return Ok(());
        }
        // Until every slot is committed some worker may be writing, and the block must not go round.
        if !self.intake.control.is_full(block) {
            return Err(Poison::Incomplete { block: block.get(), seq: self.intake.ledger.seq(block).0 });
        }
        self.by_token.remove(token);
        // In this order: a daemon that dies in between leaves a grant of a batch that is done with, which is none.
        self.intake.ledger.set_done(block, group);
        self.intake.ledger.clear_grant(block, group);
        self.intake.ledger.count_batch(group);
        self.retire_if_done(block);
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.held -= 1;
            reader.batches += 1;
        }
        Ok(())
    }

    /// Publishes every free block; nobody has a grant of it.
    fn publish(&mut self) {
        let Self { intake, groups, .. } = self;
        intake.publish(|seq, block| {
            for group in groups.values_mut() {
                group.ungranted.insert(seq, block);
            }
        });
    }

    /// A block that every group is done with has served.
    fn retire_if_done(&mut self, block: BlockIndex) {
        let ledger = &self.intake.ledger;
        if !self.groups.keys().all(|&group| ledger.is_done(block, group)) {
            return;
        }
        // Until every slot is committed some worker may be writing.
        match self.intake.control.is_full(block) {
            true => self.intake.retire_block(block),
            false => drop(self.unwanted.insert(block)),
        }
    }

    /// Retires blocks that nobody wanted, once they are full. Whether there were some.
    fn retire_unwanted(&mut self) -> bool {
        let before = self.unwanted.len();
        for block in std::mem::take(&mut self.unwanted) {
            // One that was published again since is nobody's left-over.
            if self.intake.live.get(&self.intake.ledger.seq(block)) == Some(&block) {
                self.retire_if_done(block);
            }
        }
        let retired = self.unwanted.len() < before;
        if retired && self.intake.phase == Phase::Open {
            self.publish();
        }
        retired
    }

    /// Compares the words that only a daemon writes, and that workers and readers rely on, with what was written. Who
    /// finds one spoilt would otherwise wait for what cannot come.
    fn check_words(&mut self) -> Result<(), Poison> {
        self.intake.check_words()?;
        self.by_token.values().try_for_each(|&(block, _)| self.check_state(block))
    }

    /// The state of a block in use carries its sequence, and as long as it is granted it is not broken.
    fn check_state(&self, block: BlockIndex) -> Result<(), Poison> {
        // Relaxed: the only stores that count are this thread's own.
        let intake = &self.intake;
        let (seq, got) = (intake.ledger.seq(block), intake.control.ready(block).load(Ordering::Relaxed));
        match ReadyWord::decode(got) {
            Some(ready) if ready.seq == seq && ready.granted && ready.state != BlockState::Broken => Ok(()),
            _ => Err(Poison::State { block: block.get(), seq: seq.0, got }),
        }
    }

    /// Notes what broke the table, and tells all who are attached.
    fn poisoned(&mut self, poison: Poison, actions: &mut Vec<Action>) {
        if self.intake.poison.is_none() {
            self.intake.poison = Some(poison);
            self.end_all(EndReason::Poisoned, actions);
        }
    }

    /// What is done from time to time: claims of dead workers that could not be settled at once, and ends.
    pub fn tick(&mut self, mover: &mut dyn MoveSamples, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() {
            return;
        }
        self.intake.settle();
        let checked = self.check_words();
        let has_room = self.retire_unwanted();
        if self.let_laggards_go() || has_room || self.has_come_back() {
            self.grant(actions);
        }
        let result = checked.and_then(|()| self.advance_ending(mover, actions));
        if let Err(poison) = result {
            self.poisoned(poison, actions);
        }
    }

    /// Settles what dead workers had claimed, as far as one turn allows; part of [`Queue::tick`].
    pub fn settle_orphans(&mut self) {
        self.intake.settle_orphans();
    }

    /// Whether [`Queue::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        // Room for workers may be what a group is about to skip, once it is complete.
        let skips_soon = || {
            let (cursor, limit) = self.intake.cursor_and_limit();
            cursor >= limit && self.intake.phase == Phase::Open
        };
        self.intake.is_unsettled() || (self.skips_soon && skips_soon())
    }

    /// Stops claims for good; what was committed will still be delivered.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        self.intake.close(reason, actions);
    }

    /// Ends the table for all who are attached, delivered or not.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        self.intake.end_all(reason, actions);
        for (&member, reader) in &mut self.readers {
            reader.ended = true;
            actions.push(Action::End { member, reason, end: BlockSeq(0) });
        }
    }

    /// Whether the table has ended and readers have given back all that they could get.
    pub fn is_drained(&self) -> bool {
        match self.intake.phase {
            _ if self.intake.poison.is_some() => true,
            Phase::Open | Phase::Closing(_) => false,
            Phase::Closed(_) => {
                // One who has left still gives back what it keeps.
                let waits_for = |reader: &Reader| reader.connected && (reader.held > 0 || !reader.left);
                self.intake.live.is_empty() || !self.readers.values().any(waits_for)
            }
        }
    }

    /// Whether its writers have finished, all there was has been read by every group, and nobody is attached.
    pub fn is_spent(&self) -> bool {
        let has_ended = self.intake.phase == Phase::Closed(EndReason::Finished);
        has_ended && self.intake.poison.is_none() && self.intake.live.is_empty() && !self.has_members()
    }

    /// Goes on with the end, as far as it can go now.
    fn advance_ending(
        &mut self,
        mover: &mut dyn MoveSamples,
        actions: &mut Vec<Action>,
    ) -> Result<(), Poison> {
        if self.intake.phase == Phase::Open && self.intake.is_finished() {
            self.close(EndReason::Finished, actions);
        }
        let Self { intake, readers, groups, by_token, unwanted, .. } = self;
        // A block without a sample: its readers hear that nothing will come of it.
        let mut given_up = |seq, block, ledger: &Ledger| {
            unwanted.remove(&block);
            for (&group, of_group) in groups.iter_mut() {
                of_group.ungranted.remove(&seq);
                let grant =
                    ledger.grant(block, group).filter(|grant| by_token.remove(&grant.token).is_some());
                if let Some(reader) = grant.and_then(|grant| readers.get_mut(&grant.reader)) {
                    reader.held -= 1;
                }
            }
        };
        if intake.advance_ending(mover, &mut given_up)? {
            self.grant(actions);
        }
        Ok(())
    }

    /// Tells readers that nothing more comes, once all there is has been granted. Should a reader die later,
    /// what it held is granted to those who still listen, or waits for one who attaches.
    fn end_readers(&mut self, actions: &mut Vec<Action>) {
        let Phase::Closed(reason) = self.intake.phase else { return };
        let end = self.intake.ledger.next_seq();
        for (&member, reader) in &mut self.readers {
            let is_over = self.groups.get(&reader.group).is_none_or(|group| group.ungranted.is_empty());
            if is_over && !reader.ended && reader.listens() {
                reader.ended = true;
                actions.push(Action::End { member, reason, end });
            }
        }
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        self.intake.into_ledger()
    }
}
