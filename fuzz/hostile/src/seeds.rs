//! Inputs to start from: one of every kind of message, and programs that come as far as each part of the code.
//!
//! The fuzzer finds the rest from these, but a message's first byte, a geometry or a heading of a file it would take
//! long to guess. `cargo run --package echo-hostile` writes them.

use echo::access::AccessList;
use echo::ids::{BlockSeq, ClientId, GrantNumber, LeaseToken, MemberId, TableId};
use echo::replay::settings::{Admission, Real, ReplaySpec, Selector};
use echo::spec::{ArraySpec, DType, TableKind, TableSpec};
use echo::wire::codec::{encode_event, encode_request};
use echo::wire::message::{
    Answer, Attachment, BUILD, Call, ClientRow, EndReason, Event, Grant, GroupFrom, GroupRow, Hello, Holder,
    ItemPriority, LAYOUT_VERSION, LeasePlace, LeaseRow, LeaseState, MAGIC, MAX_MESSAGE, MemberRow,
    PROTOCOL_MAX, PROTOCOL_MIN, Pages, PinReport, PinRow, Refusal, RefusalKind, Refused, ReplayDetails,
    Request, SampledItem, Status, TableDetails, TableRow, Wait, Welcome,
};

use crate::shared_words::Step::{self, *};
use crate::{latest, replay};

/// An input: the door, a name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// All of them.
pub fn all() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (i, request) in requests().iter().enumerate() {
        let bytes = encode_request(request).expect("a small message");
        seeds.push(("message", format!("request-{i:02}"), bytes));
    }
    for (i, event) in events().iter().enumerate() {
        let bytes = encode_event(event).expect("a small message");
        seeds.push(("message", format!("event-{i:02}"), bytes));
    }
    for (name, bytes) in packets() {
        seeds.push(("ancillary", name.into(), bytes));
    }
    for (name, steps) in programs() {
        let bytes = assemble(&steps);
        seeds.push(("control_region", name.into(), bytes.clone()));
        seeds.push(("client_page", name.into(), bytes));
    }
    for (name, steps) in latest_programs() {
        // Three blocks, two holes offered at a time.
        let steps = steps
            .iter()
            .flat_map(|(step, numbers)| std::iter::once(*step as u8).chain(numbers.iter().copied()));
        seeds.push(("latest", name.into(), [1, 1].into_iter().chain(steps).collect()));
    }
    for (name, settings, steps) in replay_programs() {
        let steps = steps
            .iter()
            .flat_map(|(step, numbers)| std::iter::once(*step as u8).chain(numbers.iter().copied()));
        seeds.push(("replay", name.into(), settings.into_iter().chain(steps).collect()));
    }
    for (name, text) in CONFIGURATIONS {
        seeds.push(("configuration", name.into(), text.as_bytes().to_vec()));
    }
    seeds
}

fn spec() -> TableSpec {
    TableSpec::new(
        "t",
        vec![ArraySpec::new("x", DType::F32, [4]), ArraySpec::new("y", DType::U8, [])],
        256,
        8,
    )
}

fn replay_spec() -> TableSpec {
    let mut settings = ReplaySpec::new(1000, 32);
    settings.sampler = Selector::Prioritized { exponent: Real(0.6) };
    settings.max_times_sampled = 8;
    settings.staleness.max = Some(4);
    settings.staleness.decay = Some(Real(0.9));
    settings.staleness.admission = Some(Admission { samples_per_version: 32, max_running: 64 });
    TableSpec::replay("r", spec().arrays, settings)
}

fn sampled() -> SampledItem {
    SampledItem {
        slot: 1,
        key: 2,
        probability: Real(0.5),
        priority: Real(1.0),
        times_sampled: 3,
        table_size: 4,
        version: Some(5),
        age_us: 6,
    }
}

fn replay() -> ReplayDetails {
    ReplayDetails {
        size: 1,
        lingering: 2,
        leased: 3,
        inserts: 4,
        samples: 5,
        deletes: 6,
        evicted: 7,
        exhausted: 8,
        deleted: 9,
        stale: 10,
        refused: 11,
        skipped: 12,
        version: Some(13),
        lags: vec![1, 0, 2],
        unversioned: 14,
        waiting: 15,
        bytes_per_item: Real(100.5),
    }
}

