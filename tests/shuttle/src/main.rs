//! Races of the production code, each under many schedules that shuttle chooses and can replay.
//!
//! ```text
//! scenarios [--schedules N] [--seed S] [NAME...]    runs all scenarios, or the named ones; one process each
//! scenarios --replay NAME FILE                      replays one schedule
//! ```
//!
//! Half of the schedules are random, half are PCT schedules with 3, 4 and 5 priority changes.

mod check;
mod ledger;
mod scenarios;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use check::Scenario;
use scenarios::SCENARIOS;

/// The least number of scenarios in a full run, which CI relies on.
const AT_LEAST: usize = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--replay", name, file] => check::replay(find(name), Path::new(file)),
        // Part of a full run: one scenario in its own process, since a failed model may abort it.
        ["--only", name, schedules, seed] => {
            check::explore(find(name), number(schedules), number(seed), &traces(name));
        }
        _ => return run_all(&words),
    }
    ExitCode::SUCCESS
}

fn run_all(words: &[&str]) -> ExitCode {
    let (mut schedules, mut seed, mut chosen) = (10_000, 1, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--schedules" => schedules = number(words.next().expect("a number follows")),
            "--seed" => seed = number(words.next().expect("a number follows")),
            name => chosen.push(find(name)),
        }
    }
    let everything = chosen.is_empty();
    if everything {
        chosen.extend(SCENARIOS);
    }
    let started = Instant::now();
    let failed = run_side_by_side(&chosen, schedules, seed);
    println!(
        "{} scenarios, {} schedules each (seed {seed}), {} failed, {:.1} s",
        chosen.len(),
        schedules,
        failed,
        started.elapsed().as_secs_f64()
    );
    if failed > 0 || (everything && chosen.len() < AT_LEAST) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs each scenario in its own process, as many at a time as there are cores; returns how many failed.
fn run_side_by_side(chosen: &[&Scenario], schedules: u64, seed: u64) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let left = Mutex::new(chosen.iter());
    let next = || left.lock().expect("no panic in between").next().copied();
    let work = || {
        let mut failed = 0;
        while let Some(scenario) = next() {
            if !run_one(scenario, schedules, seed) {
                failed += 1;
            }
        }
        failed
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let failures = workers.into_iter().map(|worker| worker.join());
        failures.map(|failed| failed.expect("no panic")).sum()
    })
}

fn run_one(scenario: &Scenario, schedules: u64, seed: u64) -> bool {
    let traces = traces(scenario.name);
    let _ = std::fs::remove_dir_all(&traces);
    std::fs::create_dir_all(&traces).expect("a directory below target can be made");
    let started = Instant::now();
    let output = Command::new(env::current_exe().expect("a program knows itself"))
        .args(["--only", scenario.name])
        .args([schedules.to_string(), seed.to_string()])
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the program that runs can be run");
    let seconds = started.elapsed().as_secs_f64();
    if output.status.success() {
        println!("ok     {:34} {seconds:6.1} s", scenario.name);
        return true;
    }
    println!("FAILED {:34} {seconds:6.1} s", scenario.name);
    println!("{}", String::from_utf8_lossy(&output.stderr));
    // The first schedule is the failure; later ones would be consequences.
    let trace = traces.join("schedule000.txt");
    if let Ok(schedule) = std::fs::read_to_string(&trace) {
        println!("the schedule:\n{schedule}");
        println!(
            "to run it again: .ci/shuttle --replay {} {}",
            scenario.name,
            trace.display()
        );
    }
    false
}

fn find(name: &str) -> &'static Scenario {
    let found = SCENARIOS.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("there is no scenario {name}"))
}

fn number(text: &str) -> u64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

/// The directory for failing schedules of a scenario.
fn traces(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/schedules")
        .join(name)
}
