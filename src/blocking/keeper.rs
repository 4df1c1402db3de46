//! The thread that watches the deadline of a shutdown while every worker is busy.
//!
//! - While a shutdown with a deadline is under way and the gate is open, somebody watches the deadline: an idle
//!   or arriving worker, or the keeper. [`Pool::watch`] sees to it where the last such worker may become busy:
//!   in a request, and before a worker begins a job.
//! - The keeper is no worker: it takes no job and does not count against `max_threads`. A group has one at
//!   most. It ends as soon as the gate is closed, and the report waits for it.
//! - It waits at a bell of its own: the one notification for a job must reach a worker.
//! - If the system refuses the thread, the deadline is left to those who wait for the end, or poll its future after
//!   it has passed; workers and submitters look at it as ever.

use crate::blocking::inner::{Inner, Look};
use crate::blocking::pool::{Pool, wait};
use crate::sync::Arc;
use crate::termination::ThreadSlot;

/// Where the keeper is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Keeper {
    #[default]
    NotStarted,
    Watching,
    /// It has ended, or could not be started.
    Gone,
}

impl Pool {
    /// Makes sure that somebody watches the deadline of a shutdown, with the lock held.
    pub(super) fn watch(self: &Arc<Pool>, inner: &mut Inner) {
        let watched = inner.idle + inner.arriving > 0 || inner.keeper != Keeper::NotStarted;
        if watched || inner.cause.is_some() {
            return;
        }
        let Some(deadline) = inner.control.terms().and_then(|terms| terms.deadline) else {
            return;
        };
        if self.launch("loop-keeper", Pool::keep).is_ok() {
            inner.keeper = Keeper::Watching;
            return;
        }
        inner.keeper = Keeper::Gone;
        let pool = Arc::downgrade(self);
        let look = move || {
            if let Some(pool) = pool.upgrade() {
                drop(pool.look_and_cancel(pool.inner.lock()));
            }
        };
        self.termination
            .leave_to_observers(deadline, Box::new(look));
    }

    /// The life of the keeper.
    fn keep(self: Arc<Pool>, slot: &ThreadSlot) {
        let mut inner = self.inner.lock();
        loop {
            let look;
            (inner, look) = self.look_and_cancel(inner);
            let Look::ShuttingDown(until) = look else {
                break;
            };
            (inner, _) = wait(&self.closed, inner, until);
        }
        inner.keeper = Keeper::Gone;
        self.leave(inner, slot);
    }
}

#[cfg(loom)]
impl crate::blocking::BlockingGroup {
    /// Lets the deadline of a shutdown pass: time stands still in a model.
    pub(crate) fn expire(&self) {
        use crate::event_loop::terms::{Control, Request, Scope};

        let mut inner = self.pool.inner.lock();
        let (scope, timeout) = (Scope::Loop, std::time::Duration::ZERO);
        inner.control = Control::default();
        let request = Request::Drain { scope, timeout };
        inner.control.note(request, crate::sync::now());
        drop(inner);
        self.pool.changed.notify_all();
        self.pool.closed.notify_all();
    }
}
