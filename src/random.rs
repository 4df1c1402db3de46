//! Pseudo-random numbers by SplitMix64, for load spreading and seeded tests; not for secrets.

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

    /// Returns a number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (scramble(self.0) % limit as u64) as usize
    }
}
