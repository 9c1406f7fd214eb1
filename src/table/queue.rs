//! A queue table: each batch to exactly one reader, in the order in which it filled.
//!
//! A pure state machine over a ring's words and the private record: no socket, no clock, no log; randomness
//! comes in. Calls change it and push what must be said to clients as [`Action`]s. It never waits: what cannot
//! be done yet is done by a later call or by [`Queue::tick`].
//!
//! How samples come in is [`Intake`]'s; this is what becomes of complete blocks.
//!
//! What always holds: a block is free, or it is live and then either granted to one reader or in `ungranted`.
//! A reader is granted a batch only while it holds fewer than its prefetch depth and its user no more than a fair part
//! of the blocks (`quota`), the lowest sequence first; what a dead reader held comes later than its sequence. A block is published
//! again only after its reader gave it back *and* every slot was committed, so that no claim to it can be open.
//!
//! It works per block and per death, never per sample.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use crate::ids::{BlockIndex, BlockSeq, GrantNumber, LeaseToken};
use crate::ring::control::Control;
use crate::ring::ready::{self, BlockState, ReadyWord};
use crate::ring::record::ClientPage;
use crate::sync::Ordering;
use crate::table::action::{Action, Violation};
use crate::table::ending::{MoveSamples, Phase};
use crate::table::intake::Intake;
use crate::table::ledger::{GrantRecord, Ledger};
use crate::table::member::{MemberKey, Reader, UNKNOWN_UID};
use crate::table::poison::{Poison, RebuildError};
use crate::table::quota::Quota;
use crate::wire::message::{EndReason, Grant};

/// Where lease tokens come from.
pub type Tokens = Box<dyn FnMut() -> io::Result<LeaseToken> + Send>;

/// The state machine.
pub struct Queue {
    intake: Intake,
    readers: BTreeMap<MemberKey, Reader>,
    ungranted: BTreeMap<BlockSeq, BlockIndex>,
    by_token: HashMap<LeaseToken, BlockIndex>,
    tokens: Tokens,
    turn: u64,
}

