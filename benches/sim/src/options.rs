//! The command line.

use std::path::PathBuf;

const USAGE: &str = "usage: sim [--hosts 10,50] [--seconds 60] [--runs 3] [--sides turmoil,loopgroup] \
                     [--csv FILE] [--page DIR]";

pub(crate) struct Options {
    pub(crate) hosts: Vec<usize>,
    /// Virtual ones.
    pub(crate) seconds: u64,
    pub(crate) runs: usize,
    pub(crate) sides: Vec<String>,
    pub(crate) csv: Option<PathBuf>,
    pub(crate) page: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            hosts: vec![10, 50],
            seconds: 60,
            runs: 3,
            sides: crate::SIDES.map(|(side, _)| side.to_string()).into(),
            csv: None,
            page: None,
        }
    }
}

impl Options {
    pub(crate) fn from_args(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        while let Some(name) = args.next() {
            let value = args.next().ok_or(USAGE)?;
            match &*name {
                "--hosts" => {
                    options.hosts = value.split(',').map(number).collect::<Result<_, _>>()?
                }
                "--seconds" => options.seconds = number(&value)? as u64,
                "--runs" => options.runs = number(&value)?,
                "--sides" => options.sides = value.split(',').map(str::to_string).collect(),
                "--csv" => options.csv = Some(value.into()),
                "--page" => options.page = Some(value.into()),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{text} is not a number of something\n{USAGE}")),
        Ok(number) => Ok(number),
    }
}
