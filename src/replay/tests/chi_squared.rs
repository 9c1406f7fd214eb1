//! Whether counts look as if they had been drawn with given probabilities.

/// Pearson's test at a level of about one in a million: seeds are fixed, so that a test that passes always does. What must
/// never be drawn must not have been.
pub(crate) fn is_likely(counts: &[u64], expected: &[f64]) -> bool {
    assert_eq!(counts.len(), expected.len());
    let draws = counts.iter().sum::<u64>() as f64;
    let (mut statistic, mut cells) = (0.0, 0_u32);
    for (&count, &probability) in counts.iter().zip(expected) {
        if probability == 0.0 {
            if count > 0 {
                return false;
            }
            continue;
        }
        let expected = draws * probability;
        assert!(expected >= 5.0, "too few draws for a cell of {expected}");
        statistic += (count as f64 - expected).powi(2) / expected;
        cells += 1;
    }
    // Wilson and Hilferty: the cube root of a chi-squared number is nearly normal.
    let freedom = f64::from(cells - 1).max(1.0);
    let spread = 2.0 / (9.0 * freedom);
    let deviation = ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    deviation < 4.75
}

#[test]
fn a_fair_die_is_told_from_a_loaded_one() {
    assert!(is_likely(&[1003, 990, 1021, 985, 1002, 999], &[1.0 / 6.0; 6]));
    assert!(!is_likely(&[1203, 990, 1021, 885, 902, 999], &[1.0 / 6.0; 6]));
    assert!(!is_likely(&[10, 1, 10], &[0.5, 0.0, 0.5]));
}
