//! What comes out: all figures as JSON, tables in Markdown, a picture.

mod markdown;
mod raw;
mod readme;
mod summary;
mod svg;
mod uneven;

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
    std::fs::write(options.out.join("readme.md"), readme::text(&rows))?;
    eprintln!(
        "results.json, results.md, results.svg and readme.md are in {}",
        options.out.display()
    );
    Ok(())
}
