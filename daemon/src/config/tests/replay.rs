//! What a replay table says of itself.

use echo::replay::settings::{Admission, RateLimiter, Real, ReplaySpec, Selector, Staleness};
use echo::spec::TableKind;

use super::{FILE, load_text, refused_text, table_with};

/// A good replay table of the usual settings, but for what is told.
fn replay_with(changes: &[(&str, &str)]) -> String {
    let replay = [("kind", "\"replay\""), ("batch_size", ""), ("capacity", ""), ("max_size", "100")];
    table_with(&[&replay, changes].concat())
}

fn replay_settings(changes: &[(&str, &str)]) -> ReplaySpec {
    let config = load_text(&replay_with(changes)).expect("a good table");
    let [table] = &config.tables[..] else { panic!("one table") };
    assert_eq!((table.value.spec.kind, table.value.groups.len()), (TableKind::Replay, 0));
    table.value.spec.replay.clone().expect("a replay table has settings")
}

#[test]
fn a_replay_table_has_usual_settings_and_may_have_others() {
    assert_eq!(replay_settings(&[]), ReplaySpec::new(100, 256));
    let admission = Some(Admission { samples_per_version: 32, max_running: 64 });
    let other = ReplaySpec {
        sampler: Selector::Prioritized { exponent: Real(0.6) },
        remover: Selector::MinHeap,
        max_times_sampled: 3,
        limiter: RateLimiter::MinSize(10),
        staleness: Staleness { max: Some(4), decay: Some(Real(0.9)), admission },
        ..ReplaySpec::new(100, 32)
    };
    let said = [
        ("batch_size", "32"),
        ("sampler", "\"prioritized:0.6\""),
        ("remover", "\"min-heap\""),
        ("max_times_sampled", "3"),
        ("rate_limiter", "\"min-size:10\""),
        ("max_staleness", "4"),
        ("staleness_decay", "0.9"),
        ("samples_per_version", "32"),
        ("max_running", "64"),
    ];
    assert_eq!(replay_settings(&said), other);
    let printed = load_text(&replay_with(&said)).expect("a good table").to_toml();
    for (key, value) in said {
        assert!(printed.contains(&format!("\n{key} = {value}\n")), "{key} {value}\n{printed}");
    }
    assert_eq!(
        load_text(&printed).expect("what is printed is a file").tables[0].value.spec.replay,
        Some(other)
    );
}

#[test]
fn every_selector_and_limiter_is_printed_as_it_is_read() {
    let selectors = ["fifo", "lifo", "uniform", "prioritized:0.5", "min-heap", "max-heap"];
    let limiters = ["min-size:7", "ratio:2:10:10", "ratio:0.5:10:-4:20"];
    let own = |order: &str, limiter: &str| {
        vec![
            ("sampler", format!("{order:?}")),
            ("remover", format!("{order:?}")),
            ("max_times_sampled", "1".into()),
            ("rate_limiter", format!("{limiter:?}")),
        ]
    };
    let one = |key, word: &str| vec![(key, format!("{word:?}"))];
    let tables = (selectors.iter().flat_map(|word| [one("sampler", word), one("remover", word)]))
        .chain(limiters.iter().map(|word| one("rate_limiter", word)))
        .chain([own("fifo", "queue:9"), own("lifo", "stack:9")]);
    for said in tables {
        let said: Vec<(&str, &str)> = said.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let printed = load_text(&replay_with(&said)).expect("a good table").to_toml();
        for (key, value) in &said {
            assert!(printed.contains(&format!("\n{key} = {value}\n")), "{key} {value}\n{printed}");
        }
        let again = load_text(&printed).expect("what is printed is a file");
        assert_eq!(again.tables[0].value.spec.replay, Some(replay_settings(&said)));
    }
}

#[test]
fn a_bad_replay_table_is_named_with_the_key_and_the_reason() {
    for (changes, expected) in [
        (&[("max_size", "")][..], ":1: table \"t\": max_size is missing"),
        (&[("max_size", "0")], ": table \"t\": max_size cannot be 0: it must be from 1 to "),
        (&[("max_size", "\"9\"")], ": table \"t\": max_size must be a number without quotes"),
        (&[("sampler", "\"random\"")], ": table \"t\": sampler: \"random\" is no selector"),
        (&[("remover", "\"prioritized\"")], ": table \"t\": remover: \"prioritized\" is no selector"),
        (&[("sampler", "3")], ": table \"t\": sampler must be a string in quotes"),
        (&[("rate_limiter", "\"ratio:2\"")], ": table \"t\": rate_limiter: \"ratio:2\" is no rate limiter"),
        (&[("max_times_sampled", "-1")], ": table \"t\": max_times_sampled: -1 is no whole number"),
        (&[("max_times_sampled", "4294967296")], ": table \"t\": max_times_sampled: 4294967296 is no whole"),
        (&[("max_staleness", "1.5")], ": table \"t\": max_staleness must be a number without quotes"),
        (&[("staleness_decay", "\"half\"")], ": table \"t\": staleness_decay must be a number"),
        (&[("samples_per_version", "2")], ":1: table \"t\": max_running is missing"),
        (&[("max_running", "2")], ":1: table \"t\": samples_per_version is missing"),
        (&[("capacity", "2")], ": table \"t\": capacity: a replay table is as large as max_size says"),
        (&[("max_capacity", "2")], ": table \"t\": max_capacity: a replay table is as large as"),
        (
            &[("kind", "\"queue\""), ("batch_size", "4"), ("capacity", "2")],
            ": table \"t\": max_size: only a table of kind",
        ),
        // What each key allows, and all of them together do not.
        (
            &[("rate_limiter", "\"min-size:101\"")],
            ":1: table \"t\": no table can be like this: min_size is 101, more than the 100 items that the table holds",
        ),
        (
            &[("rate_limiter", "\"ratio:2:10:1\"")],
            ":1: table \"t\": no table can be like this: the error buffer gives the interval [19, 21], which is 2 wide",
        ),
        (
            &[("rate_limiter", "\"queue:9\"")],
            ":1: table \"t\": no table can be like this: a queue needs fifo as its sampler",
        ),
        (
            &[("sampler", "\"prioritized:nan\"")],
            ":1: table \"t\": no table can be like this: a priority exponent is NaN",
        ),
        (
            &[("staleness_decay", "0.5")],
            ":1: table \"t\": no table can be like this: staleness_decay is a factor of the weights",
        ),
        (
            &[("samples_per_version", "2"), ("max_running", "2")],
            ":1: table \"t\": no table can be like this: admission needs max_staleness",
        ),
    ] {
        let message = refused_text(&replay_with(changes));
        let (place, reason) = expected.split_at(expected.find(": ").expect("a place and a reason"));
        assert!(
            message.starts_with(&format!("{FILE}{place}")) && message.contains(reason),
            "{expected}\n{message}"
        );
    }
}
