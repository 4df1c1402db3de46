//! Blocking work: one thread per job, as in Netty's blocking transports.
//!
//! A job that blocks (on a file, a DNS look-up, a C library, a blocking channel) would block its loop
//! and every task on it. A [`BlockingGroup`] runs each accepted job on a thread of its own; threads are
//! reused, bounded in number, and retire after 10 s without a job. It shuts down like an
//! [`EventLoopGroup`](crate::EventLoopGroup), with the same report.
//!
//! ```
//! use loopgroup::{EventLoopGroup, blocking};
//!
//! let group = EventLoopGroup::new(1)?;
//! let hosts = group.spawn(async {
//!     // The loop keeps running while the file is read.
//!     blocking::unblock(|| std::fs::read_to_string("/etc/hosts")).await
//! });
//! assert!(group.block_on(hosts).unwrap().is_ok());
//! # std::io::Result::Ok(())
//! ```

#[cfg(loom)]
#[path = "../../tests/loom/expire.rs"]
mod expire;
mod job;
mod keeper;
mod pool;
mod pool_state;

pub use pool::WhenFull;

use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::OnceLock;
use std::time::Duration;

use crate::blocking::pool::Pool;
use crate::builder::invalid;
use crate::error::Rejected;
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{self, DrainScope, ShutdownRequest};
use crate::sync::Arc;
use crate::task::join::JoinHandle;
use crate::termination::TerminationFuture;

/// The maximum number of threads of the default group, and the default of a builder.
const DEFAULT_MAX: usize = 512;

/// Runs a closure on a thread of the default [`BlockingGroup`].
///
/// The default group has at most 512 threads; further jobs wait. It is never shut down, and a job that
/// still runs when `main` returns ends with the process. If the system cannot start a thread for the
/// job, the handle resolves to a rejection.
///
/// # Examples
///
/// ```
/// let answer = loopgroup::blocking::unblock(|| 6 * 7);
/// assert_eq!(loopgroup::block_on(answer).unwrap(), 42);
/// ```
#[track_caller]
pub fn unblock<F, T>(job: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    default_group().spawn(job)
}

/// As [`unblock`], or hands the closure back.
///
/// # Errors
///
/// [`Rejected`] carries the closure and the reason: the system could not start a thread.
///
/// # Examples
///
/// ```
/// let answer = loopgroup::blocking::try_unblock(|| 6 * 7)?;
/// assert_eq!(loopgroup::block_on(answer).unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn try_unblock<F, T>(job: F) -> Result<JoinHandle<T>, Rejected<F>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    default_group().try_spawn(job)
}

fn default_group() -> &'static BlockingGroup {
    static DEFAULT: OnceLock<BlockingGroup> = OnceLock::new();
    DEFAULT.get_or_init(|| BlockingGroup::assemble(DEFAULT_MAX, WhenFull::Wait))
}

/// A group of threads for blocking jobs, one per job.
///
/// It is a handle: clones share the group. Dropping the last handle requests a shutdown and does not
/// block: queued jobs that begin within 15 s still run, and the others are cancelled then; running jobs
/// finish.
///
/// A panic of a job whose handle was dropped is reported as one line on stderr.
///
/// # Examples
///
/// ```
/// use loopgroup::blocking::BlockingGroup;
/// use std::time::Duration;
///
/// let group = BlockingGroup::new(4)?;
/// let job = group.spawn(|| std::fs::metadata("/").map(|data| data.is_dir()));
/// assert!(loopgroup::block_on(job).unwrap()?);
/// let report = group.drain(Duration::from_secs(5)).wait();
/// assert_eq!(report.completed(), 1);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct BlockingGroup {
    pool: Arc<Pool>,
    _guard: Arc<ShutdownOnDrop>,
}

/// Shared by all handles; requests a shutdown when the last one is dropped.
struct ShutdownOnDrop {
    pool: Arc<Pool>,
}

impl Drop for ShutdownOnDrop {
    fn drop(&mut self) {
        self.pool.set_orphaned();
        self.pool.request(ShutdownRequest::Graceful {
            quiet: Duration::ZERO,
            timeout: terms::TIMEOUT,
        });
    }
}

