//! The tables of the crate's README: the rows that a user asks for first, beside tokio and the best of the
//! others.

use super::markdown::{number, put, ratio};
use super::summary::{Entry, Row};
use crate::catalogue::Section;
use crate::runtimes::Runtime;

/// What the README calls a row, and the title of the row.
const WORKLOADS: &[(&str, &str)] = &[
    ("`execute` from another thread", "W1 execute from outside"),
    ("`execute` from four threads", "W6 execute from 4 threads"),
    (
        "`spawn_detached` from another thread",
        "W1 spawn from outside, detached",
    ),
    ("`spawn` from another thread", "W1 spawn from outside"),
    (
        "the same, with mimalloc for the Rust runtimes",
        "W1 spawn from outside, mimalloc",
    ),
    ("spawn on the loop, detached", "W2 spawn at home, detached"),
    ("spawn on the loop, joined", "W2 spawn at home, joined"),
    ("yield", "W3 yield, 1,000 tasks"),
    ("ping-pong on one loop", "W4 ping-pong on one loop"),
    (
        "ping-pong between parked loops on two cores",
        "W5 ping-pong across loops, on two cores, p50",
    ),
    (
        "timer created, armed, dropped",
        "W7 timer made, armed, dropped",
    ),
    ("echo, 1 connection", "W8 echo, 1 × 64 B"),
    ("echo, 64 connections", "W8 echo, 64 × 64 B"),
    ("echo, 1,000 connections", "W8 echo, 1,000 × 64 B"),
    ("hyper, 64 connections", "W9 hyper, 64 connections"),
    (
        "connections accepted, served and reset",
        "W10 connect, echo, reset",
    ),
    ("heap of an idle connection", "W10 idle connection, heap"),
    ("heap of a waiting task", "W11 task that waits, heap"),
];

/// The tables, as far as their rows were measured.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "| workload | unit | loopgroup | tokio, current thread | factor | best of the others | factor |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (name, title) in WORKLOADS {
        if let Some(row) = rows.iter().find(|row| row.figure.title == *title) {
            workload(&mut text, name, row);
        }
    }
    text += "\n| whole program | requests/s | p50 | p99 | server CPU per request |\n|---|---|---|---|---|\n";
    let programs: Vec<&Row> = rows
        .iter()
        .filter(|row| row.section == Section::Programs)
        .collect();
    for figures in programs.chunks_exact(4) {
        program(&mut text, figures);
    }
    text
}

fn workload(text: &mut String, name: &str, row: &Row) {
    let Some(ours) = row.entry(Runtime::Loopgroup) else {
        return;
    };
    let tokio = row.entry(Runtime::TokioCurrent);
    let best = row.best_peer();
    let shown = |entry: Option<&Entry>| entry.map_or("–".into(), |it| number(it.median));
    let best_name = best.map_or("", |best| best.runtime.name());
    put(
        text,
        format_args!(
            "| {name} | {} | {} | {} | {} | {best_name} {} | {} |\n",
            row.figure.unit,
            number(ours.median),
            shown(tokio),
            ratio(row.loss(tokio)),
            shown(best),
            ratio(row.loss(best)),
        ),
    );
}

/// The four figures of a program, as factors; behind the boss in brackets.
fn program(text: &mut String, figures: &[&Row]) {
    let title = figures[0].figure.title;
    let name = title.rsplit_once(", ").map_or(title, |(name, _)| name);
    let factors: Vec<String> = figures
        .iter()
        .map(|row| {
            let theirs = row.best_peer();
            let boss = row.entry(Runtime::LoopgroupBoss);
            let ours = ratio(row.loss(theirs));
            match boss {
                Some(boss) => format!("{ours} ({})", ratio(row.loss_of(Some(boss), theirs))),
                None => ours,
            }
        })
        .collect();
    put(text, format_args!("| {name} | {} |\n", factors.join(" | ")));
}
