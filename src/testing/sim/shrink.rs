//! The smallest story that still fails: fewer faults, fewer hosts, shorter faults.
//!
//! - A variant of a run is a run of the same seed with other faults, or without some hosts. It counts if it
//!   fails in the same way: the same kind of failure of the same host, with the same words.
//! - Faults are left out in ever smaller groups (ddmin); then hosts and clients, one at a time, unless the
//!   run fails without any fault then; then those faults that are left are shortened by halves; then faults
//!   are left out once more.
//! - A variant without a host counts only if it fails as early, or earlier: that the host is away can be a
//!   reason to fail as well, and is another story.
//! - Every step makes the story smaller, and the number of runs has a bound.

use std::ffi::OsStr;
use std::fmt;

use crate::testing::sim::faults::Fault;
use crate::testing::sim::outcome::{SimError, SimErrorKind};
use crate::testing::sim::replay::{self, Variant};
use crate::testing::sim::search_report::SearchReport;

/// The variable that has a search run one seed alone.
pub(super) const SEED: &str = "LOOPGROUP_SIM_SEED";
/// The most runs that shrinking takes.
const MOST_RUNS: usize = 500;
/// How often a fault is halved at most.
const HALVINGS: usize = 6;

/// A seed that fails, and the least that it takes.
#[derive(Clone, Debug)]
pub struct FoundFailure {
    error: SimError,
    faults: Vec<Fault>,
    drawn: usize,
    without: Vec<String>,
    runs: usize,
    repeats: bool,
    report: SearchReport,
    /// What runs the search again.
    command: String,
}

impl FoundFailure {
    /// Returns how the smallest run has failed.
    pub fn error(&self) -> &SimError {
        &self.error
    }

    /// Returns the faults that are needed for it.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Whether another run of the seed has failed in the same way. If not, the program depends on more than
    /// its seed, and nothing was shrunk.
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// Returns how many faults the seed had drawn.
    pub fn drawn(&self) -> usize {
        self.drawn
    }

    /// Returns what the search has seen until then: how many seeds it has run, and what they have reached.
    pub fn report(&self) -> &SearchReport {
        &self.report
    }

    /// Returns the hosts and clients that are not needed for it: without them it fails as well.
    pub fn not_needed(&self) -> &[String] {
        &self.without
    }
}

impl fmt::Display for FoundFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.error)?;
        if !self.repeats {
            return write!(
                f,
                "another run of the seed went another way: `check` tells where they part"
            );
        }
        if self.drawn > 0 {
            let (needed, drawn, runs) = (self.faults.len(), self.drawn, self.runs);
            writeln!(
                f,
                "{needed} of {drawn} faults are needed for it (found in {runs} runs)"
            )?;
        }
        if !self.without.is_empty() {
            writeln!(f, "not needed for it: {}", self.without.join(", "))?;
        }
        writeln!(f, "until then: {}", self.report)?;
        let (seed, command) = (self.error.seed(), &self.command);
        write!(f, "to see it again: {SEED}={seed} {command}")
    }
}

impl std::error::Error for FoundFailure {}

/// What runs this search again.
fn command() -> String {
    let is_test = std::env::current_exe().is_ok_and(|exe| {
        // Where Cargo builds tests; a program is beside that folder.
        exe.parent().and_then(std::path::Path::file_name) == Some(OsStr::new("deps"))
    });
    let args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    command_of(std::thread::current().name(), is_test, args)
}

/// The test that the name of its thread tells, or the program with its arguments.
fn command_of(
    thread: Option<&str>,
    is_test: bool,
    args: impl IntoIterator<Item = String>,
) -> String {
    let is_name = |name: &&str| {
        let mut parts = name.split("::");
        parts.all(|part| {
            let mut letters = part.chars();
            letters
                .next()
                .is_some_and(|first| first.is_alphabetic() || first == '_')
                && letters.all(|one| one.is_alphanumeric() || one == '_')
        })
    };
    match thread.filter(is_name) {
        Some(test) if is_test && test != "main" => format!("cargo test {test}"),
        Some(test) if test.contains("::") => format!("cargo test {test}"),
        _ => {
            let args: Vec<_> = args.into_iter().map(|arg| quoted(&arg)).collect();
            args.join(" ")
        }
    }
}

/// An argument as a shell takes it.
fn quoted(arg: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "_-+=:,./@%".contains(one);
    match !arg.is_empty() && arg.chars().all(is_plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    }
}

