//! A table as the daemon holds it: its samples' memory, the words beside them, and the state machine over both.
//!
//! Three memfds: data and control, which members map, and the private record, which nobody else sees; and of a replay table
//! a fourth, with its items, which is as private. All memory
//! is leased, committed, resident and sealed before anybody gets a descriptor; if a step fails there is no table
//! and nothing of it is left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use thiserror::Error;

use crate::ids::{BlockIndex, MemberId, TableId};
use crate::memory::governor::{Account, BudgetError, MemoryGovernor, MemoryLease};
use crate::memory::layout::DataLayout;
use crate::memory::memfd::Unsealed;
use crate::memory::shared::Filling;
use crate::memory::syscalls::page_size;
use crate::memory::{Access, Mapping, MemoryError, SharedBacking, pages};
use crate::ring::buf::PytreeRingBuf;
use crate::ring::control::{Control, ControlError, Geometry, GeometryError};
use crate::ring::words::Words;
use crate::spec::{HugePages, TableSpec};
use crate::table::action::Action;
use crate::table::ending::MoveSamples;
use crate::table::ledger::Ledger;
use crate::table::machine::{Machine, Private};
use crate::table::poison::RebuildError;
use crate::token::lease_tokens;
use crate::wire::message::{Attachment, Pages};

/// Bytes that are moved at once.
const MOVE_BYTES: u64 = 1 << 20;
/// System calls for moving samples in one turn of the daemon: some ten milliseconds.
const TURN_CALLS: usize = 8192;
/// Bytes that are moved in one turn: as long.
const TURN_BYTES: u64 = 32 << 20;

/// Why there is no such table.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it all")]
pub enum StoreError {
    #[error(transparent)]
    Budget(#[from] BudgetError),
    #[error(transparent)]
    Memory(MemoryError),
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Machine(#[from] RebuildError),
    #[error("there is no thread to make it on: {0}")]
    Thread(io::Error),
}

impl From<MemoryError> for StoreError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Budget(error) => Self::Budget(error),
            error => Self::Memory(error),
        }
    }
}

impl StoreError {
    /// Whether another spec or another budget is what it takes, and not another attempt.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Budget(_) | Self::Geometry(_))
    }
}

/// The table.
pub struct Store {
    spec: TableSpec,
    geometry: Geometry,
    layout: DataLayout,
    machine: Machine,
    arrays: PytreeRingBuf<SharedBacking>,
    files: Files,
    pages: Pages,
    /// Of control and record; the arrays have leases of their own.
    lease: MemoryLease,
}

/// What a member may do with a table's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Write samples.
    Write,
    /// Read them.
    Read,
    /// Read them, from memory that CUDA can page-lock: that must be writable on many GPUs.
    Pin,
}

/// What a table takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Bytes of memory: of a budget, and of what may be locked if the table is.
    pub bytes: u64,
    /// Bytes of its largest file, which has room to grow and need not have memory everywhere.
    pub file_bytes: u64,
}

/// What members are sent.
struct Files {
    data: Arc<OwnedFd>,
    data_read_only: Arc<OwnedFd>,
    control: Arc<OwnedFd>,
    control_read_only: Arc<OwnedFd>,
}

impl Store {
    /// A new table of a valid spec, whose memory is accounted to that user and made resident by that many
    /// threads. Takes seconds if it is large: `progress` is called with the bytes that were done, by any thread.
    ///
    /// # Errors
    /// If a budget or the kernel refuses the memory. Nothing is then left of it.
    pub fn create(
        spec: &TableSpec,
        governor: &Arc<MemoryGovernor>,
        uid: u32,
        threads: u32,
        progress: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        let geometry = Geometry::of(spec)?;
        let layout = DataLayout::of(spec)?;
        let account = Account::host(governor.clone(), uid, format!("table {:?}", spec.name));
        let filling = Arc::new(Filling::new(threads, spec.pin, progress));

        let name = |part: &str| format!("echo/{}/{part}", spec.name);
        let mut lease = account.clone().lease();
        let (control, record) = (geometry.control_bytes(), Ledger::bytes(&geometry, spec.kind));
        let items = Machine::items_bytes(spec);
        lease.grow(
            [control, record, items].map(|bytes| bytes.next_multiple_of(page_size()) as u64).iter().sum(),
        )?;
        let (control, control_file) = resident(&name("control"), control, &filling)?;
        let (record, _) = resident(&name("record"), record, &filling)?;
        let items = match items {
            0 => None,
            bytes => Some(Words::mapped(resident(&name("items"), bytes, &filling)?.0)),
        };

        let (huge_page, mut notes) = huge_page(spec, &layout)?;
        let data = Unsealed::create(&name("data"), layout.bytes())?;
        let writable = Arc::new(data.try_clone()?);
        let slots = u64::from(spec.batch_size) * u64::from(spec.capacity);
        let arrays = PytreeRingBuf::create(&writable, &layout, slots, &account, huge_page, &filling)?;
        let pages = pages_got(&arrays, &layout, huge_page, spec, &filling, &mut notes)?;

        let control = Arc::new(Control::create(Words::mapped(control), geometry)?);
        let ledger = Ledger::create(Words::mapped(record), geometry, spec.kind);
        let private = Private { ledger, items, tokens: Box::new(lease_tokens()) };
        let machine = Machine::create(spec, control, private)?;
        let (data, control_file) = (data.seal()?, control_file.seal()?);
        let files = Files {
            data_read_only: Arc::new(data.read_only()?),
            data: Arc::new(data.into_fd()),
            control_read_only: Arc::new(control_file.read_only()?),
            control: Arc::new(control_file.into_fd()),
        };
        Ok(Self { spec: spec.clone(), geometry, layout, machine, arrays, files, pages, lease })
    }

