//! How a loop gets its thread.
//!
//! - The seat holds what the thread will need. It is free until the first use, taken for good once
//!   the thread has begun, and free again if a start failed: the loop stays usable.
//! - Nothing is accepted before the seat is taken, so a start that fails loses nothing.
//! - User code (factory, names) runs with no lock held. Who comes while a start is under way waits
//!   for its outcome; a factory that submits to the loop it is starting is refused instead.
//! - A [`LoopThread`] owns the group's core: a group dropped while its thread starts is still there
//!   when the thread looks.
//!
//! ```text
//!   Free ──launch──▶ Starting ──────LoopThread::run──────▶ Taken
//!    ▲                │  └──launch gives up──▶ Promised ────▲
//!    └────────────────┴───────LoopThread dropped unrun──┘      Free ──end unstarted──▶ Taken
//! ```

use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::RejectReason;
use crate::event_loop::context;
use crate::event_loop::run;
use crate::event_loop::shared::Shared;
use crate::event_loop::state::State;
use crate::group::core::GroupCore;
use crate::panic::{PanicSite, contain, discard};
use crate::reactor::Driver;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{self, Arc, AtomicBool, Condvar, Mutex, Ordering};
use crate::termination::ThreadSlot;

/// How long a submission waits for a thread that a factory has promised.
const PATIENCE: Duration = Duration::from_secs(5);

/// The place of the thread.
#[derive(Debug)]
pub(crate) struct Seat {
    place: Mutex<Place>,
    changed: Condvar,
    /// The place is `Taken`; to be read without the lock on every submission.
    taken: AtomicBool,
}

#[derive(Debug)]
enum Place {
    Free(Driver),
    /// A `launch` is under way; it deals with the outcome.
    Starting {
        by: ThreadId,
    },
    /// The `LoopThread` is still somewhere, but nobody waits for it any more.
    Promised,
    Taken,
}

impl Seat {
    pub(crate) fn new(driver: Driver) -> Seat {
        Seat {
            place: Mutex::new(Place::Free(driver)),
            changed: Condvar::new(),
            taken: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        // Acquire pairs with the Release in `settle` and `take_if`.
        self.taken.load(Ordering::Acquire)
    }

    /// Takes the seat for good if it is free and `condition` holds.
    pub(crate) fn take_if(&self, condition: impl FnOnce() -> bool) -> Option<Driver> {
        let mut place = self.place.lock();
        if !matches!(*place, Place::Free(_)) || !condition() {
            return None;
        }
        self.taken.store(true, Ordering::Release);
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Free(driver) => Some(driver),
            _ => unreachable!("it was free a line ago"),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(*self.place.lock(), Place::Free(_))
    }

    /// Ends `Starting` or `Promised`, one way or the other; returns what was before.
    fn settle(&self, outcome: Place) -> Place {
        if matches!(outcome, Place::Taken) {
            self.taken.store(true, Ordering::Release);
        }
        let before = std::mem::replace(&mut *self.place.lock(), outcome);
        self.changed.notify_all();
        before
    }

    /// Ends the part of a `launch` that failed: what becomes of a `LoopThread` that is still
    /// somewhere is no longer its business.
    fn give_up(&self) {
        let mut place = self.place.lock();
        if matches!(*place, Place::Starting { .. }) {
            *place = Place::Promised;
            self.changed.notify_all();
        }
    }

    /// Gets the driver out to start with, or waits for the start that is under way.
    fn begin(&self, patience: Duration) -> Result<Option<Driver>, RejectReason> {
        let this_thread = thread::current().id();
        let deadline = sync::now() + patience;
        let mut place = self.place.lock();
        loop {
            match *place {
                Place::Taken => return Ok(None),
                Place::Free(_) => {
                    let starting = Place::Starting { by: this_thread };
                    match std::mem::replace(&mut *place, starting) {
                        Place::Free(driver) => return Ok(Some(driver)),
                        _ => unreachable!("it was free a line ago"),
                    }
                }
                // A factory that submits to the loop that it is starting would wait for itself.
                Place::Starting { by } if by == this_thread => {
                    return Err(RejectReason::ThreadStart(io::ErrorKind::Deadlock));
                }
                Place::Starting { .. } => {
                    let left = deadline.saturating_duration_since(sync::now());
                    if left.is_zero() {
                        return Err(RejectReason::ThreadStart(io::ErrorKind::TimedOut));
                    }
                    place = self.changed.wait_timeout(place, left);
                }
                Place::Promised => {
                    return Err(RejectReason::ThreadStart(io::ErrorKind::TimedOut));
                }
            }
        }
    }

    /// Waits until a promised thread has begun, or its `LoopThread` was dropped.
    fn await_promise(&self, patience: Duration) -> Result<(), RejectReason> {
        let deadline = sync::now() + patience;
        let mut place = self.place.lock();
        loop {
            let kind = match *place {
                Place::Taken => return Ok(()),
                Place::Free(_) => io::ErrorKind::Other,
                Place::Starting { .. } => {
                    let left = deadline.saturating_duration_since(sync::now());
                    if !left.is_zero() {
                        place = self.changed.wait_timeout(place, left);
                        continue;
                    }
                    io::ErrorKind::TimedOut
                }
                Place::Promised => io::ErrorKind::TimedOut,
            };
            return Err(RejectReason::ThreadStart(kind));
        }
    }
}

impl Shared {
    /// Makes sure that the loop has its thread.
    pub(crate) fn ensure_started(self: &Arc<Shared>) -> Result<(), RejectReason> {
        if self.seat.is_taken() {
            return Ok(());
        }
        self.launch(PATIENCE)
    }

