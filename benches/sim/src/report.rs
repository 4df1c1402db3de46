//! Rows as they come, medians, ratios, and a CSV.

use std::collections::BTreeSet;

use crate::figures::Figures;

pub(crate) struct Row {
    pub(crate) side: &'static str,
    pub(crate) hosts: usize,
    /// Virtual ones.
    pub(crate) seconds: u64,
    pub(crate) figures: Figures,
}

/// The runs of one load, from the best to the worst.
pub(crate) struct Runs {
    pub(crate) cpu: Vec<f64>,
    pub(crate) real: Vec<f64>,
    pub(crate) heartbeats: u64,
}

pub(crate) fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}

pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new() -> Report {
        println!(
            "{:10} {:>6} {:>8} {:>10} {:>10} {:>11} {:>14}",
            "side", "hosts", "virtual", "real", "CPU", "heartbeats", "virtual/CPU"
        );
        Report { rows: Vec::new() }
    }

    /// Prints a row at once: a long comparison can be watched.
    pub(crate) fn add(&mut self, row: Row) {
        let Figures {
            real,
            cpu,
            heartbeats,
        } = &row.figures;
        let (real, cpu) = (real.as_secs_f64(), cpu.as_secs_f64());
        let Row {
            side,
            hosts,
            seconds,
            ..
        } = &row;
        let speed = *seconds as f64 / cpu;
        println!(
            "{side:10} {hosts:>6} {seconds:>6} s {real:>8.3} s {cpu:>8.3} s {heartbeats:>11} {speed:>14.1}"
        );
        self.rows.push(row);
    }

    /// All numbers of hosts and virtual seconds, in their order.
    pub(crate) fn loads(&self) -> BTreeSet<(u64, usize)> {
        self.rows
            .iter()
            .map(|row| (row.seconds, row.hosts))
            .collect()
    }

    pub(crate) fn runs(&self, side: &str, (seconds, hosts): (u64, usize)) -> Option<Runs> {
        let rows = self.rows.iter();
        let rows = rows.filter(|row| (row.side, row.seconds, row.hosts) == (side, seconds, hosts));
        let figures: Vec<_> = rows.map(|row| &row.figures).collect();
        let sorted = |of: fn(&Figures) -> f64| {
            let mut all: Vec<_> = figures.iter().map(|one| of(one)).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        Some(Runs {
            cpu: sorted(|one| one.cpu.as_secs_f64()),
            real: sorted(|one| one.real.as_secs_f64()),
            heartbeats: figures.first()?.heartbeats,
        })
    }

    /// How many times as much of a core turmoil takes.
    pub(crate) fn ratio(&self, load: (u64, usize)) -> Option<f64> {
        let (theirs, ours) = (self.runs("turmoil", load)?, self.runs("loopgroup", load)?);
        Some(median(&theirs.cpu) / median(&ours.cpu))
    }

    pub(crate) fn print_ratios(&self) {
        for load in self.loads() {
            if let Some(ratio) = self.ratio(load) {
                println!(
                    "{} hosts: turmoil takes {ratio:.1} times as much CPU",
                    load.1
                );
            }
        }
    }

    pub(crate) fn csv(&self) -> String {
        let mut text =
            String::from("side,hosts,virtual_seconds,real_seconds,cpu_seconds,heartbeats\n");
        for row in &self.rows {
            let Figures {
                real,
                cpu,
                heartbeats,
            } = &row.figures;
            let (real, cpu) = (real.as_secs_f64(), cpu.as_secs_f64());
            text.push_str(&format!(
                "{},{},{},{real:.6},{cpu:.6},{heartbeats}\n",
                row.side, row.hosts, row.seconds
            ));
        }
        text
    }
}