    /// What it takes to make a table of a valid spec, whose large arrays are on huge pages of that size, if any.
    ///
    /// # Errors
    /// If there cannot be such a table.
    pub fn needs(spec: &TableSpec, huge_page: Option<usize>) -> Result<Needs, StoreError> {
        let geometry = Geometry::of(spec)?;
        let layout = DataLayout::of(spec)?;
        let pages = |bytes: usize| bytes.next_multiple_of(page_size()) as u64;
        let slots = u64::from(spec.batch_size) * u64::from(spec.capacity);
        let arrays = layout.places().iter().map(|place| {
            let granule = huge_page.filter(|_| place.is_large()).unwrap_or_else(page_size);
            // Its layout would have been too large for a file if this could overflow.
            (slots * place.slot_bytes).next_multiple_of(granule as u64)
        });
        let words = pages(geometry.control_bytes())
            + pages(Ledger::bytes(&geometry, spec.kind))
            + pages(Machine::items_bytes(spec));
        Ok(Needs { bytes: arrays.sum::<u64>() + words, file_bytes: layout.bytes() })
    }

    /// What its samples look like, and how large it is.
    pub const fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// Who writes and reads what.
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Who writes and reads what.
    pub const fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    /// What was got of the kernel when it was made.
    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Bytes that are leased for it.
    pub fn committed_bytes(&self) -> u64 {
        self.arrays.committed() + self.lease.bytes()
    }

    /// What a member needs to map it.
    pub fn attachment(&self, table: TableId, member: MemberId, record: u32) -> Attachment {
        Attachment {
            member,
            table,
            spec: self.spec.clone(),
            blocks: self.spec.capacity,
            fill_len: self.geometry.fill_len(),
            refill_len: self.geometry.refill_len(),
            bits_per_word: self.geometry.bits_per_word(),
            data_bytes: self.layout.bytes(),
            offsets: self.layout.places().iter().map(|place| place.offset).collect(),
            record,
        }
    }

    /// The descriptors that go with it: data and control.
    pub fn descriptors(&self, rights: Rights) -> Vec<Arc<OwnedFd>> {
        let files = &self.files;
        match rights {
            Rights::Write => vec![files.data.clone(), files.control.clone()],
            Rights::Read => vec![files.data_read_only.clone(), files.control_read_only.clone()],
            Rights::Pin => vec![files.data.clone(), files.control_read_only.clone()],
        }
    }

    /// Does what is to be done from time to time.
    pub fn tick(&mut self, actions: &mut Vec<Action>) {
        let (file, block_slots) = (self.files.data.as_fd(), self.spec.batch_size);
        let mut mover = FileMover { file, layout: &self.layout, block_slots, bytes: Vec::new() };
        self.machine.tick(&mut mover, actions);
    }
}

impl Drop for Store {
    /// Gives the pages back before the leases: whoever keeps a descriptor keeps no memory by it. But not from under
    /// members, whose batches they are, and whose devices may have them pinned: their mappings are the last to go.
    fn drop(&mut self) {
        if self.machine.has_members() {
            return;
        }
        let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        for (file, bytes) in [
            (&self.files.data, self.layout.bytes()),
            (&self.files.control, self.geometry.control_bytes().next_multiple_of(page_size()) as u64),
        ] {
            // Where the kernel does not, the pages go with the last descriptor.
            let _ = rustix::fs::fallocate(file, punch, 0, bytes);
        }
    }
}

