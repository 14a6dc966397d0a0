use std::fmt::Write as _;

use crate::{
    contestant::Contestant,
    results::{Case, Metric, Results},
};

/// Everything, a table for each case.
pub(crate) fn tables(results: &Results) -> String {
    results.cases().map(|case| table(results, case)).collect()
}

fn table(results: &Results, case: Case) -> String {
    let metrics = results.metrics(case);
    let mut text = format!("\n{}: {}, {}\n\n| |", case.workload, case.size, case.setup);
    let mut rule = String::from("|---|");
    for metric in &metrics {
        let _ = write!(text, " {} |", metric.name());
        rule.push_str("--:|");
        if has_ratio(*metric) {
            text.push_str(" of raw |");
            rule.push_str("--:|");
        }
    }
    let _ = writeln!(text, "\n{rule}");
    for contestant in results.contestants(case) {
        let _ = write!(text, "| {contestant} |");
        for &metric in &metrics {
            let cell = |value: Option<f64>| value.map_or_else(String::new, number);
            let _ = write!(text, " {} |", cell(results.median(case, contestant, metric)));
            if has_ratio(metric) {
                let _ = write!(text, " {} |", cell(results.ratio(case, contestant, Contestant::Raw, metric)));
            }
        }
        text.push('\n');
    }
    text
}

fn has_ratio(metric: Metric) -> bool {
    matches!(metric, Metric::CyclesPerSecond | Metric::IdleP50)
}

/// Three digits that count, and thousands set apart.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        value if value < 0.01 => 4,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').map_or((&text[..], None), |(w, f)| (w, Some(f)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let cases = [(0.0, "0"), (0.08, "0.08"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-1_234_567.0), "-1,234,567");
    }
}
