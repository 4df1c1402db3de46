//! The random numbers of a network: one stream per purpose, so that a draw for one never shifts another.

use std::time::Duration;

use crate::random::{Random, scramble};

#[derive(Debug)]
pub(super) struct Draws {
    latency: Random,
    loss: Random,
    parts: Random,
    ports: Random,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        let stream = |purpose: u64| Random::new(scramble(seed).wrapping_add(scramble(purpose)));
        Draws {
            latency: stream(0x6c61_7465),
            loss: stream(0x6c6f_7373),
            parts: stream(0x7061_7274),
            ports: stream(0x706f_7274),
        }
    }

    pub(super) fn jitter(&mut self, limit: Duration) -> Duration {
        match limit {
            Duration::ZERO => Duration::ZERO,
            limit => self.latency.up_to(limit),
        }
    }

    /// A time of an exponential distribution with this mean.
    pub(super) fn tail(&mut self, mean: Duration) -> Duration {
        if mean.is_zero() {
            return Duration::ZERO;
        }
        // Between 0, which is left out, and 1.
        let share = (self.latency.below(1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        mean.mul_f64(-share.ln())
    }

    /// Whether the fault with this probability happens.
    pub(super) fn fault(&mut self, probability: f64) -> bool {
        happens(&mut self.loss, probability)
    }

    /// How much of `whole` a read or a write moves: all of it, or with `probability` some part.
    pub(super) fn part(&mut self, whole: usize, probability: f64) -> usize {
        match whole > 1 && happens(&mut self.parts, probability) {
            true => 1 + self.parts.below(whole),
            false => whole,
        }
    }

    /// A number below `limit`, for a port.
    pub(super) fn port(&mut self, limit: u16) -> u16 {
        self.ports.below(usize::from(limit)) as u16
    }
}

fn happens(random: &mut Random, probability: f64) -> bool {
    const STEPS: usize = 1 << 30;
    probability > 0.0 && (random.below(STEPS) as f64) < probability * STEPS as f64
}
