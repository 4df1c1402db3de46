//! When a loop works and when it sleeps, for readers on other threads.
//!
//! - The loop publishes only when it falls asleep and when it wakes up, from one reading of the clock each,
//!   which it shares with the rest of its turn where it can. It publishes nothing per task.
//! - A reader extrapolates: a loop that has been awake since some moment was busy from then until now, and
//!   a loop that has been asleep since then was idle. So the value is right however long ago the loop has
//!   published.
//! - The busy share decays exponentially with a time constant of [`TAU`]. The loop adds busy time up as
//!   integers, and folds it into the share once per [`WINDOW`]: there the decay costs an exponential, and
//!   nothing between.
//! - The delay of a wake-up is the time from the ring of a producer to the end of the sleep that it ended.
//!   The producer reads the clock, once per sleep, before the system call that it makes anyway.
//! - All fields have one writer, the loop thread, except `rung`, which the producer with the duty to ring
//!   writes. They order nothing. A reader that races with a switch reads again.
//!
//! ```text
//!   folded        since            now
//!     │ busy of it  │ awake or not  │
//!     ├─────────────┼───────────────┤
//!       share decays  towards 1 or 0
//! ```

use std::time::{Duration, Instant};

use crate::metrics::gauges::Gauge;

/// The time constant of the share: what happened this long ago counts for 1/e.
const TAU: f64 = 1e9;
/// The loop folds at most this often, in nanoseconds. The order of work and sleep within a window is not
/// known.
const WINDOW: u64 = 1_000_000_000 / 16;
/// A new delay counts for one part in this many.
const DELAY_WEIGHT: u64 = 8;

/// The pulse of a loop; on cache lines of its own, with what producers write on another one.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Pulse {
    /// All other times are in nanoseconds since then.
    zero: Instant,
    /// When the loop woke up or fell asleep, times two, plus one while it is awake.
    since: Gauge,
    /// The time that the loop was awake between `folded` and `since`.
    busy: Gauge,
    /// When `share` was computed.
    folded: Gauge,
    /// The busy share at `folded`: the bits of an `f64`.
    share: Gauge,
    /// The decaying mean of the delays.
    delay: Gauge,
    rung: Rung,
}

/// When a producer last rang the bell of the loop, or zero.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Rung(Gauge);

/// A moment, in nanoseconds since the pulse was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick(u64);

impl Tick {
    /// How many nanoseconds have passed since `earlier`.
    #[inline]
    pub(crate) fn since(self, earlier: Tick) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What a reader sees of a pulse.
#[derive(Clone, Copy, Debug)]
struct Beat {
    since: u64,
    is_awake: bool,
    busy: u64,
    folded: u64,
    share: f64,
}

impl Pulse {
    /// The pulse of a loop that has not started.
    pub(crate) fn new(now: Instant) -> Pulse {
        Pulse {
            zero: now,
            since: Gauge::default(),
            busy: Gauge::default(),
            folded: Gauge::default(),
            share: Gauge::default(),
            delay: Gauge::default(),
            rung: Rung::default(),
        }
    }

    /// The moment of an instant: computed once, for it takes longer than all that follows.
    #[inline]
    pub(crate) fn tick(&self, now: Instant) -> Tick {
        let passed = now.saturating_duration_since(self.zero);
        // A pulse lasts for less than three centuries.
        let seconds = passed.as_secs().wrapping_mul(1_000_000_000);
        Tick(seconds.wrapping_add(u64::from(passed.subsec_nanos())))
    }

    /// Notes that the loop falls asleep; has no effect if it sleeps. Loop thread only.
    #[inline]
    pub(crate) fn sleep(&self, Tick(now): Tick) {
        let since = self.since.get();
        if since & 1 == 1 {
            self.busy.add(now.saturating_sub(since >> 1));
            self.since.set(now << 1);
        }
    }

    /// Notes that the loop has woken up; has no effect if it is awake. Loop thread only.
    #[inline]
    pub(crate) fn wake(&self, Tick(now): Tick) {
        let since = self.since.get();
        if since & 1 == 0 {
            if now.saturating_sub(self.folded.get()) >= WINDOW {
                self.fold(now);
            }
            self.since.set(now << 1 | 1);
            // A ring that is older than this sleep was for the one before, and came late.
            let rung = self.rung.0.get();
            if rung > since >> 1 {
                self.note_delay(now.saturating_sub(rung));
            }
        }
    }

