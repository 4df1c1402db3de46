//! The timers of a thread that is not a loop: `block_on` fires them while it waits.
//!
//! - Timers are armed only inside `block_on`. Nested calls share one queue; the innermost one fires the
//!   timers of all.
//! - If a timer is still armed when the outermost call returns, it was moved to another thread: the home is
//!   dropped, with its id. So the timer is armed nowhere, and is not mistaken for one that has fired. A home
//!   without timers is kept for the next call; until then its letterbox is closed.
//! - Drops and resets of its timers on other threads are in a [`Letterbox`], which is emptied before each
//!   wait, and when a timer is armed while it holds many letters. The parker is set before the letterbox is
//!   emptied, so a letter is either seen or unparks the thread.
//! - The letterbox keeps the promise that a timer dropped elsewhere is freed soon: a thread inside
//!   `block_on` has no inbox.
//! - While thread-locals are destroyed there may be no home; `block_on` then works without timers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::clock::Clock;
use crate::panic::{PanicReporter, PanicSite};
use crate::park::Parker;
use crate::sync::{self, Arc, Mutex, Ordering, plain, thread_local};
use crate::time::queue::TimerKey;
use crate::time::timers::{Away, HomeId, TimerHome, Timers};

/// With this many letters they are collected although the thread does not wait.
const COLLECT_THRESHOLD: usize = 64;

