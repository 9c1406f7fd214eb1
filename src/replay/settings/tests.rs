//! What is refused, what is only warned of, and what becomes of settings on the wire and as text.

use proptest::prelude::*;

use super::*;

fn ratio(ratio: f64, min_size: u32, error_buffer: ErrorBuffer) -> ReplaySpec {
    let limiter = RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, error_buffer };
    ReplaySpec { limiter, ..ReplaySpec::new(1000, 32) }
}

fn around(spi: f64, min_size: u32, buffer: f64) -> ReplaySpec {
    ratio(spi, min_size, ErrorBuffer::Around(Real(buffer)))
}

fn between(spi: f64, min_size: u32, min: f64, max: f64) -> ReplaySpec {
    ratio(spi, min_size, ErrorBuffer::Between(Real(min), Real(max)))
}

#[test]
fn the_plainest_table_is_valid() {
    assert_eq!(ReplaySpec::new(1, 1).validate(), Ok(()));
    assert_eq!(ReplaySpec::new(0, 1).validate(), Err(SettingsError::MaxSize(0)));
    assert_eq!(ReplaySpec::new(u32::MAX, 1).validate(), Err(SettingsError::MaxSize(u32::MAX)));
    assert_eq!(ReplaySpec::new(1, 0).validate(), Err(SettingsError::BatchSize(0)));
    assert_eq!(ReplaySpec::new(1, MAX_BATCH + 1).validate(), Err(SettingsError::BatchSize(MAX_BATCH + 1)));
}

#[test]
fn an_exponent_is_a_number_that_is_not_negative() {
    for exponent in [f64::NAN, f64::INFINITY, -0.1] {
        let selector = Selector::Prioritized { exponent: Real(exponent) };
        for spec in [
            ReplaySpec { sampler: selector, ..ReplaySpec::new(9, 1) },
            ReplaySpec { remover: selector, ..ReplaySpec::new(9, 1) },
        ] {
            assert!(matches!(spec.validate(), Err(SettingsError::Exponent(_))), "{exponent}");
        }
    }
}

#[test]
fn a_buffer_that_could_make_both_sides_wait_is_refused_with_its_interval() {
    let narrow = SettingsError::Narrow { min_diff: 397.0, max_diff: 403.0, least: 8.0 };
    assert_eq!(around(4.0, 100, 3.0).validate(), Err(narrow));
    assert_eq!(
        narrow.to_string(),
        "the error buffer gives the interval [397, 403], which is 6 wide: less than 8 = 2 * max(1, ratio), inserting and \
         sampling could wait for each other for ever"
    );
    assert_eq!(around(4.0, 100, 4.0).validate(), Ok(()), "8 is wide enough");
    assert!(around(0.5, 100, 0.9).validate().is_err(), "2 is needed for ratios below 1, too");
    assert_eq!(around(0.5, 100, 1.0).validate(), Ok(()));
    assert!(matches!(around(4.0, 100, -8.0).validate(), Err(SettingsError::Narrow { .. })));
}

#[test]
fn a_buffer_above_the_aim_is_refused_and_one_below_it_is_warned_of() {
    let above = SettingsError::Above { min_diff: 401.0, max_diff: 500.0, aim: 400.0 };
    assert_eq!(between(4.0, 100, 401.0, 500.0).validate(), Err(above));
    assert_eq!(between(4.0, 100, 400.0, 500.0).validate(), Ok(()));
    assert_eq!(between(4.0, 100, 400.0, 500.0).warning(), None);
    let below = between(4.0, 100, 0.0, 399.0);
    assert_eq!(below.validate(), Ok(()));
    assert!(below.warning().unwrap().contains("[0, 399], which lies below ratio * min_size = 400"));
}

#[test]
fn numbers_that_are_none_are_refused() {
    for spi in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(around(spi, 1, 10.0).validate(), Err(SettingsError::Ratio(_))), "{spi}");
    }
    for buffer in [f64::NAN, f64::INFINITY] {
        assert!(matches!(around(1.0, 1, buffer).validate(), Err(SettingsError::Interval { .. })), "{buffer}");
    }
    assert!(matches!(around(1e308, 1000, 1.0).validate(), Err(SettingsError::Interval { .. })));
}

