//! One turn of a replay table: commits are taken in, requests served, free blocks published.

use super::{Asked, MAX_OUTSTANDING, Open, Replay, now};
use crate::ids::{BlockIndex, BlockSeq, Position};
use crate::replay::index::{Arrival, InsertError};
use crate::replay::items::SlotState;
use crate::replay::settings::RateLimiter;
use crate::replay::staleness::Flow;
use crate::ring::marks::{self, Mark};
use crate::sync::Ordering;
use crate::table::action::Action;
use crate::table::ending::Phase;
use crate::table::ledger::BlockUse;
use crate::table::poison::Poison;

/// Blocks that one turn looks at: some milliseconds of them. Who claims a table full and commits nothing costs no more.
const TURN_BLOCKS: usize = 8192;
/// Samples that one turn takes in, and that it hands out: some milliseconds, too. What is more is the next one's.
const TURN_SAMPLES: usize = 16 * 1024;
/// Items that one turn removes to make room.
const TURN_EVICTIONS: usize = 8192;
/// Ticks for which workers wait for what is being written or read, before items are removed in their favour.
const PATIENCE: u32 = 25;

impl Replay {
    /// Does all that can be done now.
    pub(super) fn turn(&mut self, actions: &mut Vec<Action>) {
        if self.intake.poison.is_some() || self.intake.phase != Phase::Open {
            return;
        }
        self.take_in_or_poison(actions);
        self.serve(actions);
        self.make_room();
        self.publish();
        let (cursor, limit) = self.intake.cursor_and_limit();
        self.looks = if cursor < limit { 0 } else { self.looks.saturating_sub(1) };
    }

    pub(super) fn take_in_or_poison(&mut self, actions: &mut Vec<Action>) {
        if self.intake.poison.is_none()
            && self.intake.phase == Phase::Open
            && let Err(poison) = self.take_in()
        {
            self.poisoned(poison, actions);
        }
        self.let_go();
    }

    /// Looks at what is claimed, and takes in what is committed, in the order of positions.
    fn take_in(&mut self) -> Result<(), Poison> {
        let cursor = self.intake.cursor()?;
        let geometry = *self.intake.geometry();
        let end =
            cursor.checked_sub(1).map_or(BlockSeq(0), |last| BlockSeq(geometry.seq(Position(last)).0 + 1));
        let begun = self.intake.live.range(self.next_open..end.max(self.next_open));
        self.open.extend(begun.map(|(&seq, &block)| Open { seq, block, taken: 0 }));
        self.next_open = self.next_open.max(end);
        let (blocks, now) = (self.open.len(), now());
        let (mut looks, mut taken) = (0, 0);
        while looks < blocks.min(TURN_BLOCKS) && taken < TURN_SAMPLES {
            looks += 1;
            let Some(mut open) = self.open.pop_front() else { break };
            let mut new = self.committed(open.block) & !open.taken;
            // A bit that a worker takes back stays taken in: its block would never be whole otherwise.
            open.taken |= new;
            taken += new.count_ones() as usize;
            while new != 0 {
                let slot = new.trailing_zeros();
                new &= new - 1;
                self.take_in_sample(&open, slot, now)?;
            }
            if open.taken.count_ones() < geometry.block_slots() {
                self.open.push_back(open);
            }
        }
        // Where nothing comes there is no hurry: who claims and does not commit is looked at by the next tick.
        self.has_more = taken > 0 && looks < blocks;
        Ok(())
    }

    /// The commit bits of a block, one for each slot.
    fn committed(&self, block: BlockIndex) -> u64 {
        let (control, geometry) = (&self.intake.control, self.intake.geometry());
        (0..geometry.words_per_block()).fold(0, |bits, word| {
            // acquire: pairs with the commit CAS, behind which the bytes and the mark are
            let committed = control.commits(block, word).load(Ordering::Acquire) & geometry.full_word(word);
            bits | committed << (word * geometry.bits_per_word())
        })
    }

    fn take_in_sample(&mut self, open: &Open, offset: u32, now: std::time::Duration) -> Result<(), Poison> {
        let geometry = self.intake.geometry();
        let slot = open.block.get() * geometry.block_slots() + offset;
        let key = geometry.first(open.seq).0 + u64::from(offset);
        let Mark { priority, version } = marks::read(&self.intake.control, open.block, offset);
        let random = &mut self.random;
        match self.index.insert(slot, &Arrival { key, priority, version }, now, &mut || random.u64(..)) {
            Ok(_) => Ok(()),
            // Its worker's own doing, and its own loss: a client of ours refuses it before it claims.
            Err(InsertError::Priority { .. }) => {
                self.refused += 1;
                self.index.discard(slot, key, now).map_err(Poison::Item)
            }
            Err(error) => Err(Poison::Item(error)),
        }
    }

