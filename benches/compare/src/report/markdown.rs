//! The tables: where loopgroup stands, all medians, what cannot run, and the spread.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::summary::{Entry, Row};
use crate::options::Options;
use crate::parent::Cell;
use crate::runtimes::{Runtime, drivers};
use crate::sys;

pub(crate) fn text(options: &Options, cells: &[Cell], rows: &[Row]) -> String {
    let mut text = String::new();
    head(&mut text, options);
    standing(&mut text, rows);
    medians(&mut text, options, rows);
    absent(&mut text, cells);
    spread(&mut text, rows);
    text
}

fn head(text: &mut String, options: &Options) {
    *text += "# loopgroup beside other runtimes\n\n";
    let versions: Vec<_> = sys::versions()
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    put(
        text,
        format_args!(
            "{}. {}. {}. Medians of {} interleaved rounds at scale {}, each measurement in a process of its own{}.\n\n",
            sys::machine(),
            versions.join(", "),
            drivers(),
            options.rounds,
            options.scale,
            if options.awake {
                "; spinners of the lowest priority kept the cores awake"
            } else {
                ""
            },
        ),
    );
}

/// Where loopgroup stands against the best of the others.
fn standing(text: &mut String, rows: &[Row]) {
    *text += "## Where loopgroup stands\n\nRatios above 1 say how much worse loopgroup is, bold from 1.1 on; \
              the spread is its slowest round over its fastest.\n\n\
              | | unit | loopgroup | spread | floor | best peer | ÷ best peer | ÷ floor | ÷ tokio-current |\n\
              |---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let Some(ours) = row.entry(Runtime::Loopgroup) else {
            continue;
        };
        let floor = row.entry(Runtime::Floor);
        let best = row.best_peer();
        put(
            text,
            format_args!(
                "| {} | {} | {} | {:.2} | {} | {} | {} | {} | {} |\n",
                row.figure.title,
                row.figure.unit,
                number(ours.median),
                ours.spread(),
                floor.map_or("–".into(), |floor| number(floor.median)),
                best.map_or("–".into(), |best| format!(
                    "{} {}",
                    best.runtime.name(),
                    shown(best)
                )),
                ratio(row.loss(best)),
                ratio(row.loss(floor)),
                ratio(row.loss(row.entry(Runtime::TokioCurrent))),
            ),
        );
    }
    text.push('\n');
}

fn medians(text: &mut String, options: &Options, rows: &[Row]) {
    *text += "## All medians\n\nA star: fed through a channel, for want of a way of its own to be given work from outside.\n\n| | unit |";
    for runtime in &options.runtimes {
        put(text, format_args!(" {} |", runtime.name()));
    }
    *text += "\n|---|---|";
    *text += &"---|".repeat(options.runtimes.len());
    text.push('\n');
    for row in rows {
        put(
            text,
            format_args!("| {} | {} |", row.figure.title, row.figure.unit),
        );
        for &runtime in &options.runtimes {
            let median = row.entry(runtime).map(shown);
            put(
                text,
                format_args!(" {} |", median.as_deref().unwrap_or("–")),
            );
        }
        text.push('\n');
    }
    text.push('\n');
}

/// What could not be measured, by reason, or not as it was asked for.
fn absent(text: &mut String, cells: &[Cell]) {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for cell in cells {
        if let Some(reason) = &cell.cannot {
            let workloads = reasons.entry((cell.runtime.name(), reason)).or_default();
            if !workloads.contains(&cell.case.family()) {
                workloads.push(cell.case.family());
            }
        }
    }
    *text += "## Cannot run\n\n";
    for runtime in Runtime::ALL.iter().filter(|it| !it.is_built()) {
        put(
            text,
            format_args!(
                "- {}: cannot run: not in this build (`--features full`)\n",
                runtime.name()
            ),
        );
    }
    for ((runtime, reason), workloads) in &reasons {
        put(
            text,
            format_args!(
                "- {runtime}, {}: cannot run: {reason}\n",
                workloads.join(", ").to_uppercase()
            ),
        );
    }
    for cell in cells {
        if let Some(note) = &cell.note {
            let (runtime, workload) = (cell.runtime.name(), cell.case.family().to_uppercase());
            put(text, format_args!("- {runtime}, {workload}: {note}\n"));
        }
    }
    if text.ends_with("\n\n") {
        *text += "Nothing: all that was asked for was measured.\n";
    }
    text.push('\n');
}

fn spread(text: &mut String, rows: &[Row]) {
    *text +=
        "## Spread\n\n| | runtime | median | min | max | max ÷ min |\n|---|---|---|---|---|---|\n";
    for row in rows {
        for entry in &row.entries {
            let Entry {
                runtime,
                median,
                min,
                max,
                ..
            } = *entry;
            put(
                text,
                format_args!(
                    "| {} | {} | {} | {} | {} | {:.2} |\n",
                    row.figure.title,
                    runtime.name(),
                    number(median),
                    number(min),
                    number(max),
                    entry.spread()
                ),
            );
        }
    }
}

/// A median, with a star if the runtime had to be fed.
fn shown(entry: &Entry) -> String {
    let star = if entry.fed { "*" } else { "" };
    format!("{}{star}", number(entry.median))
}

/// Three digits or so: more would be noise.
pub(crate) fn number(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        size if size < 9.995 => format!("{number:.2}"),
        size if size < 99.95 => format!("{number:.1}"),
        size if size < 9_999.5 => format!("{number:.0}"),
        size if size < 999_950.0 => format!("{:.1}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        None => "–".into(),
        Some(ratio) if ratio >= 1.1 => format!("**{ratio:.2}**"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a string takes everything");
}
