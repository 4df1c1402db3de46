//! A stream that ticks once per period.

use std::future::Future;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::Stream;

use crate::time::here::now;
use crate::time::sleep::Sleep;
use crate::time::timers::TimerKind;

/// How late a tick may be taken before [`MissedTick::Delay`] leaves the grid.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Ticks immediately, and then once per `period`.
///
/// # Panics
///
/// If `period` is zero. Polling the stream panics as [`sleep`](crate::time::sleep) does.
///
/// # Examples
///
/// ```
/// use loopgroup::time::interval;
/// use std::time::Duration;
///
/// loopgroup::block_on(async {
///     let mut ticks = interval(Duration::from_millis(1));
///     let first = ticks.tick().await; // at once
///     assert!(ticks.tick().await >= first + Duration::from_millis(1));
/// });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    Interval::new(Sleep::after(Duration::ZERO), period)
}

/// Ticks at `start` and then once per `period`.
///
/// # Panics
///
/// If `period` is zero. Polling the stream panics as [`sleep`](crate::time::sleep) does.
///
/// # Examples
///
/// ```
/// use futures::StreamExt;
/// use loopgroup::time::interval_at;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now() + Duration::from_millis(1);
/// let ticks = interval_at(start, Duration::from_millis(1)).take(3);
/// let ticks: Vec<_> = loopgroup::block_on(ticks.collect());
/// assert_eq!(ticks[0], start); // a tick is the instant it was scheduled for
/// assert_eq!(ticks[2], start + Duration::from_millis(2));
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(Sleep::at(Some(start), TimerKind::Sleep), period)
}

/// What an [`Interval`] does about ticks that were not taken in time.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::TestLoop;
/// use loopgroup::time::{MissedTick, interval, sleep};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// TestLoop::new().block_on(async move {
///     let mut ticks = interval(second);
///     ticks.set_missed_tick(MissedTick::Skip);
///     let start = ticks.tick().await;
///     sleep(second * 7 / 2).await; // misses the ticks of seconds 1, 2 and 3
///     assert_eq!(ticks.tick().await, start + second); // the tick that was already armed
///     assert_eq!(ticks.tick().await, start + 4 * second);
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTick {
    /// Ticks as fast as it is polled until it has caught up: the default.
    #[default]
    Burst,
    /// Ticks one period after the late one was taken, off the old grid.
    ///
    /// A tick is late if it is taken more than 5 ms after its scheduled instant, or more than a
    /// period if that is shorter: the ordinary delay of a timer does not make the interval drift.
    Delay,
    /// Skips missed ticks and continues with the next one on the grid.
    Skip,
}

/// The stream of [`interval`] and [`interval_at`]; each item is the instant that its tick was
/// scheduled for.
///
/// # Cancel safety
///
/// `tick` and `next` are cancel safe: a tick is consumed only when they are ready.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::TestLoop;
/// use loopgroup::time::{MissedTick, interval};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let mut test = TestLoop::new();
/// test.block_on(async {
///     let mut ticks = interval(second);
///     assert_eq!((ticks.period(), ticks.missed_tick()), (second, MissedTick::Burst));
///     let first = ticks.tick().await;
///     let second_tick = std::future::poll_fn(|cx| ticks.poll_tick(cx)).await;
///     assert_eq!(second_tick - first, second);
/// });
/// ```
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTick,
}

impl Interval {
    #[track_caller]
    fn new(first: Sleep, period: Duration) -> Interval {
        assert!(
            !period.is_zero(),
            "the period of an interval must be above zero"
        );
        Interval {
            sleep: first,
            period,
            missed: MissedTick::default(),
        }
    }

