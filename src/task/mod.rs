//! Tasks: one allocation, one home loop.
//!
//! A future is polled and dropped only on its home thread. The argument:
//!
//! 1. Only `Runnable::run` polls, and only `Runnable::run` or dropping a `Runnable` drops a future.
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
//! home is in the metadata of the task.

pub(crate) mod closure;
pub(crate) mod harness;
pub(crate) mod join;
pub(crate) mod lazy;
pub(crate) mod stand_in;

use std::future::Future;
use std::panic::Location;

use async_task::{Builder, FallibleTask};

use crate::event_loop::context;
use crate::event_loop::shared::{Runnable, Shared, TaskHome};
use crate::sync::Arc;
use crate::task::harness::{Harness, Outcome};

/// The joinable side of a task.
pub(crate) type Task<T> = FallibleTask<Outcome<T>, TaskHome>;

/// Creates a task from a future that is `Send`.
pub(crate) fn new_send<F>(
    home: &Arc<Shared>,
    future: F,
    location: &'static Location<'static>,
) -> (Runnable, Task<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let (runnable, task) = Builder::new()
        .metadata(TaskHome(Arc::clone(home)))
        .spawn(|_| Harness::new(future, location), schedule);
    (runnable, task.fallible())
}

/// Creates a task from a future that stays on this thread, which is the home's.
pub(crate) fn new_local<F>(
    home: &Arc<Shared>,
    future: F,
    location: &'static Location<'static>,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let (runnable, task) = Builder::new()
        .metadata(TaskHome(Arc::clone(home)))
        .spawn_local(|_| Harness::new(future, location), schedule);
    (runnable, task.fallible())
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
    // The home is cloned before the push: afterwards the task may be freed.
    let home = Arc::clone(&runnable.metadata().0);
    match home.inbox.push_wake(runnable, context::sender_to(&home)) {
        Ok(ring) => home.ring_if_needed(ring),
        // Unreachable while step 4 above holds. Dropping is right even so: a `Send` future may be
        // dropped here, and for a local one async-task's own check ends the process, which is the
        // only correct reaction to a violated invariant (leaking it would hang its handle).
        Err(runnable) => {
            debug_assert!(false, "a live task outlived its loop");
            drop(runnable);
        }
    }
}
