//! All rules are kept: every state is explored, no invariant breaks, and each state leads to a good end.
//!
//! Each test bounds the table and what may go wrong in another way; together they cover in pairs what can go wrong:
//! crashes of each kind, dropped claims, long claims, one block and several, one word a block and several, rescues,
//! sleepers.

use crate::configuration::Configuration;
use crate::explorer::explore;

const SMALL: Configuration = Configuration::SMALL;
const FINISHING: Configuration = Configuration::FINISHING;
/// A block of one slot is full with its sample; later traffic only has to fill what a dead worker left.
const ONE_SLOT: Configuration = Configuration { slots: 1, words: 1, fillers: 2, ..SMALL };
const SLEEPERS: Configuration =
    Configuration { workers_sleep: true, readers_sleep: true, wake_needs_granted: true, ..SMALL };
const RESCUE: Configuration = Configuration { words: 1, rescues: 1, fillers: 4, ..SMALL };

/// The configuration is explored to the end and holds.
fn holds(config: Configuration) {
    let started = std::time::Instant::now();
    match explore(&config) {
        Ok(explored) => {
            eprintln!("{} states in {:.1?}", explored.states, started.elapsed());
            assert!(explored.complete && explored.goals > 0, "stopped at {explored:?}");
        }
        Err(violation) => panic!("{violation:?}"),
    }
}

macro_rules! holds {
    ($($name:ident: $config:expr;)+) => {
        $(
            #[test]
            fn $name() {
                holds($config);
            }
        )+
    };
}

holds! {
    two_workers_may_die_and_one_claim_may_be_dropped:
        Configuration { worker_crashes: 2, drops: 1, ..SMALL };
    a_worker_and_a_reader_may_die:
        Configuration { worker_crashes: 1, reader_crashes: 1, readers: 2, ..SMALL };
    a_worker_and_the_daemon_may_die:
        Configuration { worker_crashes: 1, daemon_crashes: 1, ..SMALL };
    a_reader_and_the_daemon_may_die:
        Configuration { reader_crashes: 1, daemon_crashes: 1, ..SMALL };
    three_workers_race_and_one_may_die:
        Configuration { workers: 3, worker_crashes: 1, ..ONE_SLOT };
    one_block_goes_round_under_dying_workers:
        Configuration { blocks: 1, samples_each: 2, worker_crashes: 1, ..ONE_SLOT };
    blocks_of_one_slot_go_round_under_two_readers:
        Configuration { readers: 2, samples_each: 2, worker_crashes: 1, ..ONE_SLOT };
    long_claims_may_be_lost:
        Configuration { longest_claim: 2, samples_each: 2, worker_crashes: 1, ..SMALL };
    long_claims_may_be_lost_in_one_word:
        Configuration { longest_claim: 2, samples_each: 2, words: 1, worker_crashes: 1, daemon_crashes: 1, ..SMALL };
    holes_are_offered_again_and_again:
        Configuration { drops: 2, worker_crashes: 1, samples_each: 2, ..ONE_SLOT };
    dropped_claims_survive_the_daemon:
        Configuration { drops: 2, daemon_crashes: 1, ..SMALL };
    sleepers_are_woken:
        Configuration { samples_each: 2, fillers: 4, ..SLEEPERS };
    // Its reader must look at the words: a completer that dies between its bit and its wake wakes nobody.
    sleepers_are_woken_when_a_worker_dies:
        Configuration { worker_crashes: 1, readers_sleep: false, ..SLEEPERS };
    sleepers_are_woken_when_the_daemon_dies:
        Configuration { daemon_crashes: 1, blocks: 1, ..SLEEPERS };
    a_stopped_worker_may_be_rescued_from:
        RESCUE;
    a_stopped_worker_may_be_rescued_from_by_a_daemon_that_dies:
        Configuration { daemon_crashes: 1, fillers: 2, ..RESCUE };
    a_rescue_meets_a_dying_worker:
        Configuration { worker_crashes: 1, fillers: 2, ..RESCUE };
    finishing_delivers_what_dying_workers_left:
        Configuration { worker_crashes: 2, samples_each: 2, words: 1, ..FINISHING };
    finishing_survives_the_daemon:
        Configuration { daemon_crashes: 1, worker_crashes: 1, ..FINISHING };
    finishing_survives_readers:
        Configuration { reader_crashes: 1, worker_crashes: 1, readers: 2, ..FINISHING };
    finishing_moves_samples_over_several_words:
        Configuration { slots: 4, words: 2, blocks: 1, samples_each: 2, worker_crashes: 1, ..FINISHING };
    finishing_takes_dropped_and_long_claims:
        Configuration { drops: 1, longest_claim: 2, samples_each: 2, worker_crashes: 1, ..FINISHING };
    finishing_wakes_sleepers:
        Configuration {
            workers_sleep: true, readers_sleep: true, wake_needs_granted: true, worker_crashes: 1, ..FINISHING
        };
    finishing_meets_a_rescue:
        Configuration { words: 1, rescues: 1, worker_crashes: 1, ..FINISHING };
    two_daemons_die_one_after_the_other:
        Configuration { daemon_crashes: 2, worker_crashes: 1, ..SMALL };
    everybody_may_die_once:
        Configuration { daemon_crashes: 1, worker_crashes: 1, reader_crashes: 1, readers: 2, ..SMALL };
    finishing_survives_the_daemon_and_a_rescue:
        Configuration { words: 1, rescues: 1, worker_crashes: 1, daemon_crashes: 1, ..FINISHING };
}
