//! A state of the whole system: shared memory, the daemon's record, and where each process stands.

use std::fmt::{self, Write};

use crate::configuration::{Configuration, MAX_READERS, MAX_SAMPLES, MAX_WORKERS};
use crate::daemon::Daemon;
use crate::ledger::{BlockState, Ledger};
use crate::packing::{Codec, MAX_WORDS_A_STATE, Packer, Unpacker, numbered};
use crate::reader::Reader;
use crate::record;
use crate::shared::{Ready, ReadyState, Shared};
use crate::worker::{Worker, WorkerStep};

/// The number of every sample of later traffic: nobody follows those.
pub const FILLER: u8 = MAX_SAMPLES as u8;

numbered! {
    /// What became of a sample, seen from outside: the yardstick, not part of the protocol.
    pub enum Fate {
        /// Its worker has not committed it yet.
        Unwritten,
        /// Its commit counted, and no reader has it yet.
        Committed,
        Delivered,
        /// Its claim was dropped or its worker died before the commit: it must never be delivered.
        Abandoned,
        /// This configuration has no such sample.
        Unused,
    }
}

/// What may still go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub worker_crashes: u8,
    pub reader_crashes: u8,
    pub daemon_crashes: u8,
    pub rescues: u8,
    pub drops: u8,
    pub fillers: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub shared: Shared,
    pub ledger: Ledger,
    pub daemon: Daemon,
    pub workers: [Worker; MAX_WORKERS],
    pub readers: [Reader; MAX_READERS],
    pub fates: [Fate; MAX_SAMPLES],
    pub budget: Budget,
}

impl State {
    /// Every block is published and nobody has begun.
    pub fn initial(config: &Configuration) -> State {
        let mut state = State::blank(config);
        for block in 0..config.blocks {
            state.ledger.blocks[block].state = BlockState::Published;
            state.ledger.blocks[block].sequence = block as u8;
            state.shared.fill[block] = block as u8;
            state.shared.ready[block] = config.ready(block as u8, ReadyState::Filling);
        }
        state.ledger.next_sequence = config.blocks as u8;
        state.shared.limit = config.first_position(state.ledger.next_sequence);
        for worker in &mut state.workers[..config.workers] {
            worker.samples_left = config.samples_each;
        }
        state.fates[..config.workers * usize::from(config.samples_each)].fill(Fate::Unwritten);
        state
    }

    fn blank(config: &Configuration) -> State {
        State {
            shared: Shared::new(config),
            ledger: Ledger::new(),
            daemon: Daemon::IDLE,
            workers: [Worker::IDLE; MAX_WORKERS],
            readers: [Reader::IDLE; MAX_READERS],
            fates: [Fate::Unused; MAX_SAMPLES],
            budget: Budget {
                worker_crashes: config.worker_crashes,
                reader_crashes: config.reader_crashes,
                daemon_crashes: config.daemon_crashes,
                rescues: config.rescues,
                drops: config.drops,
                fillers: config.fillers,
            },
        }
    }

    /// Has everything that was committed been delivered, and has everybody come to an end?
    pub fn is_goal(&self, config: &Configuration) -> bool {
        let workers = &self.workers[..config.workers];
        if config.finishing {
            workers.iter().all(|worker| worker.step == WorkerStep::Gone)
                && self.readers[..config.readers].iter().all(Reader::is_closed)
                && !self.fates.contains(&Fate::Committed)
        } else {
            workers.iter().all(|worker| worker.samples_left == 0 && worker.step == WorkerStep::Idle)
                && !self.fates.contains(&Fate::Unwritten)
                && !self.fates.contains(&Fate::Committed)
        }
    }

    /// Is a reader reading this block?
    pub fn is_being_read(&self, config: &Configuration, block: usize) -> bool {
        self.readers[..config.readers]
            .iter()
            .any(|reader| reader.holds_bytes() && usize::from(reader.block) == block)
    }

    /// Wakes the readers that sleep on a block's `ready`.
    pub fn wake_readers(&mut self, config: &Configuration, block: usize) {
        for reader in &mut self.readers[..config.readers] {
            if usize::from(reader.block) == block {
                reader.asleep = false;
            }
        }
    }

    /// Wakes the workers that sleep on `space`.
    pub fn wake_workers(&mut self, config: &Configuration) {
        for worker in &mut self.workers[..config.workers] {
            if worker.asleep {
                worker.asleep = false;
                worker.look_again(config, self.shared.space);
            }
        }
    }

    pub fn bump_space(&mut self, config: &Configuration) {
        if config.workers_sleep {
            self.shared.space = (self.shared.space + 1) % 8;
        }
    }

