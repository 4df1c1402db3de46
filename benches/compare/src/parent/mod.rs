//! The parent: runs every case on every runtime, round by round, and reports.
//!
//! - One child at a time, so that measurements do not disturb each other.
//! - Rounds are interleaved and the order of runtimes rotates: what drifts, drifts for all.

pub(crate) mod awake;
mod netty;
mod process;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Map, Value};

use crate::catalogue::{CASES, Case, Who};
use crate::options::Options;
use crate::report;
use crate::runtimes::Runtime;
use awake::Awake;
use process::{Answer, Launcher};

/// All rounds of a case on a runtime.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) case: &'static Case,
    pub(crate) runtime: Runtime,
    /// By round: the figures that the child printed.
    pub(crate) rounds: Vec<Map<String, Value>>,
    /// What the child said about them.
    pub(crate) note: Option<String>,
    /// Why there are no more rounds.
    pub(crate) cannot: Option<String>,
}

impl Cell {
    /// The figure of that name, of each round.
    pub(crate) fn samples(&self, key: &str) -> Vec<f64> {
        let number = |round: &Map<String, Value>| round.get(key)?.as_f64();
        self.rounds.iter().filter_map(number).collect()
    }
}

pub(crate) fn main(options: &Options) -> ExitCode {
    let mut cells = plan(options);
    let launcher = match Launcher::new(options) {
        Ok(launcher) => launcher,
        Err(error) => {
            eprintln!("{}: {error}", options.out.display());
            return ExitCode::FAILURE;
        }
    };
    let awake = options.awake.then(Awake::start).transpose();
    let _awake = match awake {
        Ok(awake) => awake,
        Err(error) => {
            eprintln!("--awake: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut progress = Progress::new(cells.len() * options.rounds);
    for round in 0..options.rounds {
        for group in cells.chunk_by_mut(|one, other| std::ptr::eq(one.case, other.case)) {
            let len = group.len();
            for turn in 0..len {
                let cell = &mut group[(turn + round) % len];
                progress.step(round, cell);
                if cell.cannot.is_none() {
                    match launcher.measure(cell.case, cell.runtime) {
                        Ok(Answer { figures, note }) => {
                            cell.rounds.push(figures);
                            cell.note = note;
                        }
                        Err(reason) => cell.cannot = Some(reason),
                    }
                }
            }
        }
    }
    progress.done();
    match report::write(options, &cells) {
        Ok(()) => judge(&cells),
        Err(error) => {
            eprintln!("{}: {error}", options.out.display());
            ExitCode::FAILURE
        }
    }
}

/// Peers may have their reasons; what loopgroup cannot run is a failure.
fn judge(cells: &[Cell]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for cell in cells
        .iter()
        .filter(|cell| cell.runtime == Runtime::Loopgroup)
    {
        if let Some(reason) = &cell.cannot {
            eprintln!("{} on loopgroup: {reason}", cell.case.figures[0].title);
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// The cells of the chosen cases and runtimes, case by case.
fn plan(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for case in CASES.iter().filter(|case| options.wants(case.family())) {
        for &runtime in &options.runtimes {
            let takes_part = match case.who {
                Who::Everybody => !runtime.spins(),
                Who::AlsoSpinning => true,
                Who::LoopgroupOnly => runtime == Runtime::Loopgroup,
            };
            if takes_part {
                cells.push(Cell {
                    case,
                    runtime,
                    rounds: Vec::new(),
                    note: None,
                    cannot: None,
                });
            }
        }
    }
    cells
}

/// A line on stderr that says where we are, overwritten if somebody looks.
struct Progress {
    step: usize,
    steps: usize,
    start: Instant,
    end: &'static str,
}

impl Progress {
    fn new(steps: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress {
            step: 0,
            steps,
            start: Instant::now(),
            end: if terminal { "\x1b[K\r" } else { "\n" },
        }
    }

    fn step(&mut self, round: usize, cell: &Cell) {
        self.step += 1;
        eprint!(
            "[{}/{}] {:.0} s, round {}, {} on {}{}",
            self.step,
            self.steps,
            self.start.elapsed().as_secs_f64(),
            round + 1,
            cell.case.figures[0].title,
            cell.runtime.name(),
            self.end
        );
    }

    fn done(&self) {
        eprintln!(
            "{} measurements in {:.0} s",
            self.steps,
            self.start.elapsed().as_secs_f64()
        );
    }
}
