//! A moment of the loop's clock. A type of its own, since openraft's `now` of std's type reads the system's.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{Duration, Instant};

use loopgroup::time;

/// A moment of the clock of the current loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoopInstant(Instant);

impl openraft_rt::Instant for LoopInstant {
    fn now() -> Self {
        LoopInstant(time::now())
    }
}

impl From<LoopInstant> for Instant {
    fn from(instant: LoopInstant) -> Instant {
        instant.0
    }
}

impl Add<Duration> for LoopInstant {
    type Output = LoopInstant;

    fn add(self, duration: Duration) -> LoopInstant {
        LoopInstant(self.0 + duration)
    }
}

impl AddAssign<Duration> for LoopInstant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for LoopInstant {
    type Output = LoopInstant;

    fn sub(self, duration: Duration) -> LoopInstant {
        LoopInstant(self.0 - duration)
    }
}

impl SubAssign<Duration> for LoopInstant {
    fn sub_assign(&mut self, duration: Duration) {
        self.0 -= duration;
    }
}

impl Sub for LoopInstant {
    type Output = Duration;

    fn sub(self, earlier: LoopInstant) -> Duration {
        self.0 - earlier.0
    }
}
