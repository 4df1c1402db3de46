//! The timers of one thread: of a loop, or of a thread inside `block_on`.
//!
//! - Arming, resetting and cancelling on the home thread use a plain queue: no lock, no atomic.
//! - A timer holds the [`HomeId`] of its home. Only a drop or reset on another thread looks the id up, in a
//!   registry under a lock, and notifies the home, which removes the timer soon.
//! - Deadlines are nanoseconds since the thread's own zero; they saturate, and a timer fires only when a
//!   reading of the clock has reached its deadline.
//! - Whether a deadline has passed is judged by the last reading of the clock, which costs nothing. Only a
//!   virtual clock is read anew: it does not advance between two polls.
//! - Wakers are user code: they are cloned, woken and dropped with no borrow held.
//! - When the thread is no longer a home, tasks that wait for a timer that was moved to another thread are
//!   woken to arm it again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::sync::{Ordering, Weak, plain};
use crate::time::queue::{Queue, TimerKey};

/// No deadline, or one beyond the range of a `u64`: 584 years.
const NEVER: u64 = u64::MAX;

/// The timers of this thread.
pub(crate) struct Timers {
    home: HomeId,
    clock: Clock,
    zero: Instant,
    queue: RefCell<Queue<Entry>>,
    /// The latest reading of the clock that was noted here.
    now: Cell<Instant>,
    /// The earliest deadline that the loop was given, or that was armed since.
    watched: Cell<u64>,
    /// An earlier deadline was armed since the loop called `watch`.
    has_earlier: Cell<bool>,
    /// The number of tasks between two readings of the clock by the loop.
    stride: Cell<u32>,
    /// How many tasks of the stride are left.
    stride_left: Cell<u32>,
}

/// An armed timer.
#[derive(Debug)]
struct Entry {
    waker: Waker,
    kind: TimerKind,
}

/// The kind of a timer: what a shutdown does to it, and whether it fires if it is already due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// The timer of a `Sleep`. A shutdown does not affect it. If its deadline has passed, the poll is ready.
    Sleep,
    /// The timer of a scheduled closure. The start of a shutdown cancels it. It is always armed, and fires
    /// with the due timers of a turn: a closure that is always late does not starve other tasks.
    Scheduled,
}

/// Identifies the thread that a timer is armed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HomeId(NonZeroU64);

/// The state of an armed timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    Waiting,
    /// Waiting, with an outdated waker.
    Stale,
    /// Waiting, although its deadline has passed.
    Due,
    Fired,
}

impl Timers {
    pub(crate) fn new(home: HomeId, clock: Clock) -> Timers {
        let zero = clock.now();
        Timers {
            home,
            clock,
            zero,
            queue: RefCell::new(Queue::new()),
            now: Cell::new(zero),
            watched: Cell::new(NEVER),
            has_earlier: Cell::new(false),
            stride: Cell::new(0),
            stride_left: Cell::new(0),
        }
    }

    pub(crate) fn home(&self) -> HomeId {
        self.home
    }

    /// Returns the clock of these timers.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads the clock.
    pub(crate) fn read_clock(&self) -> Instant {
        let now = self.clock.now();
        self.note(now);
        now
    }

    /// Records a reading of the clock.
    pub(crate) fn note(&self, now: Instant) {
        if now > self.now.get() {
            self.now.set(now);
        }
    }

