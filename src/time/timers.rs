//! The timers of one thread: of a loop, or of a thread inside `block_on`.
//!
//! - Arming, moving and cancelling at home touch a plain queue: no lock, no atomic.
//! - A timer knows its home by a number. Only who drops or resets a timer elsewhere looks the number
//!   up, in a registry under a lock, and leaves the key there for its home to remove soon.
//! - Deadlines are nanoseconds since the thread's own zero; they saturate, and a timer fires only when
//!   the clock that was read has reached its deadline.
//! - Whether a deadline has passed is judged by the last reading of the clock, which is free. Only a test's
//!   clock is read anew: it stands still between two polls.
//! - Wakers are foreign code: they are handed out, and cloned, woken and dropped with no borrow held.
//! - When the thread ends as a home, whoever waits for a timer that was carried away is woken to arm it anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::sync::{Ordering, Weak, plain};
use crate::time::queue::{Queue, TimerKey};

/// Never, and what a queue cannot tell from it: 584 years.
const NEVER: u64 = u64::MAX;

/// The timers of this thread.
pub(crate) struct Timers {
    home: HomeId,
    clock: Clock,
    zero: Instant,
    queue: RefCell<Queue<Entry>>,
    /// The last reading of the clock on this thread that these timers know of.
    now: Cell<Instant>,
    /// The deadline that the loop knows to be the next one.
    known: Cell<u64>,
    /// An earlier one has come since.
    news: Cell<bool>,
    /// Tasks that the loop runs before it looks at the clock again, and how many of them are left.
    planned: Cell<u32>,
    left: Cell<u32>,
}

/// What a timer does when it fires.
#[derive(Debug)]
struct Entry {
    waker: Waker,
    kind: TimerKind,
}

/// Whose timer it is: what a shutdown does to it, and whether it waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerKind {
    /// A future's own. A shutdown leaves it alone. It is ready at the poll when its deadline has passed.
    Sleep,
    /// A scheduled closure's. The start of a shutdown cancels it. It is armed in any case, and fires with the due
    /// timers of a turn: a closure that is always late lets others in.
    Scheduled,
}

/// Names the thread that a timer is armed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HomeId(u64);

