//! Whether draws are as likely as they are said to be. Fixed seeds, so that what passes once passes always.

use super::chi_squared::is_likely;
use super::*;
use crate::replay::settings::Staleness;

/// How often each of the first `items` keys came in `rounds` samples of 100.
fn counts(index: &mut Index, items: usize, rounds: usize) -> Vec<u64> {
    let mut rng = seeded(17);
    let mut counts = vec![0; items];
    let mut picks = Vec::new();
    for _ in 0..rounds {
        picks.clear();
        assert_eq!(index.sample(100, NOW, &mut rng, &mut picks), None);
        picks.iter().for_each(|pick| counts[pick.key as usize] += 1);
    }
    counts
}

fn normalized(weights: Vec<f64>) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

const PRIORITIES: [f64; 9] = [0.0, 0.5, 1.0, 2.0, 0.25, 8.0, 0.0, 3.0, 1.0];

#[test]
fn uniform_is_uniform_after_items_have_come_and_gone() {
    let mut index = filled(&spec(Selector::Uniform, Selector::Fifo, 60), &[1.0; 100]);
    index.delete(&[45, 46, 99]);
    let mut expected = vec![0.0; 40];
    expected.extend([1.0 / 57.0; 60]);
    [45, 46, 99].iter().for_each(|&gone: &usize| expected[gone] = 0.0);
    assert!(is_likely(&counts(&mut index, 100, 1000), &expected));
}

#[test]
fn prioritized_is_in_proportion_to_powers() {
    for exponent in [0.0_f64, 0.5, 0.7, 1.0, 2.0] {
        let mut index = filled(&spec(prioritized(exponent), Selector::Fifo, 60), &PRIORITIES);
        let weight = |&priority: &f64| if priority == 0.0 { 0.0 } else { priority.powf(exponent) };
        let expected = normalized(PRIORITIES.iter().map(weight).collect());
        assert!(is_likely(&counts(&mut index, 9, 1000), &expected), "exponent {exponent}");
    }
}

#[test]
fn without_any_weight_each_is_as_likely_as_another() {
    let mut index = filled(&spec(prioritized(0.6), Selector::Fifo, 60), &[0.0; 11]);
    assert!(is_likely(&counts(&mut index, 11, 1000), &[1.0 / 11.0; 11]));
}

#[test]
fn age_is_a_factor_of_weights() {
    let staleness = Staleness { decay: Some(Real(0.8)), ..Staleness::default() };
    let spec = ReplaySpec { staleness, ..spec(prioritized(1.0), Selector::Fifo, 60) };
    let mut index = index(&spec, 61);
    for (key, &priority) in PRIORITIES.iter().enumerate() {
        let arrival =
            Arrival { key: key as u64, priority: Some(priority), version: Some(5_000 + 2 * key as u64) };
        index.insert(key as u32, &arrival, NOW, &mut seeded(0)).unwrap();
    }
    let weights = PRIORITIES.iter().enumerate().map(|(i, &p)| p * 0.8_f64.powi(-2 * i as i32)).collect();
    assert!(is_likely(&counts(&mut index, 9, 1000), &normalized(weights)));
}

/// How often the new item drives each of the others out.
fn evicted(remover: Selector) -> Vec<u64> {
    let mut rng = seeded(23);
    let mut counts = vec![0; 6];
    for _ in 0..20_000 {
        let mut index = filled(&spec(Selector::Fifo, remover, 5), &PRIORITIES[..5]);
        index.insert(5, &arrival(5, PRIORITIES[5]), NOW, &mut rng).unwrap();
        counts[index.drain_freed().next().unwrap().key as usize] += 1;
    }
    counts
}

#[test]
fn removers_choose_as_samplers_do_and_may_choose_the_new_item() {
    assert!(is_likely(&evicted(Selector::Uniform), &[1.0 / 6.0; 6]));
    assert!(is_likely(&evicted(prioritized(1.0)), &normalized(PRIORITIES[..6].to_vec())));
}

/// In one request of two, when what is sampled is removed: how often each pair comes, in its order.
fn pairs(sampler: Selector) -> Vec<u64> {
    let spec = ReplaySpec { max_times_sampled: 1, ..spec(sampler, Selector::Fifo, 5) };
    let mut rng = seeded(29);
    let mut counts = vec![0; 25];
    for _ in 0..20_000 {
        let mut index = filled(&spec, &PRIORITIES[..5]);
        let mut picks = Vec::new();
        index.sample(2, NOW, &mut rng, &mut picks);
        counts[(picks[0].key * 5 + picks[1].key) as usize] += 1;
    }
    counts
}

#[test]
fn a_request_whose_picks_are_removed_draws_from_what_is_left() {
    let pair_by = |weights: &[f64]| -> Vec<f64> {
        let total: f64 = weights.iter().sum();
        let pair = |i: usize, j: usize| match i == j {
            true => 0.0,
            false => weights[i] / total * weights[j] / (total - weights[i]),
        };
        (0..25).map(|n| pair(n / 5, n % 5)).collect()
    };
    assert!(is_likely(&pairs(Selector::Uniform), &pair_by(&[1.0; 5])));
    assert!(is_likely(&pairs(prioritized(1.0)), &pair_by(&PRIORITIES[..5])));
}
