//! How many cases property tests run.

use proptest::test_runner::Config;

/// So many, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(usual: u32) -> Config {
    match std::env::var_os("PROPTEST_CASES") {
        // Which the default reads.
        Some(_) => Config::default(),
        None => Config::with_cases(usual),
    }
}
