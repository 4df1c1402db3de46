//! The time limits of a connection, and the rate of accepts.
//!
//! - A connection is idle while a task waits for it and nothing arrives or is sent. Use is recorded in the
//!   readiness of its descriptor, without a clock, and checked four times per limit: a limit `d` expires
//!   after `d` to `1.25·d`. The time that a handler takes without waiting for the connection does not count.
//! - A limit that has expired ends nothing by itself: operations that would have to wait fail, and what the
//!   handler makes of that is its outcome. So a handler can still send a farewell.
//! - The rate is a bucket of tokens for a hundredth of a second. It may be overdrawn by one accept per
//!   acceptor, and the debt is paid back: the rate holds over time.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::io::control::Control;
use crate::limit_timer::LimitTimer;
use crate::sync::Mutex;
use crate::time::here;

/// How often the use of a connection is checked in the time of its idle limit.
const CHECKS: u32 = 4;

/// The time limits of all connections of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeLimits {
    pub(super) first_byte: Option<Duration>,
    pub(super) idle: Option<Duration>,
}

impl TimeLimits {
    pub(super) fn is_none(&self) -> bool {
        self.first_byte.is_none() && self.idle.is_none()
    }

    /// Starts the limits of one connection.
    pub(super) fn start(&self, control: Control) -> TimeWatch {
        control.record_use();
        TimeWatch {
            control,
            first_byte: self.first_byte.map(LimitTimer::after),
            idle: self.idle.map(|idle| {
                // Rounded up: a limit is never shortened.
                let step = idle / CHECKS + Duration::from_nanos(1);
                IdleWatch {
                    step,
                    check: LimitTimer::after(step),
                    quiet_checks: 0,
                }
            }),
        }
    }
}

/// The limits of one connection; polled by its task.
#[derive(Debug)]
pub(super) struct TimeWatch {
    control: Control,
    first_byte: Option<LimitTimer>,
    idle: Option<IdleWatch>,
}

#[derive(Debug)]
struct IdleWatch {
    step: Duration,
    check: LimitTimer,
    /// Consecutive checks that found the connection waited for and not used.
    quiet_checks: u32,
}

impl TimeWatch {
    /// Ready, once, when a limit has expired; operations fail from then on.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_expired(cx) {
            self.first_byte = None;
            self.idle = None;
            self.control.expire();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Disarms the timers, before the connection moves to another loop: they are armed where they are next
    /// polled. Time that has passed counts there as well.
    pub(super) fn disarm(&mut self) {
        self.first_byte = self.first_byte.take().map(LimitTimer::disarmed);
        self.idle = self.idle.take().map(|idle| IdleWatch {
            check: idle.check.disarmed(),
            ..idle
        });
    }

    fn is_expired(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(limit) = &mut self.first_byte {
            if limit.poll(cx).is_ready() {
                self.first_byte = None;
                if !self.control.has_received() {
                    return true;
                }
            }
        }
        let Some(idle) = &mut self.idle else {
            return false;
        };
        while idle.check.poll(cx).is_ready() {
            let (is_used, is_awaited) = (self.control.take_use(), self.control.take_awaited());
            let is_quiet = is_awaited && !is_used;
            idle.quiet_checks = if is_quiet { idle.quiet_checks + 1 } else { 0 };
            if idle.quiet_checks == CHECKS {
                return true;
            }
            idle.check = LimitTimer::after(idle.step);
        }
        false
    }
}

/// Limits how many connections are accepted per second.
#[derive(Debug)]
pub(super) struct AcceptRate {
    /// The time of one token.
    interval: Duration,
    /// When the bucket was, or will be, empty: tokens are the time since then, divided by the interval.
    empty_at: Mutex<Instant>,
    /// The time of a full bucket.
    full: Duration,
}

impl AcceptRate {
    pub(super) fn new(per_second: u32) -> AcceptRate {
        let interval = Duration::from_secs(1) / per_second;
        let full = interval.max(Duration::from_millis(10));
        let now = here::now();
        AcceptRate {
            interval,
            empty_at: Mutex::new(now.checked_sub(full).unwrap_or(now)),
            full,
        }
    }

    /// How long to wait until there is a token; `None` if there is one.
    pub(super) fn delay(&self) -> Option<Duration> {
        self.delay_at(here::now())
    }

    fn delay_at(&self, now: Instant) -> Option<Duration> {
        let next = *self.empty_at.lock() + self.interval;
        (next > now).then(|| next - now)
    }

    /// Takes a token, which may be missing.
    pub(super) fn take(&self) {
        self.take_at(here::now());
    }

    fn take_at(&self, now: Instant) {
        let mut empty_at = self.empty_at.lock();
        let earliest = now.checked_sub(self.full).unwrap_or(now);
        *empty_at = (*empty_at).max(earliest) + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync;

    /// Accepts as fast as the rate allows; returns how many in that time.
    fn accepts_in(per_second: u32, time: Duration) -> u32 {
        let rate = AcceptRate::new(per_second);
        let start = sync::now();
        let (mut now, mut accepts) = (start, 0);
        while now < start + time {
            match rate.delay_at(now) {
                // Timers have a resolution of a millisecond.
                Some(delay) => now += delay.max(Duration::from_millis(1)),
                None => {
                    rate.take_at(now);
                    accepts += 1;
                }
            }
        }
        accepts
    }

    #[test]
    fn a_rate_is_reached_and_exceeded_by_a_hundredth_of_a_second_at_most() {
        for per_second in [1, 10, 150, 5_000, 200_000] {
            let accepts = accepts_in(per_second, Duration::from_secs(4));
            let (least, most) = (per_second * 4, per_second * 4 + per_second / 100 + 1);
            assert!((least..=most).contains(&accepts), "{per_second}: {accepts}");
        }
    }

    #[test]
    fn time_without_a_connection_fills_one_bucket_only() {
        let rate = AcceptRate::new(1000);
        let later = sync::now() + Duration::from_secs(60);
        let burst =
            std::iter::from_fn(|| rate.delay_at(later).is_none().then(|| rate.take_at(later)));
        assert_eq!(burst.count(), 10);
    }

    #[test]
    fn an_overdrawn_bucket_is_paid_back() {
        let rate = AcceptRate::new(1000);
        let now = sync::now();
        for _ in 0..15 {
            rate.take_at(now);
        }
        let delay = rate.delay_at(now).unwrap();
        assert!((5..=6).contains(&delay.as_millis()), "{delay:?}");
    }
}
