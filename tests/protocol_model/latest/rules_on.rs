//! All rules are kept: every state is explored, no invariant breaks, and each state leads to a good end.

use super::LatestTable;
use crate::explorer::explore;

const SMALL: LatestTable = LatestTable::SMALL;
/// Room for what is newest, what is written, and what somebody holds for ever.
const ROOMY: LatestTable = LatestTable { blocks: 3, values: 4, ..SMALL };

fn holds(table: LatestTable) {
    match explore(&table) {
        Ok(explored) => {
            eprintln!("{} states", explored.states);
            assert!(explored.complete && explored.goals > 0, "stopped at {explored:?}");
        }
        Err(violation) => panic!("{violation:?}"),
    }
}

macro_rules! holds {
    ($($name:ident: $table:expr;)+) => {
        $(
            #[test]
            fn $name() {
                holds($table);
            }
        )+
    };
}

holds! {
    two_blocks_go_round_under_a_reader:
        LatestTable { values: 5, ..SMALL };
    two_readers_take_the_newest:
        LatestTable { readers: 2, values: 4, ..SMALL };
    three_blocks_go_round_under_two_readers:
        LatestTable { readers: 2, ..ROOMY };
    a_writer_may_die_twice:
        LatestTable { writer_crashes: 2, writers: 2, values: 4, ..SMALL };
    a_writer_and_the_daemon_may_die:
        LatestTable { writer_crashes: 1, writers: 2, daemon_crashes: 1, values: 4, ..SMALL };
    a_reader_and_the_daemon_may_die:
        LatestTable { readers: 2, reader_crashes: 1, daemon_crashes: 1, ..ROOMY };
    two_daemons_die_one_after_the_other:
        LatestTable { daemon_crashes: 2, writer_crashes: 1, values: 4, ..SMALL };
    a_stopped_reader_keeps_what_it_holds_and_nothing_else:
        LatestTable { readers: 2, stops: 1, ..ROOMY };
    a_stopped_reader_meets_a_daemon_that_dies:
        LatestTable { stops: 1, daemon_crashes: 1, ..ROOMY };
    sleepers_are_woken:
        LatestTable { sleepers: true, readers: 2, values: 4, ..SMALL };
    sleepers_are_woken_when_a_writer_dies:
        LatestTable { sleepers: true, writer_crashes: 1, writers: 2, values: 4, ..SMALL };
    sleepers_are_woken_when_the_daemon_dies:
        LatestTable { sleepers: true, daemon_crashes: 1, writer_crashes: 1, ..SMALL };
    everybody_may_die_once:
        LatestTable { readers: 2, writer_crashes: 1, reader_crashes: 1, daemon_crashes: 1, ..SMALL };
}
