//! The clock of a loop: the system's monotonic clock, or a virtual one that a test advances.
//!
//! - All deadlines use this clock, so that a test loop runs the production code without real time.
//! - A test's own thread reads the clock of the test loop that it created last, except in `block_on`,
//!   which uses the system's clock.
//! - A `sleep` that a test creates there may be meant for the test loop or for a real one. It records the
//!   readings of both clocks, and uses the clock of the loop or `block_on` that first polls it
//!   ([`Moment`](crate::time::moment)).

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::sync::{self, Arc, Ordering, plain, thread_local};

thread_local! {
    /// The clocks of the test loops that this thread has created and not dropped.
    static TEST_CLOCKS: RefCell<Vec<Arc<VirtualClock>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the clock of the test loop that this thread created last, if one is alive.
pub(crate) fn of_test() -> Option<Arc<VirtualClock>> {
    TEST_CLOCKS
        .try_with(|clocks| clocks.borrow().last().cloned())
        .ok()
        .flatten()
}

/// Makes this thread read `clock` until the guard is dropped.
pub(crate) fn read_here(clock: &Arc<VirtualClock>) -> ReadHere {
    TEST_CLOCKS.with(|clocks| clocks.borrow_mut().push(Arc::clone(clock)));
    ReadHere(Arc::clone(clock))
}

/// The guard of [`read_here`].
#[derive(Debug)]
pub(crate) struct ReadHere(Arc<VirtualClock>);

impl Drop for ReadHere {
    fn drop(&mut self) {
        let _ = TEST_CLOCKS.try_with(|clocks| {
            clocks
                .borrow_mut()
                .retain(|clock| !Arc::ptr_eq(clock, &self.0));
        });
    }
}

/// The clock of a loop.
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

/// Returns the earlier of two instants, where `None` means never.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A clock that is stopped until it is advanced, and never goes back.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    /// Nanoseconds since `start`; shared by the clocks of the hosts of a simulation.
    passed: Arc<plain::AtomicU64>,
    /// Nanoseconds that it is ahead of the clocks that it shares `passed` with.
    ahead: plain::AtomicU64,
    /// How often it was read.
    #[cfg(test)]
    pub(crate) reads: plain::AtomicU64,
}

impl VirtualClock {
    pub(crate) fn new() -> VirtualClock {
        VirtualClock {
            start: sync::now(),
            passed: Arc::new(plain::AtomicU64::new(0)),
            ahead: plain::AtomicU64::new(0),
            #[cfg(test)]
            reads: plain::AtomicU64::new(0),
        }
    }

    /// Creates a clock that is advanced with this one, and can be ahead of it.
    pub(crate) fn follower(&self) -> VirtualClock {
        VirtualClock {
            start: self.start,
            passed: Arc::clone(&self.passed),
            ahead: plain::AtomicU64::new(0),
            #[cfg(test)]
            reads: plain::AtomicU64::new(0),
        }
    }

    /// Puts it further ahead of the clock that it follows.
    pub(crate) fn skip(&self, ahead: Duration) {
        let nanos = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
        let add = |now: u64| Some(now.saturating_add(nanos));
        let _ = self
            .ahead
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// How far it is ahead of the clock that it follows.
    pub(crate) fn ahead(&self) -> Duration {
        Duration::from_nanos(self.ahead.load(Ordering::Relaxed))
    }

    pub(crate) fn now(&self) -> Instant {
        #[cfg(test)]
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.start + self.passed() + self.ahead()
    }

    pub(crate) fn passed(&self) -> Duration {
        Duration::from_nanos(self.passed.load(Ordering::Relaxed))
    }

    /// Advances to `instant`; has no effect if that is in the past.
    pub(crate) fn move_to(&self, instant: Instant) {
        let passed = instant.saturating_duration_since(self.start).as_nanos();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.passed.fetch_max(passed, Ordering::Relaxed);
    }
}
