use proptest::prelude::*;

use super::*;
use crate::ids::{BlockSeq, ClientId, GrantNumber, LeaseToken, TableId};
use crate::replay::settings::Real;
use crate::spec::{DType, MAX_NAME, TableKind, TableSpec};
use crate::wire::message::{
    Answer, Attachment, ClientRow, EndReason, Grant, GroupFrom, Hello, ItemPriority, LeasePlace, LeaseRow,
    LeaseState, MAX_LIBRARY, MAX_PINS, MAX_PINS_OF_CLIENT, MAX_ROWS, PinReport, PinRow, Refusal, RefusalKind,
    Refused, SampledItem, Status, Wait, Welcome,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn spec() -> TableSpec {
    TableSpec::new("t", vec![ArraySpec::new("x", DType::F32, [4])], 256, 8)
}

fn access() -> AccessList {
    AccessList(
        ["everyone=write", "uid:3=read", "gid:100=pin,observe"].map(|rule| rule.parse().unwrap()).into(),
    )
}

fn attachment(spec: TableSpec) -> Attachment {
    let offsets = (0..spec.arrays.len() as u64).map(|i| i << 30).collect();
    Attachment {
        member: MemberId(1),
        table: TableId(2),
        spec,
        blocks: 8,
        fill_len: 8,
        refill_len: 64,
        bits_per_word: 32,
        data_bytes: 1 << 40,
        offsets,
        record: 0,
    }
}

fn lease(table: &str, name: &str) -> LeaseRow {
    LeaseRow {
        table: TableId(2),
        table_name: table.into(),
        kind: TableKind::Latest,
        client: ClientId(3),
        member: MemberId(4),
        pid: 5,
        name: name.into(),
        number: GrantNumber(6),
        seq: BlockSeq(7),
        block: 8,
        state: LeaseState::Complete,
        for_ms: Some(9),
    }
}

fn pinned(library: &str) -> PinReport {
    PinReport { bytes: 2, registrations: 3, library: library.into(), read_only: true }
}

fn client(name: &str, pins: Vec<PinRow>) -> ClientRow {
    ClientRow {
        client: ClientId(3),
        pid: 4,
        uid: 5,
        name: name.into(),
        build: "b".into(),
        state: "s".into(),
        age_ms: 6,
        writers: 7,
        readers: 8,
        grants: 9,
        requests: 10,
        events: 11,
        pinned_bytes: 12,
        pins,
        pins_left_out: 13,
    }
}

/// The bytes on the wire. A change here is a change of the protocol: raise `PROTOCOL_MAX`, and never touch the
/// frozen ones.
#[test]
fn requests_have_these_bytes() {
    let hello = Hello {
        magic: 1,
        protocol_min: 1,
        protocol_max: 2,
        layout: 3,
        features: 4,
        build: "b".into(),
        name: "n".into(),
    };
    let call = |call| Request::Call { id: 5, call };
    let arrays = || Some(spec().arrays);
    let place = LeasePlace { table: TableId(2), seq: BlockSeq(3), client: ClientId(4), member: MemberId(5) };
    let golden = [
        (Request::Hello(hello), "0101010203040162016e"),
        (Request::Status, "02"),
        (
            call(Call::CreateTable { spec: spec(), access: None }),
            "0305010174010101780c0104fb0001080802010000",
        ),
        (call(Call::DropTable { name: "t".into() }), "0305020174"),
        (call(Call::AttachWriter { table: "t".into(), arrays: None }), "030503017400"),
        (
            call(Call::AttachReader { table: "t".into(), arrays: arrays(), prefetch: 2, pin: false }),
            "0305040174010101780c01040200",
        ),
        (call(Call::FinishWriter { member: MemberId(1) }), "03050501"),
        (call(Call::DropClaim { member: MemberId(1) }), "03050601"),
        (call(Call::Detach { member: MemberId(1) }), "03050701"),
        (call(Call::ListTables { after: None }), "03050800"),
        (call(Call::ShowTable { name: "t".into() }), "0305090174"),
        (call(Call::ListClients { after: Some(ClientId(9)) }), "03050a0109"),
        (call(Call::Why { name: "t".into() }), "03050b0174"),
        (call(Call::SetAccess { table: "t".into(), access: access() }), "03050c017403010102030203640c"),
        (call(Call::ListLeases { table: None, after: None }), "03050d0000"),
        (call(Call::ListLeases { table: Some("t".into()), after: Some(place) }), "03050d0101740102030405"),
        (call(Call::BeginPin { member: MemberId(1) }), "03050e01"),
        (call(Call::EndPin { member: MemberId(1), pinned: None }), "03050f0100"),
        (call(Call::EndPin { member: MemberId(1), pinned: Some(pinned("l")) }), "03050f01010203016c01"),
        (call(Call::AttachPublisher { table: "t".into(), arrays: None }), "030510017400"),
        (
            call(Call::AttachLatest { table: "t".into(), arrays: arrays(), pin: true }),
            "0305110174010101780c010401",
        ),
        (call(Call::NeedSpace { member: MemberId(1) }), "03051201"),
        (call(Call::AttachReplayWriter { table: "t".into(), arrays: None }), "030513017400"),
        (call(Call::AttachSampler { table: "t".into(), arrays: None, pin: false }), "03051401740000"),
        (
            call(Call::UpdatePriorities {
                member: MemberId(1),
                items: vec![ItemPriority { key: 9, priority: Real(0.5) }],
            }),
            "030515010109000000000000e03f",
        ),
        (call(Call::DeleteItems { member: MemberId(1), keys: vec![9] }), "030516010109"),
        (call(Call::StateVersion { member: MemberId(1), version: 3 }), "0305170103"),
        (call(Call::ResetTable { name: "t".into() }), "0305180174"),
        (
            call(Call::AttachGroupReader {
                table: "t".into(),
                group: "g".into(),
                arrays: None,
                prefetch: 2,
                pin: true,
            }),
            "03051901740167000201",
        ),
        (
            call(Call::AddGroup {
                table: "t".into(),
                group: "g".into(),
                from: GroupFrom::Newest,
                max_lag: Some(9),
            }),
            "03051a01740167020109",
        ),
        (call(Call::RemoveGroup { table: "t".into(), group: "g".into() }), "03051b01740167"),
        (call(Call::RewindGroup { table: "t".into(), group: "g".into() }), "03051c01740167"),
        (Request::Sample { member: MemberId(1), number: 2, count: 3 }, "07010203"),
        (Request::CutSample { member: MemberId(1), number: 2 }, "080102"),
        (Request::ReturnSamples { member: MemberId(1), numbers: vec![2] }, "09010102"),
        (Request::Received, "04"),
        (
            Request::Release { member: MemberId(1), tokens: vec![LeaseToken([0xab; 16])] },
            "050101abababababababababababababababab",
        ),
        (Request::Goodbye, "06"),
    ];
    for (request, expected) in golden {
        let bytes = encode_request(&request).unwrap();
        assert_eq!(hex(&bytes), expected, "{request:?}");
        assert_eq!(decode_request(&bytes).unwrap(), request);
    }
}

#[test]
fn events_have_these_bytes() {
    let sampled = SampledItem {
        slot: 3,
        key: 4,
        probability: Real(0.5),
        priority: Real(1.0),
        times_sampled: 5,
        table_size: 6,
        version: Some(7),
        age_us: 8,
    };
    let welcome =
        Welcome { protocol: 1, instance: [2; 16], client: ClientId(3), page_bytes: 4096, records: 63 };
    let refused =
        Refused { protocol_min: 1, protocol_max: 2, layout: 3, build: "b".into(), reason: "r".into() };
    let status = Status {
        protocol_min: 1,
        protocol_max: 2,
        layout: 3,
        build: "b".into(),
        pid: 4,
        uptime_ms: 5,
        state: "s".into(),
        tables: 6,
        clients: 7,
        host_budget: 8,
        host_used: 9,
    };
    let answer = |answer| Event::Answer { id: 5, answer };
    let grant = Grant { number: GrantNumber(1), seq: BlockSeq(2), block: 3, token: LeaseToken([0xcd; 16]) };
    let refusal = Refusal { kind: RefusalKind::Budget, message: "m".into() };
    let wait = Wait { who: "w".into(), waits_for: "f".into(), held_by: vec![], for_ms: 1 };
    let golden = [
        (Event::Welcome(welcome), "010102020202020202020202020202020202".to_owned() + "03fb00103f"),
        (Event::Refused(refused), "02010203016201".to_owned() + "72"),
        (Event::Status(status), "030102030162040501730607".to_owned() + "0809"),
        (answer(Answer::Done), "040501".into()),
        (answer(Answer::Refused(refusal)), "04050204016d".into()),
        (answer(Answer::Table { table: TableId(2), created: true }), "0405030201".into()),
        (
            answer(Answer::Attached(attachment(spec()))),
            "0405040102017401010178".to_owned() + "0c0104fb0001080802010008084020fd0000000000010000010000",
        ),
        (answer(Answer::Tables { rows: vec![], more: false }), "0405050000".into()),
        (answer(Answer::Clients { rows: vec![], more: true }), "0405070001".into()),
        (
            answer(Answer::Clients {
                rows: vec![client("n", vec![PinRow { member: MemberId(1), report: pinned("l") }])],
                more: false,
            }),
            "0405070103040501".to_owned() + "6e0162017306070809" + "0a0b0c01010203016c010d" + "00",
        ),
        (answer(Answer::Why { waits: vec![wait] }), "0405080101770166".to_owned() + "0001"),
        (
            answer(Answer::Leases { rows: vec![lease("t", "n")], more: true }),
            "040509010201740203040501".to_owned() + "6e060708020109" + "01",
        ),
        (answer(Answer::Counted { applied: 1, skipped: 2 }), "04050a0102".into()),
        (
            Event::Sampled {
                member: MemberId(1),
                number: 2,
                samples: vec![sampled],
                more: false,
                least: None,
                short: Some("s".into()),
            },
            "0901020103".to_owned() + "04000000000000e03f000000000000f03f" + "0506010708" + "0000010173",
        ),
        (
            Event::Granted { member: MemberId(1), released: 4, grants: vec![grant] },
            "050104010102".to_owned() + "03" + &"cd".repeat(16),
        ),
        (Event::Released { member: MemberId(1), count: 2 }, "060102".into()),
        (
            Event::Ended { member: MemberId(1), reason: EndReason::Dropped, end: BlockSeq(3) },
            "07010203".into(),
        ),
        (Event::Closing { reason: "r".into() }, "080172".into()),
    ];
    for (event, expected) in golden {
        let bytes = encode_event(&event).unwrap();
        assert_eq!(hex(&bytes), expected, "{event:?}");
        assert_eq!(decode_event(&bytes).unwrap(), event);
    }
}

#[test]
fn an_attachment_of_the_most_arrays_fits() {
    let path = |i: usize| format!("observations/leaf{i:04}");
    let arrays = (0..MAX_ARRAYS).map(|i| ArraySpec::new(path(i), DType::F32, [84, 84])).collect();
    let attached = Answer::Attached(attachment(TableSpec::new("t", arrays, 256, 8)));
    let event = Event::Answer { id: u32::MAX, answer: attached };
    let bytes = encode_event(&event).unwrap();
    assert!(bytes.len() <= MAX_MESSAGE, "{}", bytes.len());
    assert_eq!(decode_event(&bytes).unwrap(), event);
}

#[test]
fn a_page_of_the_longest_leases_fits() {
    let longest = LeaseRow {
        table: TableId(u32::MAX),
        client: ClientId(u64::MAX),
        member: MemberId(u32::MAX),
        pid: u32::MAX,
        number: GrantNumber(u64::MAX),
        seq: BlockSeq(u64::MAX),
        block: u32::MAX,
        for_ms: Some(u64::MAX),
        // As much of a client's name as the daemon keeps.
        ..lease(&"t".repeat(MAX_NAME), &"n".repeat(64))
    };
    let answer = Answer::Leases { rows: vec![longest; MAX_ROWS], more: true };
    let event = Event::Answer { id: u32::MAX, answer };
    assert_eq!(decode_event(&encode_event(&event).unwrap()).unwrap(), event);
}

#[test]
fn a_page_of_the_longest_clients_fits() {
    let report = PinReport { bytes: u64::MAX, registrations: u32::MAX, ..pinned(&"l".repeat(MAX_LIBRARY)) };
    let pins = vec![PinRow { member: MemberId(u32::MAX), report }; MAX_PINS_OF_CLIENT];
    // As much of a client's name and build as the daemon keeps, and more than it says of a state.
    let longest = ClientRow {
        client: ClientId(u64::MAX),
        pid: u32::MAX,
        uid: u32::MAX,
        build: "b".repeat(32),
        state: "s".repeat(80),
        age_ms: u64::MAX,
        writers: u32::MAX,
        readers: u32::MAX,
        grants: u32::MAX,
        requests: u64::MAX,
        events: u64::MAX,
        pinned_bytes: u64::MAX,
        pins_left_out: u32::MAX,
        ..client(&"n".repeat(64), vec![])
    };
    let mut rows = vec![longest; MAX_ROWS];
    for row in &mut rows[..MAX_PINS / MAX_PINS_OF_CLIENT] {
        row.pins = pins.clone();
    }
    let event = Event::Answer { id: u32::MAX, answer: Answer::Clients { rows, more: true } };
    assert_eq!(decode_event(&encode_event(&event).unwrap()).unwrap(), event);
}

#[test]
fn the_largest_message_is_read_again() {
    // Many short strings: the decoder counts eight bytes for each length.
    let arrays: Vec<_> =
        (0..MAX_ARRAYS).map(|i| ArraySpec::new(format!("{i:0>42}"), DType::F32, [84, 84])).collect();
    let spec = TableSpec::new("t", arrays, 256, 8);
    check_spec(&spec).unwrap();
    let request = Request::Call { id: 1, call: Call::CreateTable { spec, access: None } };
    assert_eq!(decode_request(&encode_request(&request).unwrap()).unwrap(), request);
}

#[test]
fn a_message_that_is_too_large_is_refused_with_its_size() {
    let arrays =
        (0..MAX_ARRAYS).map(|i| ArraySpec::new(format!("{i:0>200}"), DType::F32, [84, 84])).collect();
    let call = Call::CreateTable { spec: TableSpec::new("t", arrays, 256, 8), access: None };
    let error = encode_request(&Request::Call { id: 1, call }).unwrap_err();
    assert!(matches!(error, CodecError::TooLarge { bytes } if bytes > 200 * 1024), "{error}");
}

#[test]
fn zeros_are_no_message() {
    for length in [0, 1, 2, 100] {
        assert!(decode_request(&vec![0; length]).is_err());
        assert!(decode_event(&vec![0; length]).is_err());
    }
    let zero_id = encode_request(&Request::Call { id: 0, call: Call::ListTables { after: None } }).unwrap();
    assert!(matches!(decode_request(&zero_id), Err(CodecError::Value { .. })));
    let zero_member = encode_request(&Request::Release { member: MemberId(0), tokens: vec![] }).unwrap();
    assert!(matches!(decode_request(&zero_member), Err(CodecError::Value { .. })));
    for call in [
        Call::NeedSpace { member: MemberId(0) },
        Call::BeginPin { member: MemberId(0) },
        Call::EndPin { member: MemberId(0), pinned: Some(pinned("l")) },
    ] {
        let zero_member = encode_request(&Request::Call { id: 1, call }).unwrap();
        assert!(matches!(decode_request(&zero_member), Err(CodecError::Value { .. })));
    }
}

#[test]
fn bytes_behind_a_message_are_refused() {
    let mut bytes = encode_request(&Request::Goodbye).unwrap();
    bytes.push(0);
    assert!(matches!(decode_request(&bytes), Err(CodecError::Trailing(1))));
}

#[test]
fn a_huge_length_allocates_nothing() {
    // Release of u64::MAX tokens, and of as many as would just fit into an address space.
    for length in ["fdffffffffffffffff", "fd0000000000000010"] {
        let bytes: Vec<u8> = [0x05, 0x01]
            .into_iter()
            .chain((0..length.len()).step_by(2).map(|i| u8::from_str_radix(&length[i..i + 2], 16).unwrap()))
            .collect();
        assert!(matches!(decode_request(&bytes), Err(CodecError::Decode { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_request(&bytes);
        let _ = decode_event(&bytes);
    }

    #[test]
    fn no_flipped_byte_makes_the_decoder_panic(at in 0..60usize, value: u8) {
        let mut bytes = encode_event(&Event::Answer { id: 1, answer: Answer::Attached(attachment(spec())) }).unwrap();
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = decode_event(&bytes);
    }
}