    /// Answers requests, the oldest first, each in full.
    fn serve(&mut self, actions: &mut Vec<Action>) {
        let mut served = 0;
        while let Some(asked) = self.waiting.front_mut() {
            if served >= TURN_SAMPLES {
                self.has_more = true;
                return;
            }
            let (lacks, random) = (asked.count - asked.picks.len() as u32, &mut self.random);
            let before = asked.picks.len();
            let short = self.index.sample(lacks, now(), &mut || random.u64(..), &mut asked.picks);
            let (has, reader) = (asked.picks.len(), asked.reader);
            served += (has - before).max(1);
            if let Some(reader) = self.readers.get_mut(&reader) {
                reader.had += (has - before) as u64;
            }
            let short = match short {
                None => None,
                // What it was given takes the room of what it waits for.
                Some(_) if has > 0 && self.is_full_of_leases() => {
                    Some(format!("the table has no room for more than {has} samples that are read"))
                }
                Some(_) => return,
            };
            if let Some(asked) = self.waiting.pop_front() {
                self.answer(asked, short, actions);
            }
        }
    }

    /// Whether no sample can come before one is given back, although the limiter lets workers go on.
    fn is_full_of_leases(&mut self) -> bool {
        self.let_go();
        let is_settled = self.open.is_empty() && self.absent.is_empty() && self.index.lingering() > 0;
        is_settled && self.is_short_of_room()
    }

    /// Whether workers could go on if a block were free.
    pub(super) fn is_short_of_room(&self) -> bool {
        let (cursor, limit) = self.intake.cursor_and_limit();
        cursor >= limit && self.intake.free_blocks() == 0 && limit < self.limit()
    }

    /// What was picked is the reader's.
    pub(super) fn answer(&mut self, asked: Asked, short: Option<String>, actions: &mut Vec<Action>) {
        let Asked { reader: key, number, count, picks } = asked;
        let Some(reader) = self.readers.get_mut(&key) else { return };
        // What it does not get is not outstanding.
        reader.outstanding -= u64::from(count) - picks.len() as u64;
        debug_assert!(reader.outstanding <= MAX_OUTSTANDING);
        match picks.is_empty() {
            true => reader.requests -= 1,
            false => drop(reader.samples.insert(number, picks.iter().map(|pick| pick.slot).collect())),
        }
        let least = self.index.least_probability();
        actions.push(Action::Sampled { reader: key, number, picks, least, short });
    }

    /// Workers that wait for room alone wait for longer by a tick. Who was late once is not patient anew each time.
    pub(super) fn feel_pressure(&mut self) {
        self.pressed = match self.is_short_of_room() {
            true => (self.pressed + 1).min(2 * PATIENCE),
            false => self.pressed.saturating_sub(1),
        };
    }

    /// Removes items while a worker waits and there is no block: items that were deleted here and there have left blocks that
    /// are not empty. What is being written or read may give one back soon, and is waited for, but not for ever: a worker
    /// that sleeps over its claim, or a trainer over its samples, holds up nobody else.
    fn make_room(&mut self) {
        self.let_go();
        if self.looks == 0 || !self.is_short_of_room() {
            return;
        }
        // What a queue or a stack holds nobody has seen.
        let may_lose = !matches!(self.settings.limiter, RateLimiter::Queue(_) | RateLimiter::Stack(_));
        let is_late = may_lose && self.pressed > PATIENCE && self.absent.is_empty();
        if is_late && !self.some_block_can_be_emptied() {
            self.pressed = 0;
            return;
        }
        for _ in 0..TURN_EVICTIONS {
            let is_calm = self.open.is_empty() && self.index.lingering() == 0;
            if self.intake.free_blocks() > 0 || self.index.size() == 0 || !(is_calm || is_late) {
                return;
            }
            let random = &mut self.random;
            self.index.evict(&mut || random.u64(..));
            self.let_go();
        }
    }

