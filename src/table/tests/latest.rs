//! The latest table against a plain model, under random schedules, with real claims, commits and holds over heap words.
//!
//! A value is a number that counts on with each publication, and lies in a slot a block. The model is the last one that was
//! committed. Writers stop for good between any two of their steps, readers with what they hold; the daemon is replaced by
//! one that knows only the private record and the shared words.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::ids::{BlockIndex, BlockSeq, ClientId, MemberId};
use crate::ring::claim::{Attempt, Claim, Claimer};
use crate::ring::commit::commit_newest;
use crate::ring::control::{Control, Geometry};
use crate::ring::hold::{HOLDS, let_go, take};
use crate::ring::newest::{self, ValueWord};
use crate::ring::record::{ClientPage, PAGE_BYTES};
use crate::ring::words::Words;
use crate::spec::TableKind;
use crate::sync::Ordering;
use crate::table::action::{Action, Occupied, Violation};
use crate::table::latest::Latest;
use crate::table::ledger::Ledger;
use crate::table::member::MemberKey;
use crate::table::poison::Poison;
use crate::wire::message::EndReason;

struct Writer {
    key: MemberKey,
    page: Arc<ClientPage>,
    claimer: Claimer,
    claim: Option<Claim>,
}

struct Reader {
    page: Arc<ClientPage>,
    holds: [Option<ValueWord>; HOLDS],
    version: u64,
}

/// After which of its steps a writer that commits is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Death {
    Written,
    Committed,
    Complete,
    Published,
}

struct Bench {
    latest: Option<Latest>,
    slots: Vec<u64>,
    writer: Option<Writer>,
    readers: BTreeMap<MemberKey, Reader>,
    /// Readers of before the daemon was replaced, that are not back.
    away: BTreeMap<MemberKey, Reader>,
    published: u64,
    next_client: u64,
}

