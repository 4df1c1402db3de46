//! Numbers that look random and are not secret: SplitMix64, for spreading and for seeded tests.

/// Spreads the bits of a counter.
pub(crate) fn scramble(counter: u64) -> u64 {
    let mut bits = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A generator; any seed will do, also 0.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(scramble(seed.wrapping_add(1)))
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (scramble(self.0) % limit as u64) as usize
    }
}
