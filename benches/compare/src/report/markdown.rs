//! The tables: where loopgroup stands, uneven load, whole programs, all medians, what cannot run, and the
//! spread.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::summary::{Entry, Row};
use super::uneven;
use crate::catalogue::Section;
use crate::options::Options;
use crate::parent::{Cell, Conditions};
use crate::runtimes::{Runtime, drivers};
use crate::sys;

pub(crate) fn text(
    options: &Options,
    cells: &[Cell],
    rows: &[Row],
    conditions: &Conditions,
) -> String {
    let mut text = String::new();
    head(&mut text, options, conditions);
    let of = |section| -> Vec<&Row> { rows.iter().filter(|row| row.section == section).collect() };
    let (workloads, programs) = (of(Section::Workloads), of(Section::Programs));
    let uneven_load = of(Section::Uneven);
    if !workloads.is_empty() {
        standing(&mut text, &workloads);
    }
    if !uneven_load.is_empty() {
        uneven::tables(&mut text, &uneven_load);
    }
    if !programs.is_empty() {
        whole_programs(&mut text, &programs);
    }
    if !workloads.is_empty() {
        medians(&mut text, options, &workloads);
    }
    absent(&mut text, cells);
    spread(&mut text, rows);
    text
}

fn head(text: &mut String, options: &Options, conditions: &Conditions) {
    *text += "# loopgroup beside other runtimes\n\n";
    let versions: Vec<_> = sys::versions()
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    put(
        text,
        format_args!(
            "{}. {}. {}. Medians of {} interleaved rounds at scale {}, each measurement in a process of its own, {}{}.\n\n",
            sys::machine(),
            versions.join(", "),
            drivers(),
            options.rounds,
            options.scale,
            conditions.priority,
            if options.awake {
                "; spinners of the lowest priority kept the cores awake"
            } else {
                ""
            },
        ),
    );
    quiet(text, conditions);
}

/// How quiet the machine was.
fn quiet(text: &mut String, conditions: &Conditions) {
    put(
        text,
        format_args!(
            "{} of {} samples were repeated because something else was running; {} were kept although they \
             were disturbed, each the quietest of its attempts.\n\n",
            conditions.repeated, conditions.samples, conditions.disturbed,
        ),
    );
}

/// The same programs on loopgroup and on what a user would pick instead.
fn whole_programs(text: &mut String, rows: &[&Row]) {
    *text += "## Whole programs\n\nEach beside what a user would pick instead: tokio's runtime with two workers for \
              axum, `redis-server` for the cache. loopgroup has two loops for axum, with a listener each \
              (`reuse_port`) or behind a boss, and one that serves for the cache. Clients and \
              server share the \
              cores. Ratios above 1 say how much worse loopgroup is.\n\n\
              | | unit | loopgroup | boss | tokio-multi or redis | loopgroup ÷ it | boss ÷ it | spreads |\n\
              |---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let (ours, boss) = (
            row.entry(Runtime::Loopgroup),
            row.entry(Runtime::LoopgroupBoss),
        );
        let theirs = row.best_peer(); // there is one
        let median = |entry: Option<&Entry>| entry.map_or("–".into(), |it| number(it.median));
        let entries = [ours, boss, theirs].into_iter().flatten();
        let spreads: Vec<_> = entries.map(|it| format!("{:.2}", it.spread())).collect();
        put(
            text,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                row.figure.title,
                row.figure.unit,
                median(ours),
                median(boss),
                median(theirs),
                ratio(row.loss_of(ours, theirs)),
                ratio(row.loss_of(boss, theirs)),
                spreads.join(" "),
            ),
        );
    }
    text.push('\n');
}

/// Where loopgroup stands against the best of the others.
fn standing(text: &mut String, rows: &[&Row]) {
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

fn medians(text: &mut String, options: &Options, rows: &[&Row]) {
    let runtimes = || {
        options
            .runtimes
            .iter()
            .filter(|it| !it.is_program() && !it.is_placement())
    };
    *text += "## All medians\n\nA star: fed through a channel, for want of a way of its own to be given work from outside.\n\n| | unit |";
    for runtime in runtimes() {
        put(text, format_args!(" {} |", runtime.name()));
    }
    *text += "\n|---|---|";
    *text += &"---|".repeat(runtimes().count());
    text.push('\n');
    for row in rows {
        put(
            text,
            format_args!("| {} | {} |", row.figure.title, row.figure.unit),
        );
        for &runtime in runtimes() {
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
                "- {}: cannot run: not in this build (`--features {}`)\n",
                runtime.name(),
                runtime.feature().unwrap_or_default(),
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
pub(super) fn number(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        size if size < 9.995 => format!("{number:.2}"),
        size if size < 99.95 => format!("{number:.1}"),
        size if size < 9_999.5 => format!("{number:.0}"),
        size if size < 999_950.0 => format!("{:.1}k", number / 1e3),
        _ => format!("{:.2}M", number / 1e6),
    }
}

pub(super) fn ratio(ratio: Option<f64>) -> String {
    match ratio {
        None => "–".into(),
        Some(ratio) if ratio >= 1.1 => format!("**{ratio:.2}**"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

pub(super) fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a string takes everything");
}