/// A file of that many bytes, mapped and resident, not yet sealed.
fn resident(name: &str, bytes: usize, filling: &Filling) -> Result<(Mapping, Unsealed), MemoryError> {
    let bytes = bytes.next_multiple_of(page_size());
    let file = Unsealed::create(name, bytes as u64)?;
    let mapping = Mapping::new(&file, bytes, Access::ReadWrite)?;
    mapping.make_resident(filling)?;
    Ok((mapping, file))
}

/// The huge pages that its large arrays are to have, and why not if not.
fn huge_page(spec: &TableSpec, layout: &DataLayout) -> Result<(Option<usize>, Vec<String>), MemoryError> {
    let any_large = layout.places().iter().any(|place| place.is_large());
    match (spec.huge_pages, pages::shared_huge_page()) {
        (HugePages::Off, _) => Ok((None, vec![])),
        (HugePages::Required, Err(why)) => Err(MemoryError::HugePages(why.to_string())),
        (_, Ok(size)) => Ok((Some(size), vec![])),
        (HugePages::Auto, Err(why)) if any_large => Ok((None, vec![format!("no huge pages: {why}")])),
        (HugePages::Auto, Err(_)) => Ok((None, vec![])),
    }
}

/// What the kernel says that the arrays got.
fn pages_got(
    arrays: &PytreeRingBuf<SharedBacking>,
    layout: &DataLayout,
    huge_page: Option<usize>,
    spec: &TableSpec,
    filling: &Filling,
    notes: &mut Vec<String>,
) -> Result<Pages, MemoryError> {
    let got = match pages::count(&arrays.address_ranges()) {
        Ok(got) => got,
        Err(error) => {
            notes.push(format!("the pages cannot be counted: {error}"));
            pages::PagesGot { resident: arrays.committed(), ..Default::default() }
        }
    };
    if let Some(size) = huge_page {
        let slots = u64::from(spec.batch_size) * u64::from(spec.capacity);
        let large = layout.places().iter().filter(|place| place.is_large());
        let wanted: u64 = large.map(|place| (slots * place.slot_bytes).next_multiple_of(size as u64)).sum();
        if got.huge < wanted {
            let note = format!("{} of {wanted} bytes are on huge pages", got.huge);
            match spec.huge_pages {
                HugePages::Required => return Err(MemoryError::HugePages(note)),
                _ => notes.push(note),
            }
        }
    }
    if let Some(why) = filling.not_locked() {
        notes.push(format!("not locked: {why}"));
    }
    Ok(Pages {
        page_bytes: page_size() as u64,
        resident_bytes: got.resident,
        locked_bytes: got.locked,
        huge_bytes: got.huge,
        notes: std::mem::take(notes),
    })
}

/// Moves samples by `pread` and `pwrite`: a hole that a worker punched is then an error or zeros, and not the
/// daemon's SIGBUS.
struct FileMover<'a> {
    file: BorrowedFd<'a>,
    layout: &'a DataLayout,
    block_slots: u32,
    bytes: Vec<u8>,
}

