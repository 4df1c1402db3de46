//! The keeper: a thread that watches the deadline of a shutdown while every worker is busy.
//!
//! - While a shutdown with a deadline is in progress and the pool is not closed, one thread watches the
//!   deadline: an idle worker, or the keeper. [`Pool::ensure_deadline_watched`] is called
//!   where the last such worker may become busy: in a request, and before a worker begins a job.
//! - The keeper is not a worker: it runs no jobs and does not count against `max_threads`. A pool has at
//!   most one. It ends as soon as the pool is closed, and the report waits for it.
//! - It waits on its own condition variable: the single notification for a job must reach a worker.
//! - If the system refuses the thread, the deadline is checked by threads that wait for termination, or
//!   that poll its future after the deadline; workers and submitters check it as usual. The next job that
//!   begins tries again to start it.

use crate::blocking::pool::Pool;
use crate::blocking::pool_state::{PoolState, ShutdownPhase};
use crate::sync::Arc;
use crate::termination::ThreadSlot;

impl Pool {
    /// Makes sure that a thread watches the deadline of a shutdown, with the lock held.
    pub(super) fn ensure_deadline_watched(self: &Arc<Pool>, inner: &mut PoolState) {
        if inner.idle > 0 || inner.keeper || inner.cause.is_some() {
            return;
        }
        let Some(deadline) = inner.control.terms().and_then(|terms| terms.deadline) else {
            return;
        };
        inner.keeper = self.launch("loop-keeper", Pool::run_keeper).is_ok();
        if inner.keeper {
            return;
        }
        let pool = Arc::downgrade(self);
        let check = move || {
            if let Some(pool) = pool.upgrade() {
                drop(pool.advance_shutdown(pool.inner.lock()));
            }
        };
        self.termination
            .defer_to_observers(deadline, Box::new(check));
    }

    /// The main function of the keeper thread.
    fn run_keeper(self: Arc<Pool>, slot: &ThreadSlot) {
        let mut inner = self.inner.lock();
        inner = self.advance_shutdown(inner);
        while let ShutdownPhase::ShuttingDown(until) = inner.shutdown_phase() {
            inner = self.closed.wait_until(inner, until);
            inner = self.advance_shutdown(inner);
        }
        inner.keeper = false;
        self.finish_thread(inner, slot);
    }
}
