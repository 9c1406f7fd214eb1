#![expect(unreachable_pub, reason = "a test binary has no public side: pub is for the other modules")]

mod arena;
mod configuration;
mod daemon;
mod explorer;
mod invariants;
mod ledger;
mod packing;
mod reader;
mod record;
mod rules;
mod rules_off;
mod rules_on;
mod shared;
mod state;
mod successors;
mod worker;

#[test]
#[ignore]
fn scratch() {
    use configuration::Configuration;
    let s = Configuration::FINISHING;
    let r = rules::Rules { broken_block_finishes_in_place: false, ..rules::Rules::ON };
    let o = rules::Rules::ON;
    for c in [
        Configuration { workers: 3, words: 1, rescues: 1, worker_crashes: 1, rules: r, ..s },
        Configuration { words: 1, rescues: 1, worker_crashes: 1, rules: r, samples_each: 2, ..s },
        Configuration { words: 1, rescues: 1, worker_crashes: 2, rules: r, samples_each: 2, longest_claim: 2, states_at_most: 20_000_000, ..s },
        Configuration { workers: 3, words: 1, rescues: 1, worker_crashes: 1, rules: o, ..s },
        Configuration { words: 1, rescues: 1, worker_crashes: 1, rules: o, samples_each: 2, ..s },
    ] {
        let t = std::time::Instant::now();
        eprintln!("{:?} {:.1?}", explorer::explore(&c), t.elapsed());
    }
}
