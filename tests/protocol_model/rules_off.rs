//! One rule is left out: the explorer must find what that rule prevents.
//!
//! Each test names the smallest configuration in which the rule is missed, and says what goes wrong. With
//! `--nocapture` a test prints its trace.

use crate::configuration::Configuration;
use crate::explorer::{Property, explore};
use crate::rules::Rules;

const SMALL: Configuration = Configuration::SMALL;
const FINISHING: Configuration = Configuration::FINISHING;
const ONE_SLOT: Configuration = Configuration { slots: 1, words: 1, ..SMALL };
const ONE_BLOCK: Configuration = Configuration { blocks: 1, ..ONE_SLOT };
const RESCUE: Configuration = Configuration { words: 1, rescues: 1, fillers: 4, ..SMALL };
const ON: Rules = Rules::ON;

/// The configuration breaks this property, with a message that contains these words.
fn breaks(property: Property, words: &str, config: Configuration) {
    match explore(&config) {
        Ok(explored) => panic!("nothing went wrong in {explored:?}"),
        Err(violation) => {
            eprintln!("{violation:?}");
            assert_eq!(violation.property, property, "{violation:?}");
            assert!(violation.message.contains(words), "{violation:?}");
        }
    }
}

/// A bad state can be reached: the message says which.
fn is_unsafe(words: &str, config: Configuration) {
    breaks(Property::Safety, words, config);
}

/// Nothing bad can be seen, but some state has no way to a good end.
fn hangs(config: Configuration) {
    breaks(Property::Liveness, "", config);
}

#[test]
fn reading_fill_after_the_claim_writes_into_another_block() {
    let rules = Rules { fill_read_before_cas: false, ..ON };
    is_unsafe("which now holds", Configuration { readers: 2, samples_each: 2, rules, ..ONE_SLOT });
}

#[test]
fn a_record_kept_after_a_lost_cas_covers_a_hole_for_ever() {
    let rules = Rules { record_cleared_after_lost_cas: false, ..ON };
    hangs(Configuration { worker_crashes: 1, rules, ..ONE_BLOCK });
}

#[test]
fn a_hole_is_filled_in_the_block_of_another_hole() {
    let rules = Rules { hole_block_checked: false, ..ON };
    let config = Configuration { worker_crashes: 3, samples_each: 3, fillers: 1, rules, ..ONE_SLOT };
    is_unsafe("which now holds", config);
}

#[test]
fn a_completer_without_a_sequence_marks_the_next_incarnation() {
    let rules = Rules { ready_carries_sequence: false, ..ON };
    is_unsafe("which is not committed", Configuration { rules, ..ONE_BLOCK });
}

#[test]
fn a_second_completer_without_a_sequence_marks_the_next_incarnation() {
    let rules = Rules { ready_carries_sequence: false, reader_looks_at_words: false, ..ON };
    is_unsafe("which is not committed", Configuration { samples_each: 2, rules, ..SMALL });
}

#[test]
fn a_commit_that_is_no_cas_is_counted_though_it_did_not_count() {
    let rules = Rules { commit_is_cas: false, ..ON };
    is_unsafe("which is Unwritten", Configuration { daemon_crashes: 1, rules, ..RESCUE });
}

#[test]
fn reclaim_that_looks_at_the_bit_first_offers_a_committed_position() {
    let rules = Rules { reclaim_order: false, ..ON };
    is_unsafe("the daemon offers 0, which is committed", Configuration { worker_crashes: 1, rules, ..SMALL });
}

#[test]
fn a_rescue_that_breaks_a_complete_block_delivers_it_twice() {
    let rules = Rules { rescue_called_off_when_complete: false, ..ON };
    is_unsafe("delivered twice", Configuration { words: 2, rules, ..RESCUE });
}

#[test]
fn a_quarantine_that_waits_for_the_process_waits_for_ever() {
    let rules = Rules { quarantine_until_records_clear: false, last_block_never_quarantined: false, ..ON };
    hangs(Configuration { rescues: 2, rules, ..RESCUE });
}

#[test]
fn a_daemon_that_claims_like_a_worker_forgets_what_it_claimed() {
    let rules = Rules { daemon_copies_under_closed_cursor: false, ..ON };
    is_unsafe("overwrites the committed slot", Configuration { daemon_crashes: 1, rules, ..RESCUE });
}

#[test]
fn a_drop_that_clears_the_record_first_loses_the_hole() {
    let rules = Rules { drop_marks_record_first: false, ..ON };
    hangs(Configuration { blocks: 1, worker_crashes: 1, drops: 1, rules, ..SMALL });
}

