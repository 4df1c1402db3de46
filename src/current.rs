//! What code finds around it: the current loop, or the group of `group.block_on`.
//!
//! - With no context the short forms panic, at the caller's line and with a sentence that says what
//!   is missing; the `try_` forms hand the future back.

use std::future::Future;
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::builder::Builder;
use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::launch::Parts;
use crate::event_loop::main_future::{Main, run_main};
use crate::sync::Arc;
use crate::task::join::JoinHandle;
use crate::task::{self, Runnable, Task};

/// Turns this thread into an event loop until `future` is done.
///
/// The future need be neither `Send` nor `'static`; what it spawns with [`spawn_local`] need not be
/// `Send` either. When it is done, tasks that are left are cancelled and the thread is an ordinary one
/// again.
///
/// # Errors
///
/// What the system says when it cannot make a selector, or when the selector fails; `Deadlock` on a
/// thread that is a loop already; `Interrupted` if the loop was shut down before the future was done;
/// `Other` in the destructor of a thread-local.
///
/// # Panics
///
/// If the future panics, with its payload.
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, rc::Rc};
///
/// let sum = loopgroup::run(async {
///     let sum = Rc::new(Cell::new(0));
///     let tasks: Vec<_> = (1..=4)
///         .map(|n| {
///             let sum = Rc::clone(&sum);
///             loopgroup::spawn_local(async move { sum.set(sum.get() + n) })
///         })
///         .collect();
///     for task in tasks {
///         task.await.unwrap();
///     }
///     sum.get()
/// })?;
/// assert_eq!(sum, 10);
/// # std::io::Result::Ok(())
/// ```
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    if context::is_loop() {
        return Err(io::Error::new(
            io::ErrorKind::Deadlock,
            "loopgroup::run was called on the thread of an event loop: \
             await the future there, or call run on a thread of its own",
        ));
    }
    if !context::may_be_loop() {
        return Err(io::Error::other(
            "loopgroup::run was called while the thread-locals of its thread are destroyed: \
             it is too late to become a loop",
        ));
    }
    let group = Builder::new().loops(1).build()?;
    let shared = Arc::clone(group.next().shared());
    let driver = shared
        .take_seat()
        .expect("the group was made two lines ago and nobody else has it");
    let parts = Parts {
        shared,
        core: Arc::clone(group.core()),
        driver,
    };
    match run_main(parts, future) {
        Main::Done(output) => Ok(output),
        Main::Panicked(payload) => std::panic::resume_unwind(payload),
        Main::Ended(Some(error)) => Err(error),
        Main::Ended(None) => Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the loop of loopgroup::run was shut down before its future was done",
        )),
    }
}

/// Spawns a future on the next loop of the current group: the loop's own, or that of `group.block_on`.
///
/// A refusal shows in the handle. For a future that is not `Send` see [`spawn_local`].
///
/// # Panics
///
/// If the thread is neither a loop nor inside `group.block_on`; see [`try_spawn`].
///
/// # Examples
///
/// ```
/// let group = loopgroup::EventLoopGroup::new(2)?;
/// let answer = group.block_on(async { loopgroup::spawn(async { 42 }).await });
/// assert_eq!(answer.unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The chooser is user code: it is asked with no borrow of the context.
    if let Some(local) = context::current() {
        return local.core.spawn(future);
    }
    match context::entered_group() {
        Some(group) => group.spawn(future),
        None => no_context("spawn"),
    }
}

/// Spawns a future on the next loop of the current group, or hands it back.
///
/// # Errors
///
/// [`Rejected`] carries the future and the reason, [`NoContext`](RejectReason::NoContext) if the
/// thread is neither a loop nor inside `group.block_on`.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
///
/// let rejected = loopgroup::try_spawn(async {}).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::NoContext);
/// ```
#[track_caller]
pub fn try_spawn<F>(future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if let Some(local) = context::current() {
        return local.core.try_spawn(future);
    }
    match context::entered_group() {
        Some(group) => group.try_spawn(future),
        None => Err(Rejected::new(future, RejectReason::NoContext)),
    }
}