impl Bench {
    fn new(blocks: u32) -> Self {
        let geometry = Geometry::new(1, blocks, 1, 1).unwrap();
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).unwrap();
        let bytes = Ledger::bytes(&geometry, TableKind::Latest);
        let ledger = Ledger::create(Words::heap(bytes), geometry, TableKind::Latest);
        Self {
            latest: Some(Latest::create(Arc::new(control), ledger, blocks)),
            slots: vec![0; blocks as usize],
            writer: None,
            readers: BTreeMap::new(),
            away: BTreeMap::new(),
            published: 0,
            next_client: 1,
        }
    }

    fn latest(&mut self) -> &mut Latest {
        self.latest.as_mut().unwrap()
    }

    fn control(&self) -> Arc<Control> {
        self.latest.as_ref().unwrap().intake().control().clone()
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    fn page() -> Arc<ClientPage> {
        Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap())
    }

    fn attach_writer(&mut self) -> Result<(), Occupied> {
        let (key, page) = (self.key(), Self::page());
        self.latest().attach_writer(key, page.clone(), 0)?;
        let claimer = Claimer::new(self.control().geometry().max_blocks());
        self.writer = Some(Writer { key, page, claimer, claim: None });
        Ok(())
    }

    fn attach_reader(&mut self) -> MemberKey {
        let (key, page) = (self.key(), Self::page());
        self.latest().attach_reader(key, page.clone(), 1, &mut Vec::new()).unwrap();
        self.readers.insert(key, Reader { page, holds: [None; HOLDS], version: 0 });
        key
    }

    /// Claims, if there is room.
    fn claim(&mut self) -> bool {
        let control = self.control();
        let Some(writer) = &mut self.writer else { return false };
        if writer.claim.is_none() {
            let record = writer.page.record(0).unwrap();
            match writer.claimer.try_claim(&control, record, 1).unwrap() {
                Attempt::Claimed(claim) => writer.claim = Some(claim),
                Attempt::Full(_) | Attempt::Closed(_) => {}
            }
        }
        self.writer.as_ref().is_some_and(|writer| writer.claim.is_some())
    }

    /// Writes what is claimed: nobody may hold the block.
    fn write(&mut self) -> Option<Claim> {
        let claim = self.writer.as_mut()?.claim?;
        let held = self.readers.values().chain(self.away.values()).flat_map(|reader| reader.holds).flatten();
        assert!(held.into_iter().all(|value| value.block != claim.block), "{claim:?} is held");
        self.slots[claim.block.index()] = claim.position.0 + 1;
        Some(claim)
    }

    fn publish(&mut self) -> bool {
        if !self.claim() {
            return false;
        }
        let claim = self.write().unwrap();
        let control = self.control();
        let writer = self.writer.as_mut().unwrap();
        commit_newest(&control, writer.page.record(0).unwrap(), &claim).unwrap();
        writer.claim = None;
        self.published += 1;
        assert_eq!(
            claim.seq,
            BlockSeq(self.published - 1),
            "values are published in the order of their versions"
        );
        true
    }

    fn die_publishing(&mut self, death: Death) {
        if let Some(claim) = self.write() {
            let control = self.control();
            if death != Death::Written {
                self.published += 1;
                control.commits(claim.block, 0).store(1, Ordering::Release);
            }
            if matches!(death, Death::Complete | Death::Published) {
                crate::ring::ready::complete(&control, claim.block, claim.seq);
            }
            if death == Death::Published {
                newest::publish(&control, ValueWord { seq: claim.seq, block: claim.block });
            }
        }
        self.kill_writer();
    }

    fn kill_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            assert!(self.latest().detach(writer.key));
        }
    }

    /// Takes the newest value into a hold that is free.
    fn take(&mut self, key: MemberKey) -> bool {
        let control = self.control();
        let blocks = control.geometry().max_blocks();
        let published = self.published;
        let Some(reader) = self.readers.get_mut(&key).or_else(|| self.away.get_mut(&key)) else {
            return false;
        };
        let Some(index) = reader.holds.iter().position(Option::is_none) else { return false };
        let line = reader.page.holds(1).unwrap();
        let Some(value) = take(&control, blocks, line, index, reader.version).unwrap() else { return false };
        assert!(value.version() > reader.version && value.version() <= published, "{value:?} of {published}");
        reader.version = value.version();
        reader.holds[index] = Some(value);
        true
    }

    fn let_go(&mut self, key: MemberKey, index: usize) {
        if let Some(reader) = self.readers.get_mut(&key).or_else(|| self.away.get_mut(&key))
            && reader.holds[index].take().is_some()
        {
            let_go(reader.page.holds(1).unwrap(), index);
        }
    }

    /// A reader is gone, wherever it was.
    fn kill_reader(&mut self, key: MemberKey) {
        if self.readers.remove(&key).or_else(|| self.away.remove(&key)).is_some() {
            assert!(self.latest().detach(key));
        }
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.latest().tick(&mut actions);
        assert_eq!((self.latest().intake().poison(), actions), (None, vec![]));
    }

    /// Another daemon takes over. The writer comes back at once, the readers when they like.
    fn replace_daemon(&mut self) {
        let latest = self.latest.take().unwrap();
        let control = latest.intake().control().clone();
        let geometry = *control.geometry();
        let ledger = Ledger::open(latest.into_ledger().into_words(), geometry, TableKind::Latest).unwrap();
        let mut latest = Latest::rebuild(control, ledger).unwrap();
        let stranger = MemberKey { client: ClientId(u64::MAX), member: MemberId(1) };
        if let Some(writer) = &self.writer {
            assert_eq!(latest.admits_writer(stranger), Err(Occupied::Writer(writer.key)), "it is not back");
            latest.attach_writer(writer.key, writer.page.clone(), 0).unwrap();
        }
        self.latest = Some(latest);
        self.away.append(&mut self.readers);
    }

    fn come_back(&mut self, key: MemberKey) {
        if let Some(reader) = self.away.remove(&key) {
            self.latest().attach_reader(key, reader.page.clone(), 1, &mut Vec::new()).unwrap();
            self.readers.insert(key, reader);
        }
    }

    fn everybody(&self) -> Vec<MemberKey> {
        self.readers.keys().chain(self.away.keys()).copied().collect()
    }

    /// What holds after each step.
    fn check(&mut self) {
        for reader in self.readers.values().chain(self.away.values()) {
            for value in reader.holds.into_iter().flatten() {
                assert_eq!(
                    self.slots[value.block.index()],
                    value.version(),
                    "a value changed while it was held"
                );
            }
        }
        let (published, blocks) = (self.published, self.slots.len() as u32);
        let samples = self.latest().intake().samples();
        assert_eq!((samples.committed, samples.committed), (published, samples.delivered + samples.pending));
        let counts = self.latest().block_counts();
        assert_eq!(counts.free + counts.filling + counts.complete, blocks);
        let held: Vec<ValueWord> = self.latest().held().map(|(_, value)| value).collect();
        let ours = self.readers.values().map(|reader| reader.holds.into_iter().flatten().count());
        assert_eq!(held.len(), ours.sum::<usize>());
    }

    /// All go but one reader, who takes what was published last; and the next writer finds room.
    fn settles(&mut self) {
        self.kill_writer();
        for key in self.everybody() {
            self.kill_reader(key);
        }
        let key = self.attach_reader();
        self.tick();
        assert_eq!(self.take(key), self.published > 0);
        assert_eq!(self.readers[&key].version, self.published, "what was committed last is the newest");
        self.attach_writer().unwrap();
        assert!(self.publish());
        assert!(self.take(key));
        assert_eq!(self.readers[&key].version, self.published);
    }
}

