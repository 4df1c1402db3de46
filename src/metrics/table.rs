//! Tables of figures as plain text, for people.
//!
//! - A row for each loop and, if there are several, one for their total. A column in which every figure is
//!   zero is left out unless it is asked for, and so is a table without columns.
//! - A table that is wider than a terminal is continued below, with its labels repeated.
//! - Counts have separators (`1,234,567`), times have units and three digits (`12.3 ms`). Figures are aligned
//!   to the right, labels to the left; no line ends in a space.

use std::fmt;
use std::time::Duration;

/// The columns of a terminal.
pub(super) const TERMINAL: usize = 80;
/// The space between two columns.
const GAP: usize = 2;

/// A table with a row for each label.
pub(super) struct TextTable {
    /// The heading of the labels.
    title: &'static str,
    /// One per loop.
    labels: Vec<String>,
    columns: Vec<Column>,
}

/// A heading, and as many figures as the table has rows.
struct Column {
    cells: Vec<String>,
    width: usize,
}

impl Column {
    fn new(cells: Vec<String>) -> Column {
        let width = cells.iter().map(|cell| cell.chars().count()).max();
        Column {
            cells,
            width: width.unwrap_or(0),
        }
    }
}

impl TextTable {
    pub(super) fn new(title: &'static str, labels: Vec<String>) -> TextTable {
        TextTable {
            title,
            labels,
            columns: Vec::new(),
        }
    }

    /// Adds a column of counts, unless all of them are zero.
    pub(super) fn counts(&mut self, heading: &str, counts: impl IntoIterator<Item = u64>) {
        let counts: Vec<_> = counts.into_iter().collect();
        if counts.iter().any(|n| *n > 0) {
            self.all_counts(heading, counts);
        }
    }

    /// Adds a column of counts, even if all of them are zero.
    pub(super) fn all_counts(&mut self, heading: &str, counts: impl IntoIterator<Item = u64>) {
        let counts: Vec<_> = counts.into_iter().collect();
        let total = counts.iter().fold(0_u64, |sum, n| sum.saturating_add(*n));
        self.push(heading, counts.into_iter().chain([total]).map(count));
    }

    /// Adds a column of times, unless all of them are zero; `total` makes one of all.
    pub(super) fn times(
        &mut self,
        heading: &str,
        times: impl IntoIterator<Item = Duration>,
        total: fn(Duration, Duration) -> Duration,
    ) {
        let times: Vec<_> = times.into_iter().collect();
        let total = times.iter().copied().fold(Duration::ZERO, total);
        if !total.is_zero() {
            self.push(heading, times.into_iter().chain([total]).map(time));
        }
    }

    /// Adds a column of percentages with their mean, unless all of them are zero.
    pub(super) fn percents(&mut self, heading: &str, percents: impl IntoIterator<Item = u64>) {
        let percents: Vec<_> = percents.into_iter().collect();
        let sum: u64 = percents.iter().sum();
        if sum > 0 {
            let mean = sum / percents.len() as u64;
            let all = percents.into_iter().chain([mean]);
            self.push(heading, all.map(|percent| format!("{percent} %")));
        }
    }

    fn push(&mut self, heading: &str, figures: impl Iterator<Item = String>) {
        let cells = [heading.to_owned()].into_iter().chain(figures);
        self.columns
            .push(Column::new(cells.take(1 + self.rows()).collect()));
    }

    /// The number of rows: of several loops, one more for the total.
    fn rows(&self) -> usize {
        match self.labels.len() {
            1 => 1,
            loops => loops + 1,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The width of the table if it is not broken.
    pub(super) fn width(&self) -> usize {
        let columns = self.columns.iter().map(|column| GAP + column.width);
        self.label_column().width + columns.sum::<usize>()
    }

    fn label_column(&self) -> Column {
        let labels = [self.title]
            .into_iter()
            .chain(self.labels.iter().map(String::as_str));
        let cells = labels.chain(["total"]).map(str::to_owned);
        Column::new(cells.take(1 + self.rows()).collect())
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.label_column();
        let mut rest = &self.columns[..];
        let mut first = true;
        while !rest.is_empty() {
            let mut width = labels.width;
            let fits = rest.iter().take_while(|column| {
                width += GAP + column.width;
                width <= TERMINAL
            });
            let (band, others) = rest.split_at(fits.count().max(1));
            rest = others;
            for row in 0..=self.rows() {
                if !std::mem::take(&mut first) {
                    writeln!(f)?;
                }
                write!(f, "{:width$}", labels.cells[row], width = labels.width)?;
                for column in band {
                    let width = GAP + column.width;
                    write!(f, "{:>width$}", column.cells[row])?;
                }
            }
        }
        Ok(())
    }
}

/// A number with separators: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    Count(number).to_string()
}

/// A number and its noun, which takes an `s` unless it is one: `1 poll`, `2,000 polls`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    Counted(number, noun).to_string()
}