fn requests() -> Vec<Request> {
    let call = |call| Request::Call { id: 5, call };
    let (table, arrays) = (|| "t".to_owned(), || Some(spec().arrays));
    vec![
        Request::Hello(Hello {
            magic: MAGIC,
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            layout: LAYOUT_VERSION,
            features: 0,
            build: BUILD.into(),
            name: "n".into(),
        }),
        Request::Status,
        call(Call::CreateTable { spec: spec(), access: None }),
        call(Call::CreateTable { spec: spec(), access: Some(access()) }),
        call(Call::DropTable { name: table() }),
        call(Call::AttachWriter { table: table(), arrays: None }),
        call(Call::AttachWriter { table: table(), arrays: arrays() }),
        call(Call::AttachReader { table: table(), arrays: arrays(), prefetch: 2, pin: true }),
        call(Call::FinishWriter { member: MemberId(1) }),
        call(Call::DropClaim { member: MemberId(1) }),
        call(Call::Detach { member: MemberId(1) }),
        call(Call::ListTables { after: Some(table()) }),
        call(Call::ShowTable { name: table() }),
        call(Call::ListClients { after: Some(ClientId(9)) }),
        call(Call::Why { name: table() }),
        call(Call::SetAccess { table: table(), access: access() }),
        call(Call::ListLeases {
            table: Some(table()),
            after: Some(LeasePlace {
                table: TableId(2),
                seq: BlockSeq(3),
                client: ClientId(4),
                member: MemberId(5),
            }),
        }),
        call(Call::BeginPin { member: MemberId(1) }),
        call(Call::EndPin { member: MemberId(1), pinned: Some(pinned()) }),
        call(Call::EndPin { member: MemberId(1), pinned: None }),
        call(Call::AttachPublisher { table: table(), arrays: arrays() }),
        call(Call::AttachLatest { table: table(), arrays: None, pin: false }),
        call(Call::NeedSpace { member: MemberId(1) }),
        call(Call::CreateTable { spec: replay_spec(), access: None }),
        call(Call::AttachReplayWriter { table: table(), arrays: arrays() }),
        call(Call::AttachSampler { table: table(), arrays: None, pin: true }),
        call(Call::UpdatePriorities {
            member: MemberId(1),
            items: vec![ItemPriority { key: 7, priority: Real(0.5) }; 2],
        }),
        call(Call::DeleteItems { member: MemberId(1), keys: vec![7, 8] }),
        call(Call::StateVersion { member: MemberId(1), version: 9 }),
        call(Call::ResetTable { name: table() }),
        call(Call::AttachGroupReader {
            table: table(),
            group: "g".into(),
            arrays: arrays(),
            prefetch: 2,
            pin: false,
        }),
        call(Call::AddGroup {
            table: table(),
            group: "g".into(),
            from: GroupFrom::Newest,
            max_lag: Some(1 << 20),
        }),
        call(Call::RemoveGroup { table: table(), group: "g".into() }),
        call(Call::RewindGroup { table: table(), group: "g".into() }),
        call(Call::LeaveReader { member: MemberId(1), keeps: vec![LeaseToken([0xab; 16])] }),
        Request::Sample { member: MemberId(1), number: 2, count: 256 },
        Request::CutSample { member: MemberId(1), number: 2 },
        Request::ReturnSamples { member: MemberId(1), numbers: vec![1, 2] },
        Request::Received,
        Request::Release { member: MemberId(1), tokens: vec![LeaseToken([0xab; 16]); 2] },
        Request::Goodbye,
    ]
}

fn pinned() -> PinReport {
    PinReport { bytes: 1 << 20, registrations: 2, library: "libcudart.so.12".into(), read_only: false }
}

fn access() -> AccessList {
    AccessList(
        ["everyone=write", "uid:3=read", "gid:100=pin,observe"].map(|rule| rule.parse().unwrap()).into(),
    )
}

