//! Runs of closures in the run queue of a loop.
//!
//! - The run queue itself holds tasks alone, so that its entries stay small. A run has a position in it: the
//!   number of tasks that were ever taken out of the queue before the run.
//! - So runs are in order with tasks, and those of one position in the order of their arrival.
//! - A task is taken out of the queue only if no run is due before it ([`Runs::take_task`]): for a loop
//!   without closures that is one counter.
//! - A run that is worked off is in nobody's list. What is left of it goes back to the front.
//!
//! ```text
//!   run queue:  task  task  task  task       the position of A is 1, that of B and C is 3
//!   runs:           ▲ A         ▲ B C        order: task A task task B C task
//! ```
//!
//! What a run consists of is the affair of [`closures`](super::closures).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::error::Caller;
use crate::panic::PanicReporter;

/// The position of the first run if there is none.
const NEVER: u64 = u64::MAX;

/// A run, whatever it consists of.
pub(crate) trait Run: Send {
    /// How many closures are left.
    fn len(&self) -> usize;

    /// Takes a closure out of an `Option` of its type, if it fits behind the others; returns whether it did.
    fn join(&mut self, closure: &mut dyn Any, location: Caller) -> bool;

    /// Begins closures in order, on their loop, until none is left or the loop has to read the clock; returns
    /// whether it has to.
    fn begin(&mut self, shown: u8) -> bool;

    /// Drops every closure, on its loop: they are cancelled.
    fn cancel(&mut self);

    /// Drops every closure, uncounted: there is no loop.
    fn discard(&mut self, panics: &PanicReporter);
}

/// The runs in the run queue of a loop; loop thread only.
pub(crate) struct Runs {
    /// How many tasks are taken out of the run queue before the first run is due: `first` minus the number of
    /// tasks that were ever taken.
    until_first: Cell<u64>,
    /// The position of the first run.
    first: Cell<u64>,
    /// The runs and their positions.
    runs: RefCell<VecDeque<(u64, Box<dyn Run>)>>,
    /// The closures in `runs`.
    queued: Cell<usize>,
}

impl Runs {
    pub(crate) fn new() -> Runs {
        Runs {
            until_first: Cell::new(NEVER),
            first: Cell::new(NEVER),
            runs: RefCell::default(),
            queued: Cell::new(0),
        }
    }

    /// How many closures are queued.
    pub(crate) fn queued(&self) -> usize {
        self.queued.get()
    }

    /// Takes a task out of the run queue, unless a run is due.
    #[inline]
    pub(crate) fn take_task<T>(&self, take: impl FnOnce() -> Option<T>) -> Option<T> {
        let until_first = self.until_first.get();
        if until_first == 0 {
            return None;
        }
        let task = take()?;
        self.until_first.set(until_first - 1);
        Some(task)
    }

    /// Adds a run behind so many tasks of the run queue, and behind all other runs. Its closures are to be
    /// [counted](Runs::count).
    pub(crate) fn push(&self, tasks: usize, run: Box<dyn Run>) {
        self.push_at(self.position_behind(tasks), run);
    }

    /// Counts closures of runs that are pushed.
    pub(crate) fn count(&self, closures: usize) {
        self.queued.set(self.queued.get() + closures);
    }

    /// Adds a closure behind so many tasks of the run queue: `join` is given the last run if the closure
    /// comes right behind it, and returns a new run if it did not put the closure there.
    pub(crate) fn push_with(
        &self,
        tasks: usize,
        join: impl FnOnce(Option<&mut Box<dyn Run>>) -> Option<Box<dyn Run>>,
    ) {
        let position = self.position_behind(tasks);
        let mut runs = self.runs.borrow_mut();
        let last = runs.back_mut().filter(|(last, _)| *last == position);
        let new = join(last.map(|(_, run)| run));
        drop(runs);
        self.count(1);
        if let Some(new) = new {
            self.push_at(position, new);
        }
    }

    /// Takes the first run if it is due.
    pub(crate) fn take_run(&self) -> Option<Box<dyn Run>> {
        if self.until_first.get() > 0 {
            return None;
        }
        let mut runs = self.runs.borrow_mut();
        let (_, run) = runs.pop_front()?;
        let next = runs.front().map_or(NEVER, |(position, _)| *position);
        self.set_first(next);
        self.queued.set(self.queued.get() - run.len());
        Some(run)
    }

    /// Puts a run that was taken back to the front, if there is anything left of it.
    pub(crate) fn put_back(&self, run: Box<dyn Run>) {
        if run.len() == 0 {
            return;
        }
        let now = self.taken();
        self.count(run.len());
        self.runs.borrow_mut().push_front((now, run));
        self.set_first(now);
    }

    /// Frees the memory of a past burst.
    pub(crate) fn shrink(&self, capacity: usize) {
        let mut runs = self.runs.borrow_mut();
        if runs.capacity() > capacity && runs.is_empty() {
            *runs = VecDeque::new();
        }
    }

    fn push_at(&self, position: u64, run: Box<dyn Run>) {
        let mut runs = self.runs.borrow_mut();
        if runs.is_empty() {
            self.set_first(position);
        }
        runs.push_back((position, run));
    }

    fn position_behind(&self, tasks: usize) -> u64 {
        self.taken() + tasks as u64
    }

    /// How many tasks were ever taken out of the run queue.
    fn taken(&self) -> u64 {
        self.first.get() - self.until_first.get()
    }

    fn set_first(&self, position: u64) {
        self.until_first.set(position - self.taken());
        self.first.set(position);
    }
}