    /// Whether a timer is ready without being fired: its deadline has passed by the last reading.
    pub(crate) fn is_over(&self, deadline: Option<Instant>, kind: TimerKind) -> bool {
        let now = match &self.clock {
            Clock::System => self.now.get(),
            Clock::Virtual(clock) => clock.now(),
        };
        kind == TimerKind::Sleep && deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Arms a timer, unless it is [over](Timers::is_over); then it returns the waker, to be dropped with no
    /// borrow held.
    #[inline(always)] // Into the one function that arms a sleep.
    pub(crate) fn try_arm(
        &self,
        deadline: Option<Instant>,
        waker: Waker,
        kind: TimerKind,
    ) -> Result<TimerKey, Waker> {
        if self.is_over(deadline, kind) {
            return Err(waker);
        }
        Ok(self.arm(deadline, waker, kind))
    }

    /// Arms a timer. One that is already due fires when due timers are collected next.
    #[inline(always)] // As `try_arm`.
    fn arm(&self, deadline: Option<Instant>, waker: Waker, kind: TimerKind) -> TimerKey {
        let deadline = deadline.map_or(NEVER, |deadline| self.number(deadline));
        let entry = Entry { waker, kind };
        self.note_deadline(deadline);
        self.queue.borrow_mut().insert(deadline, entry)
    }

    /// Returns the state of a timer that is to wake `waker`.
    pub(crate) fn state_of(&self, key: TimerKey, waker: &Waker) -> Armed {
        match self.queue.borrow_mut().get_mut(key) {
            None => Armed::Fired,
            Some(entry) if entry.waker.will_wake(waker) => Armed::Waiting,
            Some(_) => Armed::Stale,
        }
    }

    /// Replaces the waker of a timer; returns the waker that is no longer needed.
    pub(crate) fn replace(&self, key: TimerKey, waker: Waker) -> Waker {
        match self.queue.borrow_mut().get_mut(key) {
            Some(entry) => std::mem::replace(&mut entry.waker, waker),
            None => waker,
        }
    }

    /// Records a deadline that may be the earliest.
    #[inline]
    fn note_deadline(&self, deadline: u64) {
        if deadline < self.watched.get() {
            self.watched.set(deadline);
            self.has_earlier.set(true);
            // Ends the stride with the running task: the loop has to read the clock after it.
            let skipped = self.stride_left.get().saturating_sub(1);
            self.stride.set(self.stride.get() - skipped);
            self.stride_left.set(self.stride_left.get() - skipped);
        }
    }

    /// Whether a deadline was armed that is earlier than the one [`watch`](Timers::watch) has returned.
    pub(crate) fn has_earlier_deadline(&self) -> bool {
        self.has_earlier.get()
    }

    /// Sets after how many tasks the loop reads the clock again; at least one. A stride ends early if an
    /// earlier deadline is armed.
    pub(crate) fn set_stride(&self, tasks: u32) {
        self.stride.set(tasks);
        self.stride_left.set(tasks);
    }

    /// Counts a task; returns whether it was the last of the stride.
    #[inline]
    pub(crate) fn count_task(&self) -> bool {
        let left = self.stride_left.get().wrapping_sub(1);
        self.stride_left.set(left);
        left == 0
    }

    /// Returns how many tasks were counted since the stride was set.
    pub(crate) fn tasks_counted(&self) -> u32 {
        self.stride.get().wrapping_sub(self.stride_left.get())
    }

    /// Returns the next deadline; from here on an earlier one is reported by
    /// [`has_earlier_deadline`](Timers::has_earlier_deadline).
    pub(crate) fn watch(&self) -> Option<Instant> {
        self.has_earlier.set(false);
        if self.is_empty() {
            self.watched.set(NEVER);
            return None;
        }
        let next = self.queue.borrow_mut().next_deadline();
        let next = next.unwrap_or(NEVER);
        self.watched.set(next);
        self.instant(next)
    }

    /// Resets a timer; returns `false` if it has fired.
    pub(crate) fn reset(&self, key: TimerKey, deadline: Instant) -> bool {
        let deadline = self.number(deadline);
        self.note_deadline(deadline);
        self.queue.borrow_mut().reset(key, deadline)
    }

    /// Removes a timer; returns its waker, to be dropped with no borrow held.
    #[inline(always)] // Into the one function that disarms a sleep.
    pub(crate) fn cancel(&self, key: TimerKey) -> Option<Waker> {
        let entry = self.queue.borrow_mut().remove(key)?;
        Some(entry.waker)
    }

    /// How many timers are armed.
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Whether a timer is armed.
    pub(crate) fn is_armed(&self, key: TimerKey) -> bool {
        self.queue.borrow_mut().get_mut(key).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let deadline = self.queue.borrow_mut().next_deadline()?;
        self.instant(deadline)
    }

    /// Returns the earliest deadline after `now`. It searches all of them: for a virtual clock that has to
    /// advance while a timer is due.
    pub(crate) fn next_deadline_after(&self, now: Instant) -> Option<Instant> {
        let deadline = self.queue.borrow().next_deadline_after(self.number(now))?;
        self.instant(deadline)
    }

    /// Moves the wakers of due timers to `woken`, `limit` of them at most.
    pub(crate) fn collect_due(&self, now: Instant, limit: usize, woken: &mut Vec<Waker>) {
        self.note(now);
        let now = self.number(now).min(NEVER - 1);
        let mut queue = self.queue.borrow_mut();
        while woken.len() < limit {
            match queue.pop_due(now) {
                Some(entry) => woken.push(entry.waker),
                None => return,
            }
        }
    }

    /// Returns the wakers of all scheduled closures.
    pub(crate) fn scheduled(&self) -> Vec<Waker> {
        let queue = self.queue.borrow();
        let scheduled = queue
            .values()
            .filter(|entry| entry.kind == TimerKind::Scheduled);
        scheduled.map(|entry| entry.waker.clone()).collect()
    }

    /// Calls `visit` with the waker of every timer.
    pub(crate) fn for_each_waker(&self, mut visit: impl FnMut(&Waker)) {
        for entry in self.queue.borrow().values() {
            visit(&entry.waker);
        }
    }

    /// Removes every timer and returns the wakers: the thread is no longer a home.
    pub(crate) fn clear(&self) -> Vec<Waker> {
        let entries = self.queue.borrow_mut().clear();
        entries.into_iter().map(|entry| entry.waker).collect()
    }

    /// The deadline as nanoseconds since `zero`.
    #[inline]
    fn number(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.zero);
        // Not `as_nanos`: 128-bit arithmetic is slower.
        let seconds = since.as_secs().saturating_mul(1_000_000_000);
        seconds.saturating_add(u64::from(since.subsec_nanos()))
    }

