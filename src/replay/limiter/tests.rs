//! The limiter against its definition, and against waiting for ever.

use proptest::prelude::*;

use super::*;
use crate::replay::settings::{ReplaySpec, Selector};

fn ratio(ratio: f64, min_size: u32, error_buffer: ErrorBuffer) -> RateLimiter {
    RateLimiter::SampleToInsertRatio { ratio: Real(ratio), min_size, error_buffer }
}

fn between(ratio_: f64, min_size: u32, min_diff: f64, max_diff: f64) -> Limiter {
    Limiter::new(&ratio(ratio_, min_size, ErrorBuffer::Between(Real(min_diff), Real(max_diff))))
}

fn totals(inserts: u64, samples: u64, deletes: u64) -> Totals {
    Totals { inserts, samples, deletes }
}

#[test]
fn a_scalar_buffer_lies_around_the_aim() {
    let limiter = Limiter::new(&ratio(4.0, 100, ErrorBuffer::Around(Real(50.0))));
    assert_eq!(limiter.interval(), (350.0, 450.0));
}

#[test]
fn the_limit_is_where_inserting_stops() {
    let limiter = between(1.5, 2, 0.0, 5.0);
    // Two are free, and a third makes 4.5; a fourth would make 6.
    assert_eq!(limiter.insert_limit(&totals(0, 0, 0)), 3);
    assert_eq!(limiter.insert_limit(&totals(3, 0, 0)), 3);
    // Two samples later it makes 4.
    assert_eq!(limiter.insert_limit(&totals(3, 2, 0)), 4);
    // And deletes that bring the size below the minimum make inserting free again.
    assert_eq!(limiter.insert_limit(&totals(3, 2, 3)), 5);
    assert_eq!(Limiter::new(&RateLimiter::MinSize(7)).insert_limit(&totals(9, 0, 0)), u64::MAX);
}

#[test]
fn a_queue_counts_what_left_and_so_never_shrinks() {
    let limiter = Limiter::new(&RateLimiter::Queue(3));
    assert_eq!(limiter.insert_limit(&totals(0, 0, 0)), 3);
    // One was sampled, and with it deleted; another was deleted without.
    assert_eq!(limiter.insert_limit(&totals(3, 1, 2)), 5);
    assert!(limiter.can_sample(&totals(3, 1, 2), 1));
    assert!(!limiter.can_sample(&totals(3, 1, 2), 2));
}

#[test]
fn a_reason_says_which_inequality_fails_and_by_how_much() {
    let limiter = between(4.0, 3, 2.0, 20.0);
    let reason = |reason: Option<Reason>| reason.unwrap().to_string();
    assert_eq!(
        reason(limiter.why_not_sample(&totals(5, 0, 3), 1)),
        "inserts 5 - deletes 3 = 2 is less than min_size 3"
    );
    assert_eq!(
        reason(limiter.why_not_sample(&totals(5, 18, 0), 1)),
        "inserts 5 * ratio 4 - samples 18 - 1 = 1 is less than min_diff 2"
    );
    assert_eq!(
        reason(limiter.why_not_insert(&totals(5, 3, 1), 1)),
        "inserts 5 + 1 - deletes 1 = 5 is more than min_size 3, and (inserts 5 + 1) * ratio 4 - samples 3 = 21 is more \
         than max_diff 20"
    );
    assert_eq!(limiter.why_not_insert(&totals(5, 4, 1), 1), None);
    let queue = Limiter::new(&RateLimiter::Queue(2));
    assert_eq!(
        reason(queue.why_not_insert(&totals(3, 0, 1), 1)),
        "inserts 3 + 1 - deletes 1 = 3 is more than min_size 1, and (inserts 3 + 1) * ratio 1 - deletes 1 = 3 is more \
         than max_diff 2"
    );
}