    /// Has the loop start, without waiting for a thread that a factory promises: whoever comes with
    /// it, or drops it, sees what was asked of the loop.
    pub(crate) fn start_without_waiting(self: &Arc<Shared>) {
        if !self.seat.is_taken() {
            let _ = self.launch(Duration::ZERO);
        }
    }

    /// Takes the seat for the calling thread, if it is free.
    pub(crate) fn take_seat(&self) -> Option<Driver> {
        let driver = self.seat.take_if(|| true)?;
        self.state.advance(State::Started);
        Some(driver)
    }

    /// Notes that the loop has its thread.
    fn begun(&self) {
        self.state.advance(State::Started);
        self.seat.settle(Place::Taken);
    }

    #[cold]
    fn launch(self: &Arc<Shared>, patience: Duration) -> Result<(), RejectReason> {
        let Some(core) = self.core.upgrade() else {
            // The group is gone, and with it every loop that never ran.
            return Err(RejectReason::ShutDown);
        };
        let Some(driver) = self.seat.begin(patience)? else {
            return Ok(());
        };
        let thread = LoopThread {
            parts: Some(Parts {
                shared: Arc::clone(self),
                core: Arc::clone(&core),
                driver,
            }),
        };
        let started = self.start(&core, thread, patience);
        if let Err(reason) = started {
            self.seat.give_up();
            self.end_after_failure(&core, reason);
        }
        started
    }

    /// Has the thread started, by the system or by the user's factory.
    fn start(
        self: &Arc<Shared>,
        core: &Arc<GroupCore>,
        thread: LoopThread,
        patience: Duration,
    ) -> Result<(), RejectReason> {
        match &self.config.thread_factory {
            None => {
                let mut builder = thread::Builder::new().name(thread.name().to_owned());
                if let Some(bytes) = thread.stack_size() {
                    builder = builder.stack_size(bytes);
                }
                // The slot is adopted first and filled under its lock: who waits for the end of
                // the loop finds the thread, however short its life.
                let slot = ThreadSlot::default();
                let mut filling = slot.lock();
                core.termination.adopt(Arc::clone(&slot));
                self.termination.adopt(Arc::clone(&slot));
                let body = move || {
                    thread.run();
                    context::leave_thread();
                };
                match builder.spawn(body) {
                    Ok(handle) => {
                        *filling = Some(handle);
                        // The system has made the thread; it will get to `run`.
                        self.begun();
                        Ok(())
                    }
                    Err(error) => {
                        core.termination.disown(&slot);
                        self.termination.disown(&slot);
                        Err(RejectReason::ThreadStart(error.kind()))
                    }
                }
            }
            Some(factory) => match contain(|| factory(thread)) {
                Ok(Ok(())) => self.seat.await_promise(patience),
                Ok(Err(error)) => Err(RejectReason::ThreadStart(error.kind())),
                Err(payload) => {
                    self.report_panic(PanicSite::ThreadFactory, &*payload, None);
                    discard(payload);
                    Err(RejectReason::ThreadStart(io::ErrorKind::Other))
                }
            },
        }
    }
}

/// The work of a loop's thread, for a [`thread_factory`](crate::Builder::thread_factory) to run.
///
/// Calling [`run`](LoopThread::run) turns the calling thread into the loop until the loop ends.
/// Dropping it unrun is a failed start: the submission that caused it is refused with
/// [`ThreadStart`](crate::RejectReason::ThreadStart), and the next one tries again.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::builder()
///     .loops(1)
///     .thread_factory(|lt| {
///         std::thread::Builder::new()
///             .name(lt.name().to_owned())
///             .spawn(move || lt.run())
///             .map(drop)
///     })
///     .build()?;
/// assert_eq!(group.block_on(group.spawn(async { 1 })).unwrap(), 1);
/// # std::io::Result::Ok(())
/// ```
#[must_use = "a LoopThread that is dropped without run() is a failed start"]
pub struct LoopThread {
    /// `None` once it runs.
    parts: Option<Parts>,
}

/// What the thread of a loop needs.
pub(crate) struct Parts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) core: Arc<GroupCore>,
    pub(crate) driver: Driver,
}