/// Spawns a future on this very loop; it need not be `Send`.
///
/// A refusal shows in the handle.
///
/// # Panics
///
/// If the thread is not a loop; see [`try_spawn_local`].
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
///
/// let length = loopgroup::run(async {
///     let text = Rc::new("loop");
///     loopgroup::spawn_local(async move { text.len() }).await.unwrap()
/// })?;
/// assert_eq!(length, 4);
/// # std::io::Result::Ok(())
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let location = Location::caller();
    if !context::is_loop() {
        no_context("spawn_local");
    }
    // The task is made first, and refused through its handle if need be: a future that is handed back is
    // moved twice more. One look at the loop, under which no user code runs.
    let made = context::with_local(|local| {
        let (runnable, task) = task::new_local(&local.shared, future, location);
        if local.shared.is_open() && local.shared.bound.is_none() {
            local.push_main(runnable);
            (task, None)
        } else {
            (task, Some(runnable))
        }
    });
    match made {
        Some((task, None)) => JoinHandle::of_task(task),
        Some((task, Some(runnable))) => queue_or_refuse(task, runnable, location),
        // A loop whose thread-locals are destroyed, because a task of it ends the process.
        None => no_context("spawn_local"),
    }
}

/// Queues a new task if its loop takes it.
#[cold]
fn queue_or_refuse<T>(
    task: Task<T>,
    runnable: Runnable,
    location: &'static Location<'static>,
) -> JoinHandle<T> {
    let home = Arc::clone(&runnable.metadata().home);
    // The policy of a full loop is user code, which no look at the loop surrounds.
    let admitted = match context::with_home(&home, |local| local.shared.is_open()) {
        Some(true) => home.admit(),
        Some(false) | None => Err(RejectReason::ShutDown),
    };
    let queued = match admitted {
        Ok(()) => home.push(runnable, Lane::Main, Urgency::Now),
        Err(reason) => {
            context::drop_refused(&home, runnable);
            Err(reason)
        }
    };
    match queued {
        Ok(()) => JoinHandle::of_task(task),
        Err(reason) => {
            home.note_refusal(reason, location);
            JoinHandle::refused(reason)
        }
    }
}

/// Spawns a future on this very loop, or hands it back; it need not be `Send`.
///
/// # Errors
///
/// [`Rejected`] carries the future and the reason, [`NoContext`](RejectReason::NoContext) if the
/// thread is not a loop.
///
/// # Examples
///
/// ```
/// use loopgroup::RejectReason;
///
/// let rejected = loopgroup::try_spawn_local(async {}).unwrap_err();
/// assert_eq!(rejected.reason(), RejectReason::NoContext);
/// ```
#[track_caller]
pub fn try_spawn_local<F>(future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + 'static,
    F::Output: 'static,
{
    try_spawn_local_at(future, Location::caller())
}

fn try_spawn_local_at<F>(
    future: F,
    location: &'static Location<'static>,
) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let Some(local) = context::current() else {
        return Err(Rejected::new(future, RejectReason::NoContext));
    };
    let shared = &local.shared;
    let admitted = if shared.is_open() {
        shared.admit()
    } else {
        Err(RejectReason::ShutDown)
    };
    if let Err(reason) = admitted {
        shared.note_refusal(reason, location);
        return Err(Rejected::new(future, reason));
    }
    let (runnable, task) = task::new_local(shared, future, location);
    local.push_new(runnable, Lane::Main);
    Ok(JoinHandle::of_task(task))
}

/// Lets every other queued task go first, once.
///
/// It works in every runtime, for it needs nothing but its waker.
///
/// # Cancel safety
///
/// Cancel safe: it has no effect beyond its wait.
///
/// # Examples
///
/// ```
/// loopgroup::run(async {
///     let other = loopgroup::spawn_local(async {});
///     loopgroup::yield_now().await;
///     assert!(other.is_finished());
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
///
/// # Examples
///
/// ```
/// let mut test = loopgroup::testing::TestLoop::new();
/// let once: loopgroup::YieldNow = loopgroup::yield_now();
/// test.spawn(once);
/// assert_eq!(test.run_until_stalled(), 2); // away, and back
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cold]
#[track_caller]
pub(crate) fn no_context(what: &str) -> ! {
    // What `group.block_on` lends its thread are the group's loops; none of them is this thread.
    let (places, instead) = match what {
        "spawn_local" => ("or inside loopgroup::run", "group.spawn_with"),
        _ => (
            "inside loopgroup::run or inside group.block_on",
            "group.spawn",
        ),
    };
    panic!(
        "loopgroup::{what} needs an event loop around it, and this thread is none: call it inside \
         a task, {places}; from anywhere else submit through a handle, such as {instead} or \
         ev.spawn_with"
    )
}
