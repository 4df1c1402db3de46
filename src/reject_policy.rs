//! The policy for submissions to a loop whose queue is full.

use std::fmt;
use std::time::Duration;

use crate::event_loop::handle::EventLoop;
use crate::panic::Contained;
use crate::sync::Arc;

/// What happens to a submission when `max_pending_tasks` are already waiting.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RejectPolicy, RejectReason};
/// use std::sync::mpsc;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .max_pending_tasks(2)
///     .reject_policy(RejectPolicy::Reject)
///     .build()?;
/// let (started, wait) = mpsc::channel();
/// let (release, blocked) = mpsc::channel::<()>();
/// group.next().execute(move || {
///     started.send(()).unwrap();
///     blocked.recv().unwrap(); // the loop is blocked, and its queue fills
/// })?;
/// wait.recv().unwrap();
/// group.try_spawn(async {})?;
/// group.try_spawn(async {})?;
/// let third = group.try_spawn(async {}).unwrap_err();
/// assert_eq!(third.reason(), RejectReason::QueueFull);
/// release.send(()).unwrap();
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum RejectPolicy {
    /// Reject it at once. The default.
    #[default]
    Reject,
    /// Retry `retries` times, `interval` apart, then reject. On the thread of a loop, reject at once: a
    /// loop must not sleep.
    Backoff {
        /// How often to retry; not 0.
        retries: u32,
        /// How long to sleep before each retry; not zero.
        interval: Duration,
    },
    /// Call a function with the number of the failed attempt, from 1. It runs on the submitting thread.
    /// On the full loop itself [`RejectVerdict::Retry`] counts as [`RejectVerdict::Reject`]: its queue makes
    /// progress only when the caller returns.
    ///
    /// For a closure that captures something see [`RejectPolicy::custom`].
    Custom(fn(&EventLoop, u32) -> RejectVerdict),
    /// Made by [`RejectPolicy::custom`].
    #[doc(hidden)]
    Closure(CustomPolicy),
}

/// A closure that decides over submissions to a full queue.
#[derive(Clone)]
pub struct CustomPolicy(pub(crate) Arc<Decide>);

type Decide = dyn Fn(&EventLoop, u32) -> RejectVerdict + Send + Sync;

impl RejectPolicy {
    /// Returns a policy that asks a closure, on the terms of [`RejectPolicy::Custom`].
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectPolicy, RejectVerdict};
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    ///
    /// let rejections = Arc::new(AtomicU32::new(0));
    /// let counter = Arc::clone(&rejections);
    /// let policy = RejectPolicy::custom(move |_, _| {
    ///     counter.fetch_add(1, Ordering::Relaxed);
    ///     RejectVerdict::Reject
    /// });
    /// let group = EventLoopGroup::builder().loops(1).max_pending_tasks(1).reject_policy(policy).build()?;
    /// let tasks: Vec<_> = (0..100).map(|_| group.try_spawn(async {})).collect();
    /// let rejected = tasks.iter().filter(|task| task.is_err()).count();
    /// assert_eq!(rejections.load(Ordering::Relaxed) as usize, rejected);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn custom(
        decide: impl Fn(&EventLoop, u32) -> RejectVerdict + Send + Sync + 'static,
    ) -> RejectPolicy {
        let decide = Contained::new(decide);
        RejectPolicy::Closure(CustomPolicy(Arc::new(move |one, attempt| {
            decide.get()(one, attempt)
        })))
    }
}

impl fmt::Debug for RejectPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RejectPolicy::Reject => f.write_str("Reject"),
            RejectPolicy::Backoff { retries, interval } => f
                .debug_struct("Backoff")
                .field("retries", retries)
                .field("interval", interval)
                .finish(),
            RejectPolicy::Custom(_) | RejectPolicy::Closure(_) => f.write_str("Custom(..)"),
        }
    }
}

impl fmt::Debug for CustomPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomPolicy(..)")
    }
}

/// The answer of a custom [`RejectPolicy`].
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RejectPolicy, RejectVerdict};
/// use std::time::Duration;
///
/// // Retries up to ten times, and waits a little longer each time.
/// let policy = RejectPolicy::Custom(|ev, attempt| {
///     if attempt > 10 || ev.in_event_loop() {
///         return RejectVerdict::Reject;
///     }
///     std::thread::sleep(Duration::from_micros(100 * u64::from(attempt)));
///     RejectVerdict::Retry
/// });
/// let group = EventLoopGroup::builder().loops(1).max_pending_tasks(8).reject_policy(policy).build()?;
/// let tasks: Vec<_> = (0..100).map(|n| group.spawn(async move { n })).collect();
/// let accepted = tasks.into_iter().filter_map(|task| group.block_on(task).ok()).count();
/// assert!(accepted >= 8);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectVerdict {
    /// Reject the submission.
    Reject,
    /// Retry at once; the function may wait before it returns this.
    Retry,
}
