use std::fmt::Write as _;

use crate::{
    contestant::Contestant,
    results::{Case, Metric, Results},
};

/// Everything, a table for each case, for a terminal.
pub(crate) fn text(results: &Results) -> String {
    let tables = results.cases().map(|case| format!("{case}\n\n{}", table(results, case)));
    tables.collect::<Vec<_>>().join("\n")
}

/// A case: a row for each contestant, with ratios to raw nodes where there are such.
pub(crate) fn table(results: &Results, case: Case) -> String {
    let metrics = results.metrics(case);
    let has_raw = results.contestants(case).any(|contestant| contestant == Contestant::Raw);
    let mut rows = vec![vec![String::new()]];
    for metric in &metrics {
        rows[0].push(metric.name().to_owned());
        if has_raw && has_ratio(*metric) {
            rows[0].push("of raw".to_owned());
        }
    }
    for contestant in results.contestants(case) {
        let mut row = vec![contestant.to_string()];
        for &metric in &metrics {
            let cell = |value: Option<f64>| value.map_or_else(String::new, number);
            row.push(cell(results.median(case, contestant, metric)));
            if has_raw && has_ratio(metric) {
                row.push(cell(results.ratio(case, contestant, Contestant::Raw, metric)));
            }
        }
        rows.push(row);
    }
    markdown(&rows)
}

/// The first row is the head. Columns are as wide as they need to be, so that the text reads well, too.
pub(crate) fn markdown(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<_> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String does not fail.
            let _ = if column == 0 {
                write!(text, "| {cell:width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let (dashes, end) = if column == 0 { (width + 2, "") } else { (width + 1, ":") };
                let _ = write!(text, "|{}{end}", "-".repeat(dashes));
            }
            text.push_str("|\n");
        }
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
    let (whole, fraction) =
        text.split_once('.').map_or((&text[..], None), |(whole, part)| (whole, Some(part)));
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
        let cases = [
            (0.0, "0"),
            (0.08, "0.08"),
            (0.004, "0.0040"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (1234.5, "1,234"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-1_234_567.0), "-1,234,567");
    }

    #[test]
    fn a_table_is_markdown_that_lines_up() {
        let rows = [["", "cycles/s"], ["raw", "1,000"], ["zklock, fair", "5"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let expected = "\
|              | cycles/s |
|--------------|---------:|
| raw          |    1,000 |
| zklock, fair |        5 |
";
        assert_eq!(markdown(&rows), expected);
    }
}
