//! A latest table: one writer publishes values, and every reader takes the newest.
//!
//! A pure state machine over a ring's words, the private record and the pages of its readers: no socket, no clock, no log.
//! How values come in is [`Intake`]'s: a block is one value. What becomes of them is short: they are in nobody's turn, no
//! reader is granted anything, and the daemon is asked for nothing when one is read ([`hold`]). Its part is to let blocks go
//! round that are older than the newest and that nobody holds, so that the writer finds room.
//!
//! What always holds: the newest value's block does not go round, nor one that a reader holds who may still read it. There
//! is at most one writer that may claim, and none is let in before what the last one had claimed is settled: so values are
//! published in the order of their versions. While a reader of before this daemon is not back, no block goes round.
//!
//! What is believed: nothing. A value is the newest if the private record has its block under that sequence, its commit is
//! there, and none was newer. A hold keeps the block that lives under the sequence it names, and no other.
//!
//! The table has no end of its own: writers come and go. It ends when it is dropped or its daemon stops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{BlockIndex, BlockSeq};
use crate::ring::control::Control;
use crate::ring::newest::{self, ValueWord};
use crate::ring::record::ClientPage;
use crate::ring::{hold, ready};
use crate::table::action::{Action, Occupied, Violation};
use crate::table::ending::Phase;
use crate::table::intake::Intake;
use crate::table::ledger::Ledger;
use crate::table::member::{MemberKey, Taker};
use crate::table::poison::{Poison, RebuildError};
use crate::table::roster::Part;
use crate::wire::message::{BlockCounts, EndReason};

/// Looks for room that one request of the writer's buys: some 0.3 s of them. It asks again for as long as it waits.
const LOOKS: u32 = 150;

/// The state machine.
pub struct Latest {
    intake: Intake,
    readers: BTreeMap<MemberKey, Taker>,
    /// Members of before this daemon that are not back.
    absent: BTreeMap<MemberKey, Part>,
    /// How often the daemon still looks, soon, for room that the writer waits for.
    looks: u32,
}

