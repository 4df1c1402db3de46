//! Time: sleeping, intervals, timeouts.
//!
//! A timer lives on the loop that polls it, in a queue of that loop: arming and cancelling it there
//! takes no lock. It never fires early, and it is late by at most 1 ms plus the task that is running: an
//! idle loop waits in whole milliseconds, and a busy one stops at the deadline, with the task that is
//! running then, and runs the task that the timer wakes ahead of its queue. With
//! [`precise_timers`](crate::Builder::precise_timers) an idle loop wakes up within microseconds.
//!
//! A sleep whose deadline has passed is ready when it is polled; that costs budget, so a task that keeps
//! sleeping for no time yields to other tasks. Dropping a timer frees it at once, or soon if it is dropped on
//! another thread. Timers also work in [`run`](crate::run) and [`block_on`](crate::block_on), but not in
//! tasks of other runtimes.
//!
//! A timer that is moved to another thread is armed there when it is polled there. Until then it fires on
//! the thread that polled it last: on a loop always, on another thread while that is inside `block_on`. When
//! that loop ends, or the thread's outermost `block_on` returns, the task that waits for the timer is woken
//! to poll it again.
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
//!     ticks.tick().await; // the first tick is immediate
//!     ticks.tick().await;
//!     timeout(Duration::from_millis(1), std::future::pending::<()>()).await
//! });
//! assert!(group.block_on(task).unwrap().is_err(), "pending for ever");
//! # std::io::Result::Ok(())
//! ```

pub(crate) mod block_on;
pub(crate) mod here;
mod interval;
pub(crate) mod moment;
pub(crate) mod queue;
pub(crate) mod sleep;
mod timeout;
pub(crate) mod timers;

pub use here::now;
pub use interval::{Interval, MissedTick, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
