//! A set of tasks that ends with its owner.
//!
//! - The set owns the handles of its tasks. Dropping it aborts them, where dropping a `JoinHandle` detaches.
//! - Results come in the order in which the tasks end.
//! - A rejected spawn is a member, too: its result says so.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};

use crate::error::JoinError;
use crate::event_loop::handle::EventLoop;
use crate::noted::{self, Noted};
use crate::spawn::{spawn, spawn_local};
use crate::task::abort::AbortHandle;
use crate::task::join::JoinHandle;
use crate::task_id::TaskId;
use crate::this_thread;

/// Tasks that belong together: awaited one by one as they end, and aborted when the set is dropped.
///
/// # Cancel safety
///
/// [`join_next`](JoinSet::join_next) is cancel safe: a result is either returned or still in the set.
///
/// # Examples
///
/// ```
/// use loopgroup::{EventLoopGroup, JoinSet};
///
/// let group = EventLoopGroup::new(2)?;
/// let sum = group.block_on(async {
///     let mut tasks = JoinSet::new();
///     for n in 1..=10 {
///         tasks.spawn(async move { n * n });
///     }
///     let mut sum = 0;
///     while let Some(square) = tasks.join_next().await {
///         sum += square.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum, 385);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "dropping a JoinSet aborts its tasks"]
pub struct JoinSet<T> {
    tasks: FuturesUnordered<Member<T>>,
}

/// A handle that resolves together with the id of its task.
struct Member<T>(JoinHandle<T>);

impl<T> Future for Member<T> {
    type Output = (TaskId, Result<T, JoinError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.0.id();
        Pin::new(&mut self.0).poll(cx).map(|result| (id, result))
    }
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> JoinSet<T> {
        JoinSet {
            tasks: FuturesUnordered::new(),
        }
    }