fn events() -> Vec<Event> {
    let answer = |answer| Event::Answer { id: 5, answer };
    let text = || "s".to_owned();
    let (protocol_min, protocol_max, layout) = (PROTOCOL_MIN, PROTOCOL_MAX, LAYOUT_VERSION);
    let row = || TableRow {
        name: text(),
        table: TableId(2),
        kind: TableKind::Latest,
        state: text(),
        uid: 0,
        batch_size: 256,
        capacity: 8,
        sample_bytes: 17,
        committed_bytes: 1 << 20,
        writers: 1,
        readers: 1,
        samples: Default::default(),
    };
    let member = MemberRow {
        client: ClientId(3),
        member: MemberId(1),
        writer: true,
        pid: 4,
        name: text(),
        state: text(),
        done: 5,
        waits: 6,
        wakes: 7,
        grants: 0,
        pinned_bytes: 0,
    };
    let client = ClientRow {
        client: ClientId(3),
        pid: 4,
        uid: 0,
        name: text(),
        build: text(),
        state: text(),
        age_ms: 6,
        writers: 1,
        readers: 0,
        grants: 0,
        requests: 8,
        events: 9,
        pinned_bytes: 1 << 20,
        pins: vec![PinRow { member: MemberId(1), report: pinned() }],
        pins_left_out: 1,
    };
    let held_by = vec![Holder { pid: 4, name: text(), what: text(), for_ms: 7 }];
    let details = TableDetails {
        row: row(),
        spec: spec(),
        access: access(),
        pages: Pages { notes: vec![text()], ..Pages::default() },
        cursor: 8,
        limit: 2048,
        batches_delivered: 0,
        newest: 9,
        groups: vec![GroupRow { name: text(), readers: 1, lag: 2, max_lag: Some(3), batches: 4, skipped: 5 }],
        replay: Some(replay()),
        blocks: Default::default(),
        holes_offered: 0,
        orphaned_claims: 0,
        members: vec![member],
    };
    let attachment = Attachment {
        member: MemberId(1),
        table: TableId(2),
        spec: spec(),
        blocks: 8,
        fill_len: 8,
        refill_len: 64,
        bits_per_word: 32,
        data_bytes: 2 << 20,
        offsets: vec![0, 32768],
        record: 0,
    };
    let lease = LeaseRow {
        table: TableId(2),
        table_name: text(),
        kind: TableKind::Queue,
        client: ClientId(3),
        member: MemberId(1),
        pid: 4,
        name: text(),
        number: GrantNumber(1),
        seq: BlockSeq(2),
        block: 3,
        state: LeaseState::Complete,
        for_ms: Some(5),
    };
    let grant = Grant { number: GrantNumber(1), seq: BlockSeq(2), block: 3, token: LeaseToken([0xcd; 16]) };
    vec![
        Event::Welcome(Welcome {
            protocol: 1,
            instance: [2; 16],
            client: ClientId(3),
            page_bytes: 4096,
            records: 63,
        }),
        Event::Refused(Refused { protocol_min, protocol_max, layout, build: text(), reason: text() }),
        Event::Status(Status {
            protocol_min,
            protocol_max,
            layout,
            build: text(),
            pid: 4,
            uptime_ms: 5,
            state: text(),
            tables: 1,
            clients: 1,
            host_budget: 1 << 30,
            host_used: 0,
        }),
        answer(Answer::Done),
        answer(Answer::Refused(Refusal { kind: RefusalKind::Budget, message: text() })),
        answer(Answer::Table { table: TableId(2), created: true }),
        answer(Answer::Attached(attachment)),
        answer(Answer::Tables { rows: vec![row()], more: true }),
        answer(Answer::TableDetails(details)),
        answer(Answer::Clients { rows: vec![client], more: false }),
        answer(Answer::Leases { rows: vec![lease], more: true }),
        answer(Answer::Why { waits: vec![Wait { who: text(), waits_for: text(), held_by, for_ms: 1 }] }),
        Event::Granted { member: MemberId(1), released: 1, grants: vec![grant] },
        Event::Released { member: MemberId(1), count: 2 },
        answer(Answer::Counted { applied: 1, skipped: 2 }),
        Event::Sampled {
            member: MemberId(1),
            number: 2,
            samples: vec![sampled(); 2],
            more: false,
            least: Some(Real(0.25)),
            short: Some("s".into()),
        },
        Event::Ended { member: MemberId(1), reason: EndReason::Dropped, end: BlockSeq(3) },
        Event::Closing { reason: text() },
    ]
}

