//! Heartbeats among simulated hosts: how much real time does a virtual second take?
//!
//!     cargo run --release --manifest-path benches/sim/Cargo.toml -- --hosts 10,50 --seconds 60
//!     cargo run --release --manifest-path benches/sim/Cargo.toml -- --page docs/benchmarks
//!
//! Each of n hosts listens, and keeps a connection to three others (i+1, i+2 and i+4 modulo n). Over each it
//! sends 8 bytes every virtual second and reads an answer of 8 bytes; a message travels for 1 to 10 ms. Both
//! sides run in this process and on this thread, by turns (`--runs`); `--sides loopgroup` leaves one out.
//! `--csv FILE` writes every run. `--page DIR` measures what is in `docs/benchmarks/simulation.md` and writes
//! that page and its picture.

mod figures;
mod options;
mod ours;
mod page;
mod plot;
mod report;
mod theirs;

use std::time::Duration;

use figures::Figures;
use options::Options;
use report::{Report, Row};

const PORT: u16 = 7000;
const BEAT: Duration = Duration::from_secs(1);
const LATENCY: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

type Side = (&'static str, fn(usize, Duration) -> u64);

const SIDES: [Side; 2] = [("turmoil", theirs::turmoil), ("loopgroup", ours::loopgroup)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::from_args(std::env::args().skip(1))?;
    let mut report = Report::new();
    if let Some(directory) = &options.page {
        let before = page::load();
        for loads in page::loads() {
            measure(&loads, &mut report);
        }
        std::fs::write(directory.join("simulation.svg"), plot::svg(&report))?;
        std::fs::write(
            directory.join("simulation.md"),
            page::text(&report, &before),
        )?;
    } else {
        measure(&options, &mut report);
        report.print_ratios();
    }
    match options.csv {
        Some(path) => Ok(std::fs::write(path, report.csv())?),
        None => Ok(()),
    }
}

fn measure(options: &Options, report: &mut Report) {
    for &hosts in &options.hosts {
        for _ in 0..options.runs {
            for (side, run) in SIDES {
                if options.sides.iter().any(|wanted| wanted == side) {
                    let virtual_time = Duration::from_secs(options.seconds);
                    report.add(Row {
                        side,
                        hosts,
                        seconds: options.seconds,
                        figures: Figures::of(|| run(hosts, virtual_time)),
                    });
                }
            }
        }
    }
}

fn name(host: usize) -> String {
    format!("host-{host}")
}

/// The hosts that a host sends to: three, or fewer where there are not as many.
fn peers(host: usize, hosts: usize) -> Vec<usize> {
    let mut peers: Vec<_> = [1, 2, 4].map(|step| (host + step) % hosts).into();
    peers.sort_unstable();
    peers.dedup();
    peers.retain(|&peer| peer != host);
    peers
}
