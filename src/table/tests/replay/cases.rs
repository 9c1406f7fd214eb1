//! Single cases that a schedule would seldom come to.

use super::bench::{Bench, Death};
use crate::replay::settings::{Admission, ReplaySpec, Selector, Staleness};
use crate::sync::Ordering;
use crate::table::action::Violation;
use crate::table::replay::{MAX_OUTSTANDING, MAX_REQUESTS};
use crate::wire::message::EndReason;

fn queue(size: u32, batch_size: u32) -> ReplaySpec {
    let (sampler, remover) = (Selector::Fifo, Selector::Fifo);
    let limiter = format!("queue:{size}").parse().unwrap();
    ReplaySpec { sampler, remover, limiter, max_times_sampled: 1, ..ReplaySpec::new(size, batch_size) }
}

/// A queue whose trainer uses two samples in a version, and may not lag.
fn admitting() -> Bench {
    let admission = Some(Admission { samples_per_version: 2, max_running: 9 });
    let staleness = Staleness { max: Some(0), decay: None, admission };
    let mut bench = Bench::new(ReplaySpec { staleness, ..queue(5, 2) }, 4);
    bench.attach_worker();
    bench.attach_reader();
    bench
}

/// How many samples a worker can write now.
fn writes(bench: &mut Bench) -> u32 {
    let mut written = 0;
    bench.need_space(0);
    while bench.claim(0, 1).is_some() {
        assert!(bench.commit(0, None, 0));
        written += 1;
        assert!(written < 10_000, "nothing holds it back");
        bench.need_space(0);
    }
    written
}

fn got(bench: &mut Bench) -> Vec<usize> {
    bench.answers().into_iter().map(|(_, picks, _)| picks).collect()
}

