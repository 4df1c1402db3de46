//! The machine beside models of it, told what to do by strings of bytes.
//!
//! - A target reads its operations off a string; every string is a valid one, and one string is one run.
//! - `cargo fuzz` (`.ci/fuzz`) grows the strings that reach new code; `cargo test` runs random ones.
//! - The crate includes these files when it is built for tests or for fuzzing, because the timer queue and
//!   the registration table are private. They are no part of its interface.

mod actor;
mod ops;
mod queue;
mod table;

pub use ops::ops;
pub use queue::queue;
pub use table::table;

/// Operations to be read, one byte or more each.
#[derive(Debug)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// A number below `limit`, which is at most 256 and not 0; 0 when there are no more bytes.
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.next().unwrap_or(0)) % limit
    }
}

#[cfg(test)]
mod tests {
    use crate::random::Random;

    /// Runs a target with random strings; a failing one is printed by its seed.
    fn run(target: fn(&[u8]), strings: u64) {
        for seed in 0..strings {
            let mut random = Random::new(seed);
            let most = 1 << random.below(10);
            let len = random.below(most);
            let string: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let result = std::panic::catch_unwind(|| target(&string));
            assert!(result.is_ok(), "seed {seed}: {string:?}");
        }
    }

    #[test]
    fn operations_on_a_group_end_as_the_model_says() {
        run(super::ops, 1_000);
    }

    #[test]
    fn strings_that_the_fuzzer_has_found_end_as_the_model_says() {
        // A closure that is due at once, and one without a timer behind it.
        super::ops(&[164, 226, 7, 7, 0, 6]);
    }

    #[test]
    fn operations_on_the_timer_queue_agree_with_a_sorted_map() {
        run(super::queue, 1_000);
    }

    #[test]
    fn operations_on_the_registration_table_agree_with_a_list() {
        run(super::table, 500);
    }
}