    /// Notes that a turn of a loop that never sleeps has ended, and whether it has done anything. Loop
    /// thread only.
    pub(crate) fn turned(&self, now: Tick, worked: bool) {
        if worked {
            self.sleep(now);
        } else {
            self.since.set(now.0 << 1);
        }
        self.wake(now);
    }

    /// Notes that a producer is about to ring the bell of the sleeping loop: any thread, once per sleep.
    pub(crate) fn ring(&self, Tick(now): Tick) {
        self.rung.0.set(now);
    }

    /// When the bell was last rung, if ever.
    pub(crate) fn last_ring(&self) -> Option<Instant> {
        match self.rung.0.get() {
            0 => None,
            rung => self.zero.checked_add(Duration::from_nanos(rung)),
        }
    }

    /// The busy share of the last second or so, between 0 and 1.
    pub(crate) fn utilization(&self, Tick(now): Tick) -> f64 {
        self.beat().share_at(now).clamp(0.0, 1.0)
    }

    /// The mean delay of the last wake-ups; that of the one under way if it is longer.
    pub(crate) fn delay(&self, Tick(now): Tick) -> Duration {
        let beat = self.beat();
        let rung = self.rung.0.get();
        let under_way = match !beat.is_awake && rung > beat.since {
            true => now.saturating_sub(rung),
            false => 0,
        };
        Duration::from_nanos(self.delay.get().max(under_way))
    }

    #[cold]
    fn fold(&self, now: u64) {
        let share = self.beat().share_at(now);
        self.share.set(share.to_bits());
        self.folded.set(now);
        self.busy.set(0);
    }

    #[cold]
    fn note_delay(&self, delay: u64) {
        let mean = self.delay.get();
        self.delay
            .set(mean - mean / DELAY_WEIGHT + delay / DELAY_WEIGHT);
    }

    fn beat(&self) -> Beat {
        let mut since = self.since.get();
        loop {
            let beat = Beat {
                since: since >> 1,
                is_awake: since & 1 == 1,
                busy: self.busy.get(),
                folded: self.folded.get(),
                share: f64::from_bits(self.share.get()),
            };
            let again = self.since.get();
            if again == since {
                return beat;
            }
            since = again;
        }
    }
}

impl Beat {
    fn share_at(&self, now: u64) -> f64 {
        let window = self.since.saturating_sub(self.folded);
        let busy = self.busy as f64 / window.max(1) as f64;
        let share = decayed(self.share, busy, window);
        let target = if self.is_awake { 1.0 } else { 0.0 };
        // A reader that races with a fold finds the share of a later moment than the switch.
        let since = self.since.max(self.folded);
        decayed(share, target, now.saturating_sub(since))
    }
}

/// A share that has been drawn towards `target` for this long.
fn decayed(share: f64, target: f64, nanos: u64) -> f64 {
    target + (share - target) * (-(nanos as f64) / TAU).exp()
}

/// The mean share between two readings, `before` and `after`, of which the second one came `time` later.
pub(crate) fn share_between(before: f64, after: f64, time: Duration) -> f64 {
    let rest = (-(time.as_nanos() as f64) / TAU).exp();
    let share = (after - before * rest) / (1.0 - rest).max(f64::EPSILON);
    share.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pulse, and the moment so many microseconds after its creation.
    fn pulse() -> (Pulse, impl Fn(u64) -> Tick) {
        let zero = Instant::now();
        let at = move |micros| Pulse::new(zero).tick(zero + Duration::from_micros(micros));
        (Pulse::new(zero), at)
    }

    const SECOND: u64 = 1_000_000;

    #[track_caller]
    fn assert_near(one: f64, other: f64) {
        assert!((one - other).abs() < 0.01, "{one} is not near {other}");
    }

    #[test]
    fn a_loop_that_has_not_started_is_idle() {
        let (pulse, at) = pulse();
        assert_eq!(pulse.utilization(at(0)), 0.0);
        assert_eq!(pulse.utilization(at(10 * SECOND)), 0.0);
        assert_eq!(pulse.delay(at(SECOND)), Duration::ZERO);
    }

    #[test]
    fn a_loop_that_works_without_a_pause_approaches_one_although_it_publishes_nothing() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        assert_near(pulse.utilization(at(SECOND)), 1.0 - (-1.0_f64).exp());
        assert!(pulse.utilization(at(10 * SECOND)) > 0.999);
        assert!(pulse.utilization(at(1000 * SECOND)) <= 1.0);
    }

