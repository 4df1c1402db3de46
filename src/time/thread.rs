//! The timers of a thread that is not a loop: `block_on` fires them while it waits.
//!
//! - One queue per thread, shared by nested calls; the innermost one fires for all of them.
//! - It exists from the first timer on, and is armed only inside `block_on`, where somebody waits.
//! - Keys of timers that were dropped on other threads are collected before each wait.

use std::cell::Cell;
use std::task::Waker;
use std::time::Instant;

use crate::sync::{Arc, Mutex};
use crate::time::queue::Key;
use crate::time::timers::{HomeId, Timers};

thread_local! {
    static TIMERS: ThreadTimers = ThreadTimers::new();
    static USED: Cell<bool> = const { Cell::new(false) };
    /// How many `block_on`s this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct ThreadTimers {
    timers: Timers,
    cancelled: Arc<Mutex<Vec<Key>>>,
}

impl ThreadTimers {
    fn new() -> ThreadTimers {
        USED.set(true);
        let cancelled = Arc::default();
        ThreadTimers {
            timers: Timers::new(HomeId::of_thread(&cancelled), Instant::now()),
            cancelled,
        }
    }
}

impl Drop for ThreadTimers {
    fn drop(&mut self) {
        self.timers.home().leave();
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

    /// Fires what is due; returns the next deadline, if there is one.
    pub(crate) fn fire(&self) -> Option<Instant> {
        if !USED.get() {
            return None;
        }
        // While thread-locals are destroyed there is nothing to fire, and nothing to arm.
        let fired = TIMERS.try_with(|this| {
            for key in std::mem::take(&mut *this.cancelled.lock()) {
                drop(this.timers.cancel(key));
            }
            if this.timers.is_empty() {
                return None;
            }
            let mut woken: Vec<Waker> = Vec::new();
            this.timers
                .collect_due(Instant::now(), usize::MAX, &mut woken);
            for waker in woken {
                // On the caller's own thread: a panic of a foreign waker is the caller's.
                waker.wake();
            }
            this.timers.next_deadline()
        });
        fired.ok().flatten()
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
