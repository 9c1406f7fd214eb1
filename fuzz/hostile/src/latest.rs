//! The words of a latest table that clients can write: its control region, by whoever publishes, and what a reader says that
//! it holds.
//!
//! An input is a program, as in `shared_words`: publishers and readers that keep to the protocol come, publish, take, let
//! go, die; the daemon looks, and is replaced; and at any point somebody writes anything over a word. The daemon does not
//! panic, keeps account of its blocks, and gets rid of everybody in the end; readers get values that they have mapped, or
//! errors; and the table beside it does not notice.
//!
//! In a program that writes over nothing, what a reader holds does not change: that is held by the core's own tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use echo::ids::{ClientId, MemberId};
use echo::ring::claim::{Attempt, Claim, Claimer};
use echo::ring::commit::commit_newest;
use echo::ring::control::{Control, Geometry};
use echo::ring::hold::{HOLDS, let_go, take};
use echo::ring::record::{ClientPage, PAGE_BYTES};
use echo::ring::words::Words;
use echo::spec::TableKind;
use echo::table::ending::Phase;
use echo::table::latest::Latest;
use echo::table::ledger::Ledger;
use echo::table::machine::Machine;
use echo::table::member::MemberKey;
use echo::table::poison::{Poison, RebuildError};
use echo::table::turn::Turn;
use echo::table::why::{self, Watch};
use echo::wire::message::EndReason;

use crate::input::Input;
use crate::neighbour::Neighbour;
use crate::spoiling;
use crate::table::ledger;

/// Steps of one program.
const STEPS: usize = 400;
/// Most readers at a time.
const READERS: usize = 3;
/// Turns of the daemon within which whatever can be settled must be.
const TURNS: usize = 1000;

/// One step; its number is its byte in an input. The numbers are those of committed inputs: add at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the table's functions say it")]
pub enum Step {
    AttachPublisher,
    Claim,
    Publish,
    KillPublisher,
    FinishPublisher,
    NeedSpace,
    AttachReader,
    Take,
    LetGo,
    KillReader,
    DisconnectReader,
    ComeBack,
    Tick,
    ReplaceDaemon,
    Close,
    EndAll,
    Show,
    SpoilControl,
    SpoilNewest,
    SpoilHolds,
}

impl Step {
    const ALL: [Self; 20] = [
        Self::AttachPublisher,
        Self::Claim,
        Self::Publish,
        Self::KillPublisher,
        Self::FinishPublisher,
        Self::NeedSpace,
        Self::AttachReader,
        Self::Take,
        Self::LetGo,
        Self::KillReader,
        Self::DisconnectReader,
        Self::ComeBack,
        Self::Tick,
        Self::ReplaceDaemon,
        Self::Close,
        Self::EndAll,
        Self::Show,
        Self::SpoilControl,
        Self::SpoilNewest,
        Self::SpoilHolds,
    ];
}

/// Any bytes, as a program whose members write over words of their table and of their pages.
///
/// # Panics
/// If something does not hold.
pub fn holds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (blocks, refill) = (2 + input.below(5), 1 + input.below(4));
    let mut table = Table::new(blocks, refill);
    let mut neighbour = Neighbour::new();
    for n in 0..STEPS {
        if input.is_empty() || table.machine.is_none() {
            break;
        }
        table.step(&mut input);
        if n % 8 == 0 {
            neighbour.goes_on();
        }
        if table.machine.is_some() {
            table.check();
        }
    }
    if table.machine.is_some() {
        table.ends();
    }
    neighbour.goes_on();
}

struct Publisher {
    key: MemberKey,
    page: Arc<ClientPage>,
    claimer: Claimer,
    claim: Option<Claim>,
}

/// The table. `None` for its machine once no daemon could take it over.
struct Table {
    machine: Option<Machine>,
    blocks: u32,
    publisher: Option<Publisher>,
    readers: BTreeMap<MemberKey, Arc<ClientPage>>,
    /// Those of before the daemon was replaced, that are not back.
    away: BTreeMap<MemberKey, Arc<ClientPage>>,
    /// Publishers that are gone, and that the daemon could not let go of yet.
    leaving: Vec<MemberKey>,
    watch: Watch,
    clock: u64,
    next_client: u64,
}