/// As `ancillary::holds` reads them: a byte of options, then packets of a kind, a length, bytes and pieces.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    const _: () = assert!(MAX_MESSAGE == 65536, "the lengths below are around it");
    vec![
        ("bytes-alone", vec![0, 0, 5, 0, 1, 2, 3, 4, 5]),
        ("nothing", vec![0, 0, 0, 0]),
        ("nothing-with-descriptors", vec![0, 4, 0, 0, 2]),
        ("one-descriptor", vec![0, 4, 1, 0, 7, 1]),
        ("two-descriptors", vec![0, 4, 1, 0, 7, 2, 0]),
        ("two-pieces", vec![0, 8, 1, 0, 7, 1, 1]),
        ("too-many-descriptors", vec![0, 16, 1, 0, 7, 8, 8, 8, 8]),
        ("an-empty-piece", vec![0, 8, 1, 0, 7, 0, 2]),
        ("credentials", vec![0, 0x80, 1, 0, 7]),
        ("credentials-that-were-asked-for", vec![1, 0x84, 1, 0, 7, 2]),
        ("the-longest-message", vec![0, 2, 2, 0]),
        ("one-byte-more", vec![0, 2, 3, 0]),
        ("two-bytes-more-with-descriptors", vec![0, 6, 4, 0, 2]),
        ("far-too-long", vec![0, 3, 0xff, 0x7f]),
        ("several-packets", vec![2, 0, 1, 0, 7, 4, 1, 0, 8, 3, 12, 1, 0, 9, 1, 2, 1, 0, 1, 0, 7]),
    ]
}