/// Any limiter that a table of ten items can have.
fn any_valid_spec() -> impl Strategy<Value = ReplaySpec> {
    let limiter = prop_oneof![
        (1..11_u32).prop_map(RateLimiter::MinSize),
        (0.05..20.0_f64, 1..11_u32, 0.0..60.0_f64).prop_map(|(r, min_size, buffer)| ratio(
            r,
            min_size,
            ErrorBuffer::Around(Real(buffer))
        )),
        (0.05..20.0_f64, 1..11_u32, -50.0..60.0_f64, 1.0..80.0_f64).prop_map(|(r, min_size, min, width)| {
            ratio(r, min_size, ErrorBuffer::Between(Real(min), Real(min + width)))
        }),
        (1..11_u32).prop_map(RateLimiter::Queue),
        (1..11_u32).prop_map(RateLimiter::Stack),
    ];
    (limiter, 0..4_u32).prop_map(|(limiter, max_times_sampled)| {
        let (order, max_times_sampled) = match limiter {
            RateLimiter::Queue(_) => (Selector::Fifo, 1),
            RateLimiter::Stack(_) => (Selector::Lifo, 1),
            _ => (Selector::Fifo, max_times_sampled),
        };
        ReplaySpec { sampler: order, remover: order, max_times_sampled, limiter, ..ReplaySpec::new(10, 1) }
    })
}

proptest! {
    #![proptest_config(crate::cases::cases(2_000))]

    #[test]
    fn the_conditions_are_those_of_the_definition_and_the_limit_follows_them(
        spec in any_valid_spec(),
        (deletes, size, samples, n) in (0..200_u64, 0..30_u64, 0..2_000_u64, 0..40_u64),
    ) {
        let limiter = Limiter::new(&spec.limiter);
        let inserts = deletes + size;
        let now = totals(inserts, samples, deletes);
        let (ratio, min_size, min_diff, max_diff, consumed) = match spec.limiter {
            RateLimiter::MinSize(min_size) => (1.0, u64::from(min_size), -f64::MAX, f64::MAX, samples),
            RateLimiter::SampleToInsertRatio { ratio, min_size, error_buffer } => {
                let (min_diff, max_diff) = match error_buffer {
                    ErrorBuffer::Around(b) => {
                        (ratio.0 * f64::from(min_size) - b.0, ratio.0 * f64::from(min_size) + b.0)
                    }
                    ErrorBuffer::Between(min, max) => (min.0, max.0),
                };
                (ratio.0, min_size.into(), min_diff, max_diff, samples)
            }
            RateLimiter::Queue(size) | RateLimiter::Stack(size) => (1.0, 1, 0.0, size.into(), deletes),
        };
        let can_sample = inserts - deletes >= min_size
            && inserts as f64 * ratio - consumed as f64 - n as f64 >= min_diff;
        prop_assert_eq!(limiter.can_sample(&now, n), can_sample);
        let can_insert = |n: u64| inserts + n - deletes <= min_size
            || (inserts + n) as f64 * ratio - consumed as f64 <= max_diff;
        prop_assert_eq!(limiter.can_insert(&now, n), can_insert(n));

        let limit = limiter.insert_limit(&now);
        prop_assert_eq!(can_insert(n), inserts + n <= limit);
        if limit < u64::MAX && limit >= inserts {
            prop_assert!(can_insert(limit - inserts) && !can_insert(limit - inserts + 1));
        }
        prop_assert!(limiter.insert_limit(&totals(inserts, samples + n, deletes)) >= limit);
        let more = n.min(size);
        prop_assert!(limiter.insert_limit(&totals(inserts, samples, deletes + more)) >= limit);
    }

    /// Whoever wants to insert and whoever wants to sample, in any order, one of them can: a hundred steps a case.
    #[test]
    fn valid_settings_never_make_both_wait(
        spec in any_valid_spec().prop_filter("valid", |spec| spec.validate().is_ok()),
        wishes in proptest::collection::vec(0..10_u8, 100),
    ) {
        let limiter = Limiter::new(&spec.limiter);
        let mut now = Totals::default();
        let mut items = std::collections::VecDeque::new();
        for wish in wishes {
            let (can_insert, can_sample) = (limiter.can_insert(&now, 1), limiter.can_sample(&now, 1));
            prop_assert!(can_insert || can_sample, "{now:?}");
            if can_insert && (wish < 4 || !can_sample) {
                items.push_back(0);
                if items.len() as u32 > spec.max_size {
                    items.pop_front();
                    now.deletes += 1;
                }
                now.inserts += 1;
            } else if can_sample {
                let at = usize::from(wish) % items.len();
                items[at] += 1;
                now.samples += 1;
                if items[at] == spec.max_times_sampled {
                    items.remove(at);
                    now.deletes += 1;
                }
            }
            if wish == 9 && items.pop_front().is_some() {
                now.deletes += 1;
            }
        }
    }
}