impl BlockingGroup {
    /// Creates a group of at most `max_threads` threads, none of which is started yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `max_threads` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::blocking::BlockingGroup;
    ///
    /// assert_eq!(BlockingGroup::new(2)?.threads(), 0); // jobs start threads
    /// assert!(BlockingGroup::new(0).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn new(max_threads: usize) -> io::Result<BlockingGroup> {
        BlockingGroup::builder().max_threads(max_threads).build()
    }

    /// Returns a builder to configure a group.
    pub fn builder() -> BlockingBuilder {
        BlockingBuilder {
            max_threads: DEFAULT_MAX,
            when_full: WhenFull::default(),
        }
    }

    fn assemble(max_threads: usize, when_full: WhenFull) -> BlockingGroup {
        let pool = Pool::new(max_threads, when_full);
        BlockingGroup {
            pool: Arc::clone(&pool),
            _guard: Arc::new(ShutdownOnDrop { pool }),
        }
    }

    /// Runs a closure on a thread of its own; a rejection resolves the handle with an error.
    ///
    /// Dropping the handle detaches the job. A job that has begun cannot be cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// let job = group.spawn(|| std::fs::read("/dev/null"));
    /// assert!(loopgroup::block_on(job).unwrap()?.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&self, job: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if let Some(event_loop) = self.simulated() {
            return event_loop.submit(job);
        }
        let location = Location::caller();
        self.pool.submit(job, location).unwrap_or_else(|rejected| {
            let reason = rejected.reason();
            let call = rejected.into_inner();
            job::drop_uncalled(call, location, job::JobEnd::Cancelled);
            JoinHandle::refused(reason)
        })
    }

    /// Runs a closure on a thread of its own, or returns it.
    ///
    /// # Errors
    ///
    /// [`Rejected`] carries the closure and the reason.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// group.shutdown_now().wait();
    /// let rejected = group.try_spawn(|| 42).unwrap_err();
    /// assert_eq!(rejected.into_inner()(), 42); // run on this thread instead
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn try_spawn<F, T>(&self, job: F) -> Result<JoinHandle<T>, Rejected<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if let Some(event_loop) = self.simulated() {
            return Ok(event_loop.submit(job));
        }
        self.pool.submit(job, Location::caller())
    }

    /// The loop that runs a job instead of a thread: the caller's, if it is on a simulated host.
    fn simulated(&self) -> Option<EventLoop> {
        context::simulated_host()?;
        EventLoop::current().filter(|_| !self.state().is_shutdown())
    }

    /// Returns how many threads the group currently has for jobs.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Returns how many jobs wait for a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// let (begun, wait) = mpsc::channel();
    /// let (release, blocked) = mpsc::channel::<()>();
    /// group.spawn(move || {
    ///     begun.send(()).unwrap();
    ///     blocked.recv()
    /// });
    /// wait.recv().unwrap();
    /// group.spawn(|| "the second, for one thread");
    /// assert_eq!((group.threads(), group.pending_jobs()), (1, 1));
    /// release.send(()).unwrap();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn pending_jobs(&self) -> usize {
        self.pool.pending()
    }

    /// Returns the lifecycle state of the group.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{LoopState, blocking::BlockingGroup};
    ///
    /// let group = BlockingGroup::new(1)?;
    /// assert_eq!(group.state(), LoopState::NotStarted);
    /// group.shutdown_now().wait();
    /// assert!(group.is_shutting_down() && group.is_shutdown() && group.is_terminated());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn state(&self) -> LoopState {
        self.pool.state.get()
    }

    /// Returns whether a shutdown was requested.
    pub fn is_shutting_down(&self) -> bool {
        self.state().is_shutting_down()
    }

    /// Returns whether new jobs are rejected.
    pub fn is_shutdown(&self) -> bool {
        self.state().is_shutdown()
    }

    /// Returns whether every thread has ended.
    pub fn is_terminated(&self) -> bool {
        self.state().is_terminated()
    }

    /// Shuts the group down gracefully, with a quiet period of 2 s and a timeout of 15 s.
    ///
    /// As with an [`EventLoopGroup`](crate::EventLoopGroup), the first request sets the terms, and
    /// [`shutdown_now`](BlockingGroup::shutdown_now) shortens them.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// let end = group.shutdown_gracefully();
    /// group.shutdown_now(); // shortens it
    /// assert!(end.wait().is_clean());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_gracefully(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Graceful {
            quiet: terms::QUIET,
            timeout: terms::TIMEOUT,
        })
    }

    /// Shuts the group down gracefully, on these terms.
    ///
    /// At `timeout` the jobs that have not begun are cancelled, even while every thread is busy: an
    /// additional thread then watches the deadline. (If the system refuses that thread, the deadline is
    /// checked by threads that wait for termination, or that poll its future after the timeout.)
    /// Termination waits for the jobs that have begun, since a thread cannot be stopped; the report
    /// counts them as [`running`](crate::LoopReport::running).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `timeout` is shorter than `quiet`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::blocking::BlockingGroup;
    /// use std::time::Duration;
    ///
    /// let group = BlockingGroup::new(1)?;
    /// group.spawn(|| ());
    /// let end = group.shutdown_gracefully_with(Duration::ZERO, Duration::from_secs(5))?;
    /// assert_eq!(end.wait().completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn shutdown_gracefully_with(
        &self,
        quiet: Duration,
        timeout: Duration,
    ) -> io::Result<TerminationFuture> {
        Ok(self.request(terms::graceful(quiet, timeout)?))
    }

    /// Shuts the group down as soon as no job is queued or running; at `timeout` queued jobs are
    /// cancelled, as by [`shutdown_gracefully_with`](BlockingGroup::shutdown_gracefully_with).
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// let jobs: Vec<_> = (0..3).map(|n| group.spawn(move || n)).collect();
    /// let report = group.drain(std::time::Duration::from_secs(5)).wait();
    /// assert_eq!(report.completed(), 3);
    /// assert!(jobs.iter().all(|job| job.is_finished()));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> TerminationFuture {
        let scope = DrainScope::Loop;
        self.request(ShutdownRequest::Drain { scope, timeout })
    }

    /// Shuts the group down as soon as the running jobs are finished; queued ones are cancelled.
    pub fn shutdown_now(&self) -> TerminationFuture {
        self.request(ShutdownRequest::Now)
    }

    /// Returns a future for the termination of the group; its report has one entry.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::blocking::BlockingGroup::new(1)?;
    /// let end = group.termination(); // does not request a shutdown
    /// drop(group); // requests it
    /// assert_eq!(end.wait().loops().len(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn termination(&self) -> TerminationFuture {
        self.pool.termination.future()
    }

    fn request(&self, request: ShutdownRequest) -> TerminationFuture {
        self.pool.request(request);
        self.termination()
    }
}