/// A step and the numbers that it reads.
type Written = (Step, &'static [u8]);

/// Blocks of four slots, three of them, one hole offered at a time, four bits a word.
const HEAD: [u8; 4] = [3, 2, 0, 3];

fn assemble(steps: &[Written]) -> Vec<u8> {
    let mut bytes = HEAD.to_vec();
    for (step, numbers) in steps {
        bytes.push(*step as u8);
        bytes.extend_from_slice(numbers);
    }
    bytes
}

/// Programs as `shared_words` reads them. What a spoiling step reads depends on what is spoilt; either reading does.
fn programs() -> Vec<(&'static str, Vec<Written>)> {
    const BATCH: [Written; 4] = [(Claim, &[0, 3]), (Commit, &[0]), (Claim, &[0, 1]), (Commit, &[0])];
    let started = |more: &[Written]| {
        let mut steps: Vec<Written> = vec![(AttachWorker, &[]), (AttachReader, &[1])];
        steps.extend_from_slice(more);
        steps
    };
    let with_batch = |more: &[Written]| started(&[&BATCH, more].concat());
    vec![
        ("a-batch-is-read", with_batch(&[(Read, &[0]), (Tick, &[]), (Show, &[])])),
        ("a-lap", started(&[&BATCH[..], &[(Read, &[0])]].concat().repeat(5))),
        (
            "a-worker-dies",
            started(&[
                (Claim, &[0, 2]),
                (KillWorker, &[0]),
                (AttachWorker, &[]),
                (Claim, &[0, 1]),
                (Commit, &[0]),
                (Tick, &[]),
            ]),
        ),
        (
            "a-claim-is-given-up",
            started(&[(Claim, &[0, 2]), (GiveUp, &[0]), (Claim, &[0, 1]), (Claim, &[0, 1]), (Commit, &[0])]),
        ),
        ("a-reader-dies", with_batch(&[(AttachReader, &[0]), (KillReader, &[0]), (Read, &[0])])),
        (
            "a-reader-leaves",
            with_batch(&[
                (AttachReader, &[1]),
                (LeaveReader, &[0, 1]),
                (Show, &[]),
                (Read, &[0]),
                (Tick, &[]),
            ]),
        ),
        ("a-reader-disconnects", with_batch(&[(DisconnectReader, &[0]), (Show, &[]), (Tick, &[])])),
        (
            "a-short-end",
            started(&[
                (Claim, &[0, 2]),
                (GiveUp, &[0]),
                (Claim, &[0, 1]),
                (Claim, &[0, 2]),
                (FinishWorker, &[0]),
                (Tick, &[]),
                (Tick, &[]),
                (Read, &[0]),
            ]),
        ),
        (
            "another-daemon",
            with_batch(&[(Claim, &[0, 2]), (ReplaceDaemon, &[]), (Commit, &[0]), (Read, &[0]), (Tick, &[])]),
        ),
        ("too-early", started(&[(Claim, &[0, 2]), (ReleaseAnything, &[0, 0, 0]), (Tick, &[])])),
        ("closed", with_batch(&[(Close, &[2]), (Tick, &[]), (Read, &[0]), (Tick, &[]), (Show, &[])])),
        ("ended", with_batch(&[(EndAll, &[1]), (Tick, &[]), (Show, &[])])),
        ("spoilt-first", started(&[(Spoil, &[0, 3, 9]), (Tick, &[]), (Show, &[])])),
        (
            "spoilt-claims",
            started(&[
                (Claim, &[0, 2]),
                (Spoil, &[0, 0, 5, 1, 3, 1]),
                (Tick, &[]),
                (KillWorker, &[0]),
                (Tick, &[]),
            ]),
        ),
        ("spoilt-states", with_batch(&[(Spoil, &[6, 0, 4, 0, 1, 1]), (Read, &[0]), (ReplaceDaemon, &[])])),
        (
            "spoilt-commits",
            started(&[
                (Spoil, &[8, 0, 0, 3, 15]),
                (Read, &[0]),
                (Claim, &[0, 2]),
                (Commit, &[0]),
                (Tick, &[]),
            ]),
        ),
        (
            "spoilt-offers",
            started(&[
                (Claim, &[0, 2]),
                (GiveUp, &[0]),
                (Spoil, &[3, 0, 3, 2]),
                (Claim, &[0, 1]),
                (Tick, &[]),
            ]),
        ),
        (
            "many-claims-given-up",
            started(&[
                (AttachWorker, &[]),
                (Claim, &[0, 4]),
                (ManyDroppedClaims, &[1, 0, 255]),
                (Tick, &[]),
                (KillWorker, &[0]),
                (Tick, &[]),
            ]),
        ),
    ]
}

/// As [`Written`], of a latest table.
type LatestWritten = (latest::Step, &'static [u8]);

/// Programs as `latest` reads them.
fn latest_programs() -> Vec<(&'static str, Vec<LatestWritten>)> {
    use latest::Step::*;
    let started = |more: &[LatestWritten]| {
        let mut steps: Vec<LatestWritten> =
            vec![(AttachPublisher, &[]), (AttachReader, &[]), (Publish, &[]), (Take, &[0, 0, 0])];
        steps.extend_from_slice(more);
        steps
    };
    let lap: [LatestWritten; 3] = [(Publish, &[]), (NeedSpace, &[]), (Show, &[])];
    vec![
        ("values-go-round-under-one-that-is-held", started(&lap.repeat(6))),
        (
            "a-value-is-let-go",
            started(&[&[(LetGo, &[0, 0][..])], &lap.repeat(3)[..], &[(Take, &[0, 1, 2])]].concat()),
        ),
        (
            "a-publisher-dies",
            started(&[
                (Claim, &[]),
                (KillPublisher, &[]),
                (Tick, &[]),
                (AttachPublisher, &[]),
                (Publish, &[]),
            ]),
        ),
        ("a-publisher-finishes", started(&[(FinishPublisher, &[]), (AttachPublisher, &[]), (Publish, &[])])),
        ("a-reader-dies", started(&[&lap[..], &[(KillReader, &[0]), (Tick, &[])], &lap.repeat(3)].concat())),
        ("a-reader-disconnects", started(&[&[(DisconnectReader, &[0][..])], &lap.repeat(3)[..]].concat())),
        (
            "another-daemon",
            started(&[&lap[..], &[(ReplaceDaemon, &[])], &lap[..], &[(ComeBack, &[])], &lap[..]].concat()),
        ),
        (
            "everything-is-held",
            started(&[
                (Publish, &[]),
                (Take, &[0, 1, 1]),
                (Publish, &[]),
                (Take, &[0, 2, 2]),
                (NeedSpace, &[]),
                (Show, &[]),
                (Tick, &[]),
            ]),
        ),
        ("closed", started(&[(Close, &[2]), (Take, &[0, 1, 0]), (AttachReader, &[]), (Tick, &[])])),
        ("ended", started(&[(EndAll, &[1]), (Publish, &[]), (Tick, &[])])),
        (
            "spoilt-newest",
            started(&[(SpoilNewest, &[1, 9, 1]), (Take, &[0, 1, 0]), (Tick, &[]), (Show, &[])]),
        ),
        (
            "newest-goes-back",
            started(&[
                (Publish, &[]),
                (Tick, &[]),
                (SpoilNewest, &[1, 1, 0]),
                (Take, &[0, 1, 0]),
                (Tick, &[]),
            ]),
        ),
        (
            "spoilt-holds",
            started(
                &[
                    &[(SpoilHolds, &[3, 0, 1, 2, 1][..]), (SpoilHolds, &[4, 1, 1, 200, 7])],
                    &lap.repeat(4)[..],
                ]
                .concat(),
            ),
        ),
        (
            "spoilt-states",
            started(&[(SpoilControl, &[6, 0, 4, 0, 1, 1]), (Take, &[0, 1, 0]), (ReplaceDaemon, &[])]),
        ),
    ]
}

/// As [`Written`], of a replay table.
type ReplayWritten = (replay::Step, &'static [u8]);

/// Settings, and programs as `replay` reads them.
fn replay_programs() -> Vec<(&'static str, [u8; 7], Vec<ReplayWritten>)> {
    use replay::Step::*;
    // Size, sampler, remover, times, which limiter, blocks to spare, holes offered at a time less one.
    const UNIFORM: [u8; 7] = [0, 2, 0, 0, 4, 2, 1];
    const BLOCKS: [u8; 7] = [1, 3, 0, 0, 4, 1, 1];
    const QUEUE: [u8; 7] = [0, 0, 0, 1, 0, 1, 1];
    const RATIO: [u8; 7] = [0, 4, 2, 2, 1, 1, 1];
    const ADMITTED: [u8; 7] = [0, 2, 0, 1, 2, 1, 1];
    const STALE: [u8; 7] = [0, 5, 1, 0, 3, 1, 1];
    let lap: [ReplayWritten; 4] =
        [(Claim, &[0, 0]), (Commit, &[0, 2, 0, 1]), (NeedSpace, &[0]), (Sample, &[0, 1])];
    let started = |more: &[ReplayWritten]| {
        let mut steps: Vec<ReplayWritten> = vec![(AttachWorker, &[]), (AttachReader, &[])];
        steps.extend_from_slice(&lap.repeat(3));
        steps.extend_from_slice(more);
        steps
    };
    let read: [ReplayWritten; 2] = [(GiveBack, &[0, 1]), (Show, &[])];
    let mut programs: Vec<(&'static str, [u8; 7], Vec<ReplayWritten>)> = Vec::new();
    for (name, settings) in [
        ("uniform", UNIFORM),
        ("blocks-of-several", BLOCKS),
        ("a-queue", QUEUE),
        ("a-ratio", RATIO),
        ("admission", ADMITTED),
        ("staleness", STALE),
    ] {
        let more = [&read[..], &lap.repeat(8), &read, &[(StateVersion, &[1, 2])], &lap.repeat(4)].concat();
        programs.push((name, settings, started(&more)));
    }
    let others: Vec<(&'static str, [u8; 7], Vec<ReplayWritten>)> = vec![
        ("a-reader-dies", UNIFORM, started(&[&[(KillReader, &[0][..])], &lap.repeat(6)[..]].concat())),
        (
            "a-reader-disconnects",
            UNIFORM,
            started(&[&[(DisconnectReader, &[0][..])], &lap.repeat(6)[..]].concat()),
        ),
        (
            "a-worker-dies",
            QUEUE,
            started(&[
                (Claim, &[0, 0]),
                (KillWorker, &[0]),
                (Tick, &[]),
                (AttachWorker, &[]),
                (Claim, &[0, 0]),
            ]),
        ),
        (
            "a-claim-is-given-up",
            BLOCKS,
            started(&[(Claim, &[0, 1]), (GiveUp, &[0]), (Tick, &[]), (Claim, &[0, 0])]),
        ),
        (
            "a-request-is-cut",
            QUEUE,
            started(&[(Sample, &[0, 9]), (Cut, &[0, 4]), (Sample, &[0, 9]), (Show, &[])]),
        ),
        ("asks-for-anything", UNIFORM, started(&[(Ask, &[0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 32])])),
        (
            "priorities-and-keys",
            BLOCKS,
            started(&[(Update, &[2, 1, 7, 1, 0, 1, 3, 1, 1]), (Delete, &[2, 1, 0, 1, 9]), (Reset, &[])]),
        ),
        (
            "another-daemon",
            BLOCKS,
            started(&[&[(ReplaceDaemon, &[][..])], &lap[..3], &[(ComeBack, &[])], &lap.repeat(4)].concat()),
        ),
        ("closed", UNIFORM, started(&[(Close, &[2]), (Sample, &[0, 1]), (GiveBack, &[0, 1]), (Tick, &[])])),
        ("ended", UNIFORM, started(&[(EndAll, &[1]), (Claim, &[0, 0]), (Tick, &[])])),
        (
            "spoilt-marks",
            UNIFORM,
            started(&[
                (Claim, &[0, 0]),
                (SpoilMark, &[3, 0, 0, 0]),
                (SpoilMark, &[2, 0, 1, 1, 0]),
                (Tick, &[]),
            ]),
        ),
        (
            "spoilt-commits",
            BLOCKS,
            started(&[
                (SpoilControl, &[8, 0, 0, 3, 0]),
                (Tick, &[]),
                (SpoilControl, &[8, 0, 0, 3, 3]),
                (Tick, &[]),
            ]),
        ),
        ("spoilt-cursor", UNIFORM, started(&[(SpoilControl, &[0, 3, 9]), (Sample, &[0, 1]), (Show, &[])])),
        (
            "spoilt-records",
            UNIFORM,
            started(&[(SpoilRecord, &[0, 0, 5, 1, 3, 1]), (Tick, &[]), (KillWorker, &[0])]),
        ),
    ];
    programs.extend(others);
    programs
}

const CONFIGURATIONS: [(&str, &str); 10] = [
    ("empty", ""),
    (
        "every-setting",
        "socket = \"/run/echo/echod.sock\"\nhost_budget = \"3 GiB\"\nuid_budget = 1073741824\nmax_clients = 7\n\
         max_pending = 2\nmax_calls = 5\nmax_tables = 6\nmax_leases = 7\nhello_timeout = \"500ms\"\ndrain_timeout = \"1m 30s\"\nprefault_threads = 2\n\
         log = \"warn,echod=debug\"\nlog_format = \"text\"\n",
    ),
    (
        "a-table",
        "[[table]]\nname = \"rollouts\"\nbatch_size = 256\ncapacity = 8\nmax_capacity = 16\npin = \"best-effort\"\n\
         huge_pages = \"off\"\naccess = [\"gid:7=write,read\", \"everyone=observe\"]\narrays = [\n  { path = \"obs\", dtype = \"float32\", shape = [4] },\n  \
         { path = \"reward\", dtype = \"float32\", shape = [] },\n]\n",
    ),
    (
        "tables-one-by-one",
        "[[table]]\nname = \"a\"\nbatch_size = 1\ncapacity = 1\narrays = [{path=\"x\",dtype=\"bool\",shape=[]}]\n\
         [[table]]\nname = \"b/c\"\nbatch_size = 2\ncapacity = 2\n[[table.arrays]]\npath = \"y\"\ndtype = \"uint8\"\n\
         shape = [0, 9223372036854775807]\n",
    ),
    (
        "a-latest-table",
        "[[table]]\nname = \"policy\"\nkind = \"latest\"\narrays = [{path=\"w\",dtype=\"float32\",shape=[3]}]\n",
    ),
    (
        "a-replay-table",
        "[[table]]\nname = \"replay\"\nkind = \"replay\"\nmax_size = 1000\nbatch_size = 32\nsampler = \"prioritized:0.6\"\n\
         remover = \"fifo\"\nmax_times_sampled = 0\nrate_limiter = \"min-size:10\"\nmax_staleness = 4\n\
         staleness_decay = 0.9\nsamples_per_version = 32\nmax_running = 64\n\
         arrays = [{path=\"x\",dtype=\"float32\",shape=[3]}]\n",
    ),
    ("an-unknown-key", "host_bugdet = 1\n"),
    ("another-type", "max_clients = \"7\"\nhost_budget = 0x10_0000\n"),
    ("a-filter", "log = \"info,echod[client{id=7}]=trace\"\n"),
    ("no-toml", "socket = \n= [[\"\"\"\n"),
];
