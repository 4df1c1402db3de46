//! The tasks that a loop has to end by force, for its report.
//!
//! - A task is left over if the end of its loop cancels it, or if it ends after a channel was closed under it
//!   while it waited there.
//! - Tasks from one place, with one name, that wait for the same are one entry.
//! - What a task waits for is known by the address of its waker, which is in the source or the timer that it
//!   waits for. A task that waits through a waker of another kind (`select`, `join_all`) is not found there.

use std::collections::HashMap;

use crate::left_tasks::{LeftKind, LeftTasks, WaitsFor};

/// What is known of tasks that are left over; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    tasks: HashMap<LeftKind, u64>,
    /// What tasks waited for when the loop looked, by the address of the task.
    waits: HashMap<usize, WaitsFor>,
    /// The tasks whose channel was closed while they waited for it.
    interrupted: HashMap<usize, WaitsFor>,
    /// The loop ends, and polls the tasks that the close of its channels has woken.
    pub(crate) closing: bool,
}

impl Leftovers {
    /// Notes what the task at an address waits for.
    pub(crate) fn waits(&mut self, address: usize, what: WaitsFor) {
        self.waits.entry(address).or_insert(what);
    }

    /// Notes that the channel is closed for which the task at an address waits.
    pub(crate) fn interrupt(&mut self, address: usize, what: WaitsFor) {
        self.interrupted.entry(address).or_insert(what);
    }

    /// Whether the ends of tasks are to be noted.
    pub(crate) fn has_interrupted(&self) -> bool {
        self.closing || !self.interrupted.is_empty()
    }

    /// Notes that a task has completed; returns whether a channel was closed under it.
    pub(crate) fn completed(&mut self, kind: LeftKind, address: usize) -> bool {
        let waited = self.interrupted.remove(&address);
        let interrupted = self.closing || waited.is_some();
        if interrupted {
            self.add(kind.waiting_for(waited));
        }
        interrupted
    }

    /// Returns what the task at an address waits for, if that is known.
    pub(crate) fn waited(&mut self, address: usize) -> Option<WaitsFor> {
        let interrupted = self.interrupted.remove(&address);
        interrupted.or_else(|| self.waits.get(&address).copied())
    }

    /// Adds a task.
    pub(crate) fn add(&mut self, kind: LeftKind) {
        *self.tasks.entry(kind).or_default() += 1;
    }

    /// Takes the result.
    pub(crate) fn take(&mut self) -> Vec<LeftTasks> {
        let tasks = std::mem::take(self).tasks;
        LeftTasks::sorted(tasks)
    }
}
