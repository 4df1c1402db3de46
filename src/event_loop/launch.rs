//! How a loop gets its thread.
//!
//! - The phases of a start, and who moves them, are in [`lifecycle`](super::lifecycle). A loop has its thread for good
//!   once that has begun; a start that failed leaves it usable.
//! - Outside of loops nothing is accepted before the thread has begun, so a start that fails loses nothing. Whoever
//!   comes while a start is under way waits for its outcome; a factory that submits to the loop it is starting is
//!   refused instead.
//! - A loop that submits to a sibling never waits: while the sibling starts, its work is queued. If the start fails
//!   after all, that work is cancelled.
//! - User code (factory, names) runs with no lock held.
//! - A [`LoopThread`] owns the group's core: a group dropped while its thread starts is still there
//!   when the thread looks.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::RejectReason;
use crate::event_loop::context;
use crate::event_loop::counters::End;
use crate::event_loop::lifecycle::{self, Begin, Start};
use crate::event_loop::run;
use crate::event_loop::shared::{Mail, Shared};
use crate::group::core::GroupCore;
use crate::panic::{PanicSite, contain, contain_drop, discard};
use crate::reactor::Driver;
use crate::sync::thread;
use crate::sync::{self, Arc};
use crate::termination::ThreadSlot;

/// How long a submission waits for a thread that a factory has promised.
const PATIENCE: Duration = Duration::from_secs(5);

impl Shared {
    /// Makes sure that the loop has its thread, or, on the thread of a loop, that it will.
    pub(crate) fn ensure_started(self: &Arc<Shared>) -> Result<(), RejectReason> {
        if lifecycle::is_seated(self.inbox.shown()) {
            return Ok(());
        }
        let patience = if context::is_loop() {
            Duration::ZERO
        } else {
            PATIENCE
        };
        self.launch(patience)
    }

    /// Has the loop start, without waiting for a thread that a factory promises: whoever comes with
    /// it, or drops it, sees what was asked of the loop.
    pub(crate) fn start_without_waiting(self: &Arc<Shared>) {
        let _ = self.launch(Duration::ZERO);
    }

    /// Takes the loop for the calling thread, if it has none.
    pub(crate) fn take_seat(&self) -> Option<Driver> {
        self.inbox.open().edit(|life| life.take_seat())
    }

    #[cold]
    fn launch(self: &Arc<Shared>, patience: Duration) -> Result<(), RejectReason> {
        let Some(core) = self.core.upgrade() else {
            // The group is gone, and with it every loop that never ran.
            return Err(RejectReason::ShutDown);
        };
        let this_thread = thread::current().id();
        let deadline = sync::now() + patience;
        let mut tried = false;
        let mut desk = self.inbox.open();
        loop {
            match desk.edit(|life| life.begin_start(this_thread)) {
                Begin::Over => return Ok(()),
                // Its `LoopThread` was dropped somewhere.
                Begin::Yours(driver) if tried => {
                    desk.edit(|life| life.fail_start(driver)).ok();
                    drop(desk);
                    let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
                    self.end_after_failure(reason);
                    return Err(reason);
                }
                Begin::Yours(driver) => {
                    drop(desk);
                    self.start(&core, driver)?;
                    tried = true;
                    desk = self.inbox.open();
                    desk.edit(|life| life.await_start(this_thread));
                }
                Begin::Wait if patience.is_zero() => return Ok(()),
                Begin::Wait => {
                    let left = deadline.saturating_duration_since(sync::now());
                    if left.is_zero() {
                        let reason = RejectReason::ThreadStart(io::ErrorKind::TimedOut);
                        desk.edit(|life| life.lose_patience(reason));
                        return Err(reason);
                    }
                    desk = desk.wait_moved(left);
                }
                Begin::Refused(kind) => return Err(RejectReason::ThreadStart(kind)),
            }
        }
    }

