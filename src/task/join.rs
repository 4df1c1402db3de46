//! The handle of a task.
//!
//! - Two words, which are passed in registers. A refused task is a task, too: one that has ended before it
//!   was queued. So is a job of a blocking group. Only their metadata differ.
//! - Dropping it detaches: the task runs on, its result is dropped, and a panic is reported.
//! - It resolves whatever happens to the loop: completed, panicked, cancelled or refused.
//! - It never closes its task: a task always ends with an outcome (see [`task`](super)), so polling one is
//!   never a surprise to async-task, and its metadata can be read at any time.
//! - async-task aborts the process over a waker that panics. A foreign waker is wrapped in a shield
//!   that contains its panics.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::error::{Caller, JoinError, RejectReason};
use crate::event_loop::context;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::shared::{LOOPS, Runnable, Shared, TaskMeta};
use crate::noted::{self, Noted};
use crate::panic::PanicSite;
use crate::sync::Arc;
use crate::task::Task;
use crate::task::abort::AbortHandle;
use crate::task::harness::TaskOutcome;
use crate::task_id::TaskId;
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
#[must_use = "the task runs in any case: `.await` the handle for its result, or `drop()` it to detach the task"]
pub struct JoinHandle<T> {
    /// `None` once the result is taken.
    task: Option<Task<T>>,
    /// The id of the task, once the result is taken. Before that, [`TaskId::NONE`] if the task is a visit of
    /// a [`LoopBound`](crate::LoopBound).
    joined: Option<TaskId>,
}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn new(task: Task<T>) -> JoinHandle<T> {
        JoinHandle {
            task: Some(task),
            joined: None,
        }
    }

    /// Queues a task that was just made; the handle of a refused task if the loop refuses it.
    #[inline]
    pub(crate) fn queue(
        home: &Arc<Shared>,
        (runnable, task): (Runnable, Task<T>),
        lane: Lane,
        urgency: Urgency,
        location: impl FnOnce() -> Caller,
    ) -> JoinHandle<T>
    where
        T: 'static,
    {
        match home.enqueue_made(runnable, lane, urgency) {
            Ok(()) => JoinHandle::new(task),
            Err(reason) => {
                home.note_refusal(reason, location());
                JoinHandle::refused(reason)
            }
        }
    }

    /// The handle of a task that was refused: one that has ended before it was ever queued.
    #[cold]
    pub(crate) fn refused(reason: RejectReason) -> JoinHandle<T>
    where
        T: 'static,
    {
        let meta = TaskMeta::of_no_loop();
        let outcome = async move { TaskOutcome::refused(reason) };
        let builder = async_task::Builder::new().metadata(meta);
        let (runnable, task) = builder.spawn_local(|_| outcome, drop);
        runnable.run();
        JoinHandle::new(task)
    }

    /// Whether the result has been taken: polling again would panic.
    pub(crate) fn is_joined(&self) -> bool {
        self.task.is_none()
    }

    /// Returns the id of the task.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let (one, other) = (group.spawn(async {}), group.spawn(async {}));
    /// assert_ne!(one.id(), other.id());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn id(&self) -> TaskId {
        let id = match &self.task {
            Some(task) => task.metadata().try_id(),
            None => self.joined,
        };
        id.expect("a task has an id")
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
        self.task.as_ref().is_none_or(Task::is_finished)
    }

    /// Cancels the task without waiting: its future is dropped soon, on its home loop.
    ///
    /// The handle can be awaited afterwards. It resolves to cancelled, or to the result if that came first: a
    /// poll that is under way is not interrupted, and if it completes the task, its result counts. On the
    /// task's own loop the future is not polled again once this returns.
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
    /// assert!(test.block_on(task).unwrap_err().is_cancelled());
    /// ```
    pub fn abort(&self) {
        if let Some(task) = self.unfinished() {
            task.metadata().abort();
        }
    }

    /// Returns a handle that can abort the task, and nothing else: to be cloned, stored and sent anywhere.
    ///
    /// # Examples
    ///
    /// ```
    /// let group = loopgroup::EventLoopGroup::new(1)?;
    /// let task = group.spawn(std::future::pending::<()>());
    /// let abort = task.abort_handle();
    /// drop(task); // detached, but not out of reach
    /// assert!(!abort.is_finished());
    /// abort.abort();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        match self.unfinished() {
            Some(task) => AbortHandle::new(task.metadata()),
            None => AbortHandle::of_ended(self.id()),
        }
    }

    /// The task, if it has not ended.
    fn unfinished(&self) -> Option<&Task<T>> {
        self.task.as_ref().filter(|task| !task.is_finished())
    }

    /// Cancels the task and waits until its future is really dropped.
    ///
    /// The task is cancelled by the call, awaited or not. The returned future resolves to the
    /// result if the task completed first, else to `None`. A panic that came first is reported through
    /// [`Builder::on_panic`](crate::Builder::on_panic), since no handle is left to carry it; to get it, call
    /// [`abort`](JoinHandle::abort) and await the handle.
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
    pub fn cancel(self) -> CancelFuture<T> {
        self.abort();
        CancelFuture(self)
    }

    /// Polls the task, and frees it once it has ended.
    fn poll_outcome(&mut self, cx: &mut Context<'_>) -> Poll<TaskOutcome<T>> {
        let Some(task) = &mut self.task else {
            panic!("JoinHandle polled after it was ready")
        };
        let Poll::Ready(outcome) = poll_contained(task, cx) else {
            noted::waits_for(|| self.noted());
            return Poll::Pending;
        };
        self.set_joined();
        Poll::Ready(outcome)
    }

    /// Notes that the task is a visit of a value.
    pub(crate) fn of_visit(mut self) -> JoinHandle<T> {
        self.joined = Some(TaskId::NONE);
        self
    }

    /// What a task waits for that awaits this.
    #[cold]
    fn noted(&self) -> Noted {
        let id = self.id();
        match self.task.as_ref().map(|task| task.metadata()) {
            Some(meta) if meta.is_job() => Noted::Job(id),
            Some(meta) if self.joined.is_some() => match LOOPS.find(meta.home()) {
                Some(home) => Noted::Visit(id, u32::try_from(home.index).unwrap_or(u32::MAX)),
                None => Noted::Join(id),
            },
            _ => Noted::Join(id),
        }
    }

    /// Frees the task, whose result was taken.
    #[inline]
    fn set_joined(&mut self) {
        if let Some(task) = self.task.take() {
            self.joined = task.metadata().try_id();
            task.detach();
        }
    }

    #[inline(never)] // Keeps the frequent case short.
    fn poll_otherwise(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        self.poll_outcome(cx).map(TaskOutcome::join)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A task that awaits a task: by far the most frequent case, and kept short.
        if let Some(task) = &mut self.task {
            if this_thread::is_own_waker(cx.waker()) {
                let Poll::Ready(outcome) = Pin::new(task).poll(cx) else {
                    noted::waits_for(|| self.noted());
                    return Poll::Pending;
                };
                self.set_joined();
                return Poll::Ready(outcome.join());
            }
        }
        self.poll_otherwise(cx)
    }
}

