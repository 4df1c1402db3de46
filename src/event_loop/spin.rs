//! Whether a loop spins before it sleeps: only while spinning finds work.
//!
//! A spin is in vain if its time passes and there is still no work: the next message comes later than that,
//! or the thread that is to send it waits for the core on which the loop spins. After `k` vain spins in a
//! row the loop sleeps `2^k − 1` times without spinning, then tries again. A spin that finds work ends the
//! row.
//!
//! - Two loops that share a core sleep like loops that do not spin, and a loop whose messages are rare
//!   spends its time in the selector.
//! - `k` is limited: a loop finds out within 64 waits that spinning pays again.
//! - Two loops that both sleep between messages find back to spinning if one of them spins for as long as
//!   the other needs to wake up and answer. A spin shorter than that would rarely succeed again; it costs
//!   little, so it is never skipped.

use std::time::Duration;

/// The most vain spins in a row that count.
const MAX_VAIN: u32 = 6;
/// Shorter spins are never skipped: a thread on another core may take as long to wake up.
const SHORTEST_SKIPPED: Duration = Duration::from_micros(20);

/// Decides before each wait of a loop whether it spins; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct SpinPolicy {
    /// The vain spins in a row, [`MAX_VAIN`] at most.
    vain: u32,
    /// How many waits are left before the next spin.
    skip: u32,
}

impl SpinPolicy {
    /// Whether the loop spins before this wait.
    pub(crate) fn should_spin(&mut self) -> bool {
        let spins = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        spins
    }

    /// Records whether a spin, of `spin` at most, has found work.
    pub(crate) fn spun(&mut self, spin: Duration, found_work: bool) {
        self.vain = if found_work || spin < SHORTEST_SKIPPED {
            0
        } else {
            (self.vain + 1).min(MAX_VAIN)
        };
        self.skip = (1 << self.vain) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the waits, of this many, before which the loop spins.
    fn spins(policy: &mut SpinPolicy, waits: u32, finds_work: impl Fn(u32) -> bool) -> Vec<u32> {
        let spins = (0..waits).filter(|&wait| {
            let spins = policy.should_spin();
            if spins {
                policy.spun(SHORTEST_SKIPPED, finds_work(wait));
            }
            spins
        });
        spins.collect()
    }

    #[test]
    fn a_loop_spins_before_every_wait_while_that_finds_work() {
        let spun = spins(&mut SpinPolicy::default(), 1000, |_| true);
        assert_eq!(spun, Vec::from_iter(0..1000));
    }

    #[test]
    fn after_each_vain_spin_twice_as_many_waits_pass_and_never_more_than_63() {
        let spun = spins(&mut SpinPolicy::default(), 400, |_| false);
        assert_eq!(spun, [0, 2, 6, 14, 30, 62, 126, 190, 254, 318, 382]);
    }

    #[test]
    fn a_spin_that_finds_work_ends_the_row_of_vain_ones() {
        let mut policy = SpinPolicy::default();
        let spun = spins(&mut policy, 135, |wait| wait >= 126);
        assert_eq!(&spun[5..], Vec::from_iter([62].into_iter().chain(126..135)));
        let spun = spins(&mut policy, 10, |_| false);
        assert_eq!(spun, [0, 2, 6], "and the next row begins anew");
    }
    #[test]
    fn short_spins_are_never_skipped() {
        let mut policy = SpinPolicy::default();
        for _ in 0..100 {
            assert!(policy.should_spin());
            policy.spun(SHORTEST_SKIPPED - Duration::from_nanos(1), false);
        }
    }
}