impl Table {
    fn new(blocks: u32, refill: u32) -> Self {
        let geometry = Geometry::new(1, blocks, refill, 32).expect("numbers of a ring");
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).expect("room for it");
        let latest = Latest::create(Arc::new(control), ledger(geometry, TableKind::Latest), blocks);
        Self {
            machine: Some(Machine::Latest(latest)),
            blocks,
            publisher: None,
            readers: BTreeMap::new(),
            away: BTreeMap::new(),
            leaving: Vec::new(),
            watch: Watch::default(),
            clock: 0,
            next_client: 1,
        }
    }

    fn latest(&mut self) -> &mut Latest {
        match &mut self.machine {
            Some(Machine::Latest(latest)) => latest,
            _ => panic!("programs end with the table"),
        }
    }

    fn control(&mut self) -> Arc<Control> {
        self.latest().intake().control().clone()
    }

    fn key(&mut self) -> MemberKey {
        let client = ClientId(self.next_client);
        self.next_client += 1;
        MemberKey { client, member: MemberId(1) }
    }

    fn page() -> Arc<ClientPage> {
        Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).expect("room for a page"))
    }

    fn step(&mut self, input: &mut Input<'_>) {
        const REASONS: [EndReason; 3] = [EndReason::Finished, EndReason::Dropped, EndReason::Draining];
        let mut actions = Vec::new();
        match Step::ALL[input.below(Step::ALL.len() as u32) as usize] {
            Step::AttachPublisher => self.attach_publisher(),
            Step::Claim => drop(self.claim()),
            Step::Publish => self.publish(),
            Step::KillPublisher => self.kill_publisher(),
            Step::FinishPublisher => {
                if let Some(key) = self.publisher.as_ref().map(|publisher| publisher.key) {
                    self.latest().finish_writer(key).expect("it is attached");
                    self.kill_publisher();
                }
            }
            Step::NeedSpace => {
                if let Some(key) = self.publisher.as_ref().map(|publisher| publisher.key) {
                    self.latest().need_space(key, &mut actions).expect("it is attached");
                }
            }
            Step::AttachReader if self.readers.len() + self.away.len() < READERS => {
                let (key, page) = (self.key(), Self::page());
                self.latest().attach_reader(key, page.clone(), 0, &mut actions).expect("there is room");
                self.readers.insert(key, page);
            }
            Step::AttachReader => {}
            Step::Take => self.take(input),
            Step::LetGo => {
                if let Some((_, page)) = self.anybody(input) {
                    let_go(page.holds(0).expect("the first"), input.below(HOLDS as u32) as usize);
                }
            }
            Step::KillReader => {
                if let Some((key, _)) = self.anybody(input) {
                    self.kill_reader(key);
                }
            }
            Step::DisconnectReader => {
                if let Some((key, _)) = self.anybody(input) {
                    self.latest().disconnect(key);
                }
            }
            Step::ComeBack => {
                if let Some((key, page)) = self.away.pop_first() {
                    self.latest().attach_reader(key, page.clone(), 0, &mut actions).expect("it was there");
                    self.readers.insert(key, page);
                }
            }
            Step::Tick => self.tick(),
            Step::ReplaceDaemon => self.replace_daemon(),
            Step::Close => self.latest().close(REASONS[input.below(3) as usize], &mut actions),
            Step::EndAll => self.latest().end_all(REASONS[input.below(3) as usize], &mut actions),
            Step::Show => self.show(),
            Step::SpoilControl => spoiling::control(input, &self.control()),
            Step::SpoilNewest => spoiling::newest(input, &self.control()),
            Step::SpoilHolds => {
                if let Some((_, page)) = self.anybody(input) {
                    spoiling::holds(input, page.holds(0).expect("the first"));
                }
            }
        }
    }

    /// A reader, back or not.
    fn anybody(&self, input: &mut Input<'_>) -> Option<(MemberKey, Arc<ClientPage>)> {
        let all = self.readers.iter().chain(&self.away);
        all.map(|(&key, page)| (key, page.clone())).nth(input.below(READERS as u32) as usize)
    }

    fn attach_publisher(&mut self) {
        let (key, page) = (self.key(), Self::page());
        let is_alone = self.publisher.is_none();
        if self.latest().attach_writer(key, page.clone(), 0).is_ok() {
            assert!(is_alone, "a second writer is let in");
            self.publisher = Some(Publisher { key, page, claimer: Claimer::new(self.blocks), claim: None });
        }
    }

    /// An attempt to claim, as `echo_client::Publisher` makes it.
    fn claim(&mut self) -> Option<Claim> {
        let control = self.control();
        let publisher = self.publisher.as_mut()?;
        if publisher.claim.is_none() {
            match publisher.claimer.try_claim(&control, publisher.page.record(0).expect("the first"), 1) {
                Ok(Attempt::Claimed(claim)) => publisher.claim = Some(claim),
                Ok(Attempt::Full(_) | Attempt::Closed(_)) => {}
                // The table is spoilt, and its publisher fails.
                Err(_) => self.kill_publisher(),
            }
        }
        self.publisher.as_ref()?.claim
    }

    fn publish(&mut self) {
        let control = self.control();
        let Some(claim) = self.claim() else { return };
        assert!(claim.block.get() < self.blocks && claim.slot == 0 && claim.length == 1, "{claim:?}");
        let Some(publisher) = &mut self.publisher else { return };
        if commit_newest(&control, publisher.page.record(0).expect("the first"), &claim).is_ok() {
            publisher.claim = None;
        }
    }

    fn kill_publisher(&mut self) {
        self.leaving.extend(self.publisher.take().map(|publisher| publisher.key));
        self.let_go_of_publishers();
    }

    fn let_go_of_publishers(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        self.leaving = leaving.into_iter().filter(|&key| !self.latest().detach(key)).collect();
    }

    /// Takes the newest value, as `echo_client::LatestReader` does.
    fn take(&mut self, input: &mut Input<'_>) {
        let control = self.control();
        let Some((_, page)) = self.anybody(input) else { return };
        let (hold, than) = (input.below(HOLDS as u32) as usize, u64::from(input.u8()));
        if let Ok(Some(value)) = take(&control, self.blocks, page.holds(0).expect("the first"), hold, than) {
            assert!(value.block.get() < self.blocks && value.version() > than, "{value:?}");
        }
    }

    fn kill_reader(&mut self, key: MemberKey) {
        self.readers.remove(&key);
        self.away.remove(&key);
        assert!(self.latest().detach(key), "nothing holds up a reader's leaving");
    }

    fn tick(&mut self) {
        self.latest().tick(&mut Vec::new());
        self.let_go_of_publishers();
    }

    /// Another daemon takes over. It may refuse, since the words do not fit the record; for no other reason.
    fn replace_daemon(&mut self) {
        let Some(machine) = self.machine.take() else { return };
        let control = machine.intake().control().clone();
        let geometry = *control.geometry();
        let words = machine.into_ledger().into_words();
        let ledger = Ledger::open(words, geometry, TableKind::Latest).expect("nobody else writes it");
        let mut latest = match Latest::rebuild(control, ledger) {
            Ok(latest) => latest,
            Err(RebuildError::Poisoned(Poison::State { .. })) => return,
            Err(error) => panic!("{error}"),
        };
        if let Some(publisher) = &self.publisher {
            latest.attach_writer(publisher.key, publisher.page.clone(), 0).expect("it was there");
        }
        self.away.append(&mut self.readers);
        self.machine = Some(Machine::Latest(latest));
        self.let_go_of_publishers();
    }

    fn show(&mut self) {
        self.clock += 1;
        let now = Duration::from_secs(self.clock);
        let machine = self.machine.as_ref().expect("programs end with the table");
        self.watch.observe(machine, now);
        let who = |client: ClientId| (client.0 as u32, client.to_string());
        for wait in why::waits(machine, &Turn::default(), &self.watch, now, &who) {
            assert!(!wait.who.is_empty() && !wait.waits_for.is_empty());
        }
        let held = self.latest().held().count();
        assert!(held <= READERS * HOLDS, "{held} values are held");
        let _: Vec<(u64, Option<u64>)> =
            self.latest().readers().values().map(|reader| (reader.taken(), reader.waits_with())).collect();
    }

    /// What holds after each step, whatever the words say.
    fn check(&mut self) {
        let blocks = self.blocks;
        let latest = self.latest();
        let samples = latest.intake().samples();
        assert_eq!(samples.committed, samples.delivered + samples.pending);
        let counts = latest.block_counts();
        assert_eq!(counts.free + counts.filling + counts.complete, blocks, "a block is lost, or there twice");
        assert!(counts.granted <= blocks);
        if let Some(poison) = latest.intake().poison() {
            assert!(!poison.to_string().is_empty());
            assert!(matches!(latest.intake().phase(), Phase::Closed(_)), "nothing more comes of it");
        }
    }

    /// Everybody goes. However spoilt it is, the table can be ended, and lets go of them all.
    fn ends(&mut self) {
        self.kill_publisher();
        let all: Vec<MemberKey> = self.readers.keys().chain(self.away.keys()).copied().collect();
        for key in all {
            self.kill_reader(key);
        }
        self.latest().close(EndReason::Dropped, &mut Vec::new());
        assert!(self.latest().is_drained());
        for _ in 0..TURNS {
            if self.leaving.is_empty() {
                break;
            }
            self.tick();
            self.check();
        }
        assert!(!self.latest().has_members(), "it keeps members that are gone");
    }
}
