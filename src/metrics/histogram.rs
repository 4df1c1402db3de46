//! Histograms of durations, as a reader gets them.
//!
//! A histogram is a copy: the loop counts on. Its buckets are those of
//! [`buckets`](crate::metrics::buckets); empty ones at the end are not kept, so a histogram of nothing
//! allocates nothing.

use std::fmt;
use std::time::Duration;

use crate::metrics::buckets::{self, DurationCounter};
use crate::metrics::table::{counted, time};

/// How often durations of each length occurred; see
/// [`LoopMetrics::poll_times`](crate::LoopMetrics::poll_times) and
/// [`LoopMetrics::wake_to_poll`](crate::LoopMetrics::wake_to_poll).
///
/// A duration is known up to 25 %: the buckets are log-linear, four to each power of two. Histograms of
/// several loops, or of several groups, can be [merged](Histogram::merge).
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, Histogram};
/// use std::{thread, time::Duration};
///
/// let group = EventLoopGroup::builder().loops(2).measure_time(true).build()?;
/// let long = group.spawn_on(0, async { thread::sleep(Duration::from_millis(2)) });
/// let short = group.spawn_on(1, async {});
/// group.block_on(async { (long.await.unwrap(), short.await.unwrap()) });
/// group.shutdown_now().wait();
///
/// let mut polls = Histogram::default();
/// for one in group.metrics().loops() {
///     polls.merge(&one.poll_times());
/// }
/// println!("{polls}"); // 2 times: median 890 ns, 90 % 2.10 ms, 99 % 2.10 ms, longest 2.10 ms
/// assert_eq!(polls.count(), 2);
/// assert!(polls.max() >= Duration::from_millis(2) && polls.sum() >= polls.max());
/// assert_eq!(polls.quantile(1.0), Some(polls.max()));
/// assert!(polls.quantile(0.5).unwrap() < Duration::from_millis(2));
/// assert_eq!(polls.buckets().map(|(_, count)| count).sum::<u64>(), 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Without empty ones at the end.
    counts: Vec<u64>,
    sum: Duration,
    max: Duration,
}

impl Histogram {
    pub(crate) fn of(counter: &DurationCounter) -> Histogram {
        let mut counts: Vec<_> = counter.buckets.iter().map(|one| one.get()).collect();
        let used = counts.iter().rposition(|&count| count > 0);
        counts.truncate(used.map_or(0, |last| last + 1));
        Histogram {
            counts,
            sum: Duration::from_nanos(counter.sum.get()),
            max: Duration::from_nanos(counter.max.get()),
        }
    }

    /// Returns how many durations were counted.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the longest duration, exactly; zero if there is none.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns whether no duration was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns a duration that the share `q` of all durations did not exceed, at most 25 % too long; `None`
    /// if there are none, or if `q` is not between 0 and 1.
    ///
    /// # Examples
    ///
    /// ```
    /// let none = loopgroup::Histogram::default();
    /// assert_eq!(none.quantile(0.5), None);
    /// ```
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        if !(0.0..=1.0).contains(&q) {
            return None;
        }
        // At least the first, and not behind the last one whatever the rounding.
        let rank = ((q * self.count() as f64).ceil() as u64).clamp(1, self.count().max(1));
        let mut before = 0_u64;
        self.buckets().find_map(|(bound, count)| {
            before = before.saturating_add(count);
            (before >= rank).then_some(bound)
        })
    }

    /// Iterates over the buckets that are not empty, in ascending order: the longest duration that a bucket
    /// counts, and how many it has counted.
    ///
    /// # Examples
    ///
    /// ```
    /// # let group = loopgroup::EventLoopGroup::new(1)?;
    /// for (bound, count) in group.loops()[0].metrics().poll_times().buckets() {
    ///     println!("{count} polls took {bound:?} or little less");
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        // A snapshot may have counted a duration before it is the longest; then its bound is that of its
        // bucket.
        used.map(|(index, count)| {
            let bound = Duration::from_nanos(buckets::upper_bound(index));
            let max = buckets::index_of(buckets::nanos(self.max));
            (if index == max { self.max } else { bound }, *count)
        })
    }

    /// As [`buckets`](Histogram::buckets), with bounds that do not depend on what was counted, so that two
    /// histograms can be compared.
    #[cfg(feature = "inspect")]
    pub(crate) fn fixed_buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let used = self.counts.iter().enumerate().filter(|(_, n)| **n > 0);
        used.map(|(index, count)| (Duration::from_nanos(buckets::upper_bound(index)), *count))
    }

    /// Adds what another histogram has counted.
    pub fn merge(&mut self, other: &Histogram) {
        let longer = self.counts.len().max(other.counts.len());
        self.counts.resize(longer, 0);
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many durations were `limit` or shorter; exact up to the width of a bucket.
    pub(crate) fn count_up_to(&self, limit: Duration) -> u64 {
        let within = self.buckets().take_while(|(bound, _)| *bound <= limit);
        within.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Builds one of these durations.
    #[cfg(test)]
    pub(crate) fn from_durations(durations: impl IntoIterator<Item = Duration>) -> Histogram {
        let counter = DurationCounter::new();
        durations.into_iter().for_each(|one| counter.count(one));
        Histogram::of(&counter)
    }
}

/// The count, the sum, the longest and the buckets that are not empty.
impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Buckets<'a>(&'a Histogram);

        impl fmt::Debug for Buckets<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_map().entries(self.0.buckets()).finish()
            }
        }

        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum)
            .field("max", &self.max)
            .field("buckets", &Buckets(self))
            .finish()
    }
}

