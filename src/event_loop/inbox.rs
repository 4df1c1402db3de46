//! The mailbox through which other threads reach a loop.
//!
//! Invariants:
//! - The gate only moves `Open → Draining → Closed`. New items pass an open gate only; wakes pass
//!   until it is closed; what has passed is always drained.
//! - It closes in the critical section that finds no item inside, so none is ever left there. (Messages
//!   to the loop itself are dropped: nobody is left to read them.)
//! - `sleeping` is set under the lock and only while nothing is inside, or again when a ring failed. A
//!   producer that finds it set clears it and must ring: the bell rings at most once per sleep, however
//!   many produce.
//! - An item that is needed by some moment rings only a sleeper that would wake later than that.
//! - Order is kept: what one thread pushes is drained in the order of its pushes.
//! - The lock is held for O(1) work of ours, never for user code. (The one allocation that may happen
//!   under it, in [`Inbox::push_new_with`], moves a future but does not call it.)
//!
//! ```text
//!   Open ──refuse_new()──▶ Draining ──close_if_empty()──▶ Closed
//!   new, wakes             wakes only                     nothing
//! ```
//!
//! It knows nothing of tasks: `T` is whatever runs, `N` whatever else the loop has to be told.

use std::time::Instant;

use crate::metrics::gauges::Gauge;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The mailbox.
#[derive(Debug)]
pub(crate) struct Inbox<T, N> {
    state: Mutex<State<T, N>>,
    /// Something is inside. Written under the lock; the loop reads it without, to save the lock
    /// when there is nothing. A stale `false` only delays until `try_sleep`, which looks under the
    /// lock.
    mail: AtomicBool,
    /// The loop is about to park or parked. Set under the lock; cleared by the producer that takes
    /// the duty to ring (under the lock) or by the loop when it is awake (without: the worst case is
    /// one needless ring).
    sleeping: AtomicBool,
    /// New items ever let in. Written under the lock, read anywhere.
    accepted: AtomicU64,
    /// Wakes that came from loops of the group, and from elsewhere; and duties to ring that were taken. All
    /// written under the lock.
    pub(crate) woken_by_siblings: Gauge,
    pub(crate) woken_from_outside: Gauge,
    pub(crate) rings: Gauge,
}

/// Who wakes a task of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Another loop of its group.
    Sibling,
    /// Any other thread.
    Outside,
}

#[derive(Debug)]
struct State<T, N> {
    mail: Batch<T, N>,
    /// Somebody wants the loop to take a turn, with nothing to hand over.
    nudged: bool,
    gate: Gate,
    /// When the sleeping loop wakes by itself; `None` is never.
    wakes_at: Option<Instant>,
}

/// What a drain takes out; its buffers go back in with the next drain, so that a steady flow
/// allocates nothing.
#[derive(Debug)]
pub(crate) struct Batch<T, N> {
    /// Items for the run queue.
    pub(crate) main: Vec<T>,
    /// Items for the end of the iteration.
    pub(crate) tail: Vec<T>,
    /// Messages to the loop itself.
    pub(crate) notices: Vec<N>,
}

/// Which queue of the loop an item is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Main,
    Tail,
}

/// Whether an item is worth waking a parked loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    Now,
    /// Needed by this moment, not before.
    By(Instant),
    /// Stays inside until something else wakes the loop.
    Lazy,
}

/// What the producer owes to the loop once the lock is gone.
#[must_use = "a loop that sleeps must be rung"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Needed,
    NotNeeded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Draining,
    Closed,
}

impl<T, N> Inbox<T, N> {
    pub(crate) fn new() -> Inbox<T, N> {
        Inbox {
            state: Mutex::new(State {
                mail: Batch::new(),
                nudged: false,
                gate: Gate::Open,
                wakes_at: None,
            }),
            mail: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            accepted: AtomicU64::new(0),
            woken_by_siblings: Gauge::default(),
            woken_from_outside: Gauge::default(),
            rings: Gauge::default(),
        }
    }

    /// Makes a new item and lets it in; does not make it if the gate is no longer open.
    pub(crate) fn push_new_with(
        &self,
        lane: Lane,
        urgency: Urgency,
        make: impl FnOnce() -> T,
    ) -> Option<Ring> {
        let mut state = self.state.lock();
        if state.gate != Gate::Open {
            return None;
        }
        match lane {
            Lane::Main => state.mail.main.push(make()),
            Lane::Tail => state.mail.tail.push(make()),
        }
        // One writer at a time: the lock is held.
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.accepted.store(accepted + 1, Ordering::Relaxed);
        Some(self.delivered(&state, urgency))
    }

