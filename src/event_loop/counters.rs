//! The counters of one loop: how many tasks were accepted, began and ended.
//!
//! - Each counter but `rejected` has one writer at a time: the loop thread, or before there is one
//!   the holder of the inbox lock. So a plain load and store suffices, without a read-modify-write.
//!   (Submissions from other threads are counted by the inbox, under its lock.)
//! - `begun` counts a task when it leaves the queue for the first time: polled, or dropped unpolled.
//!   So `pending = accepted − begun` and `live = begun − ended`, readable from any thread.
//! - Readers on other threads may see values that do not quite match each other; at rest, and in
//!   the report, they add up exactly.

use crate::report::Figures;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd {
    Completed,
    Panicked,
    Cancelled,
}

/// The counters, on cache lines of their own, apart from the inbox that other
/// threads write and from the limit that they read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Submissions made on the loop thread itself.
    accepted_local: AtomicU64,
    begun: AtomicU64,
    completed: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    hooks_run: AtomicU64,
    hooks_panicked: AtomicU64,
    channels_closed: AtomicU64,
    /// Cancelled by their handles; cancelled because a shutdown ended their schedule.
    aborted: AtomicU64,
    unscheduled: AtomicU64,
    /// Completed after a channel was closed under them; and such channels.
    interrupted: AtomicU64,
    channels_interrupted: AtomicU64,
    /// The bound on tasks that were not begun.
    pub(crate) limit: PendingLimit,
}

impl Counters {
    pub(crate) fn accept_local(&self) {
        bump(&self.accepted_local);
    }

    /// Counts a task that leaves the queue for the first time, and releases its place below the limit.
    #[inline]
    pub(crate) fn begin(&self) {
        self.begin_unlimited();
        if self.limit.is_set() {
            self.limit.release();
        }
    }

    /// As [`Counters::begin`], for a task that was never queued.
    pub(crate) fn begin_unlimited(&self) {
        bump(&self.begun);
    }

    #[inline]
    pub(crate) fn end(&self, end: TaskEnd) {
        bump(match end {
            TaskEnd::Completed => &self.completed,
            TaskEnd::Panicked => &self.panicked,
            TaskEnd::Cancelled => &self.cancelled,
        });
    }

    pub(crate) fn hook_run(&self, panicked: bool) {
        bump(&self.hooks_run);
        if panicked {
            bump(&self.hooks_panicked);
        }
    }

    pub(crate) fn channels_closed(&self, closed: usize) {
        let before = self.channels_closed.load(Ordering::Relaxed);
        self.channels_closed
            .store(before + closed as u64, Ordering::Release);
    }

    pub(crate) fn aborted(&self) {
        bump(&self.aborted);
    }

    pub(crate) fn unscheduled(&self) {
        bump(&self.unscheduled);
    }

    pub(crate) fn interrupted(&self) {
        bump(&self.interrupted);
    }

    pub(crate) fn channel_interrupted(&self) {
        bump(&self.channels_interrupted);
    }

    pub(crate) fn accepted_local(&self) -> u64 {
        get(&self.accepted_local)
    }

    /// Tasks accepted and not begun, given how many the inbox has accepted.
    pub(crate) fn pending(&self, accepted_elsewhere: u64) -> usize {
        let accepted = get(&self.accepted_local) + accepted_elsewhere;
        to_usize(accepted.saturating_sub(get(&self.begun)))
    }

    /// Tasks begun and not ended.
    pub(crate) fn live(&self) -> usize {
        let ended = self.ended();
        to_usize(get(&self.begun).saturating_sub(ended))
    }

    pub(crate) fn ended(&self) -> u64 {
        get(&self.completed) + get(&self.panicked) + get(&self.cancelled)
    }

    /// Those that the loop writes with every task.
    #[cfg(test)]
    pub(crate) fn written(&self) -> [&AtomicU64; 3] {
        [&self.accepted_local, &self.begun, &self.completed]
    }