    #[test]
    fn a_loop_that_sleeps_approaches_zero_although_it_publishes_nothing() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        pulse.sleep(at(10 * SECOND));
        assert!(pulse.utilization(at(10 * SECOND)) > 0.999);
        assert_near(pulse.utilization(at(11 * SECOND)), (-1.0_f64).exp());
        assert!(pulse.utilization(at(20 * SECOND)) < 0.001);
    }

    #[test]
    fn the_share_is_that_of_the_work_for_short_cycles_and_for_long_ones() {
        for (cycle, tolerance) in [(100, 0.01), (1_000, 0.01), (40_000, 0.04), (100_000, 0.06)] {
            for percent in [0, 1, 25, 50, 99, 100] {
                let (pulse, at) = pulse();
                for number in 0..5 * SECOND / cycle {
                    pulse.wake(at(number * cycle));
                    pulse.sleep(at(number * cycle + cycle * percent / 100));
                }
                let share = pulse.utilization(at(5 * SECOND));
                let expected = percent as f64 / 100.0;
                assert!(
                    (share - expected).abs() < tolerance,
                    "{share} is not {expected} for cycles of {cycle} µs"
                );
            }
        }
    }

    #[test]
    fn a_change_of_load_is_seen_within_seconds() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        pulse.sleep(at(5 * SECOND));
        for millis in 5_000..8_000 {
            pulse.wake(at(millis * 1_000));
            pulse.sleep(at(millis * 1_000 + 200));
        }
        let share = pulse.utilization(at(8 * SECOND));
        assert_near(share, 0.2 + 0.8 * (-3.0_f64).exp());
    }

    #[test]
    fn the_share_of_a_period_follows_from_the_readings_at_its_ends() {
        let (pulse, at) = pulse();
        // Busy by a tenth for three seconds, and then by nine tenths.
        for millis in 0..3_100 {
            pulse.wake(at(millis * 1_000));
            let busy = if millis < 3_000 { 100 } else { 900 };
            pulse.sleep(at(millis * 1_000 + busy));
        }
        let reading = |millis: u64| pulse.utilization(at(millis * 1_000));
        let share = share_between(0.1, reading(3_100), Duration::from_millis(100));
        assert!((share - 0.9).abs() < 0.1, "{share}");
        let asleep = share_between(reading(3_100), reading(3_200), Duration::from_millis(100));
        assert_near(asleep, 0.0);
        assert_eq!(share_between(0.5, 0.5, Duration::ZERO), 0.0);
    }

    #[test]
    fn to_fall_asleep_twice_and_to_wake_up_twice_changes_nothing() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        pulse.wake(at(SECOND));
        pulse.sleep(at(2 * SECOND));
        pulse.sleep(at(3 * SECOND));
        let share = (1.0 - (-2.0_f64).exp()) * (-1.0_f64).exp();
        assert_near(pulse.utilization(at(3 * SECOND)), share);
    }

    #[test]
    fn turns_that_find_nothing_are_no_work_of_a_loop_that_never_sleeps() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        for turn in 1..=1_000_000 {
            pulse.turned(at(turn * 5), turn % 4 == 0);
        }
        assert_near(pulse.utilization(at(5 * SECOND)), 0.25);
        let within_a_poll = pulse.utilization(at(15 * SECOND));
        assert!(within_a_poll > 0.999, "{within_a_poll}");
    }

    #[test]
    fn the_delay_is_that_from_the_ring_to_the_end_of_the_sleep() {
        let (pulse, at) = pulse();
        for second in 1..=50 {
            pulse.sleep(at(second * SECOND));
            pulse.ring(at(second * SECOND + 500));
            pulse.wake(at(second * SECOND + 580));
        }
        let delay = pulse.delay(at(60 * SECOND));
        assert!(
            delay > Duration::from_micros(75) && delay <= Duration::from_micros(80),
            "{delay:?}"
        );
    }

    #[test]
    fn a_sleep_that_no_ring_has_ended_has_no_delay() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        pulse.sleep(at(10));
        pulse.wake(at(20)); // a timer, or a socket
        pulse.ring(at(25)); // by a producer that was late
        pulse.sleep(at(30));
        pulse.wake(at(SECOND));
        assert_eq!(pulse.delay(at(SECOND)), Duration::ZERO);
    }

    #[test]
    fn a_wake_up_that_is_under_way_is_seen_before_it_ends() {
        let (pulse, at) = pulse();
        pulse.wake(at(0));
        pulse.sleep(at(10));
        pulse.ring(at(20));
        assert_eq!(pulse.delay(at(SECOND + 20)), Duration::from_secs(1));
    }
}
