//! The state behind a pool's lock, and the decision when a shutdown is due.
//!
//! - Every accepted job is queued, begun or ended: `begun` is derived from the other counts.
//! - `shutdown_now` takes precedence over the timeout, the timeout over a drained or orphaned pool, and
//!   that over the quiet period.
//! - A queue that becomes empty after a burst releases its memory.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::shared::Runnable;
use crate::event_loop::terms::{EndCondition, ShutdownControl, ShutdownTerms};
use crate::report::{EndCause, Figures};
use crate::sync::Arc;

/// The largest capacity, in jobs, that an empty queue keeps.
const MAX_EMPTY_CAPACITY: usize = 1024;

/// The state of a pool.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) queue: VecDeque<Runnable>,
    /// Workers that wait for a job, or were started and have not checked the queue yet.
    pub(super) idle: usize,
    /// All workers.
    pub(super) threads: usize,
    /// Workers that run a job.
    pub(super) running: usize,
    /// Threads that currently drop cancelled jobs, without the lock: termination waits for them.
    pub(super) cancelling: usize,
    /// Whether the keeper watches the deadline: termination waits for it.
    pub(super) keeper: bool,
    pub(super) control: ShutdownControl,
    /// `Some` once the pool is closed and accepts no more jobs.
    pub(super) cause: Option<EndCause>,
    pub(super) error: Option<Arc<io::Error>>,
    /// `None` before the first job.
    pub(super) last_activity: Option<Instant>,
    /// Every handle was dropped.
    pub(super) orphaned: bool,
    pub(super) ever_started: bool,
    pub(super) figures: Figures,
}

/// The progress of the shutdown, as seen by a thread that may wait.
pub(super) enum ShutdownPhase {
    /// No shutdown was requested.
    Open,
    /// Jobs are still accepted; the shutdown must be checked again at this time, if any.
    ShuttingDown(Option<Instant>),
    Closed,
}

impl PoolState {
    /// Whether the pool is closed, every thread has ended and every cancelled job is dropped.
    pub(super) fn is_finished(&self) -> bool {
        self.cause.is_some() && self.threads == 0 && !self.keeper && self.cancelling == 0
    }

    /// Removes the oldest queued job.
    pub(super) fn next_job(&mut self) -> Option<Runnable> {
        let job = self.queue.pop_front();
        if self.queue.is_empty() && self.queue.capacity() > MAX_EMPTY_CAPACITY {
            self.queue = VecDeque::new();
        }
        job
    }

    /// The number of jobs that have begun and have not ended.
    pub(super) fn begun(&self) -> u64 {
        let figures = &self.figures;
        let ended = figures.completed + figures.panicked + figures.cancelled;
        figures.accepted - ended - self.queue.len() as u64
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == 0 && self.queue.is_empty()
    }

    /// The cause to close the pool with, if its shutdown terms are met at `now`.
    pub(super) fn due_cause(&self, now: Instant) -> Option<EndCause> {
        let terms = self.control.terms()?;
        if terms.until == EndCondition::Now {
            return Some(EndCause::Now);
        }
        if terms.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(EndCause::Timeout);
        }
        if !self.is_idle() {
            return None;
        }
        if self.orphaned || matches!(terms.until, EndCondition::Drained(_)) {
            return Some(self.control.cause_when_idle());
        }
        let quiet_at = self.quiet_at(terms);
        (quiet_at.is_some_and(|quiet_at| now >= quiet_at)).then_some(EndCause::Quiet)
    }

    /// The phase of the shutdown, after a due cause has closed the pool.
    pub(super) fn shutdown_phase(&self) -> ShutdownPhase {
        if self.cause.is_some() {
            return ShutdownPhase::Closed;
        }
        let Some(terms) = self.control.terms() else {
            return ShutdownPhase::Open;
        };
        let quiet_at = self.is_idle().then(|| self.quiet_at(terms)).flatten();
        ShutdownPhase::ShuttingDown(earlier(quiet_at, terms.deadline))
    }

    /// The time when the quiet period ends if there is no more activity.
    fn quiet_at(&self, terms: ShutdownTerms) -> Option<Instant> {
        let EndCondition::Quiet(quiet) = terms.until else {
            return None;
        };
        let since = self.last_activity.max(Some(terms.requested_at));
        since?.checked_add(quiet)
    }
}
