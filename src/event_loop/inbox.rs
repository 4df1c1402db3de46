//! The mailbox through which other threads reach a loop, and the lock under which its life is decided.
//!
//! Invariants:
//! - The gate is the owner's: a [`Gate`] says what it takes, and lives under the mailbox' lock, so what is
//!   let in and what the gate says are one thing. What has passed is always drained.
//! - What the gate [shows](Gate::shown) is written before the lock is released
//!   ([`InboxGuard::edit`]): a producer that was refused, or let
//!   in, reads the same answer without the lock.
//! - `sleeping` is set under the lock and only while nothing is inside, or again when a ring failed. A
//!   producer that finds it set clears it and must ring: the bell rings at most once per sleep, however
//!   many produce.
//! - An item that is needed by some moment rings only a sleeper that would wake later than that. Behind a
//!   gate that [hurries](Gate::hurries) everything rings.
//! - Order is kept: what one thread pushes is drained in the order of its pushes.
//! - A run is one entry for several new items. It takes another one only while it is the last of all that
//!   is in order with it, so that joining it does not change the order.
//! - The lock is held for O(1) work of ours, never for user code. (The allocations that may happen under it,
//!   in [`Inbox::push_new_with`] and [`Inbox::push_run_with`], move futures and closures but do not call
//!   them.)
//!
//! It knows nothing of tasks and lives: `T` is an item that runs, `R` a run of items, `N` a message to the
//! loop itself, `G` the gate.

use std::time::Instant;

use crate::metrics::gauges::Gauge;
use crate::sync::{AtomicBool, AtomicU8, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// What decides over a mailbox.
pub(crate) trait Gate {
    /// Whether new items pass.
    fn takes_new(&self) -> bool;

    /// Whether items pass that have been inside before, and messages.
    fn takes_wakes(&self) -> bool;

    /// Whether nothing may wait inside until something else wakes the loop.
    fn hurries(&self) -> bool;

    /// What is to be seen of it without the lock.
    fn shown(&self) -> u8;
}

/// The mailbox. On lines of its own: producers write it with every push, and the loop reads what is beside
/// it with every task.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Inbox<T, R, N, G> {
    state: Mutex<InboxState<T, R, N, G>>,
    /// Notified when the gate moves and a thread may wait for that.
    moved: Condvar,
    /// What the gate shows; in a static place, where the loop's own tasks find it.
    pub(crate) shown: &'static Shown,
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

/// Capacity that an empty batch, queue or table keeps: more than a turn uses, or a steady flow
/// would free it and allocate it again.
pub(crate) const KEPT_CAPACITY: usize = 4096;

/// Who wakes a task of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeSender {
    /// Another loop of its group.
    Sibling,
    /// Any other thread.
    Outside,
}

/// What a gate shows. On a line of its own: it is read with every submission and every task, and written a
/// few times in a life.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shown(AtomicU8);

impl Shown {
    #[inline]
    pub(crate) fn get(&self) -> u8 {
        // Acquire pairs with the Release of the guard that moved the gate.
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, gate: &impl Gate) {
        self.0.store(gate.shown(), Ordering::Release);
    }
}

#[derive(Debug)]
struct InboxState<T, R, N, G> {
    mail: Batch<T, R, N>,
    /// The loop was asked to take a turn, with nothing to deliver.
    nudged: bool,
    /// Something inside is worth waking a sleeping loop for.
    urgent: bool,
    gate: G,
    /// When the sleeping loop wakes by itself; `None` is never.
    wakes_at: Option<Instant>,
}

/// What a drain takes out; its buffers go back in with the next drain, so that a steady flow
/// allocates nothing.
#[derive(Debug)]
pub(crate) struct Batch<T, R, N> {
    /// Items for the run queue.
    pub(crate) main: Vec<T>,
    /// Runs for the run queue; each with the number of `main` items before it.
    pub(crate) runs: Vec<(usize, R)>,
    /// The items in all runs. The loop counts them without a visit to each run, which is in the producer's
    /// cache.
    pub(crate) in_runs: usize,
    /// Items for the end of the iteration.
    pub(crate) tail: Vec<T>,
    /// Items that arm timers and do not wait behind a long queue; each with what is before it.
    pub(crate) timed: Vec<(Before, T)>,
    /// Messages to the loop itself.
    pub(crate) messages: Vec<N>,
    /// An empty run, which the next one may be made of: its memory is there, and the producer does not let it
    /// grow step by step with the lock held.
    pub(crate) spare: Option<R>,
}

/// Where a new item of a run can go.
pub(crate) struct RunPlaces<'a, R> {
    /// The last run, if nothing that is in order with it has come since.
    pub(crate) last: Option<&'a mut R>,
    /// An empty run, to be taken and returned if the item fits in it.
    pub(crate) spare: &'a mut Option<R>,
}