/// One line with the median and some percentiles.
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing yet");
        }
        write!(f, "{}:", counted(self.count(), "time"))?;
        for (q, name) in [(0.5, "median"), (0.9, "90 %"), (0.99, "99 %")] {
            if let Some(quantile) = self.quantile(q) {
                write!(f, " {name} {},", time(quantile))?;
            }
        }
        if self.count() >= 1_000 {
            if let Some(quantile) = self.quantile(0.999) {
                write!(f, " 99.9 % {},", time(quantile))?;
            }
        }
        write!(f, " longest {}", time(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: impl IntoIterator<Item = u64>) -> Histogram {
        Histogram::from_durations(micros.into_iter().map(Duration::from_micros))
    }

    #[test]
    fn quantiles_are_at_most_a_quarter_too_long_and_never_too_short() {
        let all = micros(1..=1_000);
        for percent in 0..=100_u64 {
            let exact = (percent * 10).max(1) as f64;
            let found = all.quantile(percent as f64 / 100.0).unwrap();
            let error = found.as_nanos() as f64 / (exact * 1_000.0);
            assert!(
                (1.0..1.25).contains(&error),
                "{percent} %: {found:?} for {exact} µs"
            );
        }
        assert_eq!(all.quantile(1.0), Some(Duration::from_millis(1)));
        assert_eq!(all.count(), 1_000);
        assert_eq!(all.sum(), Duration::from_micros(500_500));
    }

    #[test]
    fn a_quantile_of_nothing_and_a_quantile_that_is_none_are_none() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let one = micros([1]);
        for q in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(one.quantile(q), None, "{q}");
        }
        assert_eq!(one.quantile(0.0), one.quantile(1.0));
    }

    #[test]
    fn merging_is_counting_together() {
        let (one, other) = (micros([1, 5, 900]), micros([2, 5]));
        let mut both = one.clone();
        both.merge(&other);
        assert_eq!(both, micros([1, 2, 5, 5, 900]));
        let mut reverse = other;
        reverse.merge(&one);
        assert_eq!(reverse, both);
        both.merge(&Histogram::default());
        assert_eq!(reverse, both);
    }

    #[test]
    fn a_histogram_of_the_longest_durations_does_not_overflow() {
        let mut most = Histogram::from_durations([Duration::MAX, Duration::MAX]);
        most.merge(&most.clone());
        assert_eq!(most.count(), 4);
        assert_eq!(most.quantile(0.5), Some(Duration::from_nanos(u64::MAX)));
        assert!(!most.to_string().is_empty());
    }

    #[test]
    fn how_many_are_within_a_limit() {
        let all = micros([1, 10, 100, 1_000]);
        let within = [0, 1, 2, 11, 120, 1_000, 5_000];
        let counts = within.map(|limit| all.count_up_to(Duration::from_micros(limit)));
        assert_eq!(
            counts,
            [0, 0, 1, 2, 3, 4, 4],
            "1 µs is in a bucket that ends after it"
        );
    }

    #[test]
    fn as_text() {
        assert_eq!(Histogram::default().to_string(), "nothing yet");
        assert_eq!(
            micros([3]).to_string(),
            "1 time: median 3.00 µs, 90 % 3.00 µs, 99 % 3.00 µs, longest 3.00 µs"
        );
        let text = micros((0..2_000).map(|_| 3).chain([7_000])).to_string();
        assert_eq!(
            text,
            "2,001 times: median 3.07 µs, 90 % 3.07 µs, 99 % 3.07 µs, 99.9 % 3.07 µs, longest 7.00 ms"
        );
        assert_eq!(
            format!("{:?}", micros([3])),
            "Histogram { count: 1, sum: 3µs, max: 3µs, buckets: {3µs: 1} }"
        );
    }
}
