//! What the lock of a pool protects, and what it says about the end.
//!
//! - Every accepted job is queued, has begun or has ended: `begun` is what is left of the sum.
//! - The timeout comes before every other end, and rest before quiet.
//! - A queue that runs empty gives back the room of a crowd.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use crate::blocking::job::Runnable;
use crate::blocking::keeper::Keeper;
use crate::clock::earlier;
use crate::event_loop::terms::{Control, Terms, Until};
use crate::report::{Cause, Figures};
use crate::sync::{self, Arc};

/// An empty queue keeps room for so many jobs.
const KEEP_ROOM: usize = 1024;

/// The state of a pool.
pub(super) struct Inner {
    pub(super) queue: VecDeque<Runnable>,
    /// Threads that wait for a job.
    pub(super) idle: usize,
    /// Threads that have been started and have not looked at the queue yet.
    pub(super) arriving: usize,
    /// All workers.
    pub(super) threads: usize,
    /// Workers that run a job.
    pub(super) running: usize,
    /// Who drops cancelled jobs at this moment, without the lock: the end waits for them.
    pub(super) cancelling: usize,
    pub(super) keeper: Keeper,
    pub(super) control: Control,
    /// `Some` once the gate is closed.
    pub(super) cause: Option<Cause>,
    pub(super) error: Option<Arc<io::Error>>,
    pub(super) last_activity: Instant,
    /// Every handle is gone.
    pub(super) orphaned: bool,
    pub(super) ever_started: bool,
    pub(super) figures: Figures,
}

/// What a look at the shutdown says.
pub(super) enum Look {
    Open,
    /// Wait until then at most, then look again.
    ShuttingDown(Option<Instant>),
    Closed,
}

impl Inner {
    pub(super) fn new() -> Inner {
        Inner {
            queue: VecDeque::new(),
            idle: 0,
            arriving: 0,
            threads: 0,
            running: 0,
            cancelling: 0,
            keeper: Keeper::default(),
            control: Control::default(),
            cause: None,
            error: None,
            last_activity: sync::now(),
            orphaned: false,
            ever_started: false,
            figures: Figures::default(),
        }
    }

    /// Whether the last one has left and every job is accounted for.
    pub(super) fn is_over(&self) -> bool {
        self.cause.is_some()
            && self.threads == 0
            && self.keeper != Keeper::Watching
            && self.cancelling == 0
    }

    /// Takes the job that has waited for longest.
    pub(super) fn next_job(&mut self) -> Option<Runnable> {
        let job = self.queue.pop_front();
        if self.queue.is_empty() && self.queue.capacity() > KEEP_ROOM {
            self.queue = VecDeque::new();
        }
        job
    }

    /// How many jobs have begun and have not ended.
    pub(super) fn begun(&self) -> u64 {
        let figures = &self.figures;
        let ended = figures.completed + figures.panicked + figures.cancelled;
        figures.accepted - ended - self.queue.len() as u64
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.running == 0 && self.queue.is_empty()
    }

    /// Whether the terms end the group now, and how.
    pub(super) fn verdict(&self, now: Instant) -> Option<Cause> {
        let terms = self.control.terms()?;
        if terms.until == Until::Now {
            return Some(Cause::Now);
        }
        if terms.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Cause::Timeout);
        }
        if !self.is_at_rest() {
            return None;
        }
        if self.orphaned || matches!(terms.until, Until::Drained(_)) {
            return Some(self.cause_at_rest());
        }
        let quiet_at = self.quiet_at(terms);
        (quiet_at.is_some_and(|quiet_at| now >= quiet_at)).then_some(Cause::Quiet)
    }

    /// What whoever waits has to know, once the verdict is carried out.
    pub(super) fn outlook(&self) -> Look {
        if self.cause.is_some() {
            return Look::Closed;
        }
        let Some(terms) = self.control.terms() else {
            return Look::Open;
        };
        let quiet_at = self.is_at_rest().then(|| self.quiet_at(terms)).flatten();
        Look::ShuttingDown(earlier(quiet_at, terms.deadline))
    }

    /// When the quiet period is over, if nothing happens until then.
    fn quiet_at(&self, terms: Terms) -> Option<Instant> {
        let Until::Quiet(quiet) = terms.until else {
            return None;
        };
        let since = self.last_activity.max(terms.requested_at);
        since.checked_add(quiet)
    }

    pub(super) fn cause_at_rest(&self) -> Cause {
        match self.control.terms().map(|terms| terms.until) {
            Some(Until::Drained(_)) => Cause::Drained,
            Some(Until::Now) => Cause::Now,
            _ => Cause::Idle,
        }
    }
}
