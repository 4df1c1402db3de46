//! The work of a request in W16: so many steps of a hash, each of which needs the one before.
//!
//! A chain takes as long in every language, and it takes CPU time: a loop that looks at the clock would
//! do less of it on a busy machine.

pub(crate) const REQUEST: usize = 64;
pub(crate) const ANSWER: usize = 8;

/// What a request is answered with.
pub(crate) fn answer(request: &[u8; REQUEST], steps: usize) -> [u8; ANSWER] {
    let (words, _) = request.as_chunks::<8>();
    let mut hash = 0_u64;
    for step in 0..steps {
        let word = u64::from_le_bytes(words[step % words.len()]);
        hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        hash ^= hash >> 29;
    }
    hash.to_le_bytes()
}
