//! The log-linear buckets of a histogram, and how a loop counts durations in them.
//!
//! - A duration counts in nanoseconds. Each power of two is divided into four buckets of equal width, so
//!   the bounds of a bucket are at most 25 % apart; durations below four nanoseconds have a bucket each.
//! - There are [`BUCKETS`] buckets for whatever a `u64` holds: 2 KiB, whatever is counted.
//! - The bucket of a duration is found with a count of leading zeros and a shift.
//! - One thread counts, the loop thread, with plain loads and stores; any thread reads.

use std::time::Duration;

use crate::metrics::gauges::Gauge;

/// Buckets of a power of two: two to the power of this.
const POWER: u32 = 2;
/// The number of buckets.
pub(crate) const BUCKETS: usize = ((64 - POWER as usize) << POWER) + (1 << POWER);

/// Counts durations; see [`Histogram`](crate::Histogram) for what a reader gets.
#[derive(Debug)]
pub(crate) struct DurationCounter {
    pub(crate) buckets: Box<[Gauge]>,
    /// In nanoseconds; stops at the largest value.
    pub(crate) sum: Gauge,
    pub(crate) max: Gauge,
}

impl DurationCounter {
    pub(crate) fn new() -> DurationCounter {
        DurationCounter {
            buckets: (0..BUCKETS).map(|_| Gauge::default()).collect(),
            sum: Gauge::default(),
            max: Gauge::default(),
        }
    }

    /// Counts a duration; by one thread at a time.
    #[inline]
    pub(crate) fn count(&self, duration: Duration) {
        let nanos = nanos(duration);
        self.buckets[index_of(nanos)].add(1);
        self.sum.set(self.sum.get().saturating_add(nanos));
        if nanos > self.max.get() {
            self.max.set(nanos);
        }
    }
}

/// What a loop of a group that measures time counts.
#[derive(Debug)]
pub(crate) struct Durations {
    pub(crate) polls: DurationCounter,
    /// From the wake of a task to its poll.
    pub(crate) waits: DurationCounter,
}

impl Durations {
    pub(crate) fn new() -> Durations {
        Durations {
            polls: DurationCounter::new(),
            waits: DurationCounter::new(),
        }
    }
}

/// A duration in nanoseconds; the largest number for one of centuries.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The bucket of a duration of so many nanoseconds.
#[inline]
pub(crate) fn index_of(nanos: u64) -> usize {
    if nanos < 1 << POWER {
        return nanos as usize;
    }
    let exponent = u64::BITS - 1 - nanos.leading_zeros();
    let shift = exponent - POWER;
    // The leading bit is in the quotient: it counts for one bucket of the next power.
    ((shift as usize) << POWER) + (nanos >> shift) as usize
}

/// The largest number of nanoseconds that counts in a bucket.
pub(crate) fn upper_bound(index: usize) -> u64 {
    if index < 1 << POWER {
        return index as u64;
    }
    let shift = (index >> POWER) - 1;
    let quotient = (index - (shift << POWER)) as u128;
    // The bound of the last one is the largest number, which does not fit in before the subtraction.
    (((quotient + 1) << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_one_bucket_and_the_buckets_are_in_order() {
        assert_eq!((index_of(0), index_of(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(upper_bound(BUCKETS - 1), u64::MAX);
        for index in 0..BUCKETS {
            let bound = upper_bound(index);
            assert_eq!(index_of(bound), index);
            if let Some(next) = bound.checked_add(1) {
                assert_eq!(index_of(next), index + 1);
            }
        }
    }

    #[test]
    fn the_bounds_of_a_bucket_are_a_quarter_apart_at_most() {
        for index in 1..BUCKETS {
            let (below, bound) = (upper_bound(index - 1) + 1, upper_bound(index));
            let error = (bound - below) as f64 / below as f64;
            assert!(error <= 0.25, "{below} to {bound}");
        }
    }

    #[test]
    fn a_sum_that_is_full_stays_full() {
        let counter = DurationCounter::new();
        counter.count(Duration::MAX);
        counter.count(Duration::from_nanos(7));
        assert_eq!((counter.sum.get(), counter.max.get()), (u64::MAX, u64::MAX));
        assert_eq!(counter.buckets[BUCKETS - 1].get(), 1);
        assert_eq!(counter.buckets[index_of(7)].get(), 1);
    }
}