/// A duration with a unit and three digits: `12.3 ms`, `4 min 05 s`.
pub(crate) fn time(time: Duration) -> String {
    Time(time).to_string()
}

/// As [`count`], for a long text: it allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count(pub(crate) u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number @ 0..1_000 => write!(f, "{number}"),
            number => write!(f, "{},{:03}", Count(number / 1_000), number % 1_000),
        }
    }
}

/// As [`counted`], for a long text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a>(pub(crate) u64, pub(crate) &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", Count(self.0), self.1)
    }
}

/// As [`time`], for a long text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of more than five centuries, the last ones do not matter.
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        let (unit, name) = match nanos {
            0..1_000 => return write!(f, "{nanos} ns"),
            1_000..999_500 => (1_000, "µs"),
            999_500..999_500_000 => (1_000_000, "ms"),
            999_500_000..59_950_000_000 => (1_000_000_000, "s"),
            _ => {
                let seconds =
                    nanos / 1_000_000_000 + u64::from(nanos % 1_000_000_000 >= 500_000_000);
                let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
                return match hours {
                    0 => write!(f, "{minutes} min {:02} s", seconds % 60),
                    hours => write!(f, "{} h {minutes:02} min", Count(hours)),
                };
            }
        };
        let hundredths = (nanos * 100 + unit / 2) / unit;
        let tenths = (nanos * 10 + unit / 2) / unit;
        match () {
            () if hundredths < 1_000 => {
                write!(f, "{}.{:02} {name}", hundredths / 100, hundredths % 100)
            }
            () if tenths < 1_000 => write!(f, "{}.{} {name}", tenths / 10, tenths % 10),
            () => write!(f, "{} {name}", (nanos + unit / 2) / unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators_and_nouns_their_plural() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(0, "poll"), "0 polls");
        assert_eq!(counted(1, "poll"), "1 poll");
        assert_eq!(counted(2_000, "I/O event"), "2,000 I/O events");
    }

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_994, "9.99 µs"),
            (9_995, "10.0 µs"),
            (99_949, "99.9 µs"),
            (99_950, "100 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (12_345_678, "12.3 ms"),
            (999_500_000, "1.00 s"),
            (59_949_000_000, "59.9 s"),
            (60_000_000_000, "1 min 00 s"),
            (245_400_000_000, "4 min 05 s"),
            (3_600_000_000_000, "1 h 00 min"),
            (u64::MAX, "5,124,095 h 34 min"),
        ] {
            assert_eq!(time(Duration::from_nanos(nanos)), text, "{nanos}");
        }
        assert_eq!(time(Duration::MAX), "5,124,095 h 34 min");
        assert_eq!(time(Duration::from_millis(59_950)), "1 min 00 s");
    }

    #[test]
    fn a_table_leaves_out_what_is_zero_and_is_continued_below_if_it_is_wide() {
        let labels = || vec!["0".to_owned(), "1".to_owned()];
        let mut table = TextTable::new("loop", labels());
        table.counts("polls", [1, 1_000_000]);
        table.counts("nothing", [0, 0]);
        table.times(
            "busy",
            [Duration::ZERO, Duration::from_micros(5)],
            |a, b| a + b,
        );
        assert_eq!(
            table.to_string(),
            "loop       polls     busy\n\
             0              1     0 ns\n\
             1      1,000,000  5.00 µs\n\
             total  1,000,001  5.00 µs"
        );
        assert_eq!(table.width(), 25);

        let mut wide = TextTable::new("loop", vec!["7".to_owned()]);
        let heading = "x".repeat(36);
        for n in 1..=3 {
            wide.counts(&heading, [n]);
        }
        let (both, figures) = (format!("{heading}  {heading}"), " ".repeat(35));
        let expected = format!(
            "loop  {both}\n7     {figures}1  {figures}2\nloop  {heading}\n7     {figures}3"
        );
        assert_eq!(wide.to_string(), expected);
        assert!(TextTable::new("loop", labels()).is_empty());
    }
}