thread_local! {
    /// Cloned before user code is called, so that no borrow is held then.
    static HOME: RefCell<Option<Rc<Home>>> = const { RefCell::new(None) };
    /// How many calls of `block_on` this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The timers of a thread that is not a loop.
struct Home {
    timers: Timers,
    letters: Arc<Letterbox>,
    /// Whether the letterbox is open: this thread is inside `block_on`, and has armed a timer there.
    open: Cell<bool>,
}

impl Home {
    /// Returns the home of this thread, if it has one.
    fn current() -> Option<Rc<Home>> {
        HOME.try_with(|home| home.borrow().clone()).ok().flatten()
    }

    /// Creates the home of this thread; `None` while thread-locals are destroyed.
    #[cold]
    fn create() -> Option<Rc<Home>> {
        let letters = Arc::<Letterbox>::default();
        let home = Rc::new(Home {
            timers: Timers::new(
                HomeId::register(Arc::<Letterbox>::downgrade(&letters)),
                Clock::System,
            ),
            letters,
            open: Cell::new(false),
        });
        let kept = Rc::clone(&home);
        HOME.try_with(|home| home.replace(Some(kept))).ok()?;
        Some(home)
    }

    /// Removes the timers that were dropped or reset on other threads.
    fn collect(&self) {
        for (key, away) in self.letters.drain() {
            let waker = self.timers.cancel(key);
            let panics = PanicReporter::STDERR;
            match away {
                Away::Dropped => panics.drop(PanicSite::Waker, None, waker),
                Away::Reset => panics.wake_all(waker),
            }
        }
    }

    /// Prepares the home for a timer to be armed.
    fn prepare(&self) {
        if !self.open.replace(true) {
            self.letters.open();
        } else if self.letters.has_many() {
            self.collect();
        }
    }

    /// Closes the home when the outermost `block_on` returns; `false` if timers are left.
    fn close(&self) -> bool {
        if !self.open.get() {
            return true;
        }
        self.collect();
        if !self.timers.is_empty() {
            return false;
        }
        self.open.set(false);
        self.letters.close();
        true
    }

    /// Fires due timers; returns the next deadline, if there is one.
    fn fire(&self, parker: &Arc<Parker>) -> Option<Instant> {
        self.letters.set_parker(parker);
        self.collect();
        if self.timers.is_empty() {
            return None;
        }
        let now = sync::now();
        let mut woken = Vec::with_capacity(1);
        loop {
            // On the caller's own thread: a panic of a waker unwinds to the caller. One at a time, so that
            // the other timers stay armed then.
            self.timers.collect_due(now, 1, &mut woken);
            match woken.pop() {
                Some(waker) => waker.wake(),
                None => return self.timers.next_deadline(),
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.timers.home().deregister();
        // As at the end of a loop: a task that waits for a timer on another thread arms it there.
        PanicReporter::STDERR.wake_all(self.timers.clear());
    }
}

/// What other threads did to the timers of a thread.
#[derive(Debug, Default)]
pub(crate) struct Letterbox {
    state: Mutex<LetterboxState>,
    /// The number of letters. Written under the lock, read without it: a hint.
    count: plain::AtomicUsize,
}

#[derive(Debug, Default)]
struct LetterboxState {
    /// Whether timers can be armed; if not, a letter is about a timer that has fired.
    open: bool,
    letters: Vec<(TimerKey, Away)>,
    /// The parker of the `block_on` that waits, or that waited last.
    parker: Option<Arc<Parker>>,
}

impl TimerHome for Letterbox {
    fn notify(&self, _home: HomeId, key: TimerKey, away: Away) {
        let mut state = self.state.lock();
        if !state.open {
            return;
        }
        // Only the first letter unparks: all letters are taken before the next wait.
        let parker = state.letters.is_empty().then(|| state.parker.clone());
        state.letters.push((key, away));
        self.count.store(state.letters.len(), Ordering::Relaxed);
        drop(state);
        if let Some(parker) = parker.flatten() {
            parker.unpark();
        }
    }
}

impl Letterbox {
    pub(super) fn open(&self) {
        self.state.lock().open = true;
    }

    /// Closes the letterbox while no timer is armed: the letters inside are about timers that have fired.
    fn close(&self) {
        let closed = std::mem::take(&mut *self.state.lock());
        drop(closed);
    }

    fn set_parker(&self, parker: &Arc<Parker>) {
        self.state.lock().parker = Some(Arc::clone(parker));
    }

    fn has_many(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= COLLECT_THRESHOLD
    }

    pub(super) fn drain(&self) -> Vec<(TimerKey, Away)> {
        let mut state = self.state.lock();
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut state.letters)
    }
}

/// A call of `block_on` on this thread; counted.
#[derive(Debug)]
pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn enter() -> Waiting {
        DEPTH.set(DEPTH.get() + 1);
        Waiting(())
    }

    /// Fires due timers, for a `block_on` that waits on `parker`; returns the next deadline, if there is
    /// one.
    pub(crate) fn fire(&self, parker: &Arc<Parker>) -> Option<Instant> {
        Home::current()?.fire(parker)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() > 0 {
            return;
        }
        if let Some(home) = Home::current() {
            // Calls wakers, which are user code and may call `block_on` themselves: no borrow is held.
            if !home.close() {
                drop(HOME.try_with(RefCell::take));
            }
        }
    }
}

/// Whether this thread is inside `block_on`.
pub(super) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Reads the clock of this thread's timers: inside `block_on` only.
pub(super) fn read_clock() -> Option<Instant> {
    is_inside().then(|| match Home::current() {
        Some(home) => home.timers.read_clock(),
        None => sync::now(),
    })
}

/// Calls `f` with the timers of this thread, to arm one: inside `block_on` only.
#[inline(never)] // Keeps what a loop does small.
pub(super) fn here<R>(f: impl FnOnce(&Timers) -> R) -> Option<R> {
    if !is_inside() {
        return None;
    }
    let home = Home::current().or_else(Home::create)?;
    home.prepare();
    Some(f(&home.timers))
}

/// Calls `f` with the timers of this thread, if its home is `home`.
#[inline(never)] // Keeps what a loop does small.
pub(super) fn at<R>(home: HomeId, f: impl FnOnce(&Timers) -> R) -> Option<R> {
    let here = Home::current()?;
    (here.timers.home() == home).then(|| f(&here.timers))
}
