//! The policy for submissions to a loop whose queue is full.

use std::time::Duration;

use crate::event_loop::handle::EventLoop;

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
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum RejectPolicy {
    /// Refuse it at once. The default.
    #[default]
    Reject,
    /// Retry `retries` times, `interval` apart, then refuse. On the thread of a loop, refuse at once: a
    /// loop must not sleep.
    Backoff {
        /// How often to retry; not 0.
        retries: u32,
        /// How long to sleep before each retry; not zero.
        interval: Duration,
    },
    /// Call a function with the number of the failed attempt, from 1. It runs on the submitting thread.
    /// On the full loop itself [`Verdict::Retry`] counts as [`Verdict::Reject`]: its queue makes progress
    /// only when the caller returns.
    Custom(fn(&EventLoop, u32) -> Verdict),
}

/// The answer of a custom [`RejectPolicy`].
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, RejectPolicy, Verdict};
/// use std::time::Duration;
///
/// // Retries up to ten times, and waits a little longer each time.
/// let policy = RejectPolicy::Custom(|ev, attempt| {
///     if attempt > 10 || ev.in_event_loop() {
///         return Verdict::Reject;
///     }
///     std::thread::sleep(Duration::from_micros(100 * u64::from(attempt)));
///     Verdict::Retry
/// });
/// let group = EventLoopGroup::builder().loops(1).max_pending_tasks(8).reject_policy(policy).build()?;
/// let tasks: Vec<_> = (0..100).map(|n| group.spawn(async move { n })).collect();
/// let accepted = tasks.into_iter().filter_map(|task| group.block_on(task).ok()).count();
/// assert!(accepted >= 8);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Refuse the submission.
    Reject,
    /// Retry at once; the function may wait before it returns this.
    Retry,
}