#[test]
fn a_minimum_that_can_never_be_reached_is_refused() {
    for limiter in [RateLimiter::MinSize(0), around(1.0, 0, 5.0).limiter] {
        let spec = ReplaySpec { limiter, ..ReplaySpec::new(10, 1) };
        assert_eq!(spec.validate(), Err(SettingsError::NoMinSize));
    }
    for limiter in [RateLimiter::MinSize(11), around(1.0, 11, 5.0).limiter] {
        let spec = ReplaySpec { limiter, ..ReplaySpec::new(10, 1) };
        assert_eq!(spec.validate(), Err(SettingsError::MinSize { min_size: 11, max_size: 10 }));
    }
}

#[test]
fn a_queue_needs_its_order_and_its_room() {
    let queue = ReplaySpec {
        sampler: Selector::Fifo,
        limiter: RateLimiter::Queue(10),
        max_times_sampled: 1,
        ..ReplaySpec::new(10, 1)
    };
    assert_eq!(queue.validate(), Ok(()));
    let order = Err(SettingsError::Order { kind: "queue", needed: Selector::Fifo });
    assert_eq!(ReplaySpec { max_times_sampled: 2, ..queue.clone() }.validate(), order);
    assert_eq!(ReplaySpec { sampler: Selector::Lifo, ..queue.clone() }.validate(), order);
    assert_eq!(ReplaySpec { remover: Selector::Uniform, ..queue.clone() }.validate(), order);
    let room = Err(SettingsError::Room { kind: "queue", size: 10, max_size: 9 });
    assert_eq!(ReplaySpec { max_size: 9, ..queue.clone() }.validate(), room);
    let stack = ReplaySpec { limiter: RateLimiter::Stack(10), ..queue };
    assert_eq!(stack.validate(), Err(SettingsError::Order { kind: "stack", needed: Selector::Lifo }));
    let stack = ReplaySpec { sampler: Selector::Lifo, remover: Selector::Lifo, ..stack };
    assert_eq!(stack.validate(), Ok(()));
    let none = ReplaySpec { limiter: RateLimiter::Stack(0), ..stack };
    assert_eq!(none.validate(), Err(SettingsError::NoRoom("stack")));
}

#[test]
fn staleness_is_only_asked_for_where_it_means_something() {
    let decay = |decay, sampler| {
        let staleness = Staleness { decay: Some(Real(decay)), ..Staleness::default() };
        ReplaySpec { sampler, staleness, ..ReplaySpec::new(10, 1) }.validate()
    };
    let prioritized = Selector::Prioritized { exponent: Real(0.0) };
    assert_eq!(decay(0.9, prioritized), Ok(()));
    assert_eq!(decay(1.0, prioritized), Ok(()));
    assert!(matches!(decay(0.9, Selector::Uniform), Err(SettingsError::DecayWithoutWeights(_))));
    for number in [0.0, 1.1, f64::NAN] {
        assert!(matches!(decay(number, prioritized), Err(SettingsError::Decay(_))), "{number}");
    }
    let admission = |max, samples_per_version, max_running| {
        let admission = Some(Admission { samples_per_version, max_running });
        let staleness = Staleness { max, admission, ..Staleness::default() };
        ReplaySpec { staleness, ..ReplaySpec::new(10, 1) }.validate()
    };
    assert_eq!(admission(Some(0), 1, 1), Ok(()));
    assert_eq!(admission(None, 1, 1), Err(SettingsError::AdmissionWithoutMax));
    assert_eq!(admission(Some(0), 0, 1), Err(SettingsError::Admission("samples_per_version")));
    assert_eq!(admission(Some(0), 1, 0), Err(SettingsError::Admission("max_running")));
}

/// With less, a trainer that is in the middle of a batch would wait for workers, and they for its next version.
#[test]
fn admission_lets_in_what_the_limiter_and_a_batch_need() {
    let admitted = |limiter: &str, times, batch_size| {
        let admission = Some(Admission { samples_per_version: 4, max_running: 9 });
        let staleness = Staleness { max: Some(1), admission, ..Staleness::default() };
        let limiter = limiter.parse().unwrap();
        let spec = ReplaySpec::new(10, batch_size);
        ReplaySpec { staleness, limiter, max_times_sampled: times, ..spec }.validate()
    };
    let too_little = |step, min_size| Err(SettingsError::AdmissionTooLittle { most: 8, step, min_size });
    assert_eq!(admitted("min-size:5", 1, 4), Ok(()));
    assert_eq!(admitted("min-size:6", 1, 4), too_little(4, 6));
    assert_eq!(admitted("min-size:1", 1, 8), Ok(()));
    assert_eq!(admitted("min-size:1", 1, 9), too_little(9, 1));
    assert_eq!(admitted("min-size:1", 0, 9), Ok(()), "items stay, and are sampled again");
    assert_eq!(admitted("ratio:1:5:10", 0, 4), Err(SettingsError::AdmissionWithRatio));
    let said = admitted("min-size:6", 1, 4).unwrap_err().to_string();
    assert!(said.contains("at most 8 = (max_staleness + 1) * samples_per_version"), "{said}");
}