    /// Whether there is a block whose every sample was taken in and that nobody reads.
    fn some_block_can_be_emptied(&self) -> bool {
        let geometry = self.intake.geometry();
        let is_idle = |slot, key| match self.index.state(slot) {
            Some(SlotState::Stored(there) | SlotState::Gone(there)) => {
                there == key && self.index.leases(slot) == 0
            }
            _ => false,
        };
        self.intake.live.iter().any(|(&seq, block)| {
            let (first, key) = (block.get() * geometry.block_slots(), geometry.first(seq).0);
            (0..geometry.block_slots()).all(|offset| is_idle(first + offset, key + u64::from(offset)))
        })
    }

    /// Retires blocks of which no slot is used any more.
    pub(super) fn let_go(&mut self) {
        let geometry = *self.intake.geometry();
        let (ledger, left, unread) = (&self.intake.ledger, &mut self.left, &mut self.unread);
        for freed in self.index.drain_freed() {
            let Some(block) = BlockIndex::new(freed.slot / geometry.block_slots(), geometry.max_blocks())
            else {
                continue;
            };
            // A daemon that took over is told again of slots whose block was published since.
            if ledger.block_use(block) != BlockUse::Live
                || ledger.seq(block) != geometry.seq(Position(freed.key))
            {
                continue;
            }
            left[block.index()] -= 1;
            if left[block.index()] == 0 {
                unread.push(block);
            }
        }
        self.let_go_of_unread();
    }

    pub(super) fn let_go_of_unread(&mut self) {
        if !self.absent.is_empty() {
            return;
        }
        for block in std::mem::take(&mut self.unread) {
            self.left[block.index()] = self.intake.geometry().block_slots() as u8;
            self.intake.retire_block(block);
        }
    }

    /// Publishes what is free, as far as workers may go.
    pub(super) fn publish(&mut self) {
        let limit = self.limit();
        self.intake.publish_below(limit, |_, _| ());
    }

    /// The position that may not be claimed, by the limiter and by what would be too old when it is consumed.
    fn limit(&self) -> u64 {
        let limit = self.index.insert_limit();
        let (Some(admission), Some(max)) = (self.settings.staleness.admission, self.settings.staleness.max)
        else {
            return limit;
        };
        let (_, allowed) = self.intake.cursor_and_limit();
        // Who may claim is as good as one who has: nobody is told that it may not any more.
        let running = allowed - self.index.inserted();
        let waiting = u64::from(self.index.size()) + self.had();
        let flow = Flow::restored(&admission, self.index.version().unwrap_or(0), waiting, running);
        limit.min(allowed + admission.admissible(max, &flow))
    }

    /// Samples that trainers have had and not used up, as far as can be told.
    fn had(&self) -> u64 {
        self.readers.values().map(|reader| reader.had).sum()
    }

    /// The trainer is about to be at this version: it has used up what makes it.
    pub(super) fn use_up(&mut self, version: u64) {
        let (Some(admission), Some(max)) = (self.settings.staleness.admission, self.settings.staleness.max)
        else {
            return;
        };
        let per_version = u64::from(admission.samples_per_version);
        // One that goes back starts again, and has had nothing of its version.
        let made = version.checked_sub(self.index.version().unwrap_or(0));
        let mut used = made.map_or(u64::MAX, |made| made.saturating_mul(per_version));
        if used > 0 {
            // Whoever uses more than it said in a version has no more left than could have been let in by then.
            let most = max.saturating_mul(per_version);
            used = used.max(self.had().saturating_sub(most));
        }
        for reader in self.readers.values_mut() {
            let of_this = reader.had.min(used);
            reader.had -= of_this;
            used -= of_this;
        }
    }

    /// Why workers may not go on, if it is this table's settings that say so.
    pub fn why_not_insert(&self) -> Option<String> {
        let (cursor, limit) = self.intake.cursor_and_limit();
        if cursor < limit {
            return None;
        }
        // What is being written counts before it is there.
        let running = cursor.saturating_sub(self.index.inserted());
        if let Some(reason) = self.index.why_not_insert(running.saturating_add(1)) {
            return Some(reason.to_string());
        }
        let (admission, max) = (self.settings.staleness.admission?, self.settings.staleness.max?);
        let version = self.index.version().unwrap_or(0);
        let waiting = u64::from(self.index.size()) + self.had();
        let running = limit - self.index.inserted();
        let flow = Flow::restored(&admission, version, waiting, running);
        (admission.admissible(max, &flow) == 0).then(|| {
            format!(
                "{waiting} samples are there and {running} are being made, at most {} at a time, and the trainer, at version \
                 {version}, uses {} in a version: more would lag by more than max_staleness {max}",
                admission.max_running, admission.samples_per_version
            )
        })
    }
}
