//! What can be set, and what it was set to.
//!
//! - [`Config`] is what the loops of a group share once it is built: checked, and never changed.

use std::any::Any;
use std::io;
use std::time::Duration;

use crate::clock::Clock;
use crate::event_loop::EventLoop;
use crate::event_loop::launch::LoopThread;
use crate::panic::PanicHandler;
use crate::sync::Arc;

/// What happens to a submission when `max_pending_tasks` are waiting already.
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
///     blocked.recv().unwrap(); // the loop stands still, and its queue fills
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
    /// Refuse it at once: the default.
    #[default]
    Reject,
    /// Try again, `retries` times, `interval` apart, then refuse. Callers that are loops themselves
    /// are refused at once: a loop must not sleep.
    Backoff {
        /// How often to try again; not 0.
        retries: u32,
        /// How long to sleep between two tries; not zero.
        interval: Duration,
    },
    /// Ask a function, with the number of the failed attempt, from 1. It runs on the submitting thread.
    /// On the full loop itself [`Verdict::Retry`] counts as [`Verdict::Reject`]: its queue moves only
    /// when the caller returns.
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
/// // Waits a little longer each time, ten times, and tells nobody but the last.
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
    /// Try again at once; the function may wait before it answers so.
    Retry,
}

/// How a loop waits when it has nothing to do.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, WaitStrategy};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .wait_strategy(WaitStrategy::SpinThenPark(Duration::from_micros(50)))
///     .build()?;
/// assert_eq!(group.block_on(group.spawn(async { 7 })).unwrap(), 7);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// Block at once: no CPU while idle. The default.
    #[default]
    Park,
    /// Look for work without blocking for so long, then block; not zero. A message from another loop
    /// then needs no system call while the loop spins.
    SpinThenPark(Duration),
    /// Never block: one core per loop, always.
    Busy,
}

/// When a loop that shuts down closes its channels.
///
/// # Examples
///
/// ```
/// use loopgroup::{CloseChannels, EventLoopGroup, net::UnixStream};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .close_channels(CloseChannels::Immediately)
///     .build()?;
/// let (tx, rx) = std::sync::mpsc::channel();
/// let reader = group.spawn(async move {
///     let (one, _other) = UnixStream::pair()?; // nobody will ever write
///     one.writable().await?;
///     tx.send(()).unwrap();
///     one.readable().await
/// });
/// rx.recv().unwrap();
/// group.drain(Duration::from_secs(5)).wait();
/// assert!(loopgroup::block_on(reader).unwrap().is_err()); // its socket was closed under it
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseChannels {
    /// At the end of its shutdown: handlers finish with their peers. The default.
    #[default]
    AtEnd,
    /// At its start, as Netty does.
    Immediately,
}

/// What a group was built with, shared by its loops.
pub(crate) struct Config {
    pub(crate) thread_names: Vec<String>,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) thread_factory: Option<Box<ThreadFactory>>,
    pub(crate) on_thread_start: Option<Box<StartHook>>,
    pub(crate) place: Option<Box<Place>>,
    pub(crate) on_panic: Option<Arc<PanicHandler>>,
    pub(crate) reject_policy: RejectPolicy,
    pub(crate) wait_strategy: WaitStrategy,
    pub(crate) io_ratio: u32,
    pub(crate) measure_time: bool,
    #[cfg(feature = "tracing")]
    pub(crate) slow_poll: Option<Duration>,
    pub(crate) close_channels: CloseChannels,
    pub(crate) clock: Clock,
}

pub(crate) type ThreadName = dyn Fn(usize) -> String + Send + Sync;
pub(crate) type ThreadFactory = dyn Fn(LoopThread) -> io::Result<()> + Send + Sync;
/// Puts the calling thread where the loop with this index runs.
pub(crate) type Place = dyn Fn(usize) -> io::Result<()> + Send + Sync;
pub(crate) type Placement = dyn FnOnce(usize) -> io::Result<Box<Place>> + Send + Sync;
pub(crate) type StartHook = dyn Fn(&EventLoop) -> Box<dyn Any> + Send + Sync;
