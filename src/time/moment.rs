//! The instant that a timer waits for.
//!
//! Mostly it is known from the start. On the thread of a test that has a test loop, "in an hour"
//! may be meant for that loop or for a real one, and their clocks differ: a moment that is created
//! there keeps both instants, and the clock of the loop or `block_on` that first polls it decides.
//! A timer whose moment a test loop has resolved, and that moves to a real loop afterwards, keeps
//! the instant of the test clock.

use std::time::{Duration, Instant};

use crate::clock::{self, Clock, VirtualClock};
use crate::sync::{self, Arc};
use crate::this_thread;
use crate::time::here::now;

/// The instant; `None` is never.
#[derive(Debug)]
pub(super) enum Moment {
    At(Option<Instant>),
    /// Boxed: it is rare, and must not make timers larger.
    Unresolved(Box<Unresolved>),
}

/// A duration from now, on either clock.
#[derive(Debug)]
pub(super) struct Unresolved {
    duration: Duration,
    on_system_clock: Option<Instant>,
    on_test_clock: Option<Instant>,
    test_clock: Arc<VirtualClock>,
}

impl Moment {
    /// The moment `duration` from now.
    pub(super) fn after(duration: Duration) -> Moment {
        if !this_thread::is_loop() {
            if let Some(test_clock) = clock::of_test() {
                return Moment::Unresolved(Box::new(Unresolved {
                    duration,
                    on_system_clock: sync::now().checked_add(duration),
                    on_test_clock: test_clock.now().checked_add(duration),
                    test_clock,
                }));
            }
        }
        Moment::At(now().checked_add(duration))
    }

    /// The instant on `clock`: on the clock of a test loop other than the one it was created
    /// beside, counted from now.
    pub(super) fn on(&self, clock: &Clock) -> Option<Instant> {
        match (self, clock) {
            (Moment::At(moment), _) => *moment,
            (Moment::Unresolved(moment), Clock::System) => moment.on_system_clock,
            (Moment::Unresolved(moment), Clock::Virtual(clock)) => {
                if Arc::ptr_eq(clock, &moment.test_clock) {
                    moment.on_test_clock
                } else {
                    clock.now().checked_add(moment.duration)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_as_small_as_an_instant() {
        assert_eq!(size_of::<Moment>(), size_of::<Option<Instant>>());
    }

    #[test]
    fn a_moment_created_beside_a_test_clock_is_resolved_by_the_clock_that_asks() {
        let hour = Duration::from_secs(3600);
        assert!(matches!(Moment::after(hour), Moment::At(Some(_))));
        let [ours, other] = [(); 2].map(|()| Arc::new(VirtualClock::new()));
        other.move_to(other.now() + hour);
        let _reading = clock::read_here(&ours);
        let start = Instant::now();
        let moment = Moment::after(hour);
        assert_eq!(
            moment.on(&Clock::Virtual(Arc::clone(&ours))),
            Some(ours.now() + hour)
        );
        assert_eq!(
            moment.on(&Clock::Virtual(Arc::clone(&other))),
            Some(other.now() + hour)
        );
        assert!(moment.on(&Clock::System) >= Some(start + hour));
        assert_eq!(Moment::after(Duration::MAX).on(&Clock::System), None);
    }
}
