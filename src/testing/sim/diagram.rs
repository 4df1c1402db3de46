//! The last packets of a run as a picture: hosts from left to right, time from top to bottom.
//!
//! - Every event has a line of its own, so that a crowd of them can be read; times are written beside them,
//!   and the distances between lines say nothing.
//! - A packet that is lost ends in a cross before it arrives.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::sim::{HostId, NetEvent, What};
use crate::sync::Arc;

const LEFT: usize = 120;
const COLUMN: usize = 220;
const TOP: usize = 48;
const ROW: usize = 22;

/// Draws the events; only hosts that have any are in it.
pub(super) fn diagram(events: &[NetEvent], names: &[Arc<str>]) -> String {
    let mut places: BTreeMap<HostId, usize> = BTreeMap::new();
    for event in events {
        places.entry(event.from).or_default();
        places.entry(event.to).or_default();
    }
    for (place, x) in places.values_mut().enumerate() {
        *x = LEFT + COLUMN / 2 + place * COLUMN;
    }
    let (width, height) = (
        LEFT + places.len().max(1) * COLUMN,
        TOP + (events.len() + 1) * ROW,
    );
    let mut svg = String::new();
    // A `String` takes whatever is written to it.
    let _ = draw(&mut svg, events, names, &places, width, height);
    svg
}

fn draw(
    svg: &mut String,
    events: &[NetEvent],
    names: &[Arc<str>],
    places: &BTreeMap<HostId, usize>,
    width: usize,
    height: usize,
) -> std::fmt::Result {
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for (host, x) in places {
        let name = names.get(host.0 as usize).map_or("?", |name| &**name);
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-weight=\"bold\">{}</text>\n\
             <line x1=\"{x}\" y1=\"32\" x2=\"{x}\" y2=\"{height}\" stroke=\"#bbb\"/>",
            escaped(name)
        )?;
    }
    for (row, event) in events.iter().enumerate() {
        let y = TOP + row * ROW;
        let (from, to) = (places[&event.from], places[&event.to]);
        writeln!(
            svg,
            "<text x=\"8\" y=\"{}\" fill=\"#666\">{:.6} s</text>",
            y + 4,
            event.at.as_secs_f64()
        )?;
        draw_event(svg, event, from, to, y)?;
    }
    svg.write_str("</svg>\n")
}

fn draw_event(
    svg: &mut String,
    event: &NetEvent,
    from: usize,
    to: usize,
    y: usize,
) -> std::fmt::Result {
    let colour = match event.what {
        What::Lost(_) | What::Overflow(_) => "#c0392b",
        What::Rst | What::Refused | What::PortClosed | What::BacklogFull => "#d35400",
        What::Again | What::Duplicate(_) => "#8e44ad",
        _ => "#2c3e50",
    };
    let text = escaped(&event.what.to_string());
    if from == to {
        return writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" fill=\"{colour}\">{text}</text>",
            from + 8,
            y + 4
        );
    }
    let is_lost = matches!(event.what, What::Lost(_));
    // Half of the way, if it is lost.
    let end = if is_lost { (from + to) / 2 } else { to };
    writeln!(
        svg,
        "<line x1=\"{from}\" y1=\"{y}\" x2=\"{end}\" y2=\"{}\" stroke=\"{colour}\"/>",
        y + 6
    )?;
    let (tip, back) = (end, if to > from { -7_i64 } else { 7 });
    match is_lost {
        true => writeln!(
            svg,
            "<path d=\"M{} {} l8 8 m0 -8 l-8 8\" stroke=\"{colour}\"/>",
            tip as i64 - 4,
            y + 2
        )?,
        false => writeln!(
            svg,
            "<path d=\"M{tip} {} l{back} -4 l0 7 z\" fill=\"{colour}\"/>",
            y + 6
        )?,
    }
    let middle = (from + to) / 2;
    writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\">{text}</text>",
        y - 1
    )
}

/// A text as it stands between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