#[test]
fn text_is_read_as_it_is_documented() {
    let exponent = Real(0.6);
    assert_eq!("prioritized:0.6".parse(), Ok(Selector::Prioritized { exponent }));
    assert_eq!("ratio:4:100:50".parse(), Ok(around(4.0, 100, 50.0).limiter));
    assert_eq!("ratio:4:100:-1:8.5".parse(), Ok(between(4.0, 100, -1.0, 8.5).limiter));
    assert_eq!("queue:3".parse(), Ok(RateLimiter::Queue(3)));
    for text in ["", "Fifo", "prioritized", "prioritized:", "fifo:1", "uniform "] {
        assert_eq!(text.parse::<Selector>(), Err(ParseError::Selector(text.to_owned())));
    }
    for text in ["", "min-size", "min-size:-1", "ratio:1:2", "ratio:1:2:3:4:5", "queue:x", "queue:4294967296"]
    {
        assert_eq!(text.parse::<RateLimiter>(), Err(ParseError::RateLimiter(text.to_owned())));
    }
}

fn any_selector() -> impl Strategy<Value = Selector> {
    prop_oneof![
        Just(Selector::Fifo),
        Just(Selector::Lifo),
        Just(Selector::Uniform),
        any::<f64>().prop_map(|exponent| Selector::Prioritized { exponent: Real(exponent) }),
        Just(Selector::MinHeap),
        Just(Selector::MaxHeap),
    ]
}

fn any_limiter() -> impl Strategy<Value = RateLimiter> {
    let any_buffer = prop_oneof![
        any::<f64>().prop_map(|buffer| ErrorBuffer::Around(Real(buffer))),
        any::<(f64, f64)>().prop_map(|(min, max)| ErrorBuffer::Between(Real(min), Real(max))),
    ];
    prop_oneof![
        any::<u32>().prop_map(RateLimiter::MinSize),
        (any::<f64>(), any::<u32>(), any_buffer).prop_map(|(ratio, min_size, error_buffer)| {
            RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, error_buffer }
        }),
        any::<u32>().prop_map(RateLimiter::Queue),
        any::<u32>().prop_map(RateLimiter::Stack),
    ]
}

proptest! {
    #![proptest_config(crate::cases::cases(2_000))]

    #[test]
    fn settings_survive_the_wire_and_text(
        (sampler, remover, limiter) in (any_selector(), any_selector(), any_limiter()),
        (max_size, max_times_sampled, batch_size) in any::<(u32, u32, u32)>(),
        (max, decay, admission) in any::<(Option<u64>, Option<f64>, Option<(u32, u32)>)>(),
    ) {
        let admission = admission
            .map(|(samples_per_version, max_running)| Admission { samples_per_version, max_running });
        let staleness = Staleness { max, decay: decay.map(Real), admission };
        let spec =
            ReplaySpec { sampler, remover, max_size, max_times_sampled, limiter, staleness, batch_size };
        let config = bincode::config::standard();
        let bytes = bincode::encode_to_vec(&spec, config).unwrap();
        let (decoded, read): (ReplaySpec, usize) = bincode::decode_from_slice(&bytes, config).unwrap();
        prop_assert_eq!(read, bytes.len());
        prop_assert_eq!(&decoded, &spec);
        prop_assert_ne!(bytes[0], 0, "no tag is zero");
        prop_assert_eq!(sampler.to_string().parse(), Ok(sampler));
        prop_assert_eq!(limiter.to_string().parse(), Ok(limiter));
        // Whatever stands there, it is refused or not, and nothing worse.
        let _ = spec.validate();
    }

    #[test]
    fn bytes_that_are_no_settings_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let decoded = bincode::decode_from_slice::<ReplaySpec, _>(&bytes, bincode::config::standard());
        if let Ok((spec, _)) = decoded {
            let _ = spec.validate();
        }
    }
}
