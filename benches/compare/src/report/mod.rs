//! What comes out: all figures as JSON, tables in Markdown, a picture.

mod markdown;
mod raw;
mod summary;
mod svg;

use std::io;

use crate::options::Options;
use crate::parent::Cell;

pub(crate) fn write(options: &Options, cells: &[Cell]) -> io::Result<()> {
    let rows = summary::rows(cells);
    let tables = markdown::text(options, cells, &rows);
    print!("{tables}");
    std::fs::write(options.out.join("results.json"), raw::text(options, cells))?;
    std::fs::write(options.out.join("results.md"), tables)?;
    std::fs::write(options.out.join("results.svg"), svg::text(&rows))?;
    eprintln!(
        "results.json, results.md and results.svg are in {}",
        options.out.display()
    );
    Ok(())
}
