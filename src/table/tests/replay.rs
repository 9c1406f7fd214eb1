//! The replay table under random schedules, with real claims and commits over heap words, against a plain model.
//!
//! A sample's bytes are its key, in one word a slot. The model is the set of keys that were committed, and who was told to
//! hold what. Workers stop for good between any two of their steps, readers with what they hold or wait for; the daemon is
//! replaced by one that knows only its regions and the shared words, between two calls or after any store within one.

use proptest::prelude::*;

use crate::replay::settings::{Admission, RateLimiter, Real, ReplaySpec, Selector, Staleness};

mod bench;
mod cases;

use bench::{Bench, Death};

#[derive(Clone, Debug)]
enum Step {
    AttachWorker,
    Claim(usize, u32),
    Commit(usize, Option<f64>, u64),
    GiveUp(usize),
    KillWorker(usize, Death),
    AttachReader,
    Ask(usize, u32),
    Cut(usize),
    Return(usize),
    Disconnect(usize),
    KillReader(usize),
    ComeBack(usize),
    Update(u64, f64),
    Delete(u64),
    Version(u64),
    Reset,
    NeedSpace(usize),
    Tick,
    ReplaceDaemon,
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = 0..3usize;
    let priority = prop_oneof![Just(None), (0..4_i32).prop_map(|priority| Some(f64::from(priority)))];
    let wrong = prop_oneof![Just(Some(f64::NAN)), Just(Some(-1.0))];
    let death = prop_oneof![Just(Death::Claimed), Just(Death::Committed)];
    prop_oneof![
        1 => Just(Step::AttachWorker),
        8 => (who.clone(), 1..5_u32).prop_map(|(worker, n)| Step::Claim(worker, n)),
        12 => (who.clone(), prop_oneof![20 => priority, 1 => wrong], 0..4_u64)
            .prop_map(|(worker, priority, lag)| Step::Commit(worker, priority, lag)),
        1 => who.clone().prop_map(Step::GiveUp),
        1 => (who.clone(), death).prop_map(|(worker, death)| Step::KillWorker(worker, death)),
        1 => Just(Step::AttachReader),
        8 => (who.clone(), 1..6_u32).prop_map(|(reader, n)| Step::Ask(reader, n)),
        2 => who.clone().prop_map(Step::Cut),
        6 => who.clone().prop_map(Step::Return),
        1 => who.clone().prop_map(Step::Disconnect),
        1 => who.clone().prop_map(Step::KillReader),
        2 => who.clone().prop_map(Step::ComeBack),
        2 => (0..30_u64, (0..4_i32).prop_map(f64::from)).prop_map(|(back, to)| Step::Update(back, to)),
        2 => (0..30_u64).prop_map(Step::Delete),
        2 => (0..4_u64).prop_map(Step::Version),
        1 => prop_oneof![4 => Just(Step::Tick), 1 => Just(Step::Reset)],
        3 => who.prop_map(Step::NeedSpace),
        3 => Just(Step::Tick),
        1 => Just(Step::ReplaceDaemon),
    ]
}

fn any_selector() -> impl Strategy<Value = Selector> {
    prop_oneof![
        Just(Selector::Fifo),
        Just(Selector::Lifo),
        Just(Selector::Uniform),
        (0..2_i32).prop_map(|exponent| Selector::Prioritized { exponent: Real(exponent.into()) }),
        Just(Selector::MinHeap),
        Just(Selector::MaxHeap),
    ]
}

/// Settings with which everybody gets on, of blocks of one sample, and of several where they can be.
fn any_settings() -> impl Strategy<Value = ReplaySpec> {
    let limiter = prop_oneof![
        3 => Just("min-size:1"),
        1 => Just("min-size:3"),
        1 => Just("ratio:2:2:4"),
        1 => Just("ratio:0.5:1:-1:3"),
        1 => Just("queue:5"),
        1 => Just("stack:4"),
    ];
    let admission = proptest::option::of((1..4_u32, 1..4_u32));
    let staleness = proptest::option::of((0..4_u64, admission));
    // The last is a size of which blocks have three slots.
    let size = prop_oneof![2 => 5..9_u32, 1 => Just(3 * 64)];
    (any_selector(), any_selector(), size, 0..3_u32, limiter, staleness)
        .prop_map(|(sampler, remover, max_size, times, limiter, staleness)| {
            let mut spec = ReplaySpec { sampler, remover, ..ReplaySpec::new(max_size, 1) };
            (spec.max_times_sampled, spec.limiter) = (times, limiter.parse().unwrap());
            if let Some((max, admission)) = staleness {
                let admission = admission
                    .map(|(samples_per_version, max_running)| Admission { samples_per_version, max_running });
                spec.staleness = Staleness { max: Some(max), decay: None, admission };
            }
            let order = match spec.limiter {
                RateLimiter::Queue(_) => Some(Selector::Fifo),
                RateLimiter::Stack(_) => Some(Selector::Lifo),
                _ => None,
            };
            if let Some(order) = order {
                (spec.sampler, spec.remover, spec.max_times_sampled) = (order, order, 1);
            }
            spec
        })
        .prop_filter("nobody gets on", |spec| spec.validate().is_ok())
}

fn run(bench: &mut Bench, step: &Step) {
    match *step {
        Step::AttachWorker => bench.attach_worker(),
        Step::Claim(worker, n) => drop(bench.claim(worker, n)),
        Step::Commit(worker, priority, lag) => drop(bench.commit(worker, priority, lag)),
        Step::GiveUp(worker) => bench.give_up(worker),
        Step::KillWorker(worker, death) => bench.kill_worker(worker, death),
        Step::AttachReader => drop(bench.attach_reader()),
        Step::Ask(reader, n) => bench.ask(reader, n),
        Step::Cut(reader) => bench.cut(reader),
        Step::Return(reader) => bench.give_back(reader),
        Step::Disconnect(reader) => bench.disconnect(reader),
        Step::KillReader(reader) => bench.kill_reader(reader),
        Step::ComeBack(reader) => bench.come_back(reader),
        Step::Update(back, priority) => bench.update(back, priority),
        Step::Delete(back) => bench.delete(back),
        Step::Version(more) => bench.state_version(more),
        Step::Reset => bench.reset(),
        Step::NeedSpace(worker) => bench.need_space(worker),
        Step::Tick => bench.tick(),
        Step::ReplaceDaemon => bench.replace_daemon(),
    }
}

/// A build without optimisation takes a fifth of them, in some half a minute.
const CASES: u32 = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_committed_is_an_item_once_and_what_is_leased_stays_whatever_the_schedule(
        settings in any_settings(),
        spare in 2..6_u32,
        steps in proptest::collection::vec(any_step(), 0..120),
    ) {
        let mut bench = Bench::new(settings, spare);
        bench.attach_worker();
        bench.attach_reader();
        for step in &steps {
            run(&mut bench, step);
            bench.check();
        }
        bench.settles();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES / 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// The daemon dies within one call, after each of its stores in turn.
    #[test]
    fn a_daemon_that_dies_in_the_middle_of_a_call_loses_no_sample_and_gives_none_away(
        settings in any_settings(),
        spare in 2..6_u32,
        steps in proptest::collection::vec((any_step(), proptest::option::weighted(0.2, 0..24_u64)), 0..80),
    ) {
        let mut bench = Bench::new(settings, spare);
        bench.attach_worker();
        bench.attach_reader();
        for (step, dies_after) in &steps {
            match *dies_after {
                Some(stores) => bench.dies_within(stores, |bench| run(bench, step)),
                None => run(&mut bench, step),
            }
            bench.check();
        }
        bench.settles();
    }
}