/// How much of the run queue's mail is before an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// Items of `main`.
    pub(crate) items: usize,
    pub(crate) runs: usize,
}

/// Which queue of the loop an item is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Main,
    Tail,
    Timed,
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

/// What the producer has to do after it has released the lock.
#[must_use = "a loop that sleeps must be rung"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    Needed,
    NotNeeded,
}

impl<T, R, N, G: Gate> Inbox<T, R, N, G> {
    pub(crate) fn new(gate: G, shown: &'static Shown) -> Inbox<T, R, N, G> {
        shown.set(&gate);
        Inbox {
            shown,
            state: Mutex::new(InboxState {
                mail: Batch::new(),
                nudged: false,
                urgent: false,
                gate,
                wakes_at: None,
            }),
            moved: Condvar::new(),
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
        if !state.gate.takes_new() {
            return None;
        }
        match lane {
            Lane::Main => state.mail.main.push(make()),
            Lane::Tail => state.mail.tail.push(make()),
            Lane::Timed => {
                let before = Before {
                    items: state.mail.main.len(),
                    runs: state.mail.runs.len(),
                };
                state.mail.timed.push((before, make()));
            }
        }
        self.count_accepted();
        Some(self.delivered(&mut state, urgency))
    }

    /// Lets a new item of a run in, if the gate is open: `join` puts it into the last run, or returns a run
    /// that begins with it.
    pub(crate) fn push_run_with(
        &self,
        urgency: Urgency,
        join: impl FnOnce(RunPlaces<'_, R>) -> Option<R>,
    ) -> Option<Ring> {
        let mut state = self.state.lock();
        if !state.gate.takes_new() {
            return None;
        }
        if let Some(run) = join(state.mail.run_places()) {
            let before = state.mail.main.len();
            state.mail.runs.push((before, run));
        }
        state.mail.in_runs += 1;
        self.count_accepted();
        Some(self.delivered(&mut state, urgency))
    }

    /// As [`Inbox::push_new_with`], for a message that counts as a new item.
    pub(crate) fn post_new_with(&self, make: impl FnOnce() -> N) -> Option<Ring> {
        let mut state = self.state.lock();
        if !state.gate.takes_new() {
            return None;
        }
        state.mail.messages.push(make());
        self.count_accepted();
        Some(self.delivered(&mut state, Urgency::Now))
    }

    /// Counts a new item: a plain load and store, for the lock is held.
    fn count_accepted(&self) {
        let accepted = self.accepted.load(Ordering::Relaxed);
        self.accepted.store(accepted + 1, Ordering::Relaxed);
    }

    /// Lets an item in that has been inside before; hands it back only if the gate is closed.
    pub(crate) fn push_wake(&self, item: T, from: WakeSender) -> Result<Ring, T> {
        let mut state = self.state.lock();
        if !state.gate.takes_wakes() {
            return Err(item);
        }
        state.mail.main.push(item);
        match from {
            WakeSender::Sibling => self.woken_by_siblings.add(1),
            WakeSender::Outside => self.woken_from_outside.add(1),
        }
        Ok(self.delivered(&mut state, Urgency::Now))
    }

    /// Leaves a message for the loop itself; dropped if the gate is closed, for the loop has ended.
    pub(crate) fn post(&self, message: N, urgency: Urgency) -> Ring {
        let mut state = self.state.lock();
        if !state.gate.takes_wakes() {
            return Ring::NotNeeded;
        }
        state.mail.messages.push(message);
        self.delivered(&mut state, urgency)
    }

    /// Takes the lock, to look at the gate or to move it.
    pub(crate) fn lock(&self) -> InboxGuard<'_, T, R, N, G> {
        InboxGuard {
            inbox: self,
            state: self.state.lock(),
        }
    }

    /// Asks a sleeping loop to look at what is inside: lazy items may be all there is, and while
    /// they fill the loop's bound nothing that would ring gets in.
    #[cold]
    pub(crate) fn hurry(&self) -> Ring {
        let _state = self.state.lock();
        self.take_duty()
    }

    /// Tells the loop, with the lock held, that something is inside.
    fn delivered(&self, state: &mut InboxState<T, R, N, G>, urgency: Urgency) -> Ring {
        // Release pairs with the Acquire in `drain`; the lock that follows there orders the rest.
        self.mail.store(true, Ordering::Release);
        let urgent = match urgency {
            Urgency::Now => true,
            Urgency::By(_) | Urgency::Lazy if state.gate.hurries() => true,
            Urgency::By(deadline) => state.wakes_at.is_none_or(|wakes_at| deadline < wakes_at),
            Urgency::Lazy => false,
        };
        if !urgent {
            return Ring::NotNeeded;
        }
        state.urgent = true;
        self.take_duty()
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
    pub(crate) fn drain(&self, batch: &mut Batch<T, R, N>) -> bool {
        debug_assert!(batch.is_empty(), "an undrained batch would be lost");
        if !self.mail.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        std::mem::swap(&mut state.mail, batch);
        state.nudged = false;
        state.urgent = false;
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
        // With the lock held it is exact: whatever delivers sets it, and `drain` alone clears it.
        if self.mail.load(Ordering::Relaxed) {
            return false;
        }
        debug_assert!(!state.nudged && state.mail.is_empty());
        state.wakes_at = wakes_at;
        self.sleeping.store(true, Ordering::Relaxed);
        true
    }

    /// Frees the memory of a past burst; returns whether none is left that could be freed later.
    #[cold]
    pub(crate) fn shrink(&self) -> bool {
        self.state.lock().mail.shrink(KEPT_CAPACITY)
    }

    /// Whether there is something inside that was not worth a ring.
    pub(crate) fn has_lazy_mail(&self) -> bool {
        let state = self.state.lock();
        !state.urgent && !state.mail.is_empty()
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

    /// How many new items were ever let in.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// The mailbox with its lock held: its gate, and what is inside.
pub(crate) struct InboxGuard<'a, T, R, N, G: Gate> {
    inbox: &'a Inbox<T, R, N, G>,
    state: MutexGuard<'a, InboxState<T, R, N, G>>,
}

impl<T, R, N, G: Gate> InboxGuard<'_, T, R, N, G> {
    pub(crate) fn gate(&self) -> &G {
        &self.state.gate
    }

    /// Moves the gate, and shows it.
    pub(crate) fn edit<O>(&mut self, edit: impl FnOnce(&mut G) -> O) -> O {
        let result = edit(&mut self.state.gate);
        self.inbox.shown.set(&self.state.gate);
        result
    }

    /// Whether nothing is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.mail.is_empty()
    }

    /// Takes everything out.
    pub(crate) fn take(&mut self) -> Batch<T, R, N> {
        std::mem::replace(&mut self.state.mail, Batch::new())
    }

    /// Has the loop take a turn, unless the gate is closed: then the loop has ended.
    pub(crate) fn nudge(&mut self) -> Ring {
        if !self.state.gate.takes_wakes() {
            return Ring::NotNeeded;
        }
        self.state.nudged = true;
        self.inbox.delivered(&mut self.state, Urgency::Now)
    }

    /// Sets the loop asleep until a producer rings; refuses if something is inside.
    pub(crate) fn try_sleep(&mut self) -> bool {
        if self.state.nudged || !self.state.mail.is_empty() {
            return false;
        }
        self.fall_asleep();
        true
    }

    /// Has the next producer ring, whatever is inside.
    pub(crate) fn fall_asleep(&mut self) {
        self.state.wakes_at = None;
        self.inbox.sleeping.store(true, Ordering::Relaxed);
    }

    /// Waits until [`moved`](InboxGuard::moved) is called, until `deadline` at most.
    pub(crate) fn wait_moved(self, deadline: Instant) -> Self {
        InboxGuard {
            inbox: self.inbox,
            state: self.inbox.moved.wait_until(self.state, Some(deadline)),
        }
    }

    /// Wakes the threads that wait for the gate to move.
    pub(crate) fn moved(&self) {
        self.inbox.moved.notify_all();
    }
}

impl<T, R, N> Batch<T, R, N> {
    pub(crate) const fn new() -> Batch<T, R, N> {
        Batch {
            main: Vec::new(),
            runs: Vec::new(),
            in_runs: 0,
            tail: Vec::new(),
            timed: Vec::new(),
            messages: Vec::new(),
            spare: None,
        }
    }

    /// Where a new item of a run can go.
    fn run_places(&mut self) -> RunPlaces<'_, R> {
        let (runs, items) = (self.runs.len(), self.main.len());
        let timed = self.timed.last();
        let timed_since = timed.is_some_and(|(before, _)| before.runs == runs);
        let last = self.runs.last_mut().filter(|(before, _)| *before == items);
        RunPlaces {
            last: last.filter(|_| !timed_since).map(|(_, run)| run),
            spare: &mut self.spare,
        }
    }

    /// Frees the buffers of an empty batch if they hold more than so many items; returns whether they do not.
    pub(crate) fn shrink(&mut self, room: usize) -> bool {
        self.spare = None;
        let items = self.main.capacity().max(self.tail.capacity());
        let others = self.runs.capacity().max(self.timed.capacity());
        let is_small = items.max(others) <= room;
        if !is_small && self.is_empty() {
            *self = Batch::new();
            return true;
        }
        is_small
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.main.is_empty()
            && self.runs.is_empty()
            && self.tail.is_empty()
            && self.timed.is_empty()
            && self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests;
