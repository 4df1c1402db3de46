//! A group for the length of one future: made, used, drained, and reported on.
//!
//! - The report is made when every loop has ended, so nothing of the group runs after the call.
//! - A main future that panics cancels the tasks, and the panic continues once they are dropped: a failed
//!   test leaves no loop behind.

use std::future::Future;
use std::io;
use std::time::Duration;

use crate::builder::Builder;
use crate::event_loop::terms;
use crate::group::handle::EventLoopGroup;
use crate::report::TerminationReport;
use crate::this_thread;
use crate::unwind::contain;

/// Runs `main` with a new group, drains the group, and returns the value of `main` and the report.
///
/// For tests and tools, which have a beginning and an end. `main` is polled on the calling thread, as in
/// [`EventLoopGroup::block_on`]: [`spawn`](crate::spawn), timers and sockets work in it. When it is done,
/// tasks that are left have 15 seconds to finish; [`Builder::scope`] has settings and another bound.
///
/// # Errors
///
/// As [`EventLoopGroup::new`]; `Deadlock` on the thread of an event loop.
///
/// # Panics
///
/// If `main` panics, with the same payload, once the tasks of the group are cancelled.
///
/// # Examples
///
/// ```
/// let (sum, report) = loopgroup::scope(2, async |group| {
///     let tasks = [1, 2, 3].map(|n| group.spawn(async move { n * n }));
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     loopgroup::spawn(async { loopgroup::yield_now().await }); // nobody waits for it but the scope
///     sum
/// })?;
/// assert_eq!(sum, 14);
/// assert!(report.is_clean(), "{report}");
/// assert_eq!(report.completed(), 4);
/// # std::io::Result::Ok(())
/// ```
pub fn scope<F, Fut>(loops: usize, main: F) -> io::Result<(Fut::Output, TerminationReport)>
where
    F: FnOnce(EventLoopGroup) -> Fut,
    Fut: Future,
{
    Builder::new().loops(loops).scope(terms::TIMEOUT, main)
}

impl Builder {
    /// Builds the group, runs `main` with it, drains it, and returns the value of `main` and the report.
    ///
    /// As [`scope`](crate::scope), with the settings of this builder. Tasks that are left when `main` is done
    /// are cancelled at `timeout`.
    ///
    /// # Errors
    ///
    /// As [`build`](Builder::build); `Deadlock` on the thread of an event loop.
    ///
    /// # Panics
    ///
    /// If `main` panics, with the same payload, once the tasks of the group are cancelled.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::time::Duration;
    ///
    /// let builder = EventLoopGroup::builder().loops(1).max_pending_tasks(100);
    /// let (len, report) = builder.scope(Duration::ZERO, async |group| {
    ///     group.spawn(std::future::pending::<()>()); // cancelled at the end
    ///     group.len()
    /// })?;
    /// assert_eq!((len, report.cancelled()), (1, 1));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn scope<F, Fut>(
        self,
        timeout: Duration,
        main: F,
    ) -> io::Result<(Fut::Output, TerminationReport)>
    where
        F: FnOnce(EventLoopGroup) -> Fut,
        Fut: Future,
    {
        if this_thread::is_loop() {
            return Err(io::Error::new(
                io::ErrorKind::Deadlock,
                "scope was called on the thread of an event loop, which it would block: spawn on a \
                 group and await its drain there, or call scope on a thread of its own",
            ));
        }
        let group = self.build()?;
        match contain(|| group.block_on(main(group.clone()))) {
            Ok(value) => Ok((value, group.drain(timeout).wait())),
            Err(payload) => {
                // Bounded: the panic must not be held back by a poll that never returns.
                group
                    .shutdown_now()
                    .wait_timeout(timeout.max(terms::TIMEOUT));
                std::panic::resume_unwind(payload)
            }
        }
    }
}