/// What became of an armed timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    Waiting,
    /// Waiting, with a waker that is out of date.
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
            known: Cell::new(NEVER),
            news: Cell::new(false),
            planned: Cell::new(0),
            left: Cell::new(0),
        }
    }

    pub(crate) fn home(&self) -> HomeId {
        self.home
    }

    /// The clock that these timers go by.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reads the clock.
    pub(crate) fn read_clock(&self) -> Instant {
        let now = self.clock.now();
        self.note(now);
        now
    }

    /// Notes a reading of the clock.
    pub(crate) fn note(&self, now: Instant) {
        if now > self.now.get() {
            self.now.set(now);
        }
    }

    /// Whether a timer is ready without being fired: its deadline has passed, as far as this thread knows.
    pub(crate) fn is_over(&self, deadline: Option<Instant>, kind: TimerKind) -> bool {
        let now = match &self.clock {
            Clock::System => self.now.get(),
            Clock::Virtual(clock) => clock.now(),
        };
        kind == TimerKind::Sleep && deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Arms a timer. One that is due fires when the due ones are collected next.
    #[inline(never)] // One copy is enough, and keeps the poll small.
    pub(crate) fn arm(&self, deadline: Option<Instant>, waker: Waker, kind: TimerKind) -> TimerKey {
        let deadline = deadline.map_or(NEVER, |deadline| self.number(deadline));
        let entry = Entry { waker, kind };
        self.heed(deadline);
        self.queue.borrow_mut().insert(deadline, entry)
    }

    /// Looks at a timer that is to wake `waker`.
    pub(crate) fn state_of(&self, key: TimerKey, waker: &Waker) -> Armed {
        match self.queue.borrow_mut().get_mut(key) {
            None => Armed::Fired,
            Some(entry) if entry.waker.will_wake(waker) => Armed::Waiting,
            Some(_) => Armed::Stale,
        }
    }

    /// Has a timer wake `waker` instead; returns the one that is not needed any more.
    pub(crate) fn replace(&self, key: TimerKey, waker: Waker) -> Waker {
        match self.queue.borrow_mut().get_mut(key) {
            Some(entry) => std::mem::replace(&mut entry.waker, waker),
            None => waker,
        }
    }

    /// Heeds a deadline that may be the next one.
    #[inline]
    fn heed(&self, deadline: u64) {
        if deadline < self.known.get() {
            self.known.set(deadline);
            self.news.set(true);
            // The loop is to look after the task that runs.
            let skipped = self.left.get().saturating_sub(1);
            self.planned.set(self.planned.get() - skipped);
            self.left.set(self.left.get() - skipped);
        }
    }

    /// Whether there is an earlier deadline than the one that was last watched for.
    pub(crate) fn has_news(&self) -> bool {
        self.news.get()
    }

    /// Has the loop run so many tasks before its next look at the clock: one at least, and fewer if there is news.
    pub(crate) fn plan(&self, tasks: u32) {
        self.planned.set(tasks);
        self.left.set(tasks);
    }

    /// Counts a task; says whether it was the last that was planned.
    #[inline]
    pub(crate) fn count(&self) -> bool {
        let left = self.left.get().wrapping_sub(1);
        self.left.set(left);
        left == 0
    }

    /// How many tasks were counted since they were planned.
    pub(crate) fn counted(&self) -> u32 {
        self.planned.get().wrapping_sub(self.left.get())
    }

    /// The next deadline; from here on an earlier one is news.
    pub(crate) fn watch(&self) -> Option<Instant> {
        self.news.set(false);
        if self.is_empty() {
            self.known.set(NEVER);
            return None;
        }
        let next = self.queue.borrow_mut().next_deadline();
        let next = next.unwrap_or(NEVER);
        self.known.set(next);
        self.instant(next)
    }

    /// Moves a timer; `false` if it has fired.
    pub(crate) fn reset(&self, key: TimerKey, deadline: Instant) -> bool {
        let deadline = self.number(deadline);
        self.heed(deadline);
        self.queue.borrow_mut().reset(key, deadline)
    }

    /// Removes a timer; returns its waker, to be dropped with no borrow held.
    pub(crate) fn cancel(&self, key: TimerKey) -> Option<Waker> {
        let entry = self.queue.borrow_mut().remove(key)?;
        Some(entry.waker)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadline = self.queue.borrow_mut().next_deadline()?;
        self.instant(deadline)
    }

    /// The earliest deadline after `now`: looks at all of them, for a clock that has to move on while
    /// something is due.
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

    /// The wakers of all scheduled closures.
    pub(crate) fn scheduled(&self) -> Vec<Waker> {
        let queue = self.queue.borrow();
        let scheduled = queue
            .values()
            .filter(|entry| entry.kind == TimerKind::Scheduled);
        scheduled.map(|entry| entry.waker.clone()).collect()
    }

    /// Takes every waker out: the thread's time as a home is over.
    pub(crate) fn clear(&self) -> Vec<Waker> {
        let entries = self.queue.borrow_mut().clear();
        entries.into_iter().map(|entry| entry.waker).collect()
    }

    fn number(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.zero);
        // Not `as_nanos`: 128 bits are slower.
        let seconds = since.as_secs().checked_mul(1_000_000_000);
        let nanos = u64::from(since.subsec_nanos());
        seconds
            .and_then(|seconds| seconds.checked_add(nanos))
            .unwrap_or(NEVER)
    }

    fn instant(&self, number: u64) -> Option<Instant> {
        if number == NEVER {
            return None;
        }
        self.zero.checked_add(Duration::from_nanos(number))
    }
}

/// What has happened to a timer on another thread than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// It was dropped.
    Dropped,
    /// It has another deadline: who waits for it is to poll it again, which arms it anew.
    Reset,
}

/// A thread with timers, as other threads see it.
pub(crate) trait TimerHome: Send + Sync {
    /// Notifies the thread that a timer of its own was dropped or reset on another thread.
    fn notify(&self, key: TimerKey, away: Away);
}

static NEXT_HOME: plain::AtomicU64 = plain::AtomicU64::new(0);
static HOMES: plain::Mutex<BTreeMap<HomeId, Weak<dyn TimerHome>>> =
    plain::Mutex::new(BTreeMap::new());

impl HomeId {
    /// Registers a thread with timers.
    pub(crate) fn register(home: Weak<dyn TimerHome>) -> HomeId {
        let id = HomeId(NEXT_HOME.fetch_add(1, Ordering::Relaxed));
        HOMES.lock().insert(id, home);
        id
    }

    /// Forgets a thread, whose timers are gone.
    pub(crate) fn deregister(self) {
        HOMES.lock().remove(&self);
    }

    /// Notifies this home, from another thread, of what has happened to a timer of its own.
    #[cold]
    pub(crate) fn notify(self, key: TimerKey, away: Away) {
        // The lock is not held while the home is notified.
        let home = HOMES.lock().get(&self).and_then(Weak::upgrade);
        if let Some(home) = home {
            home.notify(key, away);
        }
    }
}

#[cfg(test)]
mod tests;
