//! A table that nobody spoils, beside one that is being spoilt: it goes on delivering every sample, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use echo::ids::{BlockIndex, ClientId, LeaseToken, MemberId};
use echo::ring::claim::{Attempt, Claimer};
use echo::ring::commit::commit;
use echo::ring::control::{Control, Geometry};
use echo::ring::ready::{Readiness, look};
use echo::ring::record::{ClientPage, PAGE_BYTES};
use echo::ring::words::Words;
use echo::spec::TableKind;
use echo::table::action::Action;
use echo::table::group::DEFAULT_GROUP;
use echo::table::member::MemberKey;
use echo::table::queue::Queue;
use echo::wire::message::Grant;

use crate::table::{Data, ledger, tokens};

const SLOTS: u32 = 3;
const BLOCKS: u32 = 2;
const WRITER: MemberKey = MemberKey { client: ClientId(1), member: MemberId(1) };
const READER: MemberKey = MemberKey { client: ClientId(2), member: MemberId(1) };

/// The table, its worker and its reader. A sample is its number.
pub(crate) struct Neighbour {
    queue: Queue,
    data: Data,
    page: Arc<ClientPage>,
    claimer: Claimer,
    grants: VecDeque<Grant>,
    written: u64,
    read: u64,
}

impl Neighbour {
    pub(crate) fn new() -> Self {
        let geometry = Geometry::new(SLOTS, BLOCKS, 1, 2).expect("a ring");
        let control = Control::create(Words::heap(geometry.control_bytes()), geometry).expect("room for it");
        let ledger = ledger(geometry, TableKind::Queue);
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).expect("room for a page"));
        let mut queue = Queue::create(Arc::new(control), ledger, BLOCKS, tokens(LeaseToken([0xee; 16])));
        queue.attach_writer(WRITER, page.clone(), 0);
        let mut actions = Vec::new();
        queue.attach_reader(READER, 0, 1, DEFAULT_GROUP, &mut actions).unwrap();
        let (data, claimer) = (Data::new(&geometry), Claimer::new(BLOCKS));
        let mut this = Self { queue, data, page, claimer, grants: VecDeque::new(), written: 0, read: 0 };
        this.perform(actions);
        this
    }

    /// Writes a sample, for which there is room, and reads what is complete.
    pub(crate) fn goes_on(&mut self) {
        let record = self.page.record(0).expect("the first");
        let attempt =
            self.claimer.try_claim(self.queue.intake().control(), record, 1).expect("nobody spoils it");
        let Attempt::Claimed(claim) = attempt else { panic!("no room beside a spoilt table: {attempt:?}") };
        *self.data.at(claim.block, claim.slot) = Some(self.written);
        self.written += 1;
        commit(self.queue.intake().control(), record, &claim).expect("nobody spoils it");
        if self.written.is_multiple_of(SLOTS.into()) {
            self.reads_a_batch();
        }
        let mut actions = Vec::new();
        self.queue.tick(&mut self.data, &mut actions);
        self.perform(actions);
        assert_eq!(self.queue.intake().poison(), None);
        let samples = self.queue.intake().samples();
        assert_eq!((samples.committed, samples.delivered), (self.written, self.read));
    }

    fn reads_a_batch(&mut self) {
        let grant = self.grants.pop_front().expect("there is one reader, and it holds nothing");
        let block = BlockIndex::new(grant.block, BLOCKS).expect("one of the table's");
        assert_eq!(look(self.queue.intake().control(), block, grant.seq), Readiness::Complete(SLOTS));
        for slot in 0..SLOTS {
            assert_eq!(*self.data.at(block, slot), Some(self.read));
            self.read += 1;
        }
        let mut actions = Vec::new();
        self.queue.release(READER, &[grant.token], &mut actions).expect("it is attached");
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Grant { grants, .. } => self.grants.extend(grants),
                Action::Sampled { .. } => panic!("it is no replay table"),
                Action::End { .. } => panic!("nobody ended it"),
            }
        }
    }
}