impl Queue {
    /// A new table over zeroed words, whose first `usable` blocks have memory. They are published.
    pub fn create(control: Arc<Control>, ledger: Ledger, usable: u32, tokens: Tokens) -> Self {
        let mut queue = Self::over(Intake::create(control, ledger, usable), tokens);
        queue.publish();
        queue
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever
    /// instruction. Its clients come back by [`Queue::attach_writer`] and [`Queue::attach_reader`] with their
    /// old keys; until then what they hold stays theirs.
    pub fn rebuild(control: Arc<Control>, ledger: Ledger, tokens: Tokens) -> Result<Self, RebuildError> {
        let mut queue = Self::over(Intake::rebuild(control, ledger)?, tokens);
        for (&seq, &block) in &queue.intake.live {
            match queue.intake.ledger.grant(block) {
                Some(grant) => {
                    ready::set_granted(&queue.intake.control, block);
                    queue.by_token.insert(grant.token, block);
                    let reader =
                        queue.readers.entry(grant.reader).or_insert_with(|| Reader::new(UNKNOWN_UID, 0));
                    reader.connected = false;
                    reader.held += 1;
                    reader.last_number = reader.last_number.max(grant.number);
                }
                None => drop(queue.ungranted.insert(seq, block)),
            }
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
            ungranted: BTreeMap::new(),
            by_token: HashMap::new(),
            tokens,
            turn: 0,
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

    /// The blocks that are granted, in no order.
    pub fn granted_blocks(&self) -> impl Iterator<Item = (BlockSeq, BlockIndex, GrantRecord)> {
        let ledger = &self.intake.ledger;
        let granted = self.by_token.values();
        granted.filter_map(|&block| Some((ledger.seq(block), block, ledger.grant(block)?)))
    }

    /// How many blocks in use are granted to nobody.
    pub fn ungranted_blocks(&self) -> usize {
        self.ungranted.len()
    }

    /// A process may write from now on.
    pub fn attach_writer(&mut self, key: MemberKey, page: Arc<ClientPage>, record: u32) {
        self.intake.attach_writer(key, page, record);
    }

    /// A process of that user may read from now on; one of that key that was here before goes on.
    pub fn attach_reader(&mut self, key: MemberKey, uid: u32, prefetch: u16, actions: &mut Vec<Action>) {
        let reader = self.readers.entry(key).or_insert_with(|| Reader::new(uid, prefetch));
        reader.uid = uid;
        reader.prefetch = prefetch;
        reader.connected = true;
        self.grant(actions);
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
        if self.readers.remove(&key).is_some() {
            self.take_back_grants(key);
            self.grant(actions);
        }
        true
    }

    fn take_back_grants(&mut self, key: MemberKey) {
        let ledger = &self.intake.ledger;
        for (&seq, &block) in &self.intake.live {
            if let Some(grant) = ledger.grant(block).filter(|grant| grant.reader == key) {
                self.by_token.remove(&grant.token);
                ledger.clear_grant(block);
                self.ungranted.insert(seq, block);
            }
        }
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
        if self.intake.phase == Phase::Open {
            self.publish();
        }
        self.grant(actions);
        Ok(())
    }

    fn release_one(&mut self, key: MemberKey, token: &LeaseToken) -> Result<(), Poison> {
        let Some(&block) = self.by_token.get(token) else { return Ok(()) };
        if self.intake.ledger.grant(block).is_none_or(|grant| grant.reader != key) {
            return Ok(());
        }
        // Until every slot is committed some worker may be writing, and the block must not go round.
        if !self.intake.control.is_full(block) {
            return Err(Poison::Incomplete { block: block.get(), seq: self.intake.ledger.seq(block).0 });
        }
        self.by_token.remove(token);
        self.intake.retire_block(block);
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.held -= 1;
            reader.batches += 1;
        }
        Ok(())
    }

    /// Publishes every free block; nobody has a grant of it.
    fn publish(&mut self) {
        let Self { intake, ungranted, .. } = self;
        intake.publish(|seq, block| {
            ungranted.insert(seq, block);
        });
    }

    /// Grants what is not granted, to the readers that hold least, and tells those for whom nothing is left.
    fn grant(&mut self, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() {
            return;
        }
        let mut granted: BTreeMap<MemberKey, Vec<Grant>> = BTreeMap::new();
        let mut quota = Quota::of(self.readers.values(), self.intake.ledger.usable());
        while let Some((&seq, &block)) = self.ungranted.first_key_value() {
            let wanting =
                self.readers.iter_mut().filter(|(_, reader)| reader.wants() && quota.allows(reader.uid));
            let first = |reader: &Reader| (reader.ended, reader.held, reader.turn);
            let Some((&key, reader)) = wanting.min_by_key(|(_, reader)| first(reader)) else {
                break;
            };
            let token = match (self.tokens)() {
                Ok(token) => token,
                Err(error) => {
                    self.poisoned(Poison::Tokens(error.to_string()), actions);
                    return;
                }
            };
            self.turn += 1;
            reader.turn = self.turn;
            reader.held += 1;
            quota.take(reader.uid);
            reader.last_number = GrantNumber(reader.last_number.0 + 1);
            let number = reader.last_number;
            // GRANTED before the record: a daemon that dies in between leaves a needless wake, not a lost one.
            ready::set_granted(&self.intake.control, block);
            self.intake.ledger.set_grant(block, &GrantRecord { reader: key, number, token });
            self.by_token.insert(token, block);
            self.ungranted.pop_first();
            granted.entry(key).or_default().push(Grant { number, seq, block: block.get(), token });
        }
        actions.extend(granted.into_iter().map(|(reader, grants)| Action::Grant { reader, grants }));
        self.end_readers(actions);
    }

    /// Compares the words that only a daemon writes, and that workers and readers rely on, with what was written. Who
    /// finds one spoilt would otherwise wait for what cannot come.
    fn check_words(&mut self) -> Result<(), Poison> {
        self.intake.check_words()?;
        self.by_token.values().try_for_each(|&block| self.check_state(block))
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
        self.intake.is_unsettled()
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
                self.intake.live.is_empty() || self.readers.values().all(|reader| !reader.connected)
            }
        }
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
        let Self { intake, readers, ungranted, by_token, .. } = self;
        // A block without a sample: its reader hears that nothing will come of it.
        let mut given_up = |seq, grant: Option<GrantRecord>| {
            ungranted.remove(&seq);
            if let Some(grant) = grant {
                by_token.remove(&grant.token);
                if let Some(reader) = readers.get_mut(&grant.reader) {
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
        if !self.ungranted.is_empty() {
            return;
        }
        let end = self.intake.ledger.next_seq();
        for (&member, reader) in &mut self.readers {
            if !reader.ended && reader.connected {
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
