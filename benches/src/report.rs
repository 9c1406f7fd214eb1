//! What was measured, for people and for programs.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;

/// One figure, and the limit beside it.
#[derive(Clone, Debug)]
pub struct Figure {
    pub bench: String,
    pub value: f64,
    pub unit: &'static str,
    pub limit: f64,
    pub limit_name: &'static str,
    /// `value / limit`: of throughput at most 1, of time at least 1, but for noise.
    pub ratio: f64,
}

impl Figure {
    /// The medians of neighbouring measurements: `(value, limit)` each.
    pub fn of(bench: String, unit: &'static str, limit_name: &'static str, pairs: &[(f64, f64)]) -> Self {
        let median = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = pairs.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Self {
            bench,
            value: median(|pair| pair.0),
            unit,
            limit: median(|pair| pair.1),
            limit_name,
            ratio: median(|pair| pair.0 / pair.1),
        }
    }

    /// As a line of JSON.
    pub fn json(&self) -> String {
        let Self { bench, value, unit, limit, limit_name, ratio } = self;
        json!({
            "bench": bench, "value": value, "unit": unit, "limit": limit, "limit_name": limit_name, "ratio": ratio,
        })
        .to_string()
    }
}

/// All figures in a table for people.
pub fn table(figures: &[Figure]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["bench", "value", "unit", "limit", "of the limit", "the limit is"]);
    for figure in figures {
        table.add_row([
            figure.bench.clone(),
            number(figure.value),
            figure.unit.into(),
            number(figure.limit),
            format!("{:.2}", figure.ratio),
            figure.limit_name.into(),
        ]);
    }
    for column in [1, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Three figures, and a separator at the thousands.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_made_of_medians() {
        let pairs = [(1.0, 10.0), (3.0, 10.0), (2.0, 100.0)];
        let figure = Figure::of("b".into(), "u", "l", &pairs);
        assert_eq!((figure.value, figure.limit, figure.ratio), (2.0, 10.0, 0.1));
        assert_eq!(
            figure.json(),
            r#"{"bench":"b","limit":10.0,"limit_name":"l","ratio":0.1,"unit":"u","value":2.0}"#
        );
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0.5, 99.0, 1234.4, 12_345_678.0].map(number), ["0.50", "99.00", "1,234", "12,345,678"]);
    }
}
