//! The picture: a panel per headline figure, a bar per runtime, the best at the top.
//!
//! - Bars are linear and start at zero. One that is far longer than loopgroup's is cut, and says so.
//! - Colours come from a style sheet that knows light and dark; loopgroup is the one that stands out,
//!   the floor is pale, since nobody can use it.

use std::fmt::Write;

use super::markdown::number;
use super::summary::{Entry, Row};
use crate::catalogue::Better;
use crate::runtimes::Runtime;

const COLUMNS: usize = 3;
const PANEL_WIDTH: f64 = 400.0;
const LABEL_WIDTH: f64 = 104.0;
const BAR_WIDTH: f64 = 210.0;
const BAR_HEIGHT: f64 = 12.0;
const LINE: f64 = 16.0;
const TITLE: f64 = 42.0;
const MARGIN: f64 = 20.0;
const HEAD: f64 = 64.0;

/// A bar is cut when it is so many times as long as loopgroup's, or as the best one.
const CUT: f64 = 6.0;

const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.head { font-size: 20px; font-weight: 600 } .title { font-weight: 600 } .small { fill: #57606a }
.page { fill: #ffffff } .peer { fill: #8c959f } .floor { fill: #d0d7de } .ours { fill: #0969da }
.us { font-weight: 600; fill: #0969da } .cut { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #8b949e } .page { fill: #0d1117 } .peer { fill: #6e7681 }
.floor { fill: #30363d } .ours { fill: #4493f8 } .us { fill: #4493f8 } .cut { fill: #0d1117 }
}
";

pub(crate) fn text(rows: &[Row]) -> String {
    let panels: Vec<&Row> = rows
        .iter()
        .filter(|row| row.figure.headline && !row.entries.is_empty())
        .collect();
    let mut body = String::new();
    let mut top = HEAD;
    for line in panels.chunks(COLUMNS) {
        for (column, row) in line.iter().enumerate() {
            panel(&mut body, row, MARGIN + column as f64 * PANEL_WIDTH, top);
        }
        let tallest = line.iter().map(|row| row.entries.len()).max().unwrap_or(0);
        top += TITLE + tallest as f64 * LINE + MARGIN;
    }
    let width = COLUMNS as f64 * PANEL_WIDTH + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {top}\" width=\"{width}\" height=\"{top}\">\n\
         <style>\n{STYLE}</style>\n<rect class=\"page\" width=\"{width}\" height=\"{top}\"/>\n\
         <text class=\"head\" x=\"{MARGIN}\" y=\"32\">loopgroup beside other runtimes</text>\n\
         <text class=\"small\" x=\"{MARGIN}\" y=\"50\">medians; the best is at the top of each panel; \
         the floor is hand-written code without a runtime; cut bars end in a gap</text>\n{body}</svg>\n"
    )
}

fn panel(body: &mut String, row: &Row, left: f64, top: f64) {
    let better = match row.figure.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    put(
        body,
        format_args!(
            "<text class=\"title\" x=\"{left}\" y=\"{}\">{}</text>\n\
         <text class=\"small\" x=\"{left}\" y=\"{}\">{}, {better}</text>\n",
            top + 14.0,
            escape(row.figure.title),
            top + 30.0,
            row.figure.unit,
        ),
    );
    let mut entries = row.entries.clone();
    entries.sort_by(|one, other| match row.figure.better {
        Better::Lower => one.median.total_cmp(&other.median),
        Better::Higher => other.median.total_cmp(&one.median),
    });
    let longest = longest(row, &entries);
    for (line, entry) in entries.iter().enumerate() {
        bar(body, entry, longest, left, top + TITLE + line as f64 * LINE);
    }
}

/// What the full width stands for.
fn longest(row: &Row, entries: &[Entry]) -> f64 {
    let best = entries.first().map_or(0.0, |entry| entry.median);
    let ours = row
        .entry(Runtime::Loopgroup)
        .map_or(best, |entry| entry.median);
    let all = entries.iter().map(|entry| entry.median).fold(0.0, f64::max);
    match row.figure.better {
        Better::Lower => all.min(ours.max(best) * CUT),
        Better::Higher => all,
    }
}

fn bar(body: &mut String, entry: &Entry, longest: f64, left: f64, top: f64) {
    let (class, label) = match entry.runtime {
        Runtime::Loopgroup | Runtime::LoopgroupSpin => ("ours", " class=\"us\""),
        Runtime::Floor | Runtime::FloorSpin => ("floor", " class=\"small\""),
        _ => ("peer", ""),
    };
    let part = if longest > 0.0 {
        entry.median / longest
    } else {
        0.0
    };
    let width = (part.clamp(0.0, 1.0) * BAR_WIDTH).max(1.0);
    let start = left + LABEL_WIDTH;
    let base = top + BAR_HEIGHT - 2.0;
    put(
        body,
        format_args!(
            "<text{label} text-anchor=\"end\" x=\"{:.1}\" y=\"{base:.1}\">{}</text>\
         <rect class=\"{class}\" x=\"{start:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\"/>",
            start - 6.0,
            entry.runtime.name(),
        ),
    );
    if part > 1.0 {
        let gap = start + width - 14.0;
        put(
            body,
            format_args!(
                "<rect class=\"cut\" x=\"{gap:.1}\" y=\"{top:.1}\" width=\"4\" height=\"{BAR_HEIGHT}\"/>"
            ),
        );
    }
    put(
        body,
        format_args!(
            "<text{label} x=\"{:.1}\" y=\"{base:.1}\">{}</text>\n",
            start + width + 5.0,
            number(entry.median),
        ),
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    text.write_fmt(piece).expect("a string takes everything");
}
