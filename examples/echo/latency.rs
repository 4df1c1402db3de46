//! Latencies, counted in buckets: as many as one likes, in four kilobytes.

use std::fmt;
use std::time::Duration;

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
        let rank = (self.0.iter().sum::<u64>() * thousandths)
            .div_ceil(1000)
            .max(1);
        let reached = |index: &usize| self.0[..=*index].iter().sum::<u64>() >= rank;
        let index = (0..self.0.len()).find(reached).unwrap_or(0) as u64;
        Duration::from_nanos(((9 + index % 8) << (index / 8)) >> 3)
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p99, p999, max] = [500, 900, 990, 999, 1000].map(|at| self.at(at));
        let trips = self.0.iter().sum::<u64>();
        write!(
            f,
            "{trips} round trips: p50 {p50:.1?}, p90 {p90:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, max {max:.1?}"
        )
    }
}