impl fmt::Debug for BlockingGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingGroup")
            .field("state", &self.state())
            .field("threads", &self.threads())
            .field("pending_jobs", &self.pending_jobs())
            .finish_non_exhaustive()
    }
}

/// Configures a [`BlockingGroup`].
///
/// # Examples
///
/// ```
/// use loopgroup::blocking::{BlockingGroup, WhenFull};
///
/// let group = BlockingGroup::builder().max_threads(2).when_full(WhenFull::Reject).build()?;
/// assert_eq!(group.threads(), 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until build()"]
pub struct BlockingBuilder {
    max_threads: usize,
    when_full: WhenFull,
}

impl BlockingBuilder {
    /// Bounds the number of threads, at least 1; the default is 512.
    pub fn max_threads(mut self, max: usize) -> BlockingBuilder {
        self.max_threads = max;
        self
    }

    /// Sets what happens to a job when every thread is busy.
    pub fn when_full(mut self, when_full: WhenFull) -> BlockingBuilder {
        self.when_full = when_full;
        self
    }

    /// Builds the group; no thread is started yet.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with the name of the invalid setting.
    pub fn build(self) -> io::Result<BlockingGroup> {
        if self.max_threads == 0 {
            let text = "a blocking group needs at least one thread";
            return Err(invalid("max_threads", text));
        }
        Ok(BlockingGroup::assemble(self.max_threads, self.when_full))
    }
}
