//! CPU time by hosts, both axes by powers of ten: a cost that grows with the messages is a line of slope one.

use std::fmt::Write;

use crate::page::SECONDS;
use crate::report::{Report, median};

/// Of the picture, and of a power of ten.
const SIZE: [f64; 2] = [670.0, 440.0];
const DECADE: [f64; 2] = [230.0, 75.0];
/// What is at the left and at the bottom: 10^0.9 hosts, 10^-3 seconds.
const ORIGIN: [f64; 2] = [0.9, -3.0];
const CORNER: [f64; 2] = [70.0, 390.0];
const COLOURS: [(&str, &str); 2] = [("turmoil", "#d35400"), ("loopgroup", "#2471a3")];

pub(crate) fn svg(report: &Report) -> String {
    let mut svg = String::new();
    // A `String` takes whatever is written to it.
    let _ = draw(&mut svg, report);
    svg
}

fn draw(svg: &mut String, report: &Report) -> std::fmt::Result {
    let [width, height] = SIZE;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"22\" font-weight=\"bold\">CPU seconds for {SECONDS} virtual seconds</text>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">hosts</text>",
        CORNER[0],
        CORNER[0] + DECADE[0],
        height - 10.0
    )?;
    for hosts in [10, 20, 50, 100, 200, 500, 1000] {
        let [x, _] = place(hosts as f64, 1.0);
        writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"40\" x2=\"{x:.1}\" y2=\"{y}\" stroke=\"#eee\"/>\n\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{hosts}</text>",
            CORNER[1] + 18.0,
            y = CORNER[1]
        )?;
    }
    for power in -3..=1 {
        let [_, y] = place(10.0, 10_f64.powi(power));
        writeln!(
            svg,
            "<line x1=\"{}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            CORNER[0],
            width - 100.0,
            CORNER[0] - 8.0,
            y + 4.0,
            10_f64.powi(power)
        )?;
    }
    COLOURS
        .into_iter()
        .try_for_each(|(side, colour)| draw_side(svg, report, side, colour))?;
    svg.write_str("</svg>\n")
}

fn draw_side(svg: &mut String, report: &Report, side: &str, colour: &str) -> std::fmt::Result {
    let loads = report.loads().into_iter().filter(|load| load.0 == SECONDS);
    let points: Vec<_> = loads
        .filter_map(|load| Some((load.1, median(&report.runs(side, load)?.cpu))))
        .map(|(hosts, cpu)| place(hosts as f64, cpu))
        .collect();
    let path: Vec<_> = points
        .iter()
        .map(|[x, y]| format!("{x:.1},{y:.1}"))
        .collect();
    writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.join(" ")
    )?;
    for [x, y] in &points {
        writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
        )?;
    }
    match points.last() {
        Some([x, y]) => writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{side}</text>",
            x + 9.0,
            y - 6.0
        ),
        None => Ok(()),
    }
}

fn place(hosts: f64, seconds: f64) -> [f64; 2] {
    [
        CORNER[0] + (hosts.log10() - ORIGIN[0]) * DECADE[0],
        CORNER[1] - (seconds.log10() - ORIGIN[1]) * DECADE[1],
    ]
}
