//! The words that clients can write: a table's control region, and their client pages.
//!
//! An input is a program: workers and readers that keep to the protocol come, write, read, die; the daemon looks,
//! and is replaced; and at any point somebody writes anything over a word. Whatever they do, the daemon does not
//! panic, touches nothing beside its words, does a bounded amount of work (the fuzzer's timeout), keeps account of
//! its blocks, samples and grants, and gets rid of everybody in the end. The table is alright or says by name why
//! not; and the one beside it does not notice.
//!
//! A program that writes over nothing is one of these as well; what must hold of those, that every sample is
//! delivered once, is held by the core's own tests of the queue.

use echo::ring::control::{Control, Geometry};
use echo::ring::record::ClientPage;
use echo::ring::words::Words;
use echo::sync::Ordering;
use echo::wire::message::EndReason;

use crate::input::Input;
use crate::neighbour::Neighbour;
use crate::spoiling;
use crate::table::Table;

/// Steps of one program: more show nothing that fewer do not, and only take time.
const STEPS: usize = 400;

/// What somebody writes over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoilt {
    ControlRegion,
    ClientPage,
}

/// One step; its number is its byte in an input. The numbers are those of committed inputs: add at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the table's functions say it")]
pub enum Step {
    AttachWorker,
    Claim,
    Commit,
    GiveUp,
    KillWorker,
    FinishWorker,
    AttachReader,
    Read,
    ReleaseAnything,
    KillReader,
    DisconnectReader,
    Tick,
    ReplaceDaemon,
    Close,
    EndAll,
    Show,
    Spoil,
    SpoilAgain,
    ManyDroppedClaims,
    LeaveReader,
}

impl Step {
    const ALL: [Self; 20] = [
        Self::AttachWorker,
        Self::Claim,
        Self::Commit,
        Self::GiveUp,
        Self::KillWorker,
        Self::FinishWorker,
        Self::AttachReader,
        Self::Read,
        Self::ReleaseAnything,
        Self::KillReader,
        Self::DisconnectReader,
        Self::Tick,
        Self::ReplaceDaemon,
        Self::Close,
        Self::EndAll,
        Self::Show,
        Self::Spoil,
        Self::SpoilAgain,
        Self::ManyDroppedClaims,
        Self::LeaveReader,
    ];
}

/// Any bytes, as a program whose workers write over words of the control region; or as such a region.
///
/// # Panics
/// If something does not hold.
pub fn control_region_holds(bytes: &[u8]) {
    match bytes.split_first() {
        // Rather few inputs, since there is little to find out about it.
        Some((0xff, rest)) => received(rest),
        _ => run(bytes, Spoilt::ControlRegion),
    }
}

/// Any bytes, as a program whose workers write over words of their client pages.
///
/// # Panics
/// If something does not hold.
pub fn client_page_holds(bytes: &[u8]) {
    run(bytes, Spoilt::ClientPage);
}

/// A region and a page that a client was sent: what was announced, or an error.
fn received(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (slots, blocks) = (input.u16().into(), input.u8().into());
    let (refill, bits) = (input.u16().into(), input.u8().into());
    let region = input.bytes(bytes.len());
    drop(ClientPage::attach(words(region)));
    if let Ok(geometry) = Geometry::new(slots, blocks, refill, bits)
        && let Ok(control) = Control::attach(words(region), geometry)
    {
        assert!(region.len().next_multiple_of(8) >= geometry.control_bytes());
        assert_eq!(*control.geometry(), geometry);
    }
}

fn words(bytes: &[u8]) -> Words {
    let words = Words::heap(bytes.len());
    for (i, word) in bytes.chunks(8).enumerate() {
        words.u64(i * 8).store(Input::new(word).u64(), Ordering::Relaxed);
    }
    words
}

fn run(bytes: &[u8], spoilt: Spoilt) {
    let mut input = Input::new(bytes);
    let (slots, blocks) = (1 + input.below(40), 1 + input.below(5));
    let (refill, bits) = (1 + input.below(4), 1 + input.below(32));
    let mut table = Table::new(slots, blocks, refill, bits);
    let mut neighbour = Neighbour::new();
    for n in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut input, &mut table, spoilt);
        // It costs as much as the step itself, and what harms it once stays.
        if n % 8 == 0 {
            neighbour.goes_on();
        }
        if !table.is_there() {
            break;
        }
        table.check();
    }
    if table.is_there() {
        table.ends();
    }
    neighbour.goes_on();
}

fn step(input: &mut Input<'_>, table: &mut Table, spoilt: Spoilt) {
    const REASONS: [EndReason; 3] = [EndReason::Finished, EndReason::Dropped, EndReason::Draining];
    match Step::ALL[input.below(Step::ALL.len() as u32) as usize] {
        Step::AttachWorker => table.attach_worker(),
        Step::Claim => table.claim(input.below(4), u32::from(input.u8())),
        Step::Commit => table.commit(input.below(4)),
        Step::GiveUp => table.give_up(input.below(4)),
        Step::KillWorker => table.kill_worker(input.below(4)),
        Step::FinishWorker => table.finish_worker(input.below(4)),
        Step::AttachReader => table.attach_reader(1 + input.below(4) as u16),
        Step::Read => drop(table.read(input.below(3))),
        Step::ReleaseAnything => table.release_anything(input.below(3), input.below(3), input.below(4)),
        Step::KillReader => table.kill_reader(input.below(3)),
        Step::DisconnectReader => table.disconnect_reader(input.below(3)),
        Step::Tick => table.tick(),
        Step::ReplaceDaemon => table.replace_daemon(),
        Step::Close => table.close(REASONS[input.below(3) as usize]),
        Step::EndAll => table.end_all(REASONS[input.below(3) as usize]),
        Step::Show => table.show(),
        Step::Spoil | Step::SpoilAgain if spoilt == Spoilt::ControlRegion => {
            spoiling::control(input, &table.control());
        }
        Step::Spoil | Step::SpoilAgain => {
            if let Some((page, _)) = table.page(input.below(4)) {
                spoiling::record(input, page.record(0).expect("the first"));
            }
        }
        // Once: it takes long, and twice is no other than once.
        Step::ManyDroppedClaims if spoilt == Spoilt::ClientPage && !table.is_flooded() => {
            if let Some((page, say)) = table.page(input.below(4)) {
                spoiling::many_dropped_claims(input, page.record(0).expect("the first"), say);
            }
        }
        Step::ManyDroppedClaims => {}
        Step::LeaveReader => table.leave_reader(input.below(3), input.u8()),
    }
}