/// Waits until the future of a cancelled task is dropped; [`JoinHandle::cancel`] returns it.
///
/// It resolves to the result if the task completed first, else to `None`.
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(1)?;
/// let task = group.spawn(async { 7 });
/// while !task.is_finished() {}
/// assert_eq!(group.block_on(task.cancel()), Some(7)); // it came first
/// # std::io::Result::Ok(())
/// ```
#[must_use = "the task is cancelled already: `.await` this to wait for the end of it, or call `abort` instead"]
#[derive(Debug)]
pub struct CancelFuture<T>(JoinHandle<T>);

impl<T> Future for CancelFuture<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if self.0.is_joined() {
            return Poll::Ready(None);
        }
        self.0.poll_outcome(cx).map(TaskOutcome::value_or_report)
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        // async-task would cancel it.
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.task {
            None => "joined",
            Some(task) if task.metadata().is_of_no_loop() => "rejected",
            Some(task) if task.is_finished() => "finished",
            Some(_) => "running",
        };
        f.debug_tuple("JoinHandle").field(&state).finish()
    }
}

/// A foreign waker whose panics are kept.
struct Shield(Option<Waker>);

impl Shield {
    fn wake(&self) {
        // A task that has ended wakes its awaiter after it was freed: what is at its address now is foreign.
        this_thread::forget_own_waker();
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
/// Our own wakers do not, and need no shield.
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
