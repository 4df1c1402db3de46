//! What comes out: all figures as JSON, tables in Markdown, a picture.

mod markdown;
mod raw;
mod summary;
mod svg;

use std::io;

use crate::options::Options;
use crate::parent::{Cell, Conditions};

pub(crate) fn write(options: &Options, cells: &[Cell], conditions: &Conditions) -> io::Result<()> {
    let rows = summary::rows(cells);
    let tables = markdown::text(options, cells, &rows, conditions);
    print!("{tables}");
    std::fs::write(
        options.out.join("results.json"),
        raw::text(options, cells, conditions),
    )?;
    std::fs::write(options.out.join("results.md"), tables)?;
    std::fs::write(options.out.join("results.svg"), svg::text(&rows))?;
    eprintln!(
        "results.json, results.md and results.svg are in {}",
        options.out.display()
    );
    Ok(())
}
