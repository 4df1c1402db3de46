//! Time: sleeping, intervals, timeouts.
//!
//! A timer lives on the loop that polls it, in a queue of that loop: arming and cancelling it there
//! takes no lock. It never fires early. A loop that waits for it fires it a millisecond late at most,
//! for waits are in whole milliseconds; a busy one fires it after the slice of tasks that it is
//! running, and the task that it wakes goes behind those that are queued. A deadline that has passed is ready at the
//! poll; that costs budget, so a task that sleeps for no time again and again lets others in. Dropping a timer frees it at
//! once, or soon when it is dropped on another thread. Timers also work in [`run`](crate::run) and
//! [`block_on`](crate::block_on), not in tasks of other runtimes.
//!
//! A timer that is carried to another thread moves there when it is polled there. Until then it fires where it
//! was polled last: on a loop in any case, on a thread while that is inside `block_on`. When that loop ends, or
//! the thread's outermost `block_on` returns, whoever waits for the timer is woken to poll it again.
//!
//! To run a closure later, see [`EventLoop::schedule`](crate::EventLoop::schedule).
//!
//! ```
//! use loopgroup::time::{interval, sleep, timeout};
//! use std::time::Duration;
//!
//! let group = loopgroup::EventLoopGroup::new(1)?;
//! let task = group.spawn(async {
//!     sleep(Duration::from_millis(1)).await;
//!     let mut ticks = interval(Duration::from_millis(1));
//!     ticks.tick().await; // the first tick comes at once
//!     ticks.tick().await;
//!     timeout(Duration::from_millis(1), std::future::pending::<()>()).await
//! });
//! assert!(group.block_on(task).unwrap().is_err(), "pending for ever");
//! # std::io::Result::Ok(())
//! ```

mod interval;
pub(crate) mod moment;
pub(crate) mod queue;
pub(crate) mod sleep;
pub(crate) mod thread;
mod timeout;
pub(crate) mod timers;

pub use interval::{Interval, MissedTick, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};

use std::time::Instant;

use crate::clock::{self, Clock};
use crate::event_loop::context;
use crate::sync;
use crate::time::timers::{HomeId, Timers};

/// Reads the clock of the current loop: the system's, or that of a
/// [`TestLoop`](crate::testing::TestLoop).
///
/// A thread that is no loop reads the system's clock inside [`block_on`](crate::block_on). Elsewhere it reads that
/// of the test loop that it made last, while one lives.
///
/// Code that asks here instead of [`Instant::now`] can be tested in virtual time.
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
        .or_else(thread::read_clock)
        .or_else(|| clock::of_test().map(|clock| clock.now()))
        .unwrap_or_else(sync::now)
}

/// The clock that [`now`] reads.
fn clock_here() -> Clock {
    let outside = || {
        let test = clock::of_test().filter(|_| !thread::is_inside());
        test.map_or(Clock::System, Clock::Virtual)
    };
    context::with_local(|local| local.shared.config.clock.clone()).unwrap_or_else(outside)
}

/// Whether a timer can be polled on this thread.
pub(crate) fn has_timers() -> bool {
    here(|_| ()).is_some()
}

/// The timers of this thread, to arm one; `look` must not call foreign code.
fn here<R>(look: impl FnOnce(&Timers) -> R) -> Option<R> {
    if context::is_loop() {
        context::with_local(|local| look(&local.timers))
    } else {
        thread::here(look)
    }
}

/// The timers of this thread, if they are `home`; `look` must not call foreign code.
fn at<R>(home: HomeId, look: impl FnOnce(&Timers) -> R) -> Option<R> {
    let mut look = Some(look);
    let mut once = |timers: &Timers| (look.take().expect("called once"))(timers);
    context::with_local(|local| (local.timers.home() == home).then(|| once(&local.timers)))
        .flatten()
        .or_else(|| thread::at(home, &mut once))
}