    /// Waits for the next tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::interval};
    /// use std::time::Duration;
    ///
    /// let mut test = TestLoop::new();
    /// test.block_on(async {
    ///     let mut ticks = interval(Duration::from_secs(1));
    ///     for _ in 0..3 {
    ///         ticks.tick().await; // at 0, 1 and 2 seconds
    ///     }
    /// });
    /// assert_eq!(test.elapsed(), Duration::from_secs(2));
    /// ```
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let tick = self
            .sleep
            .deadline()
            .expect("an interval beyond the range of the clock is never ready");
        self.sleep.reset_to(self.next_tick(tick, now()));
        Poll::Ready(tick)
    }

    /// Drops a tick that is due, and ticks one period from now; later ticks follow on this new grid.
    ///
    /// A task that waits for the next tick is woken at the new instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::{interval, sleep}};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async move {
    ///     let mut heartbeat = interval(second * 10);
    ///     let start = heartbeat.tick().await;
    ///     sleep(second * 7).await; // then there is traffic:
    ///     heartbeat.reset();
    ///     assert_eq!(heartbeat.tick().await - start, second * 17);
    ///     assert_eq!(heartbeat.tick().await - start, second * 27);
    /// });
    /// ```
    pub fn reset(&mut self) {
        self.sleep.reset_after(self.period);
    }

    /// Ticks now, and then once per period from here on: [`reset`](Interval::reset) without the first wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::{interval, sleep}};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async move {
    ///     let mut refresh = interval(second * 10);
    ///     let start = refresh.tick().await;
    ///     sleep(second * 7).await; // then something has changed:
    ///     refresh.reset_immediately();
    ///     assert_eq!(refresh.tick().await - start, second * 7);
    ///     assert_eq!(refresh.tick().await - start, second * 17);
    /// });
    /// ```
    pub fn reset_immediately(&mut self) {
        self.sleep.reset_after(Duration::ZERO);
    }

    /// Ticks `delay` from now, and then once per period: [`reset`](Interval::reset) with another first wait.
    ///
    /// [`Duration::MAX`], like any time beyond the range of the clock, means never: the interval is then
    /// stopped, and ticks again for a task that polls it after the next reset.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::interval};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async move {
    ///     let mut retries = interval(second * 10);
    ///     let start = retries.tick().await;
    ///     retries.reset_after(second * 60); // the server asked for a pause
    ///     assert_eq!(retries.tick().await - start, second * 60);
    ///     assert_eq!(retries.tick().await - start, second * 70);
    /// });
    /// ```
    pub fn reset_after(&mut self, delay: Duration) {
        self.sleep.reset_after(delay);
    }

    /// Ticks at `deadline`, and then once per period from that instant on.
    ///
    /// An instant in the past is due at once; how the ticks since then are made up for is up to the
    /// [`MissedTick`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::{interval, now}};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// TestLoop::new().block_on(async move {
    ///     let mut ticks = interval(second);
    ///     let later = now() + second * 30;
    ///     ticks.reset_at(later); // also before the first tick
    ///     assert_eq!(ticks.tick().await, later);
    ///     assert_eq!(ticks.tick().await, later + second);
    /// });
    /// ```
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// Returns the time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns what is done about ticks that were not taken in time.
    pub fn missed_tick(&self) -> MissedTick {
        self.missed
    }

    /// Sets what is done about ticks that were not taken in time.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::time::{MissedTick, interval};
    ///
    /// let mut ticks = interval(std::time::Duration::from_secs(1));
    /// ticks.set_missed_tick(MissedTick::Delay);
    /// assert_eq!(ticks.missed_tick(), MissedTick::Delay);
    /// ```
    pub fn set_missed_tick(&mut self, missed: MissedTick) {
        self.missed = missed;
    }

    /// The tick that follows `tick`, which was taken at `now`.
    fn next_tick(&self, tick: Instant, now: Instant) -> Option<Instant> {
        let next = tick.checked_add(self.period)?;
        match self.missed {
            MissedTick::Burst => Some(next),
            MissedTick::Delay => {
                let late = now.saturating_duration_since(tick);
                let taken = if late > TOLERANCE.min(self.period) {
                    now
                } else {
                    tick
                };
                taken.checked_add(self.period)
            }
            MissedTick::Skip if next >= now => Some(next),
            MissedTick::Skip => {
                let late = now.saturating_duration_since(next).as_nanos();
                let over = late % self.period.as_nanos();
                // At most a period, so it fits if the period does; a period of centuries may not.
                let rest = self.period.as_nanos() - over;
                now.checked_add(Duration::from_nanos(u64::try_from(rest).ok()?))
            }
        }
    }
}

impl Stream for Interval {
    type Item = Instant;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        self.poll_tick(cx).map(Some)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_tick_is_caught_up_delayed_or_skipped() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut ticks = interval_at(start, ms(10));
        let late = start + ms(35);
        for (missed, next) in [
            (MissedTick::Burst, 10),
            (MissedTick::Delay, 45),
            (MissedTick::Skip, 40),
        ] {
            ticks.set_missed_tick(missed);
            assert_eq!(
                ticks.next_tick(start, late),
                Some(start + ms(next)),
                "{missed:?}"
            );
            let in_time = start + ms(5);
            assert_eq!(ticks.next_tick(start, in_time), Some(start + ms(10)));
        }
        // Late by less than a long period, and by more than a short one.
        ticks.set_missed_tick(MissedTick::Delay);
        assert_eq!(ticks.next_tick(start, start + ms(6)), Some(start + ms(16)));
        ticks.period = ms(2);
        assert_eq!(ticks.next_tick(start, start + ms(2)), Some(start + ms(2)));
        assert_eq!(ticks.next_tick(start, start + ms(3)), Some(start + ms(5)));
        ticks.period = ms(10);
        // Exactly on the grid: the tick of this instant is not late.
        ticks.set_missed_tick(MissedTick::Skip);
        assert_eq!(ticks.next_tick(start, start + ms(10)), Some(start + ms(10)));
        assert_eq!(ticks.next_tick(start, start + ms(30)), Some(start + ms(40)));
    }
}