    /// Lets an item in that has been inside before; hands it back only if the gate is closed.
    pub(crate) fn push_wake(&self, item: T, from: Sender) -> Result<Ring, T> {
        let mut state = self.state.lock();
        if state.gate == Gate::Closed {
            return Err(item);
        }
        state.mail.main.push(item);
        match from {
            Sender::Sibling => self.woken_by_siblings.add(1),
            Sender::Outside => self.woken_from_outside.add(1),
        }
        Ok(self.delivered(&state, Urgency::Now))
    }

    /// Leaves a message for the loop itself; nobody is there to read it once the gate is closed.
    pub(crate) fn post(&self, notice: N, urgency: Urgency) -> Ring {
        let mut state = self.state.lock();
        if state.gate == Gate::Closed {
            return Ring::NotNeeded;
        }
        state.mail.notices.push(notice);
        self.delivered(&state, urgency)
    }

    /// Has the loop take a turn.
    pub(crate) fn nudge(&self) -> Ring {
        let mut state = self.state.lock();
        if state.gate == Gate::Closed {
            return Ring::NotNeeded;
        }
        state.nudged = true;
        self.delivered(&state, Urgency::Now)
    }

    /// Asks a sleeping loop to look at what is inside: lazy items may be all there is, and while
    /// they fill the loop's bound nothing that would ring gets in.
    #[cold]
    pub(crate) fn hurry(&self) -> Ring {
        let _state = self.state.lock();
        self.take_duty()
    }

    /// Tells the loop, with the lock held, that something is inside.
    fn delivered(&self, state: &State<T, N>, urgency: Urgency) -> Ring {
        // Release pairs with the Acquire in `drain`; the lock that follows there orders the rest.
        self.mail.store(true, Ordering::Release);
        match urgency {
            Urgency::Now => self.take_duty(),
            Urgency::By(deadline) if state.wakes_at.is_none_or(|wakes_at| deadline < wakes_at) => {
                self.take_duty()
            }
            Urgency::By(_) | Urgency::Lazy => Ring::NotNeeded,
        }
    }

    /// Takes the duty to ring, with the lock held, if the loop sleeps.
    fn take_duty(&self) -> Ring {
        if self.sleeping.load(Ordering::Relaxed) {
            self.sleeping.store(false, Ordering::Relaxed);
            self.rings.add(1);
            Ring::Needed
        } else {
            Ring::NotNeeded
        }
    }

    /// Takes everything out, in exchange for the empty buffers of `batch`.
    ///
    /// Returns whether there was anything. Loop thread only.
    pub(crate) fn drain(&self, batch: &mut Batch<T, N>) -> bool {
        debug_assert!(batch.is_empty(), "an undrained batch would be lost");
        if !self.mail.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        std::mem::swap(&mut state.mail, batch);
        state.nudged = false;
        self.mail.store(false, Ordering::Relaxed);
        true
    }

    /// Whether something is inside, as far as one can see without the lock.
    pub(crate) fn has_mail(&self) -> bool {
        self.mail.load(Ordering::Acquire)
    }

    /// Announces that the loop is about to park until `wakes_at`; refuses if something is inside.
    pub(crate) fn try_sleep(&self, wakes_at: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        if state.nudged || !state.mail.is_empty() {
            return false;
        }
        state.wakes_at = wakes_at;
        self.sleeping.store(true, Ordering::Relaxed);
        true
    }

    /// Says that the loop is awake: from here on producers need not ring.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Takes an unanswered duty to ring back, so that the next producer tries again.
    #[cold]
    pub(crate) fn ring_failed(&self) {
        let _state = self.state.lock();
        self.sleeping.store(true, Ordering::Relaxed);
    }

    /// Refuses new items from here on, if none is inside.
    pub(crate) fn refuse_new_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        if !state.mail.main.is_empty() || !state.mail.tail.is_empty() {
            return false;
        }
        if state.gate == Gate::Open {
            state.gate = Gate::Draining;
        }
        true
    }

    /// Refuses new items from here on.
    pub(crate) fn refuse_new(&self) {
        let mut state = self.state.lock();
        if state.gate == Gate::Open {
            state.gate = Gate::Draining;
        }
    }

    /// Closes for good if nothing is inside.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        if !state.mail.main.is_empty() || !state.mail.tail.is_empty() {
            return false;
        }
        state.gate = Gate::Closed;
        state.mail = Batch::new();
        true
    }

    /// How many new items were ever let in.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl<T, N> Batch<T, N> {
    pub(crate) const fn new() -> Batch<T, N> {
        Batch {
            main: Vec::new(),
            tail: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.main.is_empty() && self.tail.is_empty() && self.notices.is_empty()
    }
}

#[cfg(test)]
mod tests;