    /// CAS on `ready` from filling to complete for one sequence. Gives back whether somebody may wait for it.
    pub fn mark_complete(&mut self, config: &Configuration, block: usize, sequence: u8) -> bool {
        let ready = &mut self.shared.ready[block];
        let complete = config.ready(sequence, ReadyState::Complete);
        if !config.rules.ready_carries_sequence {
            *ready = complete;
            return true;
        }
        if !ready.says(config.ready(sequence, ReadyState::Filling)) {
            return false;
        }
        *ready = Ready { granted: ready.granted, ..complete };
        ready.granted || !config.wake_needs_granted
    }

    fn fields(&mut self, config: &Configuration, codec: &mut impl Codec) {
        self.shared.fields(config, codec);
        self.ledger.fields(config, codec);
        self.daemon.fields(config, codec);
        for worker in &mut self.workers[..config.workers] {
            worker.fields(codec);
        }
        for reader in &mut self.readers[..config.readers] {
            reader.fields(config, codec);
        }
        for fate in &mut self.fates[..config.workers * usize::from(config.samples_each)] {
            codec.variant(fate, 2);
        }
        codec.bits(&mut self.budget.worker_crashes, 2);
        codec.bits(&mut self.budget.reader_crashes, 2);
        codec.bits(&mut self.budget.daemon_crashes, 2);
        codec.bits(&mut self.budget.rescues, 2);
        codec.bits(&mut self.budget.drops, 2);
        codec.bits(&mut self.budget.fillers, 3);
    }

    /// The state in as few bits as it needs.
    pub fn pack(&self, config: &Configuration) -> Packer {
        let mut packer = Packer::new();
        let mut copy = *self;
        copy.fields(config, &mut packer);
        packer
    }

    /// The state that was packed into these words.
    pub fn unpack(config: &Configuration, packed: &[u64]) -> State {
        let mut words = [0; MAX_WORDS_A_STATE];
        words[..packed.len()].copy_from_slice(packed);
        let mut state = State::blank(config);
        state.fields(config, &mut Unpacker::new(&words));
        state
    }

    /// The state as lines for a trace.
    pub fn show(&self, config: &Configuration) -> String {
        let mut lines = String::new();
        self.write_lines(config, &mut lines).expect("a string takes all that is written");
        lines
    }

    fn write_lines(&self, config: &Configuration, f: &mut String) -> fmt::Result {
        let shared = &self.shared;
        let closed = if shared.cursor.closed { " CLOSED" } else { "" };
        writeln!(
            f,
            "cursor {}{closed}, limit {}, space {}",
            shared.cursor.position, shared.limit, shared.space
        )?;
        write!(f, "fill {:?}, refill", &shared.fill[..config.fill_entries])?;
        for (hole, block) in shared.refill[..config.refill_entries].iter().zip(shared.refill_block) {
            match hole {
                None => write!(f, " -")?,
                Some(position) => write!(f, " {position} (block {block})")?,
            }
        }
        write!(f, "; fates {:?}", &self.fates[..config.workers * usize::from(config.samples_each)])?;
        writeln!(f, "; finishing {}; copy {:?}", self.ledger.finishing, self.ledger.copy)?;
        for block in 0..config.blocks {
            let record = &self.ledger.blocks[block];
            write!(
                f,
                "block {block}: {:?} sequence {}, grant {:?}, ",
                record.state, record.sequence, record.grant
            )?;
            write!(f, "counted {:b}, copied {:b}; words", record.counted, record.copied)?;
            for word in &shared.words[block][..config.words] {
                write!(f, " {:b}{}", word.bits, if word.retired { "R" } else { "" })?;
            }
            let ready = shared.ready[block];
            let granted = if ready.granted { " GRANTED" } else { "" };
            write!(f, "; ready {} {:?}{granted}", ready.sequence, ready.state)?;
            writeln!(f, ", length {}, data {:?}", shared.length[block], &shared.data[block][..config.slots])?;
        }
        for (who, worker) in self.workers[..config.workers].iter().enumerate() {
            let [first, second] = worker.records.map(record::show);
            let asleep = if worker.asleep { ", asleep" } else { "" };
            write!(f, "w{who}: {:?}{asleep}, {} samples left, ", worker.step, worker.samples_left)?;
            writeln!(f, "records {first} {second}, {:?}", worker.claim)?;
        }
        for (who, reader) in self.readers[..config.readers].iter().enumerate() {
            let asleep = if reader.asleep { ", asleep" } else { "" };
            writeln!(
                f,
                "r{who}: {:?}{asleep}, sequence {}, block {}",
                reader.step, reader.sequence, reader.block
            )?;
        }
        write!(f, "daemon: {:?}; orphans", self.daemon.step)?;
        self.ledger.orphans.iter().try_for_each(|&orphan| write!(f, " {}", record::show(orphan)))
    }
}
