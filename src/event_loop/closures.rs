//! Closures on their way to a loop, and futures whose tasks are created there.
//!
//! An [`Errand`] is such a closure or future. Errands of one type from one place in the source that are
//! submitted one after the other lie side by side in one [`TypedRun`]: they share an allocation, where each
//! would need a task of its own otherwise. A run holds one errand in itself; the deque is for the others.
//!
//! - To the rest of the crate an errand is a task: it is accepted, bounded, paced, measured, counted and
//!   contained on its own. What it has not is a waker and a handle, so nothing is ever asked of it.
//! - An errand is begun once or dropped once, by the home thread. (A loop that gets no thread has its mail
//!   dropped elsewhere, as it does with tasks.)
//! - An errand joins the last run only if nothing has been queued since that is in order with the run; see
//!   [`Inbox::push_run_with`](super::inbox::Inbox::push_run_with) and
//!   [`RunQueue::push_closure`](super::run_queue::RunQueue::push_closure).
//! - While its errands run, only [`Local::run_closures`] holds the run: they may submit
//!   others, which are queued behind it. A closure that panics, or that shuts the loop down, ends nothing but
//!   itself; the loop decides after each of them whether the next one begins.
//! - A run that was worked off is kept for the next one of its type, one for each queue: in a steady flow
//!   nothing is allocated, and a run does not grow while the inbox' lock is held.
//! - Besides its first errand, a run is never longer than [`LONGEST_RUN`] or larger than [`LARGEST_RUN`]. So
//!   the inbox' lock is not held while a long deque grows, and memory is freed while a long queue is worked
//!   off.

use std::any::Any;
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;

use crate::error::Caller;
use crate::event_loop::context;
use crate::event_loop::inbox::RunPlaces;
use crate::event_loop::local::Local;
use crate::event_loop::runs::Run;
use crate::event_loop::shared::{Runnable, Shared};
use crate::left_tasks::LeftKind;
use crate::panic::{PanicReporter, PanicSite};

/// The most errands of a run, and the most bytes that they take.
const LONGEST_RUN: usize = 1024;
const LARGEST_RUN: usize = 64 * 1024;

/// A closure to be called, or a future to be polled, on a loop.
pub(crate) trait Errand: Send + 'static {
    /// Whether it becomes a task when it begins.
    const IS_TASK: bool;

    /// Runs the closure, or creates the task and polls it once. Panics are contained.
    fn begin(self, local: &Local, location: Caller);

    /// Where it comes from, for a report.
    fn left_kind(&self, location: Caller) -> LeftKind;

    /// Makes the task that it would become when it begins.
    fn into_task(self, home: &Shared) -> Runnable;
}

/// A closure without a handle.
pub(crate) struct Call<F>(pub(crate) F);

impl<F: FnOnce() + Send + 'static> Errand for Call<F> {
    const IS_TASK: bool = false;

    #[inline]
    fn begin(self, local: &Local, location: Caller) {
        local.run_closure(self.0, location);
    }

    fn left_kind(&self, location: Caller) -> LeftKind {
        LeftKind::new(location, None)
    }

    fn into_task(self, _: &Shared) -> Runnable {
        unreachable!("a closure is called, and needs no task")
    }
}

/// Errands of one type from one place.
struct TypedRun<E> {
    location: Caller,
    /// Most runs that are not long have one errand: it needs no second allocation.
    first: Option<E>,
    rest: VecDeque<E>,
}

impl<E> TypedRun<E> {
    /// The most errands besides the first.
    const MOST: usize = {
        let size = if size_of::<E>() == 0 {
            1
        } else {
            size_of::<E>()
        };
        let most = LARGEST_RUN / size;
        if most < LONGEST_RUN {
            most
        } else {
            LONGEST_RUN
        }
    };

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

impl<E> Drop for TypedRun<E> {
    /// A run of a loop that ends is empty by now. Whatever else drops one, a destructor that panics is
    /// contained.
    fn drop(&mut self) {
        while let Some(errand) = self.next() {
            context::panics_in_drop().drop(PanicSite::Destructor, Some(self.location), errand);
        }
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
        if !ptr::eq(self.location, location) || self.rest.len() >= Self::MOST {
            if self.len() > 0 {
                return false;
            }
            self.location = location;
        }
        self.rest
            .push_back(errand.take().expect("an errand is queued once"));
        true
    }

    fn begin(&mut self, shown: u8) -> bool {
        let local = home();
        while let Some(errand) = self.next() {
            errand.begin(&local, self.location);
            if local.count_task(shown) {
                return true;
            }
        }
        false
    }

    fn cancel(&mut self) {
        let local = home();
        while let Some(errand) = self.next() {
            let kind = errand.left_kind(self.location);
            local.drop_unbegun(errand, kind, self.location);
        }
    }

    fn discard(&mut self, panics: &PanicReporter) {
        while let Some(errand) = self.next() {
            panics.drop(PanicSite::Destructor, Some(self.location), errand);
        }
    }
}

/// The loop of a run that is begun or cancelled.
fn home() -> Rc<Local> {
    context::current().expect("a run is worked off on its loop")
}

/// Takes an errand out of its place: into the last run if it fits there, or into the spare one or a new one,
/// which is returned.
#[inline]
pub(crate) fn join<E: Errand>(
    places: RunPlaces<'_, Box<dyn Run>>,
    errand: &mut Option<E>,
    location: Caller,
) -> Option<Box<dyn Run>> {
    if places.last.is_some_and(|last| last.join(errand, location)) {
        return None;
    }
    begin_run(places.spare, errand, location)
}

/// Begins a run with an errand.
#[inline(never)]
fn begin_run<E: Errand>(
    spare: &mut Option<Box<dyn Run>>,
    errand: &mut Option<E>,
    location: Caller,
) -> Option<Box<dyn Run>> {
    if spare
        .as_mut()
        .is_some_and(|spare| spare.join(errand, location))
    {
        return spare.take();
    }
    let errand = errand.take().expect("an errand is queued once");
    Some(Box::new(TypedRun::new(errand, location)))
}
