//! Medians, quantiles, and the stopwatch of the children.

use std::time::{Duration, Instant};

/// The median of samples that need not be sorted; not a number if there are none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// The sample below which the given part of all samples lies.
pub(crate) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len => sorted[((len - 1) as f64 * part).round() as usize],
    }
}

/// Times equal rounds of many operations; the first one is a warm-up and does not count.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    operations: usize,
    started: Instant,
    rounds: Vec<f64>,
}

impl Stopwatch {
    pub(crate) fn new(operations: usize) -> Stopwatch {
        Stopwatch {
            operations,
            started: Instant::now(),
            rounds: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self) {
        self.started = Instant::now();
    }

    pub(crate) fn stop(&mut self) {
        self.add(self.started.elapsed());
    }

    /// Counts a round that was timed elsewhere.
    pub(crate) fn add(&mut self, round: Duration) {
        self.rounds
            .push(round.as_nanos() as f64 / self.operations as f64);
    }

    /// Whether no round was counted yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Nanoseconds per operation, the median of the rounds after the first.
    pub(crate) fn nanos(&self) -> f64 {
        median(self.rounds.get(1..).unwrap_or_default())
    }
}
