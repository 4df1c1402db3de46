//! The tasks that a loop has to end by force, for its report.
//!
//! - A task is left over if the end of its loop cancels it, or if it ends after one of its operations has
//!   failed because the loop had closed the channel.
//! - Tasks from one place, with one name, that wait for the same are one entry.
//! - What a task waits for is known if it was told that its channel is closed, or by the address of its waker
//!   if it is that of a timer. A task that sleeps through a waker of another kind (`join_all`) is not found.
//! - A timer that only limits the task is taken off again, when it is dropped with the task
//!   ([`Leftovers::sleeps_not`]).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::left_tasks::{LeftKind, LeftTasks, WaitsFor};
use crate::task_id::TaskId;

/// What is known of tasks that are left over; loop thread only.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    tasks: HashMap<LeftKind, u64>,
    /// The kind that was added last, and how many of it are not in `tasks` yet: tasks from one place come
    /// in a row, and hashing a kind costs as much as ending a task. The bench is W14 of `benches/compare`.
    last: Option<(LeftKind, u64)>,
    /// How many timers tasks have, by address; tasks without one are absent.
    sleepers: HashMap<usize, u32>,
    /// The tasks, by address, that are scheduled closures which are not due.
    scheduled: HashSet<usize>,
    /// The tasks whose operation has failed because their channel is closed.
    interrupted: HashMap<TaskId, Option<WaitsFor>>,
    /// The loop has closed its channels.
    pub(crate) closed: bool,
}

impl Leftovers {
    /// Notes that the task at an address has a timer.
    pub(crate) fn sleeps(&mut self, address: usize) {
        *self.sleepers.entry(address).or_default() += 1;
    }

    /// Notes that a timer of the task at an address is not what the task waits for.
    pub(crate) fn sleeps_not(&mut self, address: usize) {
        if let Entry::Occupied(mut timers) = self.sleepers.entry(address) {
            *timers.get_mut() -= 1;
            if *timers.get() == 0 {
                timers.remove();
            }
        }
    }

    /// Notes that the task at an address is a scheduled closure: its end is the end of a schedule.
    pub(crate) fn note_scheduled(&mut self, address: usize) {
        self.scheduled.insert(address);
    }

    pub(crate) fn was_scheduled(&self, address: usize) -> bool {
        self.scheduled.contains(&address)
    }

    /// Notes that an operation of a task has failed because its channel is closed; returns whether it is the
    /// task's first.
    pub(crate) fn interrupt(&mut self, id: TaskId, what: Option<WaitsFor>) -> bool {
        self.interrupted.insert(id, what).is_none()
    }

    /// Whether an operation of a task has failed because its channel is closed.
    pub(crate) fn is_interrupted(&self, id: TaskId) -> bool {
        self.interrupted.contains_key(&id)
    }

    /// Corrects what the task waited for that was told that its channel is closed.
    #[cfg(feature = "hyper")]
    pub(crate) fn correct_interrupted(&mut self, id: TaskId, what: WaitsFor) {
        if let Some(noted) = self.interrupted.get_mut(&id) {
            *noted = Some(what);
        }
    }

    /// Returns what a task wanted to do when it found its channel closed; `None` if it did not.
    pub(crate) fn take_interrupted(&mut self, id: Option<TaskId>) -> Option<Option<WaitsFor>> {
        if self.interrupted.is_empty() {
            return None; // as most often: without a hash of the id
        }
        self.interrupted.remove(&id?)
    }

    /// Whether the task at an address waits for a timer, as far as is known.
    pub(crate) fn waits(&self, address: usize) -> Option<WaitsFor> {
        let sleeps = self.sleepers.contains_key(&address);
        sleeps.then_some(WaitsFor::Timer)
    }

    /// Adds a task.
    pub(crate) fn add(&mut self, kind: LeftKind) {
        match &mut self.last {
            Some((last, count)) if *last == kind => *count += 1,
            _ => {
                self.add_last();
                self.last = Some((kind, 1));
            }
        }
    }

    /// Takes the result.
    pub(crate) fn take(&mut self) -> Vec<LeftTasks> {
        self.add_last();
        let tasks = std::mem::take(self).tasks;
        LeftTasks::sorted(tasks)
    }

    fn add_last(&mut self) {
        if let Some((kind, count)) = self.last.take() {
            *self.tasks.entry(kind).or_default() += count;
        }
    }
}