    /// Has the thread started, by the system or by the user's factory.
    fn start(
        self: &Arc<Shared>,
        core: &Arc<GroupCore>,
        driver: Driver,
    ) -> Result<(), RejectReason> {
        let thread = LoopThread {
            parts: Some(Parts {
                shared: Arc::clone(self),
                core: Arc::clone(core),
                driver,
            }),
        };
        let started = match &self.config.thread_factory {
            None => self.start_by_the_system(core, thread),
            Some(factory) => match contain(|| factory(thread)) {
                Ok(started) => started,
                Err(payload) => {
                    self.report_panic(PanicSite::ThreadFactory, &*payload, None);
                    discard(payload);
                    Err(io::ErrorKind::Other.into())
                }
            },
        };
        started.map_err(|error| {
            let reason = RejectReason::ThreadStart(error.kind());
            let by = thread::current().id();
            let mut desk = self.inbox.open();
            let failed = desk.edit(|life| life.fail_factory(by, reason));
            desk.moved();
            drop(desk);
            if failed {
                self.end_after_failure(reason);
            }
            reason
        })
    }

    fn start_by_the_system(&self, core: &Arc<GroupCore>, thread: LoopThread) -> io::Result<()> {
        let mut builder = thread::Builder::new().name(thread.name().to_owned());
        if let Some(bytes) = thread.stack_size() {
            builder = builder.stack_size(bytes);
        }
        // The slot is adopted first and filled under its lock: who waits for the end of the loop finds the
        // thread, however short its life.
        let slot = ThreadSlot::default();
        let mut filling = slot.lock();
        core.end.termination.adopt(Arc::clone(&slot));
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
                core.end.termination.disown(&slot);
                self.termination.disown(&slot);
                Err(error)
            }
        }
    }

    /// Notes that the loop has its thread; `false` if it has ended without.
    fn begun(&self) -> bool {
        let mut desk = self.inbox.open();
        let begun = desk.edit(|life| life.begun());
        desk.moved();
        begun
    }

    /// Counts as cancelled what loops have submitted to a loop that gets no thread; with its inbox held.
    pub(crate) fn cancel_mail(&self, mail: &Mail) {
        let planted = mail.notices.iter().filter(|notice| notice.is_task());
        let items = mail.main.len() + mail.tail.len() + mail.timed.len();
        for _ in 0..items + planted.count() {
            self.counters.begin();
            self.counters.end(End::Cancelled);
            self.cancel_admission();
        }
    }

    /// Drops what was cancelled, with no lock held. None of it was ever polled, so it may be dropped anywhere.
    pub(crate) fn drop_mail(self: &Arc<Shared>, mail: Mail) {
        let timed = mail.timed.into_iter().map(|(_, runnable)| runnable);
        for runnable in mail.main.into_iter().chain(mail.tail).chain(timed) {
            context::drop_refused(self, runnable);
        }
        for notice in mail.notices {
            if let Err(payload) = contain_drop(notice) {
                self.report_panic(PanicSite::Destructor, &*payload, None);
                discard(payload);
            }
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
            if parts.shared.begun() {
                run::run_loop(parts);
            }
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
        let Some(parts) = self.parts.take() else {
            return;
        };
        // The core outlives what is done here: its end may be this loop's.
        let Parts {
            shared,
            core: _core,
            driver,
        } = parts;
        let mut desk = shared.inbox.open();
        let failed = desk.edit(|life| life.fail_start(driver));
        let mail = failed.as_ref().map(|_| desk.take()).unwrap_or_default();
        shared.cancel_mail(&mail);
        desk.moved();
        drop(desk);
        shared.drop_mail(mail);
        // A `launch` that is inside the factory deals with its failure. If nobody is, a shutdown that was
        // requested meanwhile counted on this thread.
        if let Ok(Start::Awaited | Start::GivenUp) = failed {
            let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
            shared.end_after_failure(reason);
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
