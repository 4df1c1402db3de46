//! Closures on their way to a loop, and futures whose tasks are created there.
//!
//! An [`Errand`] is such a closure or future. Errands of one type from one place in the source that are submitted
//! one after the other lie side by side in one [`TypedRun`]: they share an allocation, where each would need a task
//! of its own otherwise. A run holds one errand in itself; the deque is for the others.
//!
//! - An errand is a task to everybody else: it is accepted, bounded, paced, measured, counted and contained on
//!   its own. What it has not is a waker and a handle, so nothing is ever asked of it.
//! - An errand is begun once or dropped once, by the home thread. (A loop that gets no thread has its mail
//!   dropped elsewhere, as it does with tasks.)
//! - Runs are in order with the tasks of the run queue and with each other. The run queue itself holds tasks
//!   alone; a run has a position in it: the number of tasks that are ever taken out before it.
//! - An errand joins the last run only if nothing has been queued since that is in order with the run.
//! - While its errands run, a run is in nobody's hands but those of [`Local::run_closures`]: they may submit
//!   others, which are queued behind it. What is left of it goes back to the front.
//! - A run is never longer than [`LONGEST_RUN`]. So the inbox' lock is not held while a long deque grows, and
//!   memory is freed while a long queue is worked off.
//!
//! ```text
//!   run queue:  task  task  task  task       the position of run A is 1, that of B and C is 3
//!   runs:           ▲ A         ▲ B C        order: task A task task B C task
//! ```

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;

use crate::error::Caller;
use crate::event_loop::local::Local;
use crate::event_loop::shared::Runnable;
use crate::left_tasks::LeftKind;
use crate::panic::{PanicReporter, PanicSite};

/// The most errands of a run.
const LONGEST_RUN: usize = 1024;
/// The position of the first run if there is none.
const NEVER: u64 = u64::MAX;

/// A closure to be called, or a future to be polled, on a loop.
pub(crate) trait Errand: Send + 'static {
    /// Runs the closure, or creates the task and polls it once. Panics are contained.
    fn begin(self, local: &Local, location: Caller);

    /// Where it comes from, for a report.
    fn left_kind(&self, location: Caller) -> LeftKind;
}

/// A closure that nobody waits for.
pub(crate) struct Call<F>(pub(crate) F);

impl<F: FnOnce() + Send + 'static> Errand for Call<F> {
    #[inline]
    fn begin(self, local: &Local, location: Caller) {
        local.run_closure(self.0, location);
    }

    fn left_kind(&self, location: Caller) -> LeftKind {
        LeftKind::new(location, None)
    }
}

/// A run, whatever it consists of.
pub(crate) trait Run: Send {
    /// How many errands are left.
    fn len(&self) -> usize;

    /// Takes an errand, out of an `Option<E>`, if it fits behind the others; returns whether it did.
    fn join(&mut self, errand: &mut dyn Any, location: Caller) -> bool;

    /// Begins errands in order, until none is left or the clock has to be read; returns whether it has to be.
    fn begin(&mut self, local: &Local, shown: u8) -> bool;

    /// Drops every errand, on the home thread: they are cancelled.
    fn cancel(&mut self, local: &Local);

    /// Drops every errand, uncounted: their loop gets no thread.
    fn discard(&mut self, panics: &PanicReporter);
}

/// Errands of one type from one place.
struct TypedRun<E> {
    location: Caller,
    /// Most runs that are not long have one errand: it needs no second allocation.
    first: Option<E>,
    rest: VecDeque<E>,
}

impl<E> TypedRun<E> {
    fn new(errand: E, location: Caller) -> TypedRun<E> {
        TypedRun {
            location,
            first: Some(errand),
            rest: VecDeque::new(),
        }
    }

    #[inline]
    fn next(&mut self) -> Option<E> {
        self.first.take().or_else(|| self.rest.pop_front())
    }
}

impl<E: Errand> Run for TypedRun<E> {
    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    fn join(&mut self, errand: &mut dyn Any, location: Caller) -> bool {
        let Some(errand) = errand.downcast_mut::<Option<E>>() else {
            return false;
        };
        if !ptr::eq(self.location, location) || self.rest.len() + 1 >= LONGEST_RUN {
            return false;
        }
        self.rest.extend(errand.take());
        true
    }

    fn begin(&mut self, local: &Local, shown: u8) -> bool {
        while let Some(errand) = self.next() {
            errand.begin(local, self.location);
            if local.count_task(shown) {
                return true;
            }
        }
        false
    }

    fn cancel(&mut self, local: &Local) {
        while let Some(errand) = self.next() {
            local.drop_unbegun(errand, self.location);
        }
    }

    fn discard(&mut self, panics: &PanicReporter) {
        while let Some(errand) = self.next() {
            panics.drop(PanicSite::Destructor, Some(self.location), errand);
        }
    }
}

/// Takes an errand out of its place: into the last run if it fits there, or into a new one, which is returned.
pub(crate) fn join<E: Errand>(
    last: Option<&mut Box<dyn Run>>,
    errand: &mut Option<E>,
    location: Caller,
) -> Option<Box<dyn Run>> {
    if last.is_some_and(|last| last.join(errand, location)) {
        return None;
    }
    let errand = errand.take().expect("an errand is queued once");
    Some(Box::new(TypedRun::new(errand, location)))
}

/// The runs in the run queue of a loop; loop thread only.
pub(crate) struct Closures {
    /// How many tasks are taken out of the run queue before the first run is due: `first` minus the number of
    /// tasks that were ever taken.
    until_first: Cell<u64>,
    /// The position of the first run.
    first: Cell<u64>,
    /// The runs and their positions.
    runs: RefCell<VecDeque<(u64, Box<dyn Run>)>>,
    /// The errands in `runs`.
    queued: Cell<usize>,
}

impl Closures {
    pub(crate) fn new() -> Closures {
        Closures {
            until_first: Cell::new(NEVER),
            first: Cell::new(NEVER),
            runs: RefCell::default(),
            queued: Cell::new(0),
        }
    }

    /// How many errands are queued.
    pub(crate) fn queued(&self) -> usize {
        self.queued.get()
    }

    /// Takes a task out of the run queue, unless a run is due.
    #[inline]
    pub(crate) fn take_task(&self, take: impl FnOnce() -> Option<Runnable>) -> Option<Runnable> {
        let until_first = self.until_first.get();
        if until_first == 0 {
            return None;
        }
        let task = take()?;
        self.until_first.set(until_first - 1);
        Some(task)
    }

    /// Adds a run behind so many tasks of the run queue, and behind all other runs.
    pub(crate) fn push(&self, tasks: usize, run: Box<dyn Run>) {
        let position = self.position_behind(tasks);
        self.queued.set(self.queued.get() + run.len());
        self.push_at(position, run);
    }

    /// Takes an errand out of its place, and adds it behind the run queue of so many tasks.
    pub(crate) fn join_last<E: Errand>(
        &self,
        tasks: usize,
        errand: &mut Option<E>,
        location: Caller,
    ) {
        let position = self.position_behind(tasks);
        let mut runs = self.runs.borrow_mut();
        let last = runs.back_mut().filter(|(last, _)| *last == position);
        let new = join(last.map(|(_, run)| run), errand, location);
        drop(runs);
        self.queued.set(self.queued.get() + 1);
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
        self.queued.set(self.queued.get() + run.len());
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