    /// Spawns a task on the next loop of the current group, as [`spawn`](crate::spawn()), and adds it.
    ///
    /// # Panics
    ///
    /// Panics without a loop or `block_on` to take the group from.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn(future))
    }

    /// Spawns a task on a loop, as [`EventLoop::spawn`], and adds it.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, JoinSet};
    ///
    /// let group = EventLoopGroup::new(2)?;
    /// let mut tasks = JoinSet::new();
    /// for ev in group.loops() {
    ///     tasks.spawn_on(ev, async { loopgroup::EventLoop::current().map(|ev| ev.index()) });
    /// }
    /// let mut indices = group.block_on(tasks.join_all());
    /// indices.sort();
    /// assert_eq!(indices, [Some(0), Some(1)]);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(&mut self, event_loop: &EventLoop, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(event_loop.spawn(future))
    }

    /// Spawns a task on the current loop, as [`spawn_local`](crate::spawn_local()), and adds it.
    ///
    /// # Panics
    ///
    /// Panics on a thread that is no event loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::JoinSet;
    /// use std::rc::Rc;
    ///
    /// let results = loopgroup::run(async {
    ///     let mut tasks = JoinSet::new();
    ///     let shared = Rc::new(20);
    ///     for n in 1..=2 {
    ///         let shared = Rc::clone(&shared);
    ///         tasks.spawn_local(async move { *shared * n });
    ///     }
    ///     tasks.join_all().await
    /// })?;
    /// assert_eq!(results.iter().sum::<i32>(), 60);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        self.insert(spawn_local(future))
    }

    /// Adds a task that was spawned in any way: with a name, on a blocking group, and so on.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, JoinSet};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let mut tasks = JoinSet::new();
    /// tasks.insert(group.task().name("named").spawn(async { 1 }));
    /// tasks.insert(loopgroup::blocking::unblock(|| 2));
    /// assert_eq!(group.block_on(tasks.join_all()).iter().sum::<i32>(), 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn insert(&mut self, task: JoinHandle<T>) -> AbortHandle {
        let abort = task.abort_handle();
        self.tasks.push(Member(task));
        abort
    }

    /// Waits until one of the tasks has ended, and removes it; `None` if the set is empty.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a result is either returned or still in the set.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.join_next_with_id().await.map(|(_, result)| result)
    }

    /// As [`join_next`](JoinSet::join_next), together with the id of the task.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe, as `join_next`.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, JoinSet};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// group.block_on(async {
    ///     let mut tasks = JoinSet::new();
    ///     let id = tasks.spawn(async { "done" }).id();
    ///     let (ended, result) = tasks.join_next_with_id().await.unwrap();
    ///     assert_eq!((ended, result.unwrap()), (id, "done"));
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    pub async fn join_next_with_id(&mut self) -> Option<(TaskId, Result<T, JoinError>)> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Removes a task that has ended, if there is one; does not wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{JoinSet, testing::TestLoop};
    ///
    /// let mut test = TestLoop::new();
    /// let mut tasks = JoinSet::new();
    /// tasks.insert(test.spawn(async { 7 }));
    /// assert!(tasks.try_join_next().is_none());
    /// test.run_until_stalled();
    /// assert_eq!(tasks.try_join_next().unwrap().unwrap(), 7);
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let next = self.tasks.next().now_or_never().flatten();
        next.map(|(_, result)| result)
    }

    /// Polls for a task that has ended, as [`join_next`](JoinSet::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        let next = self.poll_next(cx);
        next.map(|next| next.map(|(_, result)| result))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(TaskId, Result<T, JoinError>)>> {
        if !this_thread::notes_waits() {
            return self.tasks.poll_next_unpin(cx);
        }
        // Only the members that were woken are polled: none of them says what the set waits for.
        let position = noted::position();
        let next = self.tasks.poll_next_unpin(cx);
        noted::forget(position);
        if next.is_pending() {
            noted::waits_for(|| Noted::JoinSet(self.len()));
        }
        next
    }

    /// Waits for all tasks and returns their values, in the order in which the tasks ended.
    ///
    /// # Panics
    ///
    /// A panic of a task continues here; the other tasks are aborted. Panics also if a task was cancelled or
    /// rejected: use [`join_next`](JoinSet::join_next) where that may happen.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next().await {
            match result.map_err(JoinError::try_into_panic) {
                Ok(value) => values.push(value),
                Err(Ok(payload)) => std::panic::resume_unwind(payload),
                Err(Err(error)) => panic!("JoinSet::join_all: a {error}"),
            }
        }
        values
    }

    /// Aborts every task; the set keeps them until they are joined.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, JoinSet};
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// group.block_on(async {
    ///     let mut tasks = JoinSet::new();
    ///     tasks.spawn(std::future::pending::<()>());
    ///     tasks.abort_all();
    ///     assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
    ///     assert!(tasks.is_empty());
    /// });
    /// # std::io::Result::Ok(())
    /// ```
    pub fn abort_all(&mut self) {
        for member in &self.tasks {
            member.0.abort();
        }
    }

    /// Aborts every task and waits until all of them have ended: their futures are dropped by then.
    ///
    /// # Cancel safety
    ///
    /// The tasks are aborted with the first poll; dropping the future afterwards only ends the wait.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Removes every task from the set without aborting it: the tasks run on, detached.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, JoinSet};
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// group.block_on(async {
    ///     let mut tasks = JoinSet::new();
    ///     tasks.spawn(async {});
    ///     tasks.detach_all();
    ///     assert_eq!(tasks.len(), 0);
    /// });
    /// assert_eq!(group.drain(Duration::from_secs(5)).wait().completed(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }

    /// Returns how many tasks are in the set: those that have not been joined.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> JoinSet<T> {
        JoinSet::new()
    }
}

impl<T> FromIterator<JoinHandle<T>> for JoinSet<T> {
    fn from_iter<I: IntoIterator<Item = JoinHandle<T>>>(tasks: I) -> JoinSet<T> {
        let tasks = tasks.into_iter().map(Member).collect();
        JoinSet { tasks }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
