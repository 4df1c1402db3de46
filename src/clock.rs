//! Where a loop reads the time: the system's monotonic clock, or one that a test moves.
//!
//! Everything that has a deadline asks here, so that a test loop runs the production code without
//! real time.

use std::time::{Duration, Instant};

use crate::sync::{Arc, AtomicU64, Ordering};

/// A clock.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    #[default]
    System,
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    pub(crate) fn now(&self) -> Instant {
        match self {
            Clock::System => Instant::now(),
            Clock::Virtual(clock) => clock.now(),
        }
    }
}

/// A clock that stands still until it is moved, and only moves forward.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    /// Nanoseconds since the start.
    passed: AtomicU64,
}

impl VirtualClock {
    pub(crate) fn new() -> VirtualClock {
        VirtualClock {
            start: Instant::now(),
            passed: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.passed()
    }

    pub(crate) fn passed(&self) -> Duration {
        Duration::from_nanos(self.passed.load(Ordering::Relaxed))
    }

    /// Moves to `instant`, unless it is there or further.
    pub(crate) fn move_to(&self, instant: Instant) {
        let passed = instant.saturating_duration_since(self.start).as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.passed.fetch_max(passed, Ordering::Relaxed);
    }
}
