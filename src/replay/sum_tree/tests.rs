//! The sums against sums made by hand, and the draws against the weights.

use proptest::prelude::*;

use super::*;
use crate::replay::rng::Rng;
use crate::replay::tests::chi_squared::is_likely;

fn fresh(weights: &[f64]) -> SumTree {
    let mut tree = SumTree::new(weights.len() as u32);
    for (slot, &weight) in weights.iter().enumerate() {
        tree.set(slot as u32, weight);
    }
    tree.settle();
    tree
}

/// The sum with an error of about one rounding: what is lost by each addition is added up by itself (Neumaier).
fn exact_sum(weights: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for &weight in weights {
        let next = sum + weight;
        lost += if sum >= weight { (sum - next) + weight } else { (weight - next) + sum };
        sum = next;
    }
    sum + lost
}

/// Weights of all sizes: from 10^-9 to 10^9, and zeros.
fn wild(source: &mut fastrand::Rng) -> f64 {
    if source.u8(..) < 25 { 0.0 } else { 10_f64.powf(source.f64() * 18.0 - 9.0) }
}

fn churn(updates: u64, slots: u32) {
    let mut source = fastrand::Rng::with_seed(7);
    let mut weights = vec![0.0; slots as usize];
    let mut tree = fresh(&weights);
    for i in 1..=updates {
        let slot = source.u32(0..slots);
        weights[slot as usize] = wild(&mut source);
        tree.set(slot, weights[slot as usize]);
        if i % 512 == 0 {
            tree.settle();
        }
    }
    tree.settle();
    let exact = exact_sum(&weights);
    assert!((tree.total() - exact).abs() <= 1e-14 * exact, "{} is not {exact}", tree.total());
    // Nothing is left of what was there before: a tree that never saw it has the same bits everywhere.
    let fresh = fresh(&weights);
    for (ours, theirs) in tree.levels.iter().flatten().zip(fresh.levels.iter().flatten()) {
        assert_eq!(ours.0.map(f64::to_bits), theirs.0.map(f64::to_bits));
    }
    (0..slots).for_each(|slot| tree.set(slot, 0.0));
    tree.settle();
    assert_eq!(tree.total(), 0.0);
}

#[test]
fn ten_million_updates_leave_no_error_behind() {
    churn(10_000_000, 4096);
}

/// `cargo test --release --lib replay::sum_tree::tests::a_thousand_million -- --ignored` takes about a minute.
#[test]
#[ignore = "a minute in a release build"]
fn a_thousand_million_updates_leave_no_error_behind() {
    churn(1_000_000_000, 100_000);
}

#[test]
fn a_tree_without_slots_weighs_nothing() {
    let mut tree = SumTree::new(0);
    tree.settle();
    assert_eq!(tree.total(), 0.0);
}

#[test]
fn draws_are_in_proportion_to_the_weights() {
    let mut source = fastrand::Rng::with_seed(11);
    // Not a power of eight, and with weights that differ by orders of magnitude.
    let weights: Vec<f64> = (0..300).map(|i| f64::from(i % 7) * f64::from(1 + i / 100)).collect();
    let mut tree = fresh(&weights);
    let mut drawn = Vec::new();
    let mut random = || source.u64(..);
    tree.draw((0..400_000).map(|_| random.unit()), &mut drawn);
    let mut counts = vec![0_u64; weights.len()];
    drawn.iter().for_each(|&slot| counts[slot as usize] += 1);
    let total: f64 = weights.iter().sum();
    let expected: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
    assert!(is_likely(&counts, &expected));
}

#[test]
fn the_last_fraction_and_the_first_reach_slots_that_weigh_something() {
    let mut weights = vec![0.0; 1000];
    weights[3] = 1e-300;
    weights[500] = 0.1;
    weights[996] = 0.7;
    let mut tree = fresh(&weights);
    let mut drawn = Vec::new();
    tree.draw([0.0, 1.0_f64.next_down()].into_iter(), &mut drawn);
    assert_eq!(drawn, [3, 996]);
}

proptest! {
    #![proptest_config(crate::cases::cases(200))]

    /// A hundred steps a case: sums, weights and draws after each are those of a list.
    #[test]
    fn the_tree_is_a_list_of_weights(
        slots in 1_u32..700,
        steps in proptest::collection::vec((any::<u32>(), prop_oneof![Just(0.0), 1e-12..1e12], 0.0..1.0_f64), 100),
    ) {
        let mut weights = vec![0.0; slots as usize];
        let mut tree = SumTree::new(slots);
        let mut drawn = Vec::new();
        for (slot, weight, fraction) in steps {
            let slot = slot % slots;
            weights[slot as usize] = weight;
            tree.set(slot, weight);
            tree.settle();
            prop_assert_eq!(tree.weight(slot), weight);
            let exact = exact_sum(&weights);
            prop_assert!((tree.total() - exact).abs() <= 1e-14 * exact);
            if exact > 0.0 {
                drawn.clear();
                tree.draw(std::iter::once(fraction), &mut drawn);
                let slot = drawn[0] as usize;
                prop_assert!(weights[slot] > 0.0);
                // The slot's part of the line, give or take the error of the sums.
                let before = exact_sum(&weights[..slot]);
                let (point, error) = (fraction * exact, 2e-14 * exact);
                prop_assert!(before - error <= point && point <= before + weights[slot] + error);
            }
        }
    }
}
