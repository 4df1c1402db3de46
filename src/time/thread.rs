//! The timers of a thread that is not a loop: `block_on` fires them while it waits.
//!
//! - One queue per thread, shared by nested calls; the innermost one fires for all of them.
//! - It exists from the first timer on, and is armed only inside `block_on`, where somebody waits.
//! - What happened to its timers on other threads is in a letterbox, which is emptied before each wait;
//!   the bell is hung there in time, so a letter either is seen or rings.
//! - While thread-locals are destroyed there may be no timers any more; `block_on` goes on without.

use std::cell::Cell;
use std::task::Waker;
use std::time::Instant;

use crate::event_loop::context;
use crate::park::Parker;
use crate::sync::{self, Arc, Mutex, thread_local};
use crate::time::queue::Key;
use crate::time::timers::{Away, HomeId, Timers};

thread_local! {
    static TIMERS: ThreadTimers = ThreadTimers::new();
    static USED: Cell<bool> = const { Cell::new(false) };
    /// How many `block_on`s this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct ThreadTimers {
    timers: Timers,
    letters: Arc<Letterbox>,
}

impl ThreadTimers {
    fn new() -> ThreadTimers {
        USED.set(true);
        let letters = Arc::default();
        ThreadTimers {
            timers: Timers::new(HomeId::of_thread(&letters), sync::now()),
            letters,
        }
    }

    /// Fires what is due; returns the next deadline, if there is one.
    fn fire(&self, parker: &Arc<Parker>) -> Option<Instant> {
        self.letters.hang_bell(parker);
        // On the caller's own thread: a panic of a foreign waker is the caller's. One at a time, so
        // that it leaves the others where they are.
        while let Some((key, away)) = self.letters.take() {
            let waker = self.timers.cancel(key);
            match away {
                Away::Dropped => drop(waker),
                Away::Reset => waker.map_or((), Waker::wake),
            }
        }
        if self.timers.is_empty() {
            return None;
        }
        let now = sync::now();
        let mut woken = Vec::with_capacity(1);
        loop {
            self.timers.collect_due(now, 1, &mut woken);
            match woken.pop() {
                Some(waker) => waker.wake(),
                None => return self.timers.next_deadline(),
            }
        }
    }
}

impl Drop for ThreadTimers {
    fn drop(&mut self) {
        self.timers.home().leave();
        // As at the end of a loop: who carried a timer away arms it where it is now.
        context::wake_foreign(self.timers.clear());
    }
}

/// What a thread is told about its timers.
#[derive(Debug, Default)]
pub(crate) struct Letterbox(Mutex<Letters>);

#[derive(Debug, Default)]
struct Letters {
    letters: Vec<(Key, Away)>,
    /// Of the `block_on` that waits, or that waited last.
    bell: Option<Arc<Parker>>,
}

impl Letterbox {
    /// Leaves a letter, from another thread.
    pub(crate) fn post(&self, key: Key, away: Away) {
        let mut inside = self.0.lock();
        inside.letters.push((key, away));
        let bell = match away {
            // Not worth waking the thread for: it wakes at the deadline at the latest.
            Away::Dropped => None,
            Away::Reset => inside.bell.clone(),
        };
        drop(inside);
        if let Some(bell) = bell {
            bell.unpark();
        }
    }

    fn hang_bell(&self, parker: &Arc<Parker>) {
        let mut inside = self.0.lock();
        if !inside
            .bell
            .as_ref()
            .is_some_and(|bell| Arc::ptr_eq(bell, parker))
        {
            inside.bell = Some(Arc::clone(parker));
        }
    }

    pub(super) fn take(&self) -> Option<(Key, Away)> {
        self.0.lock().letters.pop()
    }
}

/// Counts a `block_on` of this thread.
#[derive(Debug)]
pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn enter() -> Waiting {
        DEPTH.set(DEPTH.get() + 1);
        Waiting(())
    }

    /// Fires what is due, for a `block_on` that waits on `parker`; returns the next deadline, if there
    /// is one.
    pub(crate) fn fire(&self, parker: &Arc<Parker>) -> Option<Instant> {
        if !USED.get() {
            return None;
        }
        TIMERS.try_with(|this| this.fire(parker)).ok().flatten()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// The timers of this thread, to arm one: inside `block_on` only.
pub(super) fn here<R>(look: impl FnOnce(&Timers) -> R) -> Option<R> {
    if DEPTH.get() == 0 {
        return None;
    }
    TIMERS.try_with(|this| look(&this.timers)).ok()
}

/// The timers of this thread, if they are `home`.
pub(super) fn at<R>(home: HomeId, look: impl FnOnce(&Timers) -> R) -> Option<R> {
    if !USED.get() {
        return None;
    }
    TIMERS
        .try_with(|this| (this.timers.home() == home).then(|| look(&this.timers)))
        .ok()
        .flatten()
}
