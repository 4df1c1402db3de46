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
