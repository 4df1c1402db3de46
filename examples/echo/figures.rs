//! Figures for people: separators, units, and columns that are aligned.

use std::time::Duration;

/// A number with separators: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A number and its noun: `1 worker`, `2 workers`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number as u64))
}

/// A duration with three digits and a unit: `12.3 ms`.
pub(crate) fn time(time: Duration) -> String {
    let (value, unit) = match time.as_nanos() as f64 {
        nanos @ ..999.5 => (nanos, "ns"),
        nanos @ ..999.5e3 => (nanos / 1e3, "µs"),
        nanos @ ..999.5e6 => (nanos / 1e6, "ms"),
        nanos => (nanos / 1e9, "s"),
    };
    let decimals = if unit == "ns" || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

/// Prints rows of the same length: labels to the left, figures to the right, each as wide as its column.
pub(crate) fn print_table<const N: usize>(rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        print!("{:1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            print!("  {cell:>width$}");
        }
        println!();
    }
}
