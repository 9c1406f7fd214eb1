//! A queue table: each batch to exactly one reader, in the order in which it filled.
//!
//! A pure state machine over a ring's words and the private record: no socket, no clock, no log; randomness
//! comes in. Calls change it and push what must be said to clients as [`Action`]s. It never waits: what cannot
//! be done yet is done by a later call or by [`Queue::tick`].
//!
//! What always holds: a block is free, or it is live and then either granted to one reader or in `ungranted`.
//! A reader is granted a batch only while it holds fewer than its prefetch depth and its user no more than a fair part
//! of the blocks (`quota`), the lowest sequence first; what a dead reader held comes later than its sequence. A block is published
//! again only after its reader gave it back *and* every slot was committed, so that no claim to it can be open.
//!
//! Nothing that a client can write is believed: what the shared words say is compared with the private record,
//! and where they cannot both be right the table is *poisoned* and says why.
//!
//! It works per block and per death, never per sample.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use thiserror::Error;

use crate::ids::{BlockIndex, BlockSeq, GrantNumber, LeaseToken, Position};
use crate::ring::control::{CLOSED, Control, ControlError, Geometry};
use crate::ring::ready::{BlockState, ReadyWord};
use crate::ring::record::ClientPage;
use crate::ring::{fill_ring, ready, space};
use crate::sync::Ordering;
use crate::table::ending::Phase;
use crate::table::ledger::{BlockUse, GrantRecord, Ledger, LedgerError, ORPHANS};
use crate::table::member::{MemberKey, Reader, UNKNOWN_UID, Writer};
use crate::table::orphan::Orphan;
use crate::table::quota::Quota;
use crate::wire::message::{BlockCounts, EndReason, Grant, SampleCounts};

/// Where lease tokens come from.
pub type Tokens = Box<dyn FnMut() -> io::Result<LeaseToken> + Send>;

/// Something to be said to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// These batches are this reader's.
    Grant {
        /// The reader.
        reader: MemberKey,
        /// In ascending number.
        grants: Vec<Grant>,
    },
    /// This member's stream ends.
    End {
        /// The writer or reader.
        member: MemberKey,
        /// Why.
        reason: EndReason,
        /// First sequence that will not be delivered.
        end: BlockSeq,
    },
}

/// A broken invariant, which only the table's own workers can have caused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Poison {
    #[error("the cursor is {cursor}, outside of {seen} (what was seen) to {limit} (the limit)")]
    Cursor { cursor: u64, seen: u64, limit: u64 },
    #[error("refill entry {entry} holds {got}, where {offered} was offered")]
    Refill { entry: u32, got: u64, offered: u64 },
    #[error("refill entry {entry} names block {got}, where the hole that was offered is in block {block}")]
    RefillBlock { entry: u32, got: u32, block: u32 },
    #[error("the header does not say what table this is: {0}")]
    Header(ControlError),
    #[error("the limit is {got}, and {limit} was set")]
    Limit { got: u64, limit: u64 },
    #[error("the fill ring says that batch {seq} is in block {got}, and it is in {block}")]
    Fill { seq: u64, got: u32, block: u32 },
    #[error("a sample of block {block} could not be moved from slot {from} to {to}: {why}")]
    Move { block: u32, from: u32, to: u32, why: String },
    #[error("the state of block {block} is {got:#x}, which is none of batch {seq}")]
    State { block: u32, seq: u64, got: u64 },
    #[error("batch {seq} was given back before block {block} was complete: its reader or a worker spoilt it")]
    Incomplete { block: u32, seq: u64 },
    #[error("no lease token could be made: {0}")]
    Tokens(String),
    #[error("it was so before this daemon took it over")]
    Before,
}

/// A client asked for what it has no right to.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum Violation {
    #[error("member {0} is not attached to this table")]
    NoMember(MemberKey),
}

/// Why a table cannot be taken over.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum RebuildError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("blocks {first} and {second} both hold seq {seq}")]
    Twice { first: u32, second: u32, seq: u64 },
    #[error(transparent)]
    Poisoned(#[from] Poison),
}

