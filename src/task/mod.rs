//! Tasks: one allocation, one home loop.
//!
//! A future is polled and dropped only on its home thread. The argument:
//!
//! 1. Only `Runnable::run` polls a future, and only `Runnable::run` drops one. (Dropping a `Runnable` would
//!    drop its future as well, but closes the task without an outcome:
//!    [`cancel_task`](crate::event_loop::local::cancel_task) runs it instead.)
//! 2. A submission creates a runnable. It is pushed to the home's queue or inbox, or refused; a
//!    refused one was never polled, is `Send`, and is returned to the submitter.
//! 3. After that a runnable appears only through [`schedule`], which pushes it to the home's queue
//!    (on the home thread) or the home's inbox (on any other). Only the home thread empties them.
//! 4. The home thread does not end while a task is live: it wakes every live task, drops the runnables
//!    that this queues, and closes the inbox in the critical section that finds it empty. It waits for
//!    another thread that is between async-task's state change and our push.
//! 5. From then on every task is completed or closed: a remaining waker has no effect and `schedule` is
//!    not called again.
//!
//! `schedule` is a plain function: zero-sized, so async-task does not clone a waker to protect it. The
//! number of the home is in the metadata of the task.
//!
//! A task is never closed from outside: it always ends with an [`TaskOutcome`]. Whatever cancels it (its
//! handle, the end of its loop) has its home thread run it once more, and the harness drops the future
//! instead of polling it. So a result that came first is never lost, and a handle may be asked about its
//! task at any time.

pub(crate) mod abort;
pub(crate) mod closure;
pub(crate) mod detached;
pub(crate) mod harness;
pub(crate) mod join;
pub(crate) mod lazy;
pub(crate) mod origin;
pub(crate) mod stand_in;

use std::future::Future;

use async_task::Builder;

use crate::event_loop::context;
use crate::event_loop::shared::{LOOPS, Runnable, Shared, TaskMeta};
use crate::task::harness::{Harness, TaskOutcome};
use crate::task::origin::Origin;

/// The joinable side of a task.
pub(crate) type Task<T> = async_task::Task<TaskOutcome<T>, TaskMeta>;

/// Creates a task from a future that is `Send`.
pub(crate) fn new_send<F>(
    home: &Shared,
    future: F,
    origin: impl Origin + Send + 'static,
) -> (Runnable, Task<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Builder::new()
        .metadata(TaskMeta::new(home.number.get()))
        .spawn(|_| Harness::new(future, origin), schedule)
}

/// Creates a task from a future that stays on this thread, which is that of the loop with this number.
pub(crate) fn new_local<F>(
    home: u32,
    future: F,
    origin: impl Origin + 'static,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    Builder::new()
        .metadata(TaskMeta::new(home))
        .spawn_local(|_| Harness::new(future, origin), schedule)
}

/// Queues a woken task on its home loop.
fn schedule(runnable: Runnable) {
    if let Err(runnable) = context::wake_at_home(runnable) {
        schedule_elsewhere(runnable);
    }
}

/// Queues a task that was woken on another thread on its home loop.
#[inline(never)] // Keeps the path on the home thread short.
fn schedule_elsewhere(runnable: Runnable) {
    // The home is looked up before the push: afterwards the task may be freed.
    let refused = match LOOPS.find(runnable.metadata().home()) {
        None => runnable,
        Some(home) => match home.inbox.push_wake(runnable, context::sender_to(&home)) {
            Ok(ring) => return home.ring_if_needed(ring),
            Err(runnable) => runnable,
        },
    };
    // Unreachable while step 4 above holds. Dropping is right even so: a `Send` future may be dropped
    // here, and for a local one async-task's own check ends the process, which is the only correct
    // reaction to a violated invariant (leaking it would hang its handle).
    debug_assert!(false, "a live task outlived its loop");
    drop(refused);
}
