//! A future without a handle, whose task is created on its loop.
//!
//! - Another thread only moves the future to the loop; the task is created and polled there in one step. (A
//!   task that is created on the loop and queued again gains nothing: a long queue has left the cache by
//!   then.)
//! - It is counted once: as accepted when the future is accepted, as begun and ended by its task. Until it
//!   begins it is an [`Errand`] as closures are; unless its loop lists its tasks, then it is a task from the
//!   beginning.

use std::future::Future;

use crate::error::Caller;
use crate::event_loop::closures::Errand;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Runnable, Shared};
use crate::event_loop::waits::QueueName;
use crate::left_tasks::LeftKind;
use crate::task;
use crate::task::origin::Origin;

/// The future, and where it comes from.
pub(crate) struct Detached<F, O> {
    pub(crate) future: F,
    pub(crate) origin: O,
}

impl<F, O> Errand for Detached<F, O>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    O: Origin + Send + 'static,
{
    const IS_TASK: bool = true;

    fn begin(self, local: &Local, _: Caller) {
        let (runnable, task) = task::new_send(&local.shared, self.future, self.origin);
        task.detach();
        local.run_one(runnable, QueueName::Closures);
    }

    fn left_kind(&self, _: Caller) -> LeftKind {
        self.origin.left_kind()
    }

    fn into_task(self, home: &Shared) -> Runnable {
        let (runnable, task) = task::new_send_listed(home, self.future, self.origin);
        task.detach();
        runnable
    }
}
