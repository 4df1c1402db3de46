//! Where a loop reads the time: the system's monotonic clock, or one that a test moves.
//!
//! - Everything that has a deadline asks here, so that a test loop runs the production code without
//!   real time.
//! - A test's own thread reads the clock of the test loop that it made last, outside of `block_on`, which waits
//!   by the system's.
//! - A `sleep` that a test makes there may be meant for the test loop or for a real one. It remembers the readings
//!   of both clocks, and counts by that of the loop or `block_on` that first polls it
//!   ([`Moment`](crate::time::moment)).

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::sync::{self, Arc, Ordering, plain, thread_local};

thread_local! {
    static OF_TESTS: RefCell<Vec<Arc<VirtualClock>>> = const { RefCell::new(Vec::new()) };
}

/// The clock of the test loop that this thread made last, if one lives.
pub(crate) fn of_test() -> Option<Arc<VirtualClock>> {
    OF_TESTS
        .try_with(|clocks| clocks.borrow().last().cloned())
        .ok()
        .flatten()
}

/// Has this thread read `clock` until the guard is dropped.
pub(crate) fn read_here(clock: &Arc<VirtualClock>) -> ReadHere {
    OF_TESTS.with(|clocks| clocks.borrow_mut().push(Arc::clone(clock)));
    ReadHere(Arc::clone(clock))
}

/// See [`read_here`].
#[derive(Debug)]
pub(crate) struct ReadHere(Arc<VirtualClock>);

impl Drop for ReadHere {
    fn drop(&mut self) {
        let _ = OF_TESTS.try_with(|clocks| {
            clocks
                .borrow_mut()
                .retain(|clock| !Arc::ptr_eq(clock, &self.0));
        });
    }
}

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
            Clock::System => sync::now(),
            Clock::Virtual(clock) => clock.now(),
        }
    }
}

/// The earlier of two moments, either of which may be never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A clock that stands still until it is moved, and only moves forward.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    /// Nanoseconds since the start.
    passed: plain::AtomicU64,
}

impl VirtualClock {
    pub(crate) fn new() -> VirtualClock {
        VirtualClock {
            start: sync::now(),
            passed: plain::AtomicU64::new(0),
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
