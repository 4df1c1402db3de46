//! Pseudo-random numbers by SplitMix64, for load spreading and seeded tests; not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::sync::{Ordering, plain};

/// Mixes the bits of a counter.
pub(crate) fn scramble(counter: u64) -> u64 {
    let mut bits = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A pseudo-random generator; any seed is valid, including 0.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(scramble(seed.wrapping_add(1)))
    }

    /// Returns the next 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        scramble(self.0)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (scramble(self.0) % limit as u64) as usize
    }
}

impl Random {
    /// Returns a duration of at most `limit`.
    pub(crate) fn up_to(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(1);
        let bits = scramble(self.0);
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos.checked_add(1).map_or(bits, |range| bits % range))
    }
}

/// Seeds for the generators of a group: each call gives another one, and in a test they are the same in
/// every run.
#[derive(Debug)]
pub(crate) struct Seeds {
    base: u64,
    taken: plain::AtomicU64,
}

impl Seeds {
    /// Different in every group.
    pub(crate) fn random() -> Seeds {
        Seeds::from(RandomState::new().hash_one(0_u8))
    }

    pub(crate) fn next(&self) -> Random {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        Random::new(scramble(self.base).wrapping_add(scramble(number)))
    }
}

impl From<u64> for Seeds {
    fn from(base: u64) -> Seeds {
        Seeds {
            base,
            taken: plain::AtomicU64::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_duration_keeps_its_limit() {
        let mut random = Seeds::from(7).next();
        let limit = Duration::from_nanos(3);
        let mut seen = [false; 4];
        for _ in 0..200 {
            seen[random.up_to(limit).as_nanos() as usize] = true;
        }
        assert_eq!(seen, [true; 4], "both ends are reached");
        assert_eq!(random.up_to(Duration::ZERO), Duration::ZERO);
        random.up_to(Duration::MAX);
    }

    #[test]
    fn seeds_differ_from_each_other_and_repeat_in_another_run() {
        let draw = |seeds: &Seeds| [0, 1].map(|_| seeds.next().below(1 << 30));
        let first = draw(&Seeds::from(1));
        assert_ne!(first[0], first[1]);
        assert_eq!(first, draw(&Seeds::from(1)));
        assert_ne!(first, draw(&Seeds::from(2)));
    }
}