#[test]
fn a_batch_larger_than_the_table_has_room_for_is_given_as_far_as_there_is_room() {
    let mut bench = Bench::new(queue(5, 64), 1);
    bench.attach_worker();
    bench.attach_reader();
    bench.ask(0, 64);
    let written = writes(&mut bench);
    let answers = bench.answers();
    let [(_, first, Some(why))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(why, &format!("the table has no room for more than {first} samples that are read"));
    assert!(*first as u32 == written && written > 5, "{first} of {written}");
    bench.give_back(0);
    assert!(writes(&mut bench) > 0, "and it goes on");
}

#[test]
fn requests_are_bounded_as_samples_are() {
    let mut bench = Bench::new(ReplaySpec::new(5, 1), 2);
    let key = bench.attach_reader();
    for _ in 0..MAX_REQUESTS {
        bench.ask(0, 1);
    }
    let next = u64::from(MAX_REQUESTS) + 1;
    let refused = bench.act(|replay, actions| replay.sample(key, next, 1, actions));
    assert_eq!(refused, Err(Violation::TooManyRequests { reader: key, most: MAX_REQUESTS }));
    bench.cut(0);
    assert!(bench.act(|replay, actions| replay.sample(key, next - 1, 1, actions)).is_err(), "it ascends");
    bench.ask(0, 1);
    let asked = MAX_OUTSTANDING as u32;
    let refused = bench.act(|replay, actions| replay.sample(key, next + 1, asked, actions));
    assert!(matches!(refused, Err(Violation::TooManySamples { .. })), "{refused:?}");
}

#[test]
fn a_bit_that_a_worker_takes_back_is_no_second_sample() {
    let mut bench = Bench::new(ReplaySpec::new(3 * 64, 1), 2);
    bench.attach_worker();
    let first = bench.claim(0, 1).unwrap();
    assert!(bench.commit(0, None, 0));
    bench.tick();
    let control = bench.control();
    control.commits(first.block, 0).store(0, Ordering::Relaxed);
    bench.tick();
    control.commits(first.block, 0).store(1, Ordering::Relaxed);
    bench.tick();
    assert_eq!(bench.replay().index().inserted(), 1);
    control.commits(first.block, 0).store(0, Ordering::Relaxed);
    assert!(writes_some(&mut bench, 1000), "its block goes round");
    assert_eq!(bench.replay().index().inserted(), 1001);
    bench.check();
}

#[test]
fn one_turn_takes_in_no_more_than_its_part() {
    let mut bench = Bench::new(ReplaySpec::new(64 * 512, 1), 2);
    bench.attach_worker();
    for _ in 0..512 {
        assert_eq!(bench.claim(0, 64).unwrap().length, 64);
        assert!(bench.commit(0, None, 0));
    }
    bench.tick();
    let inserted = bench.replay().index().inserted();
    assert!((64..64 * 512).contains(&inserted), "{inserted}");
    assert!(bench.replay().is_unsettled(), "the rest is the next turn's");
    for _ in 0..512 {
        bench.tick();
    }
    assert_eq!(bench.replay().index().inserted(), 64 * 512);
    assert!(!bench.replay().is_unsettled());
}

#[test]
fn who_claims_and_does_not_commit_keeps_nobody_busy() {
    let mut bench = Bench::new(ReplaySpec::new(5, 1), 2);
    bench.attach_worker();
    bench.claim(0, 1).unwrap();
    bench.tick();
    assert!(!bench.replay().is_unsettled());
}

/// Each sleeps over a claim in a block of its own: their blocks cannot go round, and there are no others.
#[test]
fn workers_that_sleep_over_their_claims_hold_up_no_other() {
    let mut bench = Bench::new(ReplaySpec::new(3 * 64, 1), 0);
    let blocks = bench.replay().intake().control().geometry().max_blocks();
    for worker in [2, 1] {
        (0..3).for_each(|_| bench.attach_worker());
        bench.claim(worker, 1).unwrap();
        while bench.claim(0, 3).unwrap().slot + bench.claim(0, 3).unwrap().length < 3 {
            assert!(bench.commit(0, None, 0));
        }
        assert!(bench.commit(0, None, 0));
        bench.check();
    }
    assert!(writes_some(&mut bench, 9 * blocks));
    bench.check();
}

/// It has leased, in place, a sample of nearly every block.
#[test]
fn a_reader_that_sleeps_over_its_samples_holds_up_no_worker() {
    let mut bench = Bench::new(ReplaySpec::new(3 * 64, 1), 2);
    bench.attach_worker();
    bench.attach_reader();
    assert!(writes_some(&mut bench, 3 * 64));
    for _ in 0..8 {
        bench.ask(0, 5);
    }
    let leases = bench.replay().index().leased();
    assert!(writes_some(&mut bench, 2000), "{leases} leases");
    assert!(bench.replay().index().size() < 3 * 64, "what is read takes the room of some that could be");
    bench.check();
    while !bench.readers.values().all(|reader| reader.held.is_empty()) {
        bench.give_back(0);
    }
    assert!(writes_some(&mut bench, 1000));
    assert_eq!(bench.replay().index().size(), 3 * 64);
}

/// Whether a worker can write so many, within as many ticks and some.
fn writes_some(bench: &mut Bench, n: u32) -> bool {
    let mut written = 0;
    for _ in 0..n + 100 {
        while written < n && bench.claim(0, 1).is_some() {
            bench.commit(0, None, 0);
            written += 1;
        }
        bench.need_space(0);
        bench.tick();
    }
    written == n
}

#[test]
fn what_a_queue_holds_is_not_lost_to_a_reader_that_sleeps() {
    let mut bench = Bench::new(queue(5, 1), 1);
    bench.attach_worker();
    bench.attach_reader();
    let mut leased = 0;
    while writes(&mut bench) > 0 && leased < 5 {
        bench.ask(0, 1);
        leased += 1;
    }
    let size = bench.replay().index().size();
    for _ in 0..200 {
        bench.need_space(0);
        bench.tick();
    }
    assert_eq!(bench.replay().index().size(), size, "nobody has seen them");
    bench.check();
}

#[test]
fn a_trainer_that_dies_takes_what_it_had_with_it() {
    let mut bench = admitting();
    assert_eq!(writes(&mut bench), 2);
    bench.ask(0, 2);
    assert_eq!((got(&mut bench), writes(&mut bench)), (vec![2], 0), "they may not lag");
    bench.kill_reader(0);
    // The next one begins at the same version, which it need not say.
    bench.attach_reader();
    assert_eq!(writes(&mut bench), 2);
    bench.ask(0, 2);
    assert_eq!((got(&mut bench), writes(&mut bench)), (vec![2], 0));
    bench.disconnect(0);
    assert_eq!(writes(&mut bench), 2, "it is given nothing any more");
}

#[test]
fn a_trainer_that_uses_more_in_a_version_than_it_said_is_not_held_back_for_ever() {
    let mut bench = admitting();
    for _ in 0..20 {
        let mut had = 0;
        while had < 5 {
            let written = writes(&mut bench);
            bench.ask(0, 1);
            had += got(&mut bench).into_iter().sum::<usize>();
            bench.cut(0);
            bench.answers();
            bench.give_back(0);
            if written == 0 {
                break;
            }
        }
        assert!(had > 0, "its next version lets workers in again");
        bench.state_version(2);
    }
}

#[test]
fn what_became_too_old_in_a_request_that_waits_is_not_delivered() {
    let mut bench = Bench::new(ReplaySpec { staleness: stale_after(0), ..queue(5, 4) }, 2);
    bench.attach_worker();
    bench.attach_reader();
    for _ in 0..2 {
        bench.claim(0, 1).unwrap();
        assert!(bench.commit(0, None, 0));
    }
    bench.ask(0, 3);
    assert_eq!(bench.replay().index().leased(), 2);
    bench.state_version(2);
    assert_eq!((bench.replay().index().leased(), got(&mut bench)), (0, vec![]));
    for _ in 0..3 {
        bench.need_space(0);
        bench.claim(0, 1).unwrap();
        assert!(bench.commit(0, None, 0));
    }
    bench.tick();
    assert_eq!(got(&mut bench), [3]);
    // And what was there before a reset neither.
    bench.ask(0, 2);
    bench.need_space(0);
    bench.claim(0, 1).unwrap();
    assert!(bench.commit(0, None, 0));
    bench.tick();
    bench.reset();
    assert_eq!(bench.replay().index().leased(), 3, "those that were delivered");
    bench.check();
}

fn stale_after(max: u64) -> Staleness {
    Staleness { max: Some(max), ..Staleness::default() }
}

/// The hole that a dead worker leaves below the limit is the next one's, although the limiter lets nobody go further.
#[test]
fn a_claim_of_a_dead_worker_is_filled_while_the_limiter_holds_the_others_back() {
    let mut bench = Bench::new(queue(2, 1), 2);
    (0..2).for_each(|_| bench.attach_worker());
    bench.attach_reader();
    bench.claim(0, 1).unwrap();
    bench.claim(1, 1).unwrap();
    assert!(bench.commit(1, None, 0));
    bench.tick();
    assert!(bench.claim(1, 1).is_none(), "the limiter says so");
    bench.kill_worker(0, Death::Claimed);
    bench.tick();
    assert_eq!(bench.claim(0, 1).map(|claim| claim.position.0), Some(0));
    assert!(bench.commit(0, None, 0));
    bench.ask(0, 2);
    assert_eq!(got(&mut bench), [2]);
}

/// Its reader has not heard of the end yet when it asks. Such a request was kept, and asked after, for as long as the reader lived.
#[test]
fn a_request_that_crosses_the_end_is_not_kept() {
    let mut bench = Bench::new(ReplaySpec::new(5, 1), 2);
    let key = bench.attach_reader();
    bench.act(|replay, _| replay.close(EndReason::Dropped, &mut Vec::new()));
    assert_eq!(bench.act(|replay, actions| replay.sample(key, 1, 3, actions)), Ok(()));
    assert!(bench.replay().waiting().is_empty());
    let again = bench.act(|replay, actions| replay.sample(key, 1, 3, actions));
    assert!(matches!(again, Err(Violation::SampleNumber { .. })), "its numbers ascend all the same");
    assert!(bench.answers().is_empty());
}
