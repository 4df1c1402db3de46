//! The moment that a timer waits for.
//!
//! Mostly it is known from the start. On the thread of a test that has a test loop, "in an hour" may be meant for
//! that loop or for a real one, and their clocks differ: a moment that is made there remembers both, and is decided
//! by the clock that first polls it. A timer whose moment a test loop has decided, and that is carried to a real loop
//! after that, stays with the clock of the test.

use std::time::{Duration, Instant};

use crate::clock::{self, Clock, VirtualClock};
use crate::sync::{self, Arc};
use crate::this_thread;
use crate::time::here::now;

/// The moment; `None` is never.
#[derive(Debug)]
pub(super) enum Moment {
    At(Option<Instant>),
    /// Boxed: it is rare, and is not to make timers larger.
    Undecided(Box<Undecided>),
}

#[derive(Debug)]
pub(super) struct Undecided {
    duration: Duration,
    by_system: Option<Instant>,
    by_test: Option<Instant>,
    test: Arc<VirtualClock>,
}

impl Moment {
    /// The moment `duration` from now.
    pub(super) fn after(duration: Duration) -> Moment {
        if !this_thread::is_loop() {
            if let Some(test) = clock::of_test() {
                return Moment::Undecided(Box::new(Undecided {
                    duration,
                    by_system: sync::now().checked_add(duration),
                    by_test: test.now().checked_add(duration),
                    test,
                }));
            }
        }
        Moment::At(now().checked_add(duration))
    }

    /// The moment, as `clock` has it: on a test's clock that it was not made by, counted from now.
    pub(super) fn by(&self, clock: &Clock) -> Option<Instant> {
        match (self, clock) {
            (Moment::At(moment), _) => *moment,
            (Moment::Undecided(moment), Clock::System) => moment.by_system,
            (Moment::Undecided(moment), Clock::Virtual(clock)) => {
                if Arc::ptr_eq(clock, &moment.test) {
                    moment.by_test
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
    fn a_moment_made_beside_a_test_clock_is_decided_by_who_asks() {
        let hour = Duration::from_secs(3600);
        assert!(matches!(Moment::after(hour), Moment::At(Some(_))));
        let [ours, other] = [(); 2].map(|()| Arc::new(VirtualClock::new()));
        other.move_to(other.now() + hour);
        let _reading = clock::read_here(&ours);
        let start = Instant::now();
        let moment = Moment::after(hour);
        assert_eq!(
            moment.by(&Clock::Virtual(Arc::clone(&ours))),
            Some(ours.now() + hour)
        );
        assert_eq!(
            moment.by(&Clock::Virtual(Arc::clone(&other))),
            Some(other.now() + hour)
        );
        assert!(moment.by(&Clock::System) >= Some(start + hour));
        assert_eq!(Moment::after(Duration::MAX).by(&Clock::System), None);
    }
}