#[test]
fn reading_space_after_the_limit_sleeps_through_the_wake() {
    let rules = Rules { space_read_before_limit: false, ..ON };
    hangs(Configuration {
        workers_sleep: true,
        readers_sleep: true,
        samples_each: 2,
        fillers: 4,
        rules,
        ..ONE_BLOCK
    });
}

#[test]
fn recording_the_quarantine_before_broken_leaves_the_reader_waiting() {
    let rules = Rules { broken_before_quarantine_record: false, ..ON };
    hangs(Configuration { daemon_crashes: 1, rules, ..RESCUE });
}

#[test]
fn one_record_while_moving_lets_the_bytes_be_overwritten() {
    let rules = Rules { second_record_while_moving: false, last_block_never_quarantined: false, ..ON };
    is_unsafe("moves sample", Configuration { slots: 1, rules, ..RESCUE });
}

#[test]
fn quarantining_the_last_block_leaves_the_copies_no_place() {
    let rules = Rules { last_block_never_quarantined: false, ..ON };
    hangs(Configuration { slots: 1, samples_each: 2, rescues: 2, rules, ..RESCUE });
}

#[test]
fn a_broken_block_reused_under_its_grant_is_read_as_another() {
    let rules = Rules { broken_block_waits_for_its_grant: false, ..ON };
    is_unsafe("but it holds", Configuration { words: 2, fillers: 6, rules, ..RESCUE });
}

#[test]
fn a_reader_without_a_look_of_its_own_waits_for_a_dead_completer() {
    let rules = Rules { reader_looks_at_words: false, ..ON };
    hangs(Configuration { worker_crashes: 1, rules, ..ONE_BLOCK });
}

#[test]
fn reclaim_through_fill_offers_a_position_that_lives_no_more() {
    let rules = Rules { private_block_table: false, ..ON };
    is_unsafe("the daemon offers 0", Configuration { worker_crashes: 1, rules, ..ONE_BLOCK });
}

#[test]
fn finishing_over_the_head_of_a_worker_loses_its_sample() {
    let rules = Rules { finishing_waits_for_writers: false, ..ON };
    is_unsafe("", Configuration { rules, ..FINISHING });
}

#[test]
fn a_finishing_that_is_forgotten_lets_workers_write_into_finished_blocks() {
    let rules = Rules { finishing_is_recorded: false, ..ON };
    is_unsafe(
        "",
        Configuration { worker_crashes: 1, daemon_crashes: 1, samples_each: 2, rules, ..FINISHING },
    );
}

#[test]
fn a_worker_that_attaches_while_finishing_claims_what_is_gone() {
    let rules = Rules { finishing_refuses_writers: false, ..ON };
    is_unsafe(
        "which is in no live block",
        Configuration { worker_crashes: 1, samples_each: 2, rules, ..FINISHING },
    );
}

#[test]
fn bytes_moved_after_the_record_are_moved_again_under_a_reader() {
    let rules = Rules { bytes_moved_before_finishing_record: false, ..ON };
    is_unsafe(
        "while a reader reads it",
        Configuration { worker_crashes: 1, daemon_crashes: 1, rules, ..FINISHING },
    );
}

#[test]
fn without_a_record_the_daemon_counts_the_bits_that_it_set() {
    let rules = Rules { finishing_record_before_words: false, ..ON };
    is_unsafe("", Configuration { daemon_crashes: 1, worker_crashes: 1, rules, ..FINISHING });
}

#[test]
fn words_filled_before_the_length_let_a_reader_deliver_nothing() {
    let rules = Rules { length_before_words: false, ..ON };
    is_unsafe("", Configuration { slots: 4, words: 2, blocks: 1, rules, ..FINISHING });
}

#[test]
fn a_length_read_before_complete_is_too_long() {
    let rules = Rules { length_read_after_complete: false, ..ON };
    is_unsafe("", Configuration { slots: 4, words: 2, blocks: 1, rules, ..FINISHING });
}

#[test]
fn a_finished_block_that_wakes_nobody_is_never_read() {
    let rules = Rules { finishing_wakes_readers: false, ..ON };
    hangs(Configuration {
        slots: 4,
        words: 2,
        blocks: 1,
        workers_sleep: true,
        readers_sleep: true,
        rules,
        ..FINISHING
    });
}

#[test]
fn a_grant_of_nothing_that_is_kept_keeps_its_reader() {
    let rules = Rules { empty_grant_is_taken_back: false, ..ON };
    hangs(Configuration { rules, ..FINISHING });
}