impl LoopThread {
    /// Returns the name that the builder chose for the thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::thread;
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .thread_name(|index| format!("api-{index}"))
    ///     .thread_stack_size(128 * 1024)
    ///     .thread_factory(|lt| {
    ///         assert_eq!((lt.name(), lt.index()), ("api-0", 0));
    ///         let thread = thread::Builder::new().name(lt.name().to_owned());
    ///         let thread = match lt.stack_size() {
    ///             Some(bytes) => thread.stack_size(bytes),
    ///             None => thread,
    ///         };
    ///         thread.spawn(|| lt.run()).map(drop)
    ///     })
    ///     .build()?;
    /// let name = group.spawn(async { thread::current().name().map(str::to_owned) });
    /// assert_eq!(group.block_on(name).unwrap().unwrap(), "api-0");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn name(&self) -> &str {
        let parts = self.parts();
        &parts.shared.config.thread_names[parts.shared.index]
    }

    /// Returns the loop's index in its group.
    pub fn index(&self) -> usize {
        self.parts().shared.index
    }

    /// Returns the stack size that the builder asked for, if it did.
    pub fn stack_size(&self) -> Option<usize> {
        self.parts().shared.config.thread_stack_size
    }

    /// Turns this thread into the loop, and returns when the loop has ended.
    ///
    /// On a thread that is a loop already, or whose thread-locals are being destroyed, this is a
    /// failed start, as if it were dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    ///
    /// let group = EventLoopGroup::builder()
    ///     .loops(1)
    ///     .thread_factory(|lt| {
    ///         std::thread::Builder::new()
    ///             .spawn(move || {
    ///                 lt.run(); // the loop's whole life
    ///                 println!("the loop has ended");
    ///             })
    ///             .map(drop)
    ///     })
    ///     .build()?;
    /// group.start()?;
    /// group.shutdown_now().wait();
    /// # std::io::Result::Ok(())
    /// ```
    pub fn run(mut self) {
        if !context::may_be_loop() {
            return;
        }
        if let Some(parts) = self.parts.take() {
            parts.shared.begun();
            run::run_loop(parts);
        }
    }

    fn parts(&self) -> &Parts {
        self.parts
            .as_ref()
            .expect("only run() takes the parts, and it takes the LoopThread too")
    }
}

impl Drop for LoopThread {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            let shared = parts.shared;
            let before = shared.seat.settle(Place::Free(parts.driver));
            // A `launch` that is under way deals with its failure. If it has given up, a shutdown
            // that was requested meanwhile counted on this thread.
            if matches!(before, Place::Promised) {
                let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
                shared.end_after_failure(&parts.core, reason);
            }
        }
    }
}

impl fmt::Debug for LoopThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopThread")
            .field("name", &self.name())
            .field("index", &self.index())
            .field("stack_size", &self.stack_size())
            .finish()
    }
}
