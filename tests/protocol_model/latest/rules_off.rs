//! One rule is left out: the explorer must find what that rule prevents.

use super::LatestTable;
use super::rules::Rules;
use crate::explorer::{Property, explore};

const SMALL: LatestTable = LatestTable::SMALL;
const ON: Rules = Rules::ON;

/// The table breaks this property, with a message that contains these words.
fn breaks(property: Property, words: &str, table: LatestTable) {
    match explore(&table) {
        Ok(explored) => panic!("nothing went wrong in {explored:?}"),
        Err(violation) => {
            eprintln!("{violation:?}");
            assert_eq!(violation.property, property, "{violation:?}");
            assert!(violation.message.contains(words), "{violation:?}");
        }
    }
}

fn is_unsafe(words: &str, table: LatestTable) {
    breaks(Property::Safety, words, table);
}

fn hangs(table: LatestTable) {
    breaks(Property::Liveness, "", table);
}

#[test]
fn a_reader_that_does_not_look_again_holds_what_goes_round() {
    let rules = Rules { reader_looks_again: false, ..ON };
    is_unsafe("", LatestTable { rules, ..SMALL });
}

#[test]
fn hazards_that_are_read_before_newest_are_too_old() {
    let rules = Rules { newest_read_before_hazards: false, ..ON };
    is_unsafe("into a block that r0 holds", LatestTable { blocks: 3, values: 4, rules, ..SMALL });
}

#[test]
fn the_newest_block_changes_under_the_one_who_takes_it() {
    let rules = Rules { newest_is_kept: false, ..ON };
    is_unsafe("", LatestTable { rules, ..SMALL });
}

/// Only a writer beside the one that there is could be so late.
#[test]
fn a_block_that_goes_round_before_it_is_committed_is_written_by_its_last_writer() {
    let rules = Rules { only_committed_goes_round: false, one_writer: false, ..ON };
    is_unsafe("w0 writes value 1 into", LatestTable { writers: 2, rules, ..SMALL });
}

#[test]
fn a_value_that_is_the_newest_before_it_is_written_is_read_torn() {
    let rules = Rules { newest_after_commit: false, ..ON };
    is_unsafe("", LatestTable { rules, ..SMALL });
}

#[test]
fn a_daemon_that_stores_takes_the_newest_back() {
    let rules = Rules { newest_is_monotone: false, ..ON };
    is_unsafe("the newest value was", LatestTable { rules, ..SMALL });
}

#[test]
fn a_value_whose_writer_died_before_it_said_so_is_never_the_newest() {
    let rules = Rules { daemon_catches_up: false, ..ON };
    hangs(LatestTable { writer_crashes: 1, rules, ..SMALL });
}

#[test]
fn readers_sleep_on_when_the_writer_died_before_its_wake() {
    let rules = Rules { daemon_wakes_for_the_dead: false, ..ON };
    hangs(LatestTable { writer_crashes: 1, sleepers: true, rules, ..SMALL });
}

#[test]
fn of_two_writers_one_is_late() {
    let rules = Rules { one_writer: false, ..ON };
    is_unsafe("older than the newest", LatestTable { writers: 2, rules, ..SMALL });
}

#[test]
fn a_writer_that_attaches_too_early_passes_over_the_hole() {
    let rules = Rules { next_writer_waits_for_the_hole: false, ..ON };
    is_unsafe("older than the newest", LatestTable { writer_crashes: 1, rules, ..SMALL });
}

#[test]
fn a_daemon_that_took_over_lets_a_block_go_that_somebody_holds() {
    let rules = Rules { recycling_waits_for_readers: false, ..ON };
    is_unsafe("into a block that r0 holds", LatestTable { daemon_crashes: 1, rules, ..SMALL });
}

#[test]
fn a_reader_that_sleeps_without_comparing_sleeps_through_the_newest() {
    let rules = Rules { sleep_compares: false, ..ON };
    hangs(LatestTable { sleepers: true, rules, ..SMALL });
}
