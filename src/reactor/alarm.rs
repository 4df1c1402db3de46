//! The alarm of a selector: ends a wait at an instant; the selector itself waits for whole milliseconds.
//!
//! - On Linux it is a timerfd among the descriptors of the selector, for the feature `precise-timers`. Other
//!   systems have selectors (kqueue) that wait for nanoseconds: there an alarm does nothing.
//! - It rings at the deadline or later, never before: the time that is left is counted from a reading of the
//!   clock that was taken earlier.
//! - It does not ring within 50 µs of the beginning of the wait. Deadlines that are closer together than
//!   that share one wake-up, at little CPU time.
//! - It is not set again if it rings in time anyway. So it may ring for a timer that was cancelled since; the
//!   loop then waits again, for the next deadline.
//! - With the alarm set the selector has no timeout of its own: that would be a second timer for each wait.
//!   If the system refuses to set the alarm, the selector has its timeout, and the wait ends up to a
//!   millisecond late, as without alarms.
//!
//! ```text
//! unset ──set_for──▶ set ──rang──▶ unset
//! ```

pub(super) use system::Alarm;
pub(crate) use system::check_supported;

#[cfg(all(
    feature = "precise-timers",
    any(target_os = "linux", target_os = "android")
))]
mod system {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::{Duration, Instant};

    use mio::unix::SourceFd;
    use mio::{Interest, Registry};
    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

    use crate::reactor::table::ALARM;

    /// The shortest wait.
    pub(super) const GAP: Duration = Duration::from_micros(50);

    /// The alarm; loop thread only.
    #[derive(Debug)]
    pub(crate) struct Alarm {
        timer: TimerFd,
        /// When it rings next, or a little later.
        pub(super) rings_at: Option<Instant>,
    }

    impl Alarm {
        /// Creates an alarm, for the selector with this registry.
        pub(crate) fn new(registry: &Registry) -> io::Result<Alarm> {
            let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
            let mut alarm = Alarm {
                timer: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?,
                rings_at: None,
            };
            alarm.register(registry)?;
            Ok(alarm)
        }

        /// Registers it with a new selector.
        pub(crate) fn register(&mut self, registry: &Registry) -> io::Result<()> {
            let descriptor = self.timer.as_fd().as_raw_fd();
            self.rings_at = None;
            // Edge-triggered: an expiration is not read, the next setting clears it.
            registry.register(&mut SourceFd(&descriptor), ALARM, Interest::READABLE)
        }

        /// Sets it for a wait of this length, unless it rings in time anyway; returns whether it will ring.
        pub(crate) fn set_for(&mut self, now: Instant, left: Duration) -> bool {
            if left.is_zero() {
                return false; // That is no wait.
            }
            let left = left.max(GAP);
            let Some(rings_at) = now.checked_add(left) else {
                return false;
            };
            if self.rings_at.is_some_and(|set| set <= rings_at) {
                return true;
            }
            let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
            let set = self.timer.set(expiration, TimerSetTimeFlags::empty());
            self.rings_at = set.is_ok().then_some(rings_at);
            set.is_ok()
        }

        /// Records that it has rung.
        pub(crate) fn rang(&mut self) {
            self.rings_at = None;
        }
    }

    /// Whether this system has what alarms need.
    pub(crate) fn check_supported() -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(all(
    feature = "precise-timers",
    any(target_os = "linux", target_os = "android")
)))]
mod system {
    use std::io;
    use std::time::{Duration, Instant};

    use mio::Registry;

    /// No alarm is needed, or there is none.
    #[derive(Debug)]
    pub(crate) struct Alarm;

    impl Alarm {
        pub(crate) fn new(_registry: &Registry) -> io::Result<Alarm> {
            check_supported().map(|()| Alarm)
        }

        pub(crate) fn register(&mut self, _registry: &Registry) -> io::Result<()> {
            Ok(())
        }

        pub(crate) fn set_for(&mut self, _now: Instant, _left: Duration) -> bool {
            false
        }

        pub(crate) fn rang(&mut self) {}
    }

    /// Whether the selector of this system waits for less than a millisecond.
    pub(crate) fn check_supported() -> io::Result<()> {
        if !cfg!(any(target_os = "linux", target_os = "android")) {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the selector of this system waits for whole milliseconds; on Linux enable the feature \
             `precise-timers`, or build the group `without_io`",
        ))
    }
}

#[cfg(test)]
#[cfg(all(feature = "precise-timers", target_os = "linux"))]
mod tests {
    use std::time::{Duration, Instant};

    use super::system::{Alarm, GAP};

    #[test]
    fn an_alarm_is_set_only_if_it_would_ring_too_late() {
        let poll = mio::Poll::new().unwrap();
        let mut alarm = Alarm::new(poll.registry()).unwrap();
        let now = Instant::now();
        let at = |micros| now + Duration::from_micros(micros);
        let mut set_for = |micros| {
            let rings = alarm.set_for(now, Duration::from_micros(micros));
            assert_eq!(rings, micros > 0);
            alarm.rings_at
        };
        assert_eq!(set_for(0), None, "no wait");
        assert_eq!(set_for(900_000), Some(at(900_000)));
        assert_eq!(set_for(700_000), Some(at(700_000)), "earlier");
        assert_eq!(set_for(800_000), Some(at(700_000)), "in time");
        assert_eq!(set_for(1), Some(now + GAP), "not at once");
        assert_eq!(set_for(51), Some(now + GAP), "in time");
        alarm.rang();
        assert!(alarm.set_for(now, Duration::from_micros(60)));
        assert_eq!(alarm.rings_at, Some(at(60)));
    }
}
