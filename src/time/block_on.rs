//! The timers of a thread that is not a loop: `block_on` fires them while it waits.
//!
//! - Timers are armed only inside `block_on`. Nested calls share one queue; the innermost one fires for all of
//!   them.
//! - When the outermost call returns and a timer is still armed, it was carried away: the home is given up,
//!   with its id. So the timer is armed nowhere, and is not taken for one that has fired. A home without
//!   timers is kept for the next call; meanwhile it takes no letters.
//! - What happened to its timers on other threads is in a letterbox, which is emptied before each wait, and
//!   while timers are armed once it is crowded. The bell is hung there in time, so a letter either is seen or
//!   rings.
//! - While thread-locals are destroyed there may be no timers any more; `block_on` goes on without.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::clock::Clock;
use crate::panic::{PanicReporter, PanicSite};
use crate::park::Parker;
use crate::sync::{self, Arc, Mutex, Ordering, plain, thread_local};
use crate::time::queue::TimerKey;
use crate::time::timers::{Away, HomeId, TimerHome, Timers};

/// So many letters are worth collecting although the thread does not wait.
const MANY_LETTERS: usize = 64;

thread_local! {
    /// Cloned by whoever calls foreign code, so that no borrow is alive then.
    static HOME: RefCell<Option<Rc<Home>>> = const { RefCell::new(None) };
    /// How many `block_on`s this thread is inside of.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

struct Home {
    timers: Timers,
    letters: Arc<Letterbox>,
    /// Whether the letterbox is: this thread is inside `block_on`, and has armed a timer there.
    open: Cell<bool>,
}

impl Home {
    /// The home of this thread, if it is one.
    fn current() -> Option<Rc<Home>> {
        HOME.try_with(|home| home.borrow().clone()).ok().flatten()
    }

    /// Makes this thread a home; `None` while thread-locals are destroyed.
    #[cold]
    fn found() -> Option<Rc<Home>> {
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

    /// Removes the timers that were dropped or reset elsewhere.
    fn collect(&self) {
        for (key, away) in self.letters.take() {
            let waker = self.timers.cancel(key);
            let panics = PanicReporter::STDERR;
            match away {
                Away::Dropped => panics.drop(PanicSite::Waker, None, waker),
                Away::Reset => panics.wake_all(waker),
            }
        }
    }

    /// Makes it ready for a timer.
    fn enter(&self) {
        if !self.open.replace(true) {
            self.letters.open();
        } else if self.letters.is_long() {
            self.collect();
        }
    }

    /// Ends the time inside `block_on`; `false` if timers are left.
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

    /// Fires what is due; returns the next deadline, if there is one.
    fn fire(&self, parker: &Arc<Parker>) -> Option<Instant> {
        self.letters.hang_bell(parker);
        self.collect();
        if self.timers.is_empty() {
            return None;
        }
        let now = sync::now();
        let mut woken = Vec::with_capacity(1);
        loop {
            // On the caller's own thread: a panic of a foreign waker is the caller's. One at a time, so
            // that it leaves the others where they are.
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
        // As at the end of a loop: who carried a timer away arms it where it is now.
        PanicReporter::STDERR.wake_all(self.timers.clear());
    }
}

/// What a thread is told about its timers.
#[derive(Debug, Default)]
pub(crate) struct Letterbox {
    inside: Mutex<Letters>,
    /// How many letters there are. Written under the lock, read without: a hint.
    count: plain::AtomicUsize,
}

#[derive(Debug, Default)]
struct Letters {
    /// Whether timers can be armed; else a letter is about one that has fired.
    open: bool,
    letters: Vec<(TimerKey, Away)>,
    /// Of the `block_on` that waits, or that waited last.
    bell: Option<Arc<Parker>>,
}

impl TimerHome for Letterbox {
    fn notify(&self, key: TimerKey, away: Away) {
        let mut inside = self.inside.lock();
        if !inside.open {
            return;
        }
        // Whoever left the first letter has rung: all are taken out before the next wait.
        let bell = inside.letters.is_empty().then(|| inside.bell.clone());
        inside.letters.push((key, away));
        self.count.store(inside.letters.len(), Ordering::Relaxed);
        drop(inside);
        if let Some(bell) = bell.flatten() {
            bell.unpark();
        }
    }
}

impl Letterbox {
    pub(super) fn open(&self) {
        self.inside.lock().open = true;
    }

    /// Takes no more letters, with no timer armed: what has come is about timers that have fired.
    fn close(&self) {
        let closed = std::mem::take(&mut *self.inside.lock());
        drop(closed);
    }

    fn hang_bell(&self, parker: &Arc<Parker>) {
        let mut inside = self.inside.lock();
        if !inside
            .bell
            .as_ref()
            .is_some_and(|bell| Arc::ptr_eq(bell, parker))
        {
            inside.bell = Some(Arc::clone(parker));
        }
    }

    fn is_long(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= MANY_LETTERS
    }

    pub(super) fn take(&self) -> Vec<(TimerKey, Away)> {
        let mut inside = self.inside.lock();
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut inside.letters)
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
            // Foreign code, which may call `block_on` in its turn: no borrow is held.
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

/// Reads the clock that the timers of this thread go by: inside `block_on` only.
pub(super) fn read_clock() -> Option<Instant> {
    if !is_inside() {
        return None;
    }
    let now = sync::now();
    let _ = HOME.try_with(|home| {
        if let Some(home) = &*home.borrow() {
            home.timers.note(now);
        }
    });
    Some(now)
}

/// The timers of this thread, to arm one: inside `block_on` only.
pub(super) fn here<R>(look: impl FnOnce(&Timers) -> R) -> Option<R> {
    if !is_inside() {
        return None;
    }
    let home = Home::current().or_else(Home::found)?;
    home.enter();
    Some(look(&home.timers))
}

/// The timers of this thread, if they are `home`.
pub(super) fn at<R>(home: HomeId, look: impl FnOnce(&Timers) -> R) -> Option<R> {
    HOME.try_with(|here| {
        let here = here.borrow();
        let timers = &here.as_deref()?.timers;
        (timers.home() == home).then(|| look(timers))
    })
    .ok()
    .flatten()
}
