//! The parent: runs every case on every runtime, round by round, and reports.
//!
//! - One child at a time, so that measurements do not disturb each other.
//! - Rounds are interleaved and the order of runtimes rotates: what drifts, drifts for all.

pub(crate) mod awake;
mod netty;
mod process;
mod quiet;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Map, Value};

use crate::catalogue::{Case, Who, cases};
use crate::options::Options;
use crate::report;
use crate::runtimes::Runtime;
use awake::Awake;
use process::{Answer, Launcher};
use quiet::Clocks;
pub(crate) use quiet::Disturbance;

/// All rounds of a case on a runtime.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) case: &'static Case,
    pub(crate) runtime: Runtime,
    /// By round: the figures that the child printed.
    pub(crate) rounds: Vec<Map<String, Value>>,
    /// By round: what disturbed the sample that was kept.
    pub(crate) disturbances: Vec<Disturbance>,
    /// How many samples were taken again, once or several times.
    pub(crate) repeated: usize,
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

/// How the samples came about.
#[derive(Debug)]
pub(crate) struct Conditions {
    /// Under which priority.
    pub(crate) priority: String,
    pub(crate) samples: usize,
    /// Samples that were taken again because they were disturbed.
    pub(crate) repeated: usize,
    /// Samples that were kept although they were disturbed: no repetition was any better.
    pub(crate) disturbed: usize,
}

impl Conditions {
    fn of(priority: String, cells: &[Cell]) -> Conditions {
        let all = || cells.iter().flat_map(|cell| &cell.disturbances);
        Conditions {
            priority,
            samples: all().count(),
            repeated: cells.iter().map(|cell| cell.repeated).sum(),
            disturbed: all().filter(|it| it.is_much()).count(),
        }
    }
}

pub(crate) fn main(options: &Options) -> ExitCode {
    let priority = quiet::raise_priority();
    eprintln!("{priority}");
    let mut cells = plan(options);
    let launcher = match Launcher::new(options) {
        Ok(launcher) => launcher,
        Err(error) => {
            eprintln!("{}: {error}", options.out.display());
            return ExitCode::FAILURE;
        }
    };
    let awake = options.awake.then(Awake::start).transpose();
    let awake = match awake {
        Ok(awake) => awake,
        Err(error) => {
            eprintln!("--awake: {error}");
            return ExitCode::FAILURE;
        }
    };
    let spinners = awake.as_ref().map_or(Vec::new(), Awake::pids);
    let mut progress = Progress::new(cells.len() * options.rounds);
    for round in 0..options.rounds {
        for group in cells.chunk_by_mut(|one, other| std::ptr::eq(one.case, other.case)) {
            let len = group.len();
            for turn in 0..len {
                let cell = &mut group[(turn + round) % len];
                progress.step(round, cell);
                if cell.cannot.is_none() {
                    sample(&launcher, cell, options.repeats, &spinners);
                }
            }
        }
    }
    progress.done();
    match report::write(options, &cells, &Conditions::of(priority, &cells)) {
        Ok(()) => judge(&cells),
        Err(error) => {
            eprintln!("{}: {error}", options.out.display());
            ExitCode::FAILURE
        }
    }
}

/// Takes a sample, and takes it again while it is disturbed; keeps the one that was disturbed least.
fn sample(launcher: &Launcher, cell: &mut Cell, repeats: usize, spinners: &[u32]) {
    let mut best: Option<(Disturbance, Answer)> = None;
    for attempt in 0..=repeats {
        let before = Clocks::read(spinners);
        let answer = match launcher.measure(cell.case, cell.runtime) {
            Ok(answer) => answer,
            Err(reason) => {
                cell.cannot = Some(reason);
                return;
            }
        };
        let disturbance = Clocks::read(spinners).since(&before);
        cell.repeated += usize::from(attempt == 1);
        if best
            .as_ref()
            .is_none_or(|(least, _)| disturbance.worst() < least.worst())
        {
            best = Some((disturbance, answer));
        }
        if !disturbance.is_much() {
            break;
        }
    }
    let (disturbance, Answer { figures, note }) = best.expect("there is at least one attempt");
    cell.rounds.push(figures);
    cell.disturbances.push(disturbance);
    cell.note = note;
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
    for case in cases().filter(|case| options.wants(case.family())) {
        for &runtime in &options.runtimes {
            let takes_part = match case.who {
                Who::Everybody => !runtime.is_variant(),
                Who::AlsoSpinning => runtime.spins() || !runtime.is_variant(),
                Who::AlsoPrecise => runtime.is_precise() || !runtime.is_variant(),
                Who::Only(these) => these.contains(&runtime),
            };
            if takes_part {
                cells.push(Cell {
                    case,
                    runtime,
                    rounds: Vec::new(),
                    disturbances: Vec::new(),
                    repeated: 0,
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