/// The state machine.
pub struct Queue {
    pub(super) control: Arc<Control>,
    pub(super) ledger: Ledger,
    pub(super) writers: BTreeMap<MemberKey, Writer>,
    pub(super) readers: BTreeMap<MemberKey, Reader>,
    pub(super) live: BTreeMap<BlockSeq, BlockIndex>,
    pub(super) ungranted: BTreeMap<BlockSeq, BlockIndex>,
    pub(super) free: VecDeque<BlockIndex>,
    pub(super) orphans: VecDeque<Orphan>,
    pub(super) phase: Phase,
    pub(super) poison: Option<Poison>,
    by_token: HashMap<LeaseToken, BlockIndex>,
    tokens: Tokens,
    turn: u64,
    /// Samples of the block that is being finished that have been moved.
    pub(super) moved: usize,
}

impl Queue {
    /// A new table over zeroed words, whose first `usable` blocks have memory. They are published.
    pub fn create(control: Arc<Control>, ledger: Ledger, usable: u32, tokens: Tokens) -> Self {
        ledger.set_usable(usable.min(control.geometry().max_blocks()));
        let mut queue = Self::empty(control, ledger, tokens);
        queue.free = queue.blocks().collect();
        queue.publish();
        queue
    }

    /// Takes a table over from its private record and the shared words, as a daemon left them at whatever
    /// instruction. Its clients come back by [`Queue::attach_writer`] and [`Queue::attach_reader`] with their
    /// old keys; until then what they hold stays theirs.
    pub fn rebuild(control: Arc<Control>, ledger: Ledger, tokens: Tokens) -> Result<Self, RebuildError> {
        let mut queue = Self::empty(control, ledger, tokens);
        queue.phase = Phase::decode(queue.ledger.phase());
        for block in queue.blocks().collect::<Vec<_>>() {
            if queue.ledger.block_use(block) == BlockUse::Free {
                queue.free.push_back(block);
                continue;
            }
            let seq = queue.ledger.seq(block);
            // The last daemon may have died between the two.
            queue.ledger.set_next_seq_at_least(BlockSeq(seq.0 + 1));
            let word = queue.control.ready(block).load(Ordering::Acquire);
            match ReadyWord::decode(word).filter(|ready| ready.seq == seq).map(|ready| ready.state) {
                Some(BlockState::Filling | BlockState::Complete) => {}
                // The last daemon was giving it up, and had not come to its record.
                Some(BlockState::Broken) if queue.phase != Phase::Open => {
                    queue.ledger.set_free(block);
                    queue.free.push_back(block);
                    continue;
                }
                _ => return Err(Poison::State { block: block.get(), seq: seq.0, got: word }.into()),
            }
            if let Some(first) = queue.live.insert(seq, block) {
                return Err(RebuildError::Twice { first: first.get(), second: block.get(), seq: seq.0 });
            }
            match queue.ledger.grant(block) {
                Some(grant) => {
                    ready::set_granted(&queue.control, block);
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
        queue.orphans = (0..ORPHANS)
            .filter_map(|index| Orphan::kept(index, queue.ledger.orphan(index), queue.control.geometry()))
            .collect();
        // The last daemon may have died between its record and the limit, or before it woke anybody.
        fill_ring::raise_limit(&queue.control, queue.ledger.next_seq());
        if queue.phase == Phase::Closed(EndReason::Poisoned) {
            queue.poison = Some(Poison::Before);
        }
        if matches!(queue.phase, Phase::Closed(_)) {
            // The last daemon may have died before it did.
            queue.forget_orphans();
        }
        if queue.phase == Phase::Open {
            queue.publish();
        }
        Ok(queue)
    }

    fn empty(control: Arc<Control>, ledger: Ledger, tokens: Tokens) -> Self {
        Self {
            control,
            ledger,
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            live: BTreeMap::new(),
            ungranted: BTreeMap::new(),
            free: VecDeque::new(),
            orphans: VecDeque::new(),
            phase: Phase::Open,
            poison: None,
            by_token: HashMap::new(),
            tokens,
            turn: 0,
            moved: 0,
        }
    }

    fn blocks(&self) -> impl Iterator<Item = BlockIndex> + use<> {
        let max = self.geometry().max_blocks();
        (0..self.ledger.usable()).filter_map(move |block| BlockIndex::new(block, max))
    }

    pub(super) fn geometry(&self) -> &Geometry {
        self.control.geometry()
    }

    /// The shared words.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// What broke the table, if something did.
    pub fn poison(&self) -> Option<&Poison> {
        self.poison.as_ref()
    }

    /// In which phase of its life the table is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether somebody is attached.
    pub fn has_members(&self) -> bool {
        !self.writers.is_empty() || !self.readers.is_empty()
    }

    /// Its writers.
    pub fn writers(&self) -> &BTreeMap<MemberKey, Writer> {
        &self.writers
    }

    /// Its readers.
    pub fn readers(&self) -> &BTreeMap<MemberKey, Reader> {
        &self.readers
    }

    /// The blocks that are granted, in no order.
    pub fn granted_blocks(&self) -> impl Iterator<Item = (BlockSeq, BlockIndex, GrantRecord)> {
        let granted = self.by_token.values();
        granted.filter_map(|&block| Some((self.ledger.seq(block), block, self.ledger.grant(block)?)))
    }

    /// How many blocks in use are granted to nobody.
    pub fn ungranted_blocks(&self) -> usize {
        self.ungranted.len()
    }

    /// A process may write from now on.
    pub fn attach_writer(&mut self, key: MemberKey, page: Arc<ClientPage>, record: u32) {
        self.writers.insert(key, Writer::new(page, record));
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
        self.writers.get_mut(&key).ok_or(Violation::NoMember(key))?.finished = true;
        self.ledger.set_writer_finished();
        Ok(())
    }

    /// A reader's connection is gone, but its process can still read: it keeps what it holds and gets no more.
    pub fn disconnect(&mut self, key: MemberKey) {
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.connected = false;
        }
    }

    /// A member can no longer touch the table's memory: its process is gone, or it said that it unmapped. What
    /// a reader holds goes to others; what a writer had claimed is orphaned. False if the list of orphans is
    /// full: then its records stay where they are, and the call is to be made again.
    ///
    /// Calling it for a member that is gone does nothing.
    pub fn detach(&mut self, key: MemberKey, actions: &mut Vec<Action>) -> bool {
        if let Some(writer) = self.writers.get_mut(&key) {
            // What it holds is nobody's from now on, kept as orphaned or not: a list that is full of claims that this
            // one covers would otherwise never be emptied.
            writer.gone = true;
            let claims = [writer.record().claim(), writer.record().moving()];
            let claims: Vec<u64> = claims.map(|word| word.load(Ordering::Acquire)).into();
            if !self.keep_orphans(&claims) {
                return false;
            }
            if let Some(writer) = self.writers.remove(&key) {
                writer.record().reset();
            }
            self.settle_orphans();
        }
        if self.readers.remove(&key).is_some() {
            self.take_back_grants(key);
            self.grant(actions);
        }
        true
    }

    fn take_back_grants(&mut self, key: MemberKey) {
        for (&seq, &block) in &self.live {
            if let Some(grant) = self.ledger.grant(block).filter(|grant| grant.reader == key) {
                self.by_token.remove(&grant.token);
                self.ledger.clear_grant(block);
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
        if self.phase == Phase::Open {
            self.publish();
        }
        self.grant(actions);
        Ok(())
    }

    fn release_one(&mut self, key: MemberKey, token: &LeaseToken) -> Result<(), Poison> {
        let Some(&block) = self.by_token.get(token) else { return Ok(()) };
        if self.ledger.grant(block).is_none_or(|grant| grant.reader != key) {
            return Ok(());
        }
        // Until every slot is committed some worker may be writing, and the block must not go round.
        if !self.control.is_full(block) {
            return Err(Poison::Incomplete { block: block.get(), seq: self.ledger.seq(block).0 });
        }
        self.by_token.remove(token);
        let length = self.ledger.length(block);
        // The daemon set the bits of a short block's missing samples itself.
        let bits = self.control.count(block).min(length);
        self.ledger.add_delivered(length, bits);
        self.free_block(block);
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.held -= 1;
            reader.batches += 1;
        }
        Ok(())
    }

    pub(super) fn free_block(&mut self, block: BlockIndex) {
        self.live.remove(&self.ledger.seq(block));
        self.ledger.set_free(block);
        self.free.push_back(block);
    }

    /// Takes a grant away whose block will never be complete.
    pub(super) fn void_grant(&mut self, block: BlockIndex) {
        if let Some(grant) = self.ledger.grant(block) {
            self.by_token.remove(&grant.token);
            if let Some(reader) = self.readers.get_mut(&grant.reader) {
                reader.held -= 1;
            }
        }
        self.ungranted.remove(&self.ledger.seq(block));
    }

    /// Publishes every free block under the next sequence.
    fn publish(&mut self) {
        if self.free.is_empty() || self.poison.is_some() {
            return;
        }
        while let Some(block) = self.free.pop_front() {
            let seq = self.ledger.next_seq();
            fill_ring::prepare(&self.control, block, seq);
            self.ledger.set_live(block, seq);
            self.live.insert(seq, block);
            self.ungranted.insert(seq, block);
        }
        fill_ring::raise_limit(&self.control, self.ledger.next_seq());
    }

    /// Grants what is not granted, to the readers that hold least, and tells those for whom nothing is left.
    pub(super) fn grant(&mut self, actions: &mut Vec<Action>) {
        if self.poison.is_some() {
            return;
        }
        let mut granted: BTreeMap<MemberKey, Vec<Grant>> = BTreeMap::new();
        let mut quota = Quota::of(self.readers.values(), self.ledger.usable());
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
            ready::set_granted(&self.control, block);
            self.ledger.set_grant(block, &GrantRecord { reader: key, number, token });
            self.by_token.insert(token, block);
            self.ungranted.pop_first();
            granted.entry(key).or_default().push(Grant { number, seq, block: block.get(), token });
        }
        actions.extend(granted.into_iter().map(|(reader, grants)| Action::Grant { reader, grants }));
        self.end_readers(actions);
    }

    /// The cursor without CLOSED, if it is where it can be.
    pub(super) fn cursor(&mut self) -> Result<u64, Poison> {
        // acquire: pairs with the claimers' CAS
        let cursor = self.control.cursor().load(Ordering::Acquire) & !CLOSED;
        let (seen, limit) = (self.ledger.seen_cursor(), self.geometry().first(self.ledger.next_seq()).0);
        if cursor < seen || cursor > limit {
            return Err(Poison::Cursor { cursor, seen, limit });
        }
        self.ledger.set_seen_cursor(cursor);
        Ok(cursor)
    }

    /// Compares the words that only a daemon writes, and that workers and readers rely on, with what was written. Who
    /// finds one spoilt would otherwise wait for what cannot come.
    fn check_words(&mut self) -> Result<(), Poison> {
        self.control.check_header().map_err(Poison::Header)?;
        let limit = self.geometry().first(self.ledger.next_seq()).0;
        // Relaxed here and below: the only stores that count are this thread's own.
        let got = self.control.limit().load(Ordering::Relaxed);
        if got != limit {
            return Err(Poison::Limit { got, limit });
        }
        let cursor = Position(self.cursor()?);
        let seq = self.geometry().seq(cursor);
        if let Some(&block) = self.live.get(&seq) {
            let got = self.control.fill(seq).load(Ordering::Relaxed);
            if got != block.get() {
                return Err(Poison::Fill { seq: seq.0, got, block: block.get() });
            }
        }
        self.check_refill()?;
        self.by_token.values().try_for_each(|&block| self.check_state(block))
    }

    /// The state of a block in use carries its sequence, and as long as it is granted it is not broken.
    fn check_state(&self, block: BlockIndex) -> Result<(), Poison> {
        let (seq, got) = (self.ledger.seq(block), self.control.ready(block).load(Ordering::Relaxed));
        match ReadyWord::decode(got) {
            Some(ready) if ready.seq == seq && ready.granted && ready.state != BlockState::Broken => Ok(()),
            _ => Err(Poison::State { block: block.get(), seq: seq.0, got }),
        }
    }

    /// Notes what broke the table, and tells all who are attached.
    pub(super) fn poisoned(&mut self, poison: Poison, actions: &mut Vec<Action>) {
        if self.poison.is_none() {
            self.poison = Some(poison);
            self.end_all(EndReason::Poisoned, actions);
        }
    }

    /// What is done from time to time: claims of dead workers that could not be settled at once, and ends.
    pub fn tick(&mut self, mover: &mut dyn MoveSamples, actions: &mut Vec<Action>) {
        if self.poison.is_some() {
            return;
        }
        let took_over = self.take_over_dropped();
        self.settle_orphans();
        if took_over {
            // As in `drop_claim`.
            space::announce(&self.control);
        }
        let checked = self.check_words();
        let result = checked.and_then(|()| self.advance_ending(mover, actions));
        if let Err(poison) = result {
            self.poisoned(poison, actions);
        }
    }

    /// Whether [`Queue::tick`] has something to do soon.
    pub fn is_unsettled(&self) -> bool {
        self.poison.is_none() && (!self.orphans.is_empty() || matches!(self.phase, Phase::Closing(_)))
    }

    /// Counts the samples by their bits.
    pub fn samples(&self) -> SampleCounts {
        let pending: u64 = self.live.values().map(|&block| self.pending_in(block)).sum();
        SampleCounts {
            committed: self.ledger.retired_bits() + pending,
            delivered: self.ledger.delivered(),
            pending,
        }
    }

    fn pending_in(&self, block: BlockIndex) -> u64 {
        let bits = match self.ledger.block_use(block) {
            BlockUse::Finishing => self.ledger.counted(block).iter().map(|bits| bits.count_ones()).sum(),
            // A block is large, and most of them are full or empty: that is known without its bits.
            _ if self.is_marked_complete(block) => self.ledger.length(block),
            _ if self.geometry().first(self.ledger.seq(block)).0 >= self.cursor_and_limit().0 => 0,
            _ => self.control.count(block).min(self.ledger.length(block)),
        };
        bits.into()
    }

    fn is_marked_complete(&self, block: BlockIndex) -> bool {
        let word = ReadyWord::decode(self.control.ready(block).load(Ordering::Relaxed));
        word.is_some_and(|ready| ready.state == BlockState::Complete)
    }

    /// Whether every sample of the block is committed, whether or not somebody marked it; for people.
    pub(super) fn is_full(&self, block: BlockIndex) -> bool {
        self.is_marked_complete(block) || self.control.is_full(block)
    }

    /// Batches that readers gave back.
    pub fn batches_delivered(&self) -> u64 {
        self.ledger.batches()
    }

    /// Blocks by state.
    pub fn block_counts(&self) -> BlockCounts {
        let mut counts = BlockCounts { free: self.free.len() as u32, ..BlockCounts::default() };
        for &block in self.live.values() {
            match self.is_full(block) {
                true => counts.complete += 1,
                false => counts.filling += 1,
            }
            counts.granted += u32::from(self.ledger.grant(block).is_some());
        }
        counts
    }

    /// Next position to be claimed, and the first that may not be yet; for people.
    pub fn cursor_and_limit(&self) -> (u64, u64) {
        let cursor = self.control.cursor().load(Ordering::Relaxed) & !CLOSED;
        (cursor, self.geometry().first(self.ledger.next_seq()).0)
    }

    /// Lets go of the private record, as a daemon that ends does.
    pub fn into_ledger(self) -> Ledger {
        self.ledger
    }
}

/// How a table's samples are moved within a block, when it ends.
pub trait MoveSamples {
    /// How many may be copied in one turn, at least one: others wait meanwhile.
    fn moves_a_turn(&self) -> usize;

    /// Copies one sample of every array from one slot of the block to another.
    fn move_sample(&mut self, block: BlockIndex, from: u32, to: u32) -> io::Result<()>;
}
