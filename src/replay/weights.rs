//! Importance weights: how a trainer makes up for samples that were drawn more often than others.
//!
//! An item that is drawn with probability `P` of a table of `N` weighs `(1 / (N * P))^beta`. Only ratios of these matter to
//! a learner, and they are divided by a largest one so that they only ever shrink a step. Which one is the trainer's
//! choice; `N` falls out of it either way. Pure arithmetic over what a sample says of itself: a client computes it.

/// By which weight the others are divided.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Normalize {
    /// The largest of the batch: some weight is always 1, and an item's weight depends on the company it is in.
    Batch,
    /// The largest of the table, which is that of its least likely item; this is that item's probability. An item's weight
    /// depends on the table alone, and can be less than 1 in a whole batch.
    Table(f64),
}

/// The weights of a batch whose items were drawn with these probabilities. `beta` 0 makes all of them 1, and 1 makes up
/// for all of it.
///
/// A probability that is not positive has the largest weight, 1: nothing that can be drawn has one.
pub fn importance_weights(probabilities: &[f64], beta: f64, normalize: Normalize, weights: &mut Vec<f64>) {
    let positive = probabilities.iter().copied().filter(|&probability| probability > 0.0);
    let least = match normalize {
        Normalize::Batch => positive.fold(f64::INFINITY, f64::min),
        Normalize::Table(least) => least,
    };
    weights.clear();
    weights.extend(probabilities.iter().map(|&probability| {
        // At most 1, also where the table has changed since the probability of another was taken.
        if probability > least { (least / probability).powf(beta) } else { 1.0 }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_definition_divided_by_the_largest() {
        let table: [f64; 4] = [0.05, 0.1, 0.35, 0.5];
        let drawn = [0.5, 0.1, 0.1];
        let mut weights = Vec::new();
        for beta in [0.0, 0.4, 1.0] {
            let by_definition = |probability: f64| (1.0 / (4.0 * probability)).powf(beta);
            importance_weights(&drawn, beta, Normalize::Batch, &mut weights);
            for (weight, probability) in weights.iter().zip(drawn) {
                assert!((weight - by_definition(probability) / by_definition(0.1)).abs() < 1e-15);
            }
            importance_weights(&drawn, beta, Normalize::Table(table[0]), &mut weights);
            for (weight, probability) in weights.iter().zip(drawn) {
                assert!((weight - by_definition(probability) / by_definition(0.05)).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn no_weight_is_more_than_one_or_less_than_nothing() {
        let mut weights = Vec::new();
        importance_weights(&[0.0, 0.2, f64::MIN_POSITIVE], 0.7, Normalize::Table(0.3), &mut weights);
        assert_eq!(weights, [1.0, 1.0, 1.0]);
        importance_weights(&[], 0.7, Normalize::Batch, &mut weights);
        assert!(weights.is_empty());
        importance_weights(&[1.0, 1e-300], 1.0, Normalize::Batch, &mut weights);
        assert_eq!(weights, [1e-300, 1.0]);
    }
}