    fn instant(&self, number: u64) -> Option<Instant> {
        if number == NEVER {
            return None;
        }
        self.zero.checked_add(Duration::from_nanos(number))
    }
}

/// What happened to a timer on another thread than its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// It was dropped.
    Dropped,
    /// It has another deadline: the task that waits for it has to poll it again, which arms it.
    Reset,
}

/// A thread with timers, as other threads see it.
pub(crate) trait TimerHome: Send + Sync {
    /// Notifies the thread that one of its timers was dropped or reset on another thread.
    fn notify(&self, home: HomeId, key: TimerKey, away: Away);
}

static NEXT_HOME: plain::AtomicU64 = plain::AtomicU64::new(1);
static HOMES: plain::Mutex<BTreeMap<HomeId, Weak<dyn TimerHome>>> =
    plain::Mutex::new(BTreeMap::new());

impl HomeId {
    /// Registers a thread with timers.
    pub(crate) fn register(home: Weak<dyn TimerHome>) -> HomeId {
        let id = NonZeroU64::new(NEXT_HOME.fetch_add(1, Ordering::Relaxed));
        let id = HomeId(id.expect("fewer homes than a u64 can number"));
        HOMES.lock().insert(id, home);
        id
    }

    /// Deregisters a thread that is no longer a home.
    pub(crate) fn deregister(self) {
        HOMES.lock().remove(&self);
    }

    /// Notifies this home, from another thread, of what happened to one of its timers.
    #[cold]
    pub(crate) fn notify(self, key: TimerKey, away: Away) {
        // The lock is not held while the home is notified.
        let home = HOMES.lock().get(&self).and_then(Weak::upgrade);
        if let Some(home) = home {
            home.notify(self, key, away);
        }
    }
}

#[cfg(test)]
mod tests;
