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
use crate::event_loop::tracker::{Listing, Tracker, WakeSource};
use crate::noted::Text;
use crate::sync::{Arc, Weak};
use crate::task::harness::{Harness, TaskOutcome};
use crate::task::origin::Origin;
use crate::task_id::TaskId;

/// The joinable side of a task.
pub(crate) type Task<T> = async_task::Task<TaskOutcome<T>, TaskMeta>;

/// Creates a task from a future that is `Send`.
pub(crate) fn new_send<F>(
    home: &Shared,
    future: F,
    origin: impl Origin,
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
pub(crate) fn new_local<F>(home: u32, future: F, origin: impl Origin) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    Builder::new()
        .metadata(TaskMeta::new(home))
        .spawn_local(|_| Harness::new(future, origin), schedule)
}

/// As [`new_send`], for a loop that may list its tasks.
#[inline(never)]
pub(crate) fn new_send_listed<F>(
    home: &Shared,
    future: F,
    origin: impl Origin,
) -> (Runnable, Task<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let listing = listing_of::<F>(home, &origin);
    // Not by `new_send`, which is compiled into its callers as long as there is one for a type.
    let made = Builder::new()
        .metadata(TaskMeta::new(home.number.get()))
        .spawn(|_| Harness::new(future, origin), schedule);
    enter(home, &made.0, listing);
    made
}

/// As [`new_local`], for a loop that may list its tasks.
#[inline(never)]
pub(crate) fn new_local_listed<F>(
    home: &Shared,
    future: F,
    origin: impl Origin,
) -> (Runnable, Task<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
{
    let listing = listing_of::<F>(home, &origin);
    let made = new_local(home.number.get(), future, origin);
    enter(home, &made.0, listing);
    made
}

/// What is listed of a task; `None` if its loop lists nothing.
fn listing_of<F>(home: &Shared, origin: &impl Origin) -> Option<Listing> {
    home.tracker.as_ref()?;
    let name = origin.name().cloned().map(Text::from);
    Some(Listing::new(origin.site(), name, size_of::<F>()))
}

/// Lists a task that was just created.
fn enter(home: &Shared, runnable: &Runnable, listing: Option<Listing>) {
    if let (Some(tracker), Some(listing)) = (&home.tracker, listing) {
        tracker.enter(runnable.metadata().id(), listing);
    }
}

/// A task that is listed before it is created on its loop; taken off the list again if it never is.
pub(crate) struct ListedAhead {
    /// Weak, for it is on its way through the inbox of that loop.
    home: Weak<Shared>,
    /// `None` once the task was created.
    id: Option<TaskId>,
}

impl ListedAhead {
    /// Lists a task of a future of type `F`; `None` if the loop lists nothing.
    pub(crate) fn new<F>(home: &Arc<Shared>, origin: &impl Origin) -> Option<ListedAhead> {
        let listing = listing_of::<F>(home, origin)?;
        let id = TaskId::next();
        home.tracker.as_ref()?.enter(id, listing);
        Some(ListedAhead {
            home: Arc::downgrade(home),
            id: Some(id),
        })
    }

    /// As [`new_local`], for the task that was listed.
    pub(crate) fn new_local<F>(
        mut self,
        home: u32,
        future: F,
        origin: impl Origin,
    ) -> (Runnable, Task<F::Output>)
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let id = self.id.take().expect("a task is created once");
        let meta = TaskMeta::with_id(home, id);
        Builder::new()
            .metadata(meta)
            .spawn_local(|_| Harness::new(future, origin), schedule)
    }
}

impl Drop for ListedAhead {
    fn drop(&mut self) {
        if let (Some(home), Some(id)) = (self.home.upgrade(), self.id) {
            home.tracker.iter().for_each(|tracker| tracker.remove(id));
        }
    }
}

/// Records a wake.
#[cold]
fn note_wake(tracker: &Tracker, runnable: &Runnable, by: WakeSource) {
    if let Some(id) = runnable.metadata().try_id() {
        tracker.woken(id, by);
    }
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
        Some(home) => {
            if let Some(tracker) = &home.tracker {
                note_wake(tracker, &runnable, context::wake_source(&home));
            }
            let sender = context::sender_to(&home, runnable.metadata().id_halves());
            match home.inbox.push_wake(runnable, sender) {
                Ok(ring) => return home.ring_if_needed(ring),
                Err(runnable) => runnable,
            }
        }
    };
    // Unreachable while step 4 above holds. Dropping is right even so: a `Send` future may be dropped
    // here, and for a local one async-task's own check ends the process, which is the only correct
    // reaction to a violated invariant (leaking it would hang its handle).
    debug_assert!(false, "a live task outlived its loop");
    drop(refused);
}
