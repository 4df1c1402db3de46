//! The tables of load that is uneven: one for each case, with a row for each of those who take part.

use super::markdown::{number, put, ratio};
use super::summary::Row;

/// What a case measures.
const FIGURES: usize = 4;

pub(super) fn tables(text: &mut String, rows: &[&Row]) {
    *text += "## Uneven load\n\nloopgroup moves connections (`serve_turns` with `rebalance`), \
              loopgroup-unmoved does not, loopgroup-pinned does and has a core for each loop, and \
              loopgroup-even is `serve` with the hot connections on \
              both loops. loopgroup-elastic has one loop or two, as it needs. The others have two \
              loops, workers or threads, and all share the cores with their clients. In brackets: \
              how much worse loopgroup is, above 1.\n\n";
    for figures in rows.chunks_exact(FIGURES) {
        table(text, figures);
    }
}

/// The figures of one case.
fn table(text: &mut String, figures: &[&Row]) {
    let title = figures[0].figure.title;
    let name = title.rsplit_once(", ").map_or(title, |(name, _)| name);
    put(text, format_args!("| {name} |"));
    for row in figures {
        let what = row.figure.title.rsplit_once(", ").map_or("", |(_, it)| it);
        put(text, format_args!(" {what}, {} |", row.figure.unit));
    }
    *text += " spreads |\n|---|---|---|---|---|---|\n";
    for one in &figures[0].entries {
        put(text, format_args!("| {} |", one.runtime.name()));
        let mut spreads = Vec::new();
        for row in figures {
            let Some(entry) = row.entry(one.runtime) else {
                *text += " – |";
                continue;
            };
            let (median, loss) = (number(entry.median), ratio(row.loss(Some(entry))));
            put(text, format_args!(" {median} ({loss}) |"));
            spreads.push(format!("{:.2}", entry.spread()));
        }
        put(text, format_args!(" {} |\n", spreads.join(" ")));
    }
    text.push('\n');
}
