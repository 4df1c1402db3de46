//! The timers and the clock of the current thread: those of its loop, or of its `block_on`.

use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::{self, Clock};
use crate::event_loop::context;
use crate::sync;
use crate::this_thread;
use crate::time::block_on;
use crate::time::queue::TimerKey;
use crate::time::timers::{HomeId, TimerKind, Timers};

/// Reads the clock of the current loop: the system's, or that of a
/// [`TestLoop`](crate::testing::TestLoop).
///
/// A thread that is not a loop reads the system's clock inside [`block_on`](crate::block_on). Otherwise it
/// reads the clock of the test loop that it created last, while one exists, and else the system's.
///
/// Code that calls this instead of [`Instant::now`] can be tested in virtual time.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::TestLoop;
/// use loopgroup::time::{now, sleep};
/// use std::time::Duration;
///
/// let hour = Duration::from_secs(3600);
/// let passed = TestLoop::new().block_on(async move {
///     let start = now();
///     sleep(hour).await;
///     now() - start
/// });
/// assert_eq!(passed, hour);
/// ```
pub fn now() -> Instant {
    context::with_local(|local| local.timers.read_clock())
        .or_else(block_on::read_clock)
        .or_else(|| clock::of_test().map(|clock| clock.now()))
        .unwrap_or_else(sync::now)
}

/// How long a poll has taken that began at `begun`; on a simulated host, what every poll costs.
pub(crate) fn poll_time(begun: Instant) -> Duration {
    match context::simulated_host() {
        Some(host) => host.poll_cost,
        None => sync::now().saturating_duration_since(begun),
    }
}

/// Returns the clock that [`now`] reads.
pub(super) fn clock_here() -> Clock {
    let outside = || {
        let test = clock::of_test().filter(|_| !block_on::is_inside());
        test.map_or(Clock::System, Clock::Virtual)
    };
    context::with_local(|local| local.shared.config.clock.clone()).unwrap_or_else(outside)
}

/// Whether a timer can be polled on this thread.
pub(crate) fn has_timers() -> bool {
    here(|_| ()).is_some()
}

/// Arms a timer on this thread, as [`Timers::try_arm`] does.
///
/// Not by [`here`], nor [`cancel`] by [`at`]: here the two ways have a closure each, and that of a loop
/// becomes part of the poll.
#[inline(always)]
pub(super) fn try_arm(
    deadline: Option<Instant>,
    waker: Waker,
    kind: TimerKind,
) -> Option<Result<(HomeId, TimerKey), Waker>> {
    if this_thread::is_loop() {
        context::with_local(|local| {
            let key = local.timers.try_arm(deadline, waker, kind);
            key.map(|key| (local.timers.home(), key))
        })
    } else {
        block_on::here(|timers| {
            let key = timers.try_arm(deadline, waker, kind);
            key.map(|key| (timers.home(), key))
        })
    }
}

/// Cancels a timer, if its home is this thread's; returns its waker, to be dropped with no borrow held.
#[inline(always)]
pub(super) fn cancel(home: HomeId, key: TimerKey) -> Option<Option<Waker>> {
    let on_loop = context::with_local(|local| {
        let is_home = local.timers.home() == home;
        is_home.then(|| local.timers.cancel(key))
    });
    match on_loop.flatten() {
        None => block_on::at(home, |timers| timers.cancel(key)),
        cancelled => cancelled,
    }
}

/// Calls `f` with the timers of this thread, to arm one; `f` must not call user code.
pub(super) fn here<R>(f: impl FnOnce(&Timers) -> R) -> Option<R> {
    if this_thread::is_loop() {
        context::with_local(|local| f(&local.timers))
    } else {
        block_on::here(f)
    }
}

/// Calls `f` with the timers of this thread, if its home is `home`; `f` must not call user code.
pub(super) fn at<R>(home: HomeId, f: impl Fn(&Timers) -> R) -> Option<R> {
    context::with_local(|local| (local.timers.home() == home).then(|| f(&local.timers)))
        .flatten()
        .or_else(|| block_on::at(home, f))
}