impl Latest {
    /// A new table over zeroed words, whose first `usable` blocks have memory. They are published.
    pub fn create(control: Arc<Control>, ledger: Ledger, usable: u32) -> Self {
        let mut latest = Self::over(Intake::create(control, ledger, usable));
        latest.intake.publish(|_, _| ());
        latest
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever instruction. Its
    /// clients come back by [`Latest::attach_writer`] and [`Latest::attach_reader`] with their old keys; of those that are
    /// gone [`Latest::detach`] says so. Until then what they hold stays theirs.
    ///
    /// # Errors
    /// If the words do not fit the record.
    pub fn rebuild(control: Arc<Control>, ledger: Ledger) -> Result<Self, RebuildError> {
        let mut latest = Self::over(Intake::rebuild(control, ledger)?);
        latest.absent = latest.intake.ledger.roster();
        if latest.intake.phase == Phase::Open {
            latest.intake.publish(|_, _| ());
        }
        // The last daemon may have died between `newest` and its wake.
        newest::wake(&latest.intake.control);
        Ok(latest)
    }

    const fn over(intake: Intake) -> Self {
        Self { intake, readers: BTreeMap::new(), absent: BTreeMap::new(), looks: 0 }
    }

    /// How values come in.
    pub const fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Its readers.
    pub const fn readers(&self) -> &BTreeMap<MemberKey, Taker> {
        &self.readers
    }

    /// Readers of before this daemon that are not back.
    pub fn absent_readers(&self) -> usize {
        self.absent.values().filter(|&&part| part == Part::Reads).count()
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        !self.intake.writers.is_empty() || !self.readers.is_empty() || !self.absent.is_empty()
    }

    /// The newest value, as it is now; for people.
    pub fn newest(&self) -> Option<ValueWord> {
        let now = self.decode(newest::load(&self.intake.control)).filter(|value| self.is_newer(value));
        now.or_else(|| self.last_seen())
    }

    /// The newest value, as it was last seen to be.
    fn last_seen(&self) -> Option<ValueWord> {
        self.decode(self.intake.ledger.newest())
    }

    fn decode(&self, word: u64) -> Option<ValueWord> {
        ValueWord::decode(word, self.intake.geometry().max_blocks())
    }

    /// Whether a value that is said to be the newest can be: it is newer than the last one that was seen, and committed.
    fn is_newer(&self, value: &ValueWord) -> bool {
        // acquire, in `is_full`: pairs with the commit, which came before the word
        value.version() > newest::version(self.intake.ledger.newest())
            && self.lives(*value)
            && self.intake.control.is_full(value.block)
    }

    /// What readers hold that lives, each value once for each reader.
    pub fn held(&self) -> impl Iterator<Item = (MemberKey, ValueWord)> {
        let held = |(&key, reader)| self.held_by(reader).into_iter().map(move |value| (key, value));
        self.readers.iter().flat_map(held)
    }

    /// How many values that live a reader holds.
    pub fn count_held(&self, key: MemberKey) -> u32 {
        self.readers.get(&key).map_or(0, |reader| self.held_by(reader).len() as u32)
    }

    fn held_by(&self, reader: &Taker) -> BTreeSet<ValueWord> {
        reader.held(self.intake.geometry().max_blocks()).filter(|&value| self.lives(value)).collect()
    }

    fn lives(&self, value: ValueWord) -> bool {
        self.intake.live.get(&value.seq) == Some(&value.block)
    }

    /// Blocks by state; those that readers hold count as granted.
    pub fn block_counts(&self) -> BlockCounts {
        let held: BTreeSet<BlockIndex> = self.held().map(|(_, value)| value.block).collect();
        BlockCounts { granted: held.len() as u32, ..self.intake.block_counts() }
    }

    /// A process publishes from now on.
    ///
    /// # Errors
    /// If another one does, or what that had claimed is not settled. One of that key that was here before comes back.
    pub fn attach_writer(
        &mut self,
        key: MemberKey,
        page: Arc<ClientPage>,
        record: u32,
    ) -> Result<(), Occupied> {
        self.admits_writer(key)?;
        if !self.intake.ledger.enrol(key, Part::Writes) {
            return Err(Occupied::Full);
        }
        self.absent.remove(&key);
        self.intake.attach_writer(key, page, record);
        Ok(())
    }

    /// Whether [`Latest::attach_writer`] would let this one in, but for want of room.
    ///
    /// # Errors
    /// As that.
    pub fn admits_writer(&self, key: MemberKey) -> Result<(), Occupied> {
        let is_back = self.absent.contains_key(&key);
        let claims = self.intake.writers.iter().filter(|(_, writer)| !writer.finished || !writer.is_idle());
        let absent = self.absent.iter().filter(|(_, part)| **part == Part::Writes);
        let mut writers = claims.map(|(&other, _)| other).chain(absent.map(|(&other, _)| other));
        match writers.find(|&other| other != key) {
            Some(other) => Err(Occupied::Writer(other)),
            None if !self.intake.orphans.is_empty() && !is_back => Err(Occupied::Unsettled),
            None => Ok(()),
        }
    }

    /// A process may take values from now on; one of that key that was here before goes on.
    ///
    /// # Errors
    /// If there are too many.
    pub fn attach_reader(
        &mut self,
        key: MemberKey,
        page: Arc<ClientPage>,
        line: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), Occupied> {
        if !self.intake.ledger.enrol(key, Part::Reads) {
            return Err(Occupied::Full);
        }
        self.absent.remove(&key);
        self.readers.insert(key, Taker::new(page, line));
        if let Phase::Closed(reason) | Phase::Closing(reason) = self.intake.phase {
            actions.push(Action::End { member: key, reason, end: BlockSeq(0) });
        }
        Ok(())
    }

    /// A writer publishes no more. Another one may come.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn finish_writer(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.finish_writer(key)
    }