#[derive(Clone, Debug)]
enum Step {
    AttachWriter,
    Claim,
    Publish,
    DiePublishing(Death),
    AttachReader,
    Take(usize),
    LetGo(usize, usize),
    KillReader(usize),
    ComeBack(usize),
    NeedSpace,
    Tick,
    ReplaceDaemon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let death = prop_oneof![
        Just(Death::Written),
        Just(Death::Committed),
        Just(Death::Complete),
        Just(Death::Published)
    ];
    let step = prop_oneof![
        2 => Just(Step::AttachWriter),
        2 => Just(Step::Claim),
        10 => Just(Step::Publish),
        1 => death.prop_map(Step::DiePublishing),
        1 => Just(Step::AttachReader),
        8 => (0..3usize).prop_map(Step::Take),
        6 => (0..3usize, 0..HOLDS).prop_map(|(reader, hold)| Step::LetGo(reader, hold)),
        1 => (0..3usize).prop_map(Step::KillReader),
        2 => (0..3usize).prop_map(Step::ComeBack),
        3 => Just(Step::NeedSpace),
        3 => Just(Step::Tick),
        1 => Just(Step::ReplaceDaemon),
    ];
    proptest::collection::vec(step, 0..150)
}

fn run(bench: &mut Bench, step: Step) {
    let reader = |bench: &Bench, i: usize| bench.everybody().get(i).copied();
    match step {
        Step::AttachWriter => {
            let alone = bench.writer.is_none();
            let old = bench.writer.take();
            assert_eq!(bench.attach_writer().is_ok(), alone);
            bench.writer = bench.writer.take().or(old);
        }
        Step::Claim => drop(bench.claim()),
        Step::Publish => drop(bench.publish()),
        Step::DiePublishing(death) => bench.die_publishing(death),
        Step::AttachReader if bench.everybody().len() < 3 => drop(bench.attach_reader()),
        Step::AttachReader => {}
        Step::Take(i) => drop(reader(bench, i).map(|key| bench.take(key))),
        Step::LetGo(i, hold) => drop(reader(bench, i).map(|key| bench.let_go(key, hold))),
        Step::KillReader(i) => drop(reader(bench, i).map(|key| bench.kill_reader(key))),
        Step::ComeBack(i) => drop(reader(bench, i).map(|key| bench.come_back(key))),
        Step::NeedSpace => {
            if let Some(key) = bench.writer.as_ref().map(|writer| writer.key) {
                bench.latest().need_space(key, &mut Vec::new()).unwrap();
            }
        }
        Step::Tick => bench.tick(),
        Step::ReplaceDaemon => bench.replace_daemon(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_held_never_changes_and_the_last_is_the_newest_whatever_the_schedule(
        blocks in 2..6u32,
        steps in steps(),
    ) {
        let mut bench = Bench::new(blocks);
        bench.attach_writer().unwrap();
        bench.attach_reader();
        for step in steps {
            run(&mut bench, step);
            bench.check();
        }
        bench.settles();
    }
}

#[test]
fn a_writer_finds_room_as_soon_as_it_asks_and_nobody_holds_the_old_values() {
    let mut bench = Bench::new(3);
    bench.attach_writer().unwrap();
    let reader = bench.attach_reader();
    for _ in 0..3 {
        assert!(bench.publish());
    }
    assert!(!bench.publish(), "the daemon has not looked");
    let key = bench.writer.as_ref().unwrap().key;
    bench.latest().need_space(key, &mut Vec::new()).unwrap();
    assert!(!bench.latest().is_unsettled(), "there is room");
    assert!(bench.publish() && bench.publish() && !bench.publish());
    assert!(bench.take(reader));
    bench.latest().need_space(key, &mut Vec::new()).unwrap();
    assert!(bench.publish() && bench.publish(), "the newest is held once, by everybody");
}

#[test]
fn where_readers_hold_everything_the_writer_waits_and_the_daemon_looks_for_a_while() {
    let mut bench = Bench::new(2);
    bench.attach_writer().unwrap();
    let reader = bench.attach_reader();
    assert!(bench.publish() && bench.take(reader) && bench.publish() && bench.take(reader));
    let key = bench.writer.as_ref().unwrap().key;
    bench.latest().need_space(key, &mut Vec::new()).unwrap();
    assert!(!bench.publish() && bench.latest().is_unsettled());
    let looks = (0..1000).take_while(|_| {
        bench.tick();
        bench.latest().is_unsettled()
    });
    assert!((10..999).contains(&looks.count()), "it does not look so often for ever");
    bench.let_go(reader, 1);
    bench.tick();
    assert!(!bench.publish(), "it let the newest go, which nobody would write");
    bench.let_go(reader, 0);
    bench.tick();
    assert!(bench.publish());
}

#[test]
fn a_second_writer_is_refused_until_the_first_is_gone_or_has_finished() {
    let mut bench = Bench::new(3);
    bench.attach_writer().unwrap();
    assert!(bench.claim());
    let first = bench.writer.take().unwrap();
    assert_eq!(bench.attach_writer(), Err(Occupied::Writer(first.key)));
    bench.latest().finish_writer(first.key).unwrap();
    assert_eq!(bench.attach_writer(), Err(Occupied::Writer(first.key)), "it has a claim");
    assert!(bench.latest().detach(first.key));
    bench.attach_writer().unwrap();
    assert!(bench.publish(), "the hole comes first, or this would be version 2");
    let second = bench.writer.take().unwrap();
    bench.latest().finish_writer(second.key).unwrap();
    bench.attach_writer().unwrap();
    assert!(bench.publish());
}

#[test]
fn a_daemon_that_took_over_lets_nothing_go_round_before_every_reader_is_back_or_gone() {
    let mut bench = Bench::new(2);
    bench.attach_writer().unwrap();
    let (one, other) = (bench.attach_reader(), bench.attach_reader());
    assert!(bench.publish() && bench.take(one) && bench.publish());
    bench.replace_daemon();
    bench.let_go(one, 0);
    for _ in 0..3 {
        bench.tick();
        assert!(!bench.publish(), "it does not know what they hold");
    }
    bench.come_back(one);
    bench.tick();
    assert!(!bench.publish(), "of the other either");
    bench.kill_reader(other);
    bench.tick();
    assert!(bench.publish());
}

#[test]
fn a_newest_value_that_cannot_be_poisons_the_table_by_its_word() {
    let value =
        |seq, block| ValueWord { seq: BlockSeq(seq), block: BlockIndex::new(block, 4).unwrap() }.encode();
    // Not committed, in another block, gone long ago, nonsense, and none.
    for got in [value(2, 2), value(1, 0), value(0, 0), u64::MAX, 0] {
        let mut bench = Bench::new(3);
        bench.attach_writer().unwrap();
        let reader = bench.attach_reader();
        assert!(bench.publish() && bench.publish());
        bench.tick();
        let seen = value(1, 1);
        assert_eq!(newest::load(&bench.control()), seen);
        bench.control().newest().store(got, Ordering::Relaxed);
        let mut actions = Vec::new();
        bench.latest().tick(&mut actions);
        assert_eq!(bench.latest().intake().poison(), Some(&Poison::Newest { got, seen }));
        let ended = |action: &Action| matches!(action, Action::End { member, reason: EndReason::Poisoned, .. } if *member == reader);
        assert!(actions.iter().any(ended), "{actions:?}");
    }
}

#[test]
fn a_hold_that_names_no_value_holds_nothing() {
    let mut bench = Bench::new(2);
    bench.attach_writer().unwrap();
    let reader = bench.attach_reader();
    assert!(bench.publish());
    // Nonsense, a block without a version, and a version that is gone or to come.
    for word in [u64::MAX, 1, 1 << 12, 100 << 12 | 1] {
        bench.readers[&reader].page.holds(1).unwrap().hold(0).store(word, Ordering::Relaxed);
        assert!(bench.publish());
        let key = bench.writer.as_ref().unwrap().key;
        bench.latest().need_space(key, &mut Vec::new()).unwrap();
        assert!(bench.publish(), "{word:#x}");
        bench.latest().need_space(key, &mut Vec::new()).unwrap();
    }
}

#[test]
fn whoever_is_no_member_asks_for_no_room() {
    let mut bench = Bench::new(2);
    let key = bench.attach_reader();
    assert_eq!(bench.latest().need_space(key, &mut Vec::new()), Err(Violation::NoMember(key)));
}

#[test]
fn an_ended_table_tells_its_members_at_once_and_keeps_its_newest_value() {
    let mut bench = Bench::new(2);
    bench.attach_writer().unwrap();
    let reader = bench.attach_reader();
    assert!(bench.publish());
    let mut actions = Vec::new();
    bench.latest().close(EndReason::Draining, &mut actions);
    assert_eq!(actions.len(), 2, "the writer and the reader: {actions:?}");
    assert!(bench.latest().is_drained());
    assert!(bench.take(reader));
    bench.tick();
    assert!(!bench.claim());
    let late = bench.key();
    let mut told = Vec::new();
    bench.latest().attach_reader(late, Bench::page(), 1, &mut told).unwrap();
    assert!(matches!(told[..], [Action::End { member, reason: EndReason::Draining, .. }] if member == late));
    bench.replace_daemon();
    assert!(bench.latest().is_drained());
}
