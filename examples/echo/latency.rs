//! Latencies, counted in buckets: as many as one likes, in four kilobytes.

use std::time::Duration;

use crate::figures::{count, print_table, time};

/// How often each latency was seen, in buckets that grow by an eighth.
pub(crate) struct Latencies([u64; 512]);

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies([0; 512])
    }
}

impl Latencies {
    pub(crate) fn note(&mut self, latency: Duration) {
        let nanos = (latency.as_nanos() as u64).max(8);
        let log = nanos.ilog2();
        self.0[(log * 8) as usize + (nanos >> (log - 3)) as usize % 8] += 1;
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(one, two)| *one += two);
    }

    /// The latency that so many of a thousand did not exceed.
    fn at(&self, thousandths: u64) -> Duration {
        let rank = (self.len() * thousandths).div_ceil(1000).max(1);
        let reached = |index: &usize| self.0[..=*index].iter().sum::<u64>() >= rank;
        let index = (0..self.0.len()).find(reached).unwrap_or(0) as u64;
        Duration::from_nanos(((9 + index % 8) << (index / 8)) >> 3)
    }
}

impl Latencies {
    /// How many there were.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Prints them as a table of one row.
    pub(crate) fn print(&self) {
        let headings = ["round trips", "p50", "p90", "p99", "p99.9", "max"].map(String::from);
        let [p50, p90, p99, p999, max] = [500, 900, 990, 999, 1000].map(|at| time(self.at(at)));
        print_table(&[headings, [count(self.len()), p50, p90, p99, p999, max]]);
    }
}