    /// Sets all to zero, for a loop that is about to be created.
    pub(crate) fn reset(&self, max_pending: Option<usize>, tracked: bool) {
        let Counters {
            accepted_local,
            begun,
            completed,
            panicked,
            cancelled,
            hooks_run,
            hooks_panicked,
            channels_closed,
            aborted,
            unscheduled,
            interrupted,
            channels_interrupted,
            limit,
        } = self;
        let tasks = [accepted_local, begun, completed, panicked, cancelled];
        let kinds = [aborted, unscheduled, interrupted];
        let others = [
            hooks_run,
            hooks_panicked,
            channels_closed,
            channels_interrupted,
        ];
        // Relaxed: the loop is about to be created, and is shared by other means.
        let all = tasks.into_iter().chain(kinds).chain(others);
        all.for_each(|counter| counter.store(0, Ordering::Relaxed));
        limit.reset(max_pending, tracked);
    }

    pub(crate) fn figures(&self, accepted_elsewhere: u64) -> Figures {
        Figures {
            accepted: get(&self.accepted_local) + accepted_elsewhere,
            completed: get(&self.completed),
            panicked: get(&self.panicked),
            cancelled: get(&self.cancelled),
            running: 0,
            hooks_run: get(&self.hooks_run),
            hooks_panicked: get(&self.hooks_panicked),
            channels_closed: get(&self.channels_closed),
            aborted: get(&self.aborted),
            unscheduled: get(&self.unscheduled),
            interrupted: get(&self.interrupted),
            channels_interrupted: get(&self.channels_interrupted),
        }
    }
}

/// Adds one to a counter that only this thread writes.
fn bump(counter: &AtomicU64) {
    // Release pairs with the Acquire in `get`: a reader that sees a task ended sees what it submitted.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Acquire)
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The limit on tasks that wait for their first poll: exact, whichever thread submits them. On lines of its
/// own: producers read it with every submission, beside counters that the loop writes with every task.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PendingLimit {
    /// [`NO_LIMIT`] if there is none. Written before the loop is created.
    max: AtomicUsize,
    used: AtomicUsize,
}

const NO_LIMIT: usize = usize::MAX;
/// A limit that is never reached: the loop lists its tasks, and they take the way of those that are counted.
const TRACKED: usize = usize::MAX - 1;

impl Default for PendingLimit {
    fn default() -> PendingLimit {
        PendingLimit::new(NO_LIMIT)
    }
}

impl PendingLimit {
    pub(crate) fn new(max: usize) -> PendingLimit {
        PendingLimit {
            max: AtomicUsize::new(max),
            used: AtomicUsize::new(0),
        }
    }

    fn reset(&self, max: Option<usize>, tracked: bool) {
        let none = if tracked { TRACKED } else { NO_LIMIT };
        let max = max.map_or(none, |max| max.min(TRACKED));
        self.max.store(max, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// Whether there is a limit, or tasks are listed: then they do not take the shortest way.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.max.load(Ordering::Relaxed) != NO_LIMIT
    }

    /// Whether there is a limit that can be reached.
    pub(crate) fn is_reachable(&self) -> bool {
        self.max.load(Ordering::Relaxed) < TRACKED
    }

    /// Takes a permit, if there is one.
    pub(crate) fn try_acquire(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        // Relaxed: only the count itself is shared; the queue orders the tasks.
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < max).then_some(used + 1)
            })
            .is_ok()
    }

    /// Takes a permit, even if there is none.
    pub(crate) fn acquire_anyway(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a permit.
    pub(crate) fn release(&self) {
        let before = self.used.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a permit is returned once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_tasks_that_ended_add_up() {
        let counters = Counters::default();
        for end in [TaskEnd::Completed, TaskEnd::Panicked, TaskEnd::Cancelled] {
            counters.accept_local();
            assert_eq!((counters.pending(0), counters.live()), (1, 0));
            counters.begin();
            assert_eq!((counters.pending(0), counters.live()), (0, 1));
            counters.end(end);
            assert_eq!((counters.pending(0), counters.live()), (0, 0));
        }
        let figures = counters.figures(0);
        assert_eq!(
            figures.accepted,
            figures.completed + figures.panicked + figures.cancelled
        );
    }

    #[test]
    fn a_bound_is_exact() {
        let bound = PendingLimit::new(2);
        assert!(bound.try_acquire() && bound.try_acquire());
        assert!(!bound.try_acquire());
        bound.release();
        assert!(bound.try_acquire());
        assert!(!bound.try_acquire());
    }
}
