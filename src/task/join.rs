//! The handle of a task.
//!
//! - Two words: the rare variants carry no more than the common one.
//! - Dropping it detaches: the task runs on, its result is dropped, and a panic is reported.
//! - It resolves whatever happens to the loop: completed, panicked, cancelled or refused.
//! - async-task aborts the process over a waker that panics. A foreign waker is wrapped in a shield
//!   that contains its panics.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use async_task::FallibleTask;

use crate::error::{JoinError, RejectReason};
use crate::event_loop::context;
use crate::panic::PanicSite;
use crate::task::Task;
use crate::task::harness::Outcome;
use crate::this_thread;
use crate::unwind::{contain, contain_drop};

/// Awaits the result of a task; dropping it detaches the task.
///
/// # Cancel safety
///
/// Awaiting `&mut handle` is cancel safe. Dropping the handle detaches the task, it does not cancel
/// it: use [`abort`](JoinHandle::abort) or [`cancel`](JoinHandle::cancel) for that.
///
/// # Panics
///
/// Polling it again after it was ready panics.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(2)?;
/// let handle = group.spawn(async { 6 * 7 });
/// assert_eq!(group.block_on(handle).unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping a JoinHandle detaches the task; use drop() to say so"]
pub struct JoinHandle<T>(Repr<T>);

enum Repr<T> {
    Loop(Task<T>),
    Blocking(FallibleTask<Outcome<T>, ()>),
    /// Boxed, to leave the others two plain words, which are moved as such.
    Refused(Box<RejectReason>),
    Done,
}

impl<T> JoinHandle<T> {
    pub(crate) fn of_task(task: Task<T>) -> JoinHandle<T> {
        JoinHandle(Repr::Loop(task))
    }

    pub(crate) fn of_job(job: FallibleTask<Outcome<T>, ()>) -> JoinHandle<T> {
        JoinHandle(Repr::Blocking(job))
    }

    pub(crate) fn refused(reason: RejectReason) -> JoinHandle<T> {
        JoinHandle(Repr::Refused(Box::new(reason)))
    }

    /// Whether the result has been taken: polling again would panic.
    pub(crate) fn is_joined(&self) -> bool {
        matches!(self.0, Repr::Done)
    }

    /// Says whether the task has ended, in whatever way, so that awaiting will not wait long.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// let task = test.spawn(async {});
    /// assert!(!task.is_finished());
    /// test.run_until_stalled();
    /// assert!(task.is_finished());
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Repr::Loop(task) => task.is_finished(),
            Repr::Blocking(job) => job.is_finished(),
            Repr::Refused(_) | Repr::Done => true,
        }
    }

    /// Cancels the task without waiting: its future is dropped soon, on its home loop.
    ///
    /// A job of a [`BlockingGroup`](crate::blocking::BlockingGroup) that has begun runs to its end.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// let task = test.spawn(std::future::pending::<()>());
    /// test.run_until_stalled();
    /// task.abort();
    /// test.run_until_stalled(); // it is dropped at home, in a turn of its loop
    /// assert_eq!((test.live_tasks(), test.metrics().cancelled()), (0, 1));
    /// ```
    pub fn abort(mut self) {
        match std::mem::replace(&mut self.0, Repr::Done) {
            // Dropping async-task's own handle is what cancels.
            Repr::Loop(task) => drop(task),
            Repr::Blocking(job) => drop(job),
            Repr::Refused(_) | Repr::Done => {}
        }
    }

    /// Cancels the task and waits until its future is really dropped.
    ///
    /// The task is cancelled by the call, awaited or not. The returned future resolves to the
    /// result if the task completed first, else to `None`; a panic that came first is reported,
    /// since no handle is left to carry it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the returned future does not take the cancellation back.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let for_ever = group.spawn(std::future::pending::<()>());
    /// assert_eq!(group.block_on(for_ever.cancel()), None); // its future was dropped by now
    /// # std::io::Result::Ok(())
    /// ```
    pub fn cancel(mut self) -> impl Future<Output = Option<T>> + use<T> {
        let repr = std::mem::replace(&mut self.0, Repr::Done);
        let mut cancelling = Box::pin(async move {
            match repr {
                Repr::Loop(task) => {
                    Shielded {
                        future: task.cancel(),
                    }
                    .await
                }
                Repr::Blocking(job) => {
                    Shielded {
                        future: job.cancel(),
                    }
                    .await
                }
                Repr::Refused(_) | Repr::Done => None,
            }
        });
        // The first poll of async-task's future is what cancels. It is made here, so that the task
        // is cancelled although the returned future may never be polled.
        let first = cancelling
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        async move {
            let outcome = match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => cancelling.await,
            };
            outcome?.value_or_report()
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            Repr::Loop(task) => poll_contained(task, cx),
            Repr::Blocking(job) => poll_contained(job, cx),
            Repr::Refused(reason) => {
                let error = JoinError::rejected(**reason);
                self.0 = Repr::Done;
                return Poll::Ready(Err(error));
            }
            Repr::Done => panic!("JoinHandle polled after it was ready"),
        };
        let Poll::Ready(mut outcome) = outcome else {
            return Poll::Pending;
        };
        self.detach_in_place();
        Poll::Ready(match outcome.as_mut().map(Outcome::join) {
            Some(Ok(value)) => Ok(value),
            Some(Err((payload, location))) => Err(JoinError::panic(payload, location)),
            None => Err(JoinError::cancelled()),
        })
    }
}

impl<T> JoinHandle<T> {
    /// Detaches the task, which does nothing to one that is done but free it.
    fn detach_in_place(&mut self) {
        match std::mem::replace(&mut self.0, Repr::Done) {
            Repr::Loop(task) => task.detach(),
            Repr::Blocking(job) => job.detach(),
            Repr::Refused(_) | Repr::Done => {}
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        self.detach_in_place();
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.0 {
            Repr::Refused(_) => "refused",
            Repr::Done => "joined",
            _ if self.is_finished() => "finished",
            _ => "running",
        };
        f.debug_tuple("JoinHandle").field(&state).finish()
    }
}

/// A foreign waker whose panics are kept.
struct Shield(Option<Waker>);

impl Shield {
    fn wake(&self) {
        if let Some(waker) = &self.0 {
            if let Err(payload) = contain(|| waker.wake_by_ref()) {
                context::panics().report(PanicSite::Waker, payload, None);
            }
        }
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if let Err(payload) = contain_drop(self.0.take()) {
            context::panics().report(PanicSite::Waker, payload, None);
        }
    }
}

/// Polls a future of async-task's, which aborts the process over a waker that panics.
///
/// Our own wakers do not, and need no shield; a foreign one gets it when it is about to be stored.
fn poll_contained<F>(task: &mut F, cx: &mut Context<'_>) -> Poll<F::Output>
where
    F: Future + Unpin,
{
    if this_thread::is_own_waker(cx.waker()) {
        return Pin::new(task).poll(cx);
    }
    let shield = Shield(Some(cx.waker().clone()));
    let shielded = waker_fn::waker_fn(move || shield.wake());
    Pin::new(task).poll(&mut Context::from_waker(&shielded))
}

pin_project_lite::pin_project! {
    /// A future of async-task's that is polled through a shield.
    struct Shielded<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Shielded<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        poll_contained(&mut self.project().future, cx)
    }
}
