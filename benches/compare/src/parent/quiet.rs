//! Whether the machine was busy with something else while a sample was taken.
//!
//! - Others' time: what all cores did, less what the children did that have been waited for. A child waits
//!   for its own, so clients and servers are in it.
//! - Stolen time: what the host gave to somebody else.
//! - The system counts in hundredths of a second. A sample is disturbed if others or the host took a
//!   twentieth of it on one core, and at least two such ticks.

use std::fs;
use std::time::Instant;

use rustix::process::getpriority_process;

/// The priority that a run asks for. Children inherit it.
const NICE: i32 = -10;

/// A part of the time of one core that nobody may take.
const ALLOWED: f64 = 0.05;
const LEAST_TICKS: f64 = 2.0;

/// Raises the priority of this process, if it may; says what came of it.
pub(super) fn raise_priority() -> String {
    // Where sessions are scheduled as groups, a priority counts only inside of one: the group has its own.
    let _ = fs::write("/proc/self/autogroup", NICE.to_string());
    match rustix::process::setpriority_process(None, NICE) {
        Ok(()) => format!("at nice {NICE}"),
        Err(error) => {
            let nice = getpriority_process(None).unwrap_or(0);
            format!("at nice {nice}, as {NICE} was refused ({error})")
        }
    }
}

/// What took time from a sample, as a part of the time of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) others: f64,
    pub(crate) stolen: f64,
    /// The time of one tick, as such a part.
    tick: f64,
}

impl Disturbance {
    pub(crate) fn is_much(&self) -> bool {
        self.worst() > ALLOWED.max(LEAST_TICKS * self.tick)
    }

    pub(crate) fn worst(&self) -> f64 {
        self.others.max(self.stolen)
    }
}

/// The clocks at one time, in ticks but for the first.
#[derive(Debug)]
pub(super) struct Clocks {
    now: Instant,
    /// What all cores did that was not idling.
    busy: f64,
    stolen: f64,
    /// What this process did, and its children that were waited for.
    ours: f64,
}

impl Clocks {
    /// What the spinners of `--awake` do counts as ours.
    pub(super) fn read(spinners: &[u32]) -> Clocks {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = numbers(stat.lines().next().unwrap_or_default());
        let at = |place: usize| all.get(place).copied().unwrap_or(0.0);
        // user, nice, system, idle, iowait, irq, softirq, steal
        Clocks {
            now: Instant::now(),
            busy: at(0) + at(1) + at(2) + at(5) + at(6),
            stolen: at(7),
            ours: used("self")
                + spinners
                    .iter()
                    .map(|pid| used(&pid.to_string()))
                    .sum::<f64>(),
        }
    }

    /// What happened since then.
    pub(super) fn since(&self, before: &Clocks) -> Disturbance {
        let seconds = (self.now - before.now).as_secs_f64().max(0.001);
        let ticks = seconds * rustix::param::clock_ticks_per_second() as f64;
        let others = (self.busy - before.busy) - (self.ours - before.ours);
        Disturbance {
            others: others.max(0.0) / ticks,
            stolen: (self.stolen - before.stolen).max(0.0) / ticks,
            tick: 1.0 / ticks,
        }
    }
}

/// Ticks of a process, and of its children that were waited for.
fn used(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything: a letter, 10 numbers, then utime, stime, cutime and cstime.
    let behind = numbers(stat.rsplit_once(')').map_or("", |(_, rest)| rest));
    behind.iter().skip(10).take(4).sum()
}

/// The whole numbers of a line; words that are none are left out.
fn numbers(line: &str) -> Vec<f64> {
    let words = line.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}
