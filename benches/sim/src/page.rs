//! `docs/benchmarks/simulation.md`: what it measures, and its text.

use std::fmt::Write;

use crate::options::Options;
use crate::report::{Report, Runs, median};

/// Virtual ones, of all loads but the long one.
pub(crate) const SECONDS: u64 = 60;
const HOUR: u64 = 3600;

/// Both sides while a run of turmoil takes seconds; then ours alone.
pub(crate) fn loads() -> [Options; 3] {
    let ours = || vec!["loopgroup".to_string()];
    [
        Options {
            hosts: vec![10, 20, 50],
            ..Options::default()
        },
        Options {
            hosts: vec![100, 200, 500, 1000],
            sides: ours(),
            ..Options::default()
        },
        Options {
            hosts: vec![500],
            seconds: HOUR,
            runs: 1,
            sides: ours(),
            ..Options::default()
        },
    ]
}

/// How many threads want a core of the machine, over the last minute.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_string()
}

pub(crate) fn text(report: &Report, load_before: &str) -> String {
    let mut text = String::new();
    // A `String` takes whatever is written to it.
    let _ = write_text(&mut text, report, load_before);
    text
}

fn write_text(text: &mut String, report: &Report, load_before: &str) -> std::fmt::Result {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    writeln!(
        text,
        "# The simulation beside turmoil\n\n\
         {cores} cores, {}. turmoil {}, tokio {}. Medians of 3 interleaved runs in one process and on one \
         thread. The load average of the machine was {load_before} before the runs and {} after them: other \
         work took its part of the cores, so the ratios are those of CPU time, and wall-clock stands beside \
         it.\n\n\
         Each host keeps a connection to three others, and sends 8 bytes over each every virtual second; a \
         message travels for 1 to 10 ms. So messages grow with the hosts, and pairs of hosts with their \
         square. turmoil moves time in ticks of 1 ms, its default, and visits each host in each of them; \
         loopgroup goes on to the next event.\n\n\
         ![CPU time by hosts](simulation.svg)\n\n\
         | hosts | virtual | | CPU, s | min–max | wall-clock, s | CPU per heartbeat, µs | turmoil ÷ loopgroup |\n\
         |---|---|---|---|---|---|---|---|",
        processor(),
        version("turmoil"),
        version("tokio"),
        load()
    )?;
    for load @ (seconds, hosts) in report.loads() {
        for (side, _) in crate::SIDES {
            if let Some(runs) = report.runs(side, load) {
                let ratio = match report.ratio(load) {
                    Some(ratio) if side == "turmoil" => format!("{ratio:.1}"),
                    _ => String::new(),
                };
                write_row(
                    text,
                    &format!("| {hosts} | {seconds} s | {side}"),
                    &runs,
                    &ratio,
                )?;
            }
        }
    }
    writeln!(
        text,
        "\nWritten by `cargo run --release --manifest-path benches/sim/Cargo.toml -- --page docs/benchmarks`; \
         `benches/sim/README.md` says what is measured."
    )
}

fn write_row(text: &mut String, head: &str, runs: &Runs, ratio: &str) -> std::fmt::Result {
    let Runs {
        cpu,
        real,
        heartbeats,
    } = runs;
    let (best, worst) = (cpu[0], cpu[cpu.len() - 1]);
    let (cpu, real) = (median(cpu), median(real));
    writeln!(
        text,
        "{head} | {cpu:.3} | {best:.3}–{worst:.3} | {real:.3} | {:.2} | {ratio} |",
        cpu * 1e6 / *heartbeats as f64
    )
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split(": ").nth(1));
    name.unwrap_or("unknown processor").to_string()
}

/// As the lock file has it.
fn version(of: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let package = format!("name = \"{of}\"\nversion = \"");
    let after = lock.split_once(&*package).map_or("", |(_, after)| after);
    after.split('"').next().unwrap_or("unknown")
}