/// Shrinks a failure; `run` runs a variant, and returns how it has failed and the names of all hosts.
pub(super) fn shrink(
    seed: u64,
    error: SimError,
    report: SearchReport,
    run: impl Fn(Variant) -> (Option<SimError>, Vec<String>),
) -> FoundFailure {
    debug_assert_eq!(error.seed(), seed);
    // On this thread, and for the list of its faults.
    let (failed, hosts) = run(Variant::default());
    let faults = replay::used();
    let Some(failed) = failed.filter(|failed| failed.is_like(&error)) else {
        return FoundFailure {
            error,
            drawn: faults.len(),
            faults,
            without: Vec::new(),
            runs: 1,
            repeats: false,
            report,
            command: command(),
        };
    };
    let kind = failed.kind();
    let mut shrinking = Shrinking {
        run,
        runs: 1,
        story: FoundFailure {
            error: failed,
            drawn: faults.len(),
            faults,
            without: Vec::new(),
            runs: 1,
            repeats: true,
            report,
            command: command(),
        },
    };
    shrinking.leave_out_faults();
    // Whoever waits for a host that is left out waits for ever: another failure that looks the same.
    if !matches!(kind, SimErrorKind::TimeLimit | SimErrorKind::Stuck) {
        shrinking.leave_out_hosts(&hosts);
    }
    shrinking.shorten_faults();
    // With fewer hosts or shorter faults the run may fail earlier, or in a simpler way.
    shrinking.leave_out_faults();
    FoundFailure {
        runs: shrinking.runs,
        ..shrinking.story
    }
}

struct Shrinking<R> {
    run: R,
    runs: usize,
    story: FoundFailure,
}

impl<R: Fn(Variant) -> (Option<SimError>, Vec<String>)> Shrinking<R> {
    /// Takes a smaller story if it fails in the same way.
    fn accepts(&mut self, faults: Vec<Fault>, without: Vec<String>) -> bool {
        if self.runs >= MOST_RUNS {
            return false;
        }
        self.runs += 1;
        let variant = Variant {
            faults: Some(faults.clone()),
            without: without.clone(),
        };
        let failed = (self.run)(variant).0;
        let Some(error) = failed.filter(|failed| failed.is_like(&self.story.error)) else {
            return false;
        };
        self.story = FoundFailure {
            error,
            faults,
            without,
            ..self.story.clone()
        };
        true
    }

    fn leave_out_faults(&mut self) {
        let mut parts = 1;
        while !self.story.faults.is_empty() {
            let all = self.story.faults.clone();
            let size = all.len().div_ceil(parts);
            let smaller = (0..all.len()).step_by(size).any(|from| {
                let mut rest = all.clone();
                rest.drain(from..(from + size).min(all.len()));
                self.accepts(rest, self.story.without.clone())
            });
            match smaller {
                true => parts = parts.saturating_sub(1).max(1),
                false if size == 1 => return,
                false => parts = (parts * 2).min(all.len()),
            }
        }
    }

    fn leave_out_hosts(&mut self, hosts: &[String]) {
        for host in hosts {
            let mut without = self.story.without.clone();
            without.push(host.clone());
            let before = self.story.clone();
            let is_smaller = self.accepts(self.story.faults.clone(), without.clone());
            // That it is away must not be what fails: a client that waits for it would tell another story.
            let is_other = is_smaller
                && (self.story.error.at() > before.error.at()
                    || !before.faults.is_empty() && self.accepts(Vec::new(), without));
            if is_other {
                self.story = before;
            }
        }
    }

    fn shorten_faults(&mut self) {
        for place in 0..self.story.faults.len() {
            for _ in 0..HALVINGS {
                let mut faults = self.story.faults.clone();
                faults[place] = faults[place].halved();
                if !self.accepts(faults, self.story.without.clone()) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_a_failure_again_is_one_command() {
        let args = || ["./bin/sim-3", "a seed", "it's"].map(String::from);
        let command = |thread, is_test| command_of(thread, is_test, args());
        assert_eq!(
            command(Some("area::a_test"), true),
            "cargo test area::a_test"
        );
        assert_eq!(command(Some("at_the_root"), true), "cargo test at_the_root");
        // On a thread that some function of the test has started, in the main thread, and in a program.
        let program = "./bin/sim-3 'a seed' 'it'\\''s'";
        for (thread, is_test) in [
            (Some("test-body"), true),
            (Some("main"), true),
            (Some("main"), false),
            (Some("worker"), false),
            (Some("has space"), true),
            (None, true),
        ] {
            assert_eq!(command(thread, is_test), program, "{thread:?}");
        }
        assert_eq!(quoted(""), "''");
    }
}