    /// A writer gave up its claim: it marked its record, and says so.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn drop_claim(&mut self, key: MemberKey) -> Result<(), Violation> {
        self.intake.drop_claim(key)
    }

    /// A writer found no room, and wants to know soon when there is some.
    ///
    /// # Errors
    /// If there is none of that key.
    pub fn need_space(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> Result<(), Violation> {
        if !self.intake.writers.contains_key(&key) {
            return Err(Violation::NoMember(key));
        }
        if self.intake.poison.is_none() {
            self.looks = LOOKS;
            if let Err(poison) = self.recycle() {
                self.poisoned(poison, actions);
            }
        }
        Ok(())
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds.
    pub fn disconnect(&mut self, key: MemberKey) {
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.connected = false;
        }
    }

    /// A member can no longer touch the table's memory: its process is gone, or it said that it unmapped. What a reader
    /// holds is held no more; what a writer had claimed is the next one's. False if that cannot be done yet: then the call
    /// is to be made again.
    ///
    /// Calling it for a member that is gone does nothing.
    pub fn detach(&mut self, key: MemberKey) -> bool {
        let wrote = self.intake.writers.contains_key(&key);
        if !self.intake.detach_writer(key) {
            return false;
        }
        if wrote {
            // It may have died between its commit and `newest`, or between that and its wake.
            self.catch_up();
            newest::wake(&self.intake.control);
        }
        if let Some(reader) = self.readers.remove(&key) {
            reader.line().reset();
        }
        self.absent.remove(&key);
        // Last: until then it is one for whom a successor of this daemon would wait.
        self.intake.ledger.strike(key);
        true
    }

    /// What is done from time to time: claims of dead writers that could not be settled at once, values whose writer did
    /// not say that they are the newest, and blocks that can go round.
    pub fn tick(&mut self, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() {
            return;
        }
        self.intake.settle();
        let checked = self.intake.check_words();
        if let Err(poison) = checked.and_then(|()| self.recycle()) {
            self.poisoned(poison, actions);
        }
    }

    /// Whether [`Latest::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        self.intake.is_unsettled() || (self.looks > 0 && self.intake.phase == Phase::Open)
    }

    /// The newest value, if it is one that can be.
    fn see_newest(&mut self) -> Result<Option<ValueWord>, Poison> {
        let got = newest::load(&self.intake.control);
        let seen = self.intake.ledger.newest();
        if got == seen {
            return Ok(self.last_seen());
        }
        let value = self.decode(got).filter(|value| self.is_newer(value));
        let value = value.ok_or(Poison::Newest { got, seen })?;
        self.intake.ledger.set_newest(got);
        Ok(Some(value))
    }

    /// Says that the last value that is committed is the newest, if nobody has said so. Its writer died in between, or is
    /// about to say it itself: that does no harm.
    fn catch_up(&self) {
        let control = &self.intake.control;
        let seen = newest::load(control);
        let newer = self.intake.live.range(BlockSeq(newest::version(seen))..).rev();
        let last =
            newer.map(|(&seq, &block)| ValueWord { seq, block }).find(|value| control.is_full(value.block));
        if let Some(value) = last {
            ready::complete(control, value.block, value.seq);
            newest::catch_up(control, seen, value);
        }
    }

    /// Lets blocks go round that are older than the newest and that nobody holds.
    fn recycle(&mut self) -> Result<(), Poison> {
        // Before it is mended: what somebody spoilt is to be named.
        self.see_newest()?;
        self.catch_up();
        let newest = self.see_newest()?;
        if self.intake.phase != Phase::Open {
            return Ok(());
        }
        if let Some(newest) = newest
            && self.absent_readers() == 0
        {
            // Not one whose value is not committed: its writer may still write it.
            let older = self.intake.live.range(..newest.seq).map(|(&seq, &block)| ValueWord { seq, block });
            let mut old: Vec<_> = older.filter(|value| self.intake.control.is_full(value.block)).collect();
            if !old.is_empty() {
                // `newest` was read before, the holds are after: see `hold`.
                hold::before_looking();
                let max_blocks = self.intake.geometry().max_blocks();
                let held: BTreeSet<_> =
                    self.readers.values().flat_map(|reader| reader.held(max_blocks)).collect();
                old.retain(|value| !held.contains(value));
                for value in old {
                    self.intake.retire_block(value.block);
                }
            }
        }
        self.intake.publish(|_, _| ());
        let (cursor, limit) = self.intake.cursor_and_limit();
        self.looks = if cursor < limit { 0 } else { self.looks.saturating_sub(1) };
        Ok(())
    }

    /// Notes what broke the table, and tells all who are attached.
    fn poisoned(&mut self, poison: Poison, actions: &mut Vec<Action>) {
        if self.intake.poison.is_none() {
            self.intake.poison = Some(poison);
            self.end_all(EndReason::Poisoned, actions);
        }
    }

    /// Ends the table for all who are attached. What is the newest can still be read.
    pub fn end_all(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        self.intake.end_all(reason, actions);
        let readers = self.readers.keys();
        actions.extend(readers.map(|&member| Action::End { member, reason, end: BlockSeq(0) }));
    }

    /// Ends an open table: nothing of it has to be delivered first.
    pub fn close(&mut self, reason: EndReason, actions: &mut Vec<Action>) {
        if self.intake.phase == Phase::Open {
            self.end_all(reason, actions);
        }
    }

    /// Whether the table has ended.
    pub fn is_drained(&self) -> bool {
        self.intake.poison.is_some() || matches!(self.intake.phase, Phase::Closed(_))
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        self.intake.into_ledger()
    }
}