impl MoveSamples for FileMover<'_> {
    fn moves_a_turn(&self) -> usize {
        let calls = TURN_CALLS / self.layout.places().len().max(1);
        let bytes: u64 = self.layout.places().iter().map(|place| place.slot_bytes).sum();
        calls.min((TURN_BYTES / bytes.max(1)) as usize).max(1)
    }

    fn move_sample(&mut self, block: BlockIndex, from: u32, to: u32) -> io::Result<()> {
        let first = u64::from(block.get()) * u64::from(self.block_slots);
        for place in self.layout.places() {
            let at = |slot: u32| place.offset + (first + u64::from(slot)) * place.slot_bytes;
            self.bytes.resize(place.slot_bytes.min(MOVE_BYTES) as usize, 0);
            for done in (0..place.slot_bytes).step_by(MOVE_BYTES as usize) {
                let bytes = &mut self.bytes[..(place.slot_bytes - done).min(MOVE_BYTES) as usize];
                let read = rustix::io::pread(self.file, &mut *bytes, at(from) + done)?;
                let written = rustix::io::pwrite(self.file, &bytes[..read], at(to) + done)?;
                if written < bytes.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BlockSeq, ClientId, SlotIndex};
    use crate::memory::memfd::Sealed;
    use crate::memory::syscalls::{Call, with_fault};
    use crate::ring::claim::{Attempt, Claimer};
    use crate::ring::commit::commit;
    use crate::ring::ready::{self, Readiness};
    use crate::ring::record::{ClientPage, PAGE_BYTES};
    use crate::spec::{ArraySpec, DType, Pin};
    use crate::table::group::DEFAULT_GROUP;
    use crate::table::member::MemberKey;
    use crate::table::queue::Queue;
    use crate::wire::message::{EndReason, Grant};
    use rustix::io::Errno;

    fn spec() -> TableSpec {
        let arrays = vec![
            ArraySpec::new("id", DType::U64, []),
            ArraySpec::new("nothing", DType::F32, [0]),
            ArraySpec::new("twice", DType::U16, [3]),
        ];
        TableSpec::new("t", arrays, 4, 3)
    }

    fn governor() -> Arc<MemoryGovernor> {
        Arc::new(MemoryGovernor::new(1 << 30, 1 << 30))
    }

    fn queue(store: &mut Store) -> &mut Queue {
        match store.machine_mut() {
            Machine::Queue(queue) => queue,
            Machine::Latest(_) | Machine::Replay(_) => panic!("it is a queue table"),
        }
    }

    /// A member's own mapping, as a client makes it.
    fn attach(store: &Store, writer: bool) -> (PytreeRingBuf<SharedBacking>, Control) {
        let attachment = store.attachment(TableId(1), MemberId(1), 0);
        let access = if writer { Access::ReadWrite } else { Access::ReadOnly };
        let mut fds = store
            .descriptors(if writer { Rights::Write } else { Rights::Read })
            .into_iter()
            .map(|fd| fd.try_clone().unwrap());
        let data = Sealed::received(fds.next().unwrap(), attachment.data_bytes, access).unwrap();
        let geometry = Geometry::announced(&attachment).unwrap();
        let layout = DataLayout::announced(&spec(), &attachment.offsets, attachment.data_bytes).unwrap();
        let arrays = PytreeRingBuf::attach(data, &layout, 12, access).unwrap();
        let bytes = geometry.control_bytes().next_multiple_of(page_size());
        let control = Sealed::received(fds.next().unwrap(), bytes as u64, access).unwrap();
        let control = Mapping::new(&control.as_fd(), bytes, access).unwrap();
        (arrays, Control::attach(Words::mapped(control), geometry).unwrap())
    }

    #[test]
    fn samples_of_a_short_block_are_moved_together_in_every_array() {
        let mut store = Store::create(&spec(), &governor(), 1, 1, |_| ()).unwrap();
        let page = Arc::new(ClientPage::create(Words::heap(PAGE_BYTES)).unwrap());
        let key = |member| MemberKey { client: ClientId(1), member: MemberId(member) };
        let mut actions = Vec::new();
        queue(&mut store).attach_writer(key(1), page.clone(), 0);
        queue(&mut store).attach_writer(key(2), page.clone(), 1);
        queue(&mut store).attach_reader(key(3), 0, 2, DEFAULT_GROUP, &mut actions).unwrap();
        let (ours, control) = attach(&store, true);
        let mut claimers = [Claimer::new(3), Claimer::new(3)];
        let mut claim = |writer: u32| {
            let record = page.record(writer).unwrap();
            match claimers[writer as usize].try_claim(&control, record, 1).unwrap() {
                Attempt::Claimed(claim) => claim,
                other => panic!("{other:?}"),
            }
        };
        // Positions 0 and 2 are committed, 1 is lost with its worker.
        for (writer, value) in [(0, Some(10_u64)), (1, None), (0, Some(12))] {
            let claim = claim(writer);
            let Some(value) = value else { continue };
            let slot = SlotIndex::new(claim.first_slot(&control), 12).unwrap();
            // SAFETY: the slot is claimed, 8 bytes long and aligned; 6 bytes, two of them each.
            unsafe { ours.slot_mut(0, slot).cast::<u64>().write(value) };
            for i in 0..3 {
                let element = ours.slot_mut(2, slot).cast::<u16>().wrapping_add(i);
                // SAFETY: as above.
                unsafe { element.write(2 * value as u16) };
            }
            commit(&control, page.record(writer).unwrap(), &claim).unwrap();
        }
        queue(&mut store).detach(key(2), &mut actions);
        queue(&mut store).finish_writer(key(1)).unwrap();
        store.tick(&mut actions);
        let grant = actions.iter().find_map(|action| match action {
            Action::Grant { grants, .. } => grants.first().copied(),
            _ => None,
        });
        let Some(Grant { seq: BlockSeq(0), block: 0, token, .. }) = grant else { panic!("{actions:?}") };
        let (theirs, control) = attach(&store, false);
        let block = BlockIndex::new(0, 3).unwrap();
        assert_eq!(ready::look(&control, block, BlockSeq(0)), Readiness::Complete(2));
        for (slot, value) in [(0, 10_u64), (1, 12)] {
            let slot = SlotIndex::new(slot, 12).unwrap();
            // SAFETY: in a complete block, aligned, of that length.
            let id = unsafe { theirs.slot_ref(0, slot).cast::<u64>().read() };
            // SAFETY: as above.
            let twice = unsafe { theirs.slot_ref(2, slot).cast::<[u16; 3]>().read() };
            assert_eq!((id, twice), (value, [2 * value as u16; 3]));
        }
        assert!(actions.iter().any(|a| matches!(a, Action::End { reason: EndReason::Finished, .. })));
        queue(&mut store).release(key(3), &[token], &mut actions).unwrap();
        let samples = store.machine().intake().samples();
        assert_eq!((samples.committed, samples.delivered, samples.pending), (2, 2, 0));
        assert!(store.machine().is_drained());
    }

    #[test]
    fn whatever_the_kernel_refuses_leaves_nothing_behind() {
        let governor = governor();
        let mut hits = 0;
        for call in [Call::MemfdCreate, Call::Truncate, Call::Map, Call::Populate, Call::Lock] {
            for skip in 0.. {
                let spec = TableSpec { name: "refused".into(), pin: Pin::Required, ..spec() };
                let create = || Store::create(&spec, &governor, 1, 1, |_| ()).map(|_| ());
                let (result, hit) = with_fault(call, skip, Errno::NOMEM, create);
                assert_eq!(governor.host_usage().used, 0);
                if !hit {
                    result.unwrap();
                    break;
                }
                hits += 1;
                assert!(matches!(result, Err(StoreError::Memory(_))), "{call:?} {skip}");
            }
        }
        assert!(hits > 15, "{hits}");
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("echo/refused/"), "{maps}");
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        assert_eq!(targets.filter(|target| target.to_string_lossy().contains("echo/refused/")).count(), 0);
    }

    #[test]
    fn what_a_table_needs_is_known_before_it_is_made() {
        let large =
            vec![ArraySpec::new("obs", DType::U8, [1 << 20]), ArraySpec::new("nothing", DType::U8, [0])];
        let huge_page = pages::shared_huge_page().ok();
        for spec in [spec(), TableSpec { arrays: large, ..spec() }] {
            let store = Store::create(&spec, &governor(), 1, 1, |_| ()).unwrap();
            let needs = Store::needs(&spec, huge_page).unwrap();
            assert_eq!(needs.bytes, store.committed_bytes());
            assert_eq!(needs.file_bytes, store.layout.bytes());
            assert!(Store::needs(&spec, Some(2 << 20)).unwrap().bytes >= needs.bytes);
        }
    }

    #[test]
    fn a_table_past_the_budget_is_refused_and_costs_nothing() {
        let governor = Arc::new(MemoryGovernor::new(4 << 20, 64 << 10));
        let big = TableSpec { capacity: 1 << 12, max_capacity: 1 << 12, ..spec() };
        let error = Store::create(&big, &governor, 7, 1, |_| ()).map(|_| ()).unwrap_err();
        assert!(matches!(error, StoreError::Budget(_)), "{error}");
        assert!(error.to_string().contains("the budget of uid 7 of 65536 bytes"), "{error}");
        assert_eq!(governor.host_usage().used, 0);
    }

    #[test]
    fn huge_pages_that_are_required_are_got_or_refused() {
        let large = TableSpec {
            arrays: vec![ArraySpec::new("obs", DType::U8, [1 << 20])],
            huge_pages: HugePages::Required,
            ..spec()
        };
        let error = match (Store::create(&large, &governor(), 1, 1, |_| ()), pages::shared_huge_page()) {
            (Ok(store), Ok(_)) => return assert_eq!(store.pages().huge_bytes, 12 << 20),
            (Err(error), Err(why)) => {
                assert!(error.to_string().contains(&why.to_string()), "{error}");
                error
            }
            // The machine allows them and has none left.
            (Err(error), Ok(_)) => error,
            (Ok(_), Err(why)) => panic!("huge pages although {why}"),
        };
        assert!(matches!(error, StoreError::Memory(MemoryError::HugePages(_))), "{error}");
        let auto = TableSpec { huge_pages: HugePages::Auto, ..large };
        let store = Store::create(&auto, &governor(), 1, 1, |_| ()).unwrap();
        assert!(store.pages().notes.iter().any(|note| note.contains("huge pages")), "{:?}", store.pages());
    }
}
