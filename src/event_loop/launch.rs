//! How a loop gets its thread, or ends without one.
//!
//! - The phases of a start, and the functions that change them, are in [`lifecycle`](super::lifecycle). Once
//!   the thread has begun, the loop keeps it until it ends or [parks](super::parking); a failed start leaves
//!   the loop usable.
//! - Work from ordinary threads is accepted only once the thread has begun, so a failed start loses nothing.
//!   A submitter that finds a start under way waits for its outcome; a factory that submits to the loop it is
//!   starting is rejected instead.
//! - A loop that submits to a sibling never waits: while the sibling starts, the work is queued. If the start
//!   then fails, that work is cancelled.
//! - A loop that was never used and has no hooks ends on the thread that requests it. A loop with hooks gets
//!   a thread to run them.
//! - While a factory runs, or its thread has not begun yet, a shutdown waits for the thread: for the timeout
//!   of the shutdown, or [`GRACE`] for `shutdown_now`. After that the loop ends without the thread. (If a
//!   factory runs loops on the calling thread, at most one loop of the group can run hooks at the end: it
//!   waits for the others.)
//! - If hooks or submissions of other loops are lost this way, the loop ends with [`EndCause::Failed`].
//! - The states of a start that is awaited keep two promises: a submission never waits for ever,
//!   and neither does a shutdown, whatever a factory does with its `LoopThread`.
//! - User code (factory, names) runs with no lock held.

use std::io;
use std::time::{Duration, Instant};

use crate::error::{RejectReason, Rejected};
use crate::event_loop::context;
use crate::event_loop::counters::TaskEnd;
use crate::event_loop::ending::Ending;
use crate::event_loop::hooks::Hook;
use crate::event_loop::lifecycle::{self, Begin, Phase, Start};
use crate::event_loop::shared::{InboxGuard, LoopParts, Mail, Message, Shared};
use crate::event_loop::terms::EndCondition;
use crate::panic::PanicSite;
use crate::reactor::Driver;
use crate::report::EndCause;
use crate::sync::thread;
use crate::sync::{self, Arc};
use crate::this_thread;

/// How long a submission waits for the thread to begin.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long `shutdown_now` waits for a thread that is being started, to run the hooks.
const GRACE: Duration = Duration::from_secs(1);

impl Shared {
    /// Ensures that the loop has its thread; on the thread of a loop, that the start is under way.
    pub(crate) fn ensure_started(self: &Arc<Shared>) -> Result<(), RejectReason> {
        if lifecycle::has_thread(self.place.shown.get()) {
            return Ok(());
        }
        let timeout = if this_thread::is_loop() {
            Duration::ZERO
        } else {
            START_TIMEOUT
        };
        self.launch(timeout)
    }

    /// Assigns the loop to the calling thread, if it has none yet.
    pub(crate) fn take_parts(self: &Arc<Shared>) -> Option<LoopParts> {
        let group = self.parent.group()?;
        let driver = self.inbox.lock().edit(|life| life.claim())?;
        let shared = Arc::clone(self);
        Some(LoopParts {
            shared,
            group,
            driver,
        })
    }

    /// Starts the thread, or waits up to `timeout` for a start that is under way.
    #[cold]
    fn launch(self: &Arc<Shared>, timeout: Duration) -> Result<(), RejectReason> {
        let Some(group) = self.parent.group() else {
            // The group was dropped, and with it every loop that never ran.
            return Err(RejectReason::ShutDown);
        };
        let this_thread = thread::current().id();
        let deadline = sync::now() + timeout;
        let mut tried = false;
        let mut guard = self.inbox.lock();
        loop {
            match guard.edit(|life| life.begin_start(this_thread)) {
                // Its `LoopThread` was dropped, and the loop has run before.
                Begin::NotNeeded if tried && guard.gate().has_failed_to_restart() => {
                    drop(guard);
                    let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
                    self.end_after_failure(reason);
                    return Err(reason);
                }
                Begin::NotNeeded => return Ok(()),
                // Its `LoopThread` was dropped.
                Begin::Granted(driver) if tried => {
                    guard.edit(|life| life.fail_start(driver)).ok();
                    drop(guard);
                    let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
                    self.end_after_failure(reason);
                    return Err(reason);
                }
                Begin::Granted(driver) => {
                    drop(guard);
                    let group = Arc::clone(&group);
                    let shared = Arc::clone(self);
                    self.start(LoopParts {
                        shared,
                        group,
                        driver,
                    })?;
                    tried = true;
                    guard = self.inbox.lock();
                    guard.edit(|life| life.await_start(this_thread));
                }
                Begin::Wait if timeout.is_zero() => return Ok(()),
                Begin::Wait if sync::now() >= deadline => {
                    let reason = RejectReason::ThreadStart(io::ErrorKind::TimedOut);
                    guard.edit(|life| life.time_out_start(reason));
                    return Err(reason);
                }
                Begin::Wait => guard = guard.wait_moved(deadline),
                Begin::Refused(kind) => return Err(RejectReason::ThreadStart(kind)),
            }
        }
    }

    pub(super) fn start(self: &Arc<Shared>, parts: LoopParts) -> Result<(), RejectReason> {
        self.parent.start_thread(parts).map_err(|error| {
            let reason = RejectReason::ThreadStart(error.kind());
            let by = thread::current().id();
            let mut guard = self.inbox.lock();
            let failed = guard.edit(|life| life.fail_factory(by, reason));
            guard.moved();
            drop(guard);
            if failed {
                self.end_after_failure(reason);
            }
            reason
        })
    }

    /// Takes back the parts of a `LoopThread` that was dropped before it ran: a failed start.
    pub(crate) fn start_failed(parts: LoopParts) {
        // Keeps the group alive until the end of this function: this may be its last loop.
        let LoopParts {
            shared,
            group: _group,
            driver,
        } = parts;
        let failed = shared.start_again_failed(driver);
        // A `launch` that is inside the factory handles its failure itself. Otherwise a shutdown requested
        // meanwhile relied on this thread.
        if let Ok(Start::Awaited | Start::Abandoned) = failed {
            let reason = RejectReason::ThreadStart(io::ErrorKind::Other);
            shared.end_after_failure(reason);
        }
    }

    /// Takes the driver back after a failed start, and cancels what was submitted meanwhile.
    pub(super) fn start_again_failed(self: &Arc<Shared>, driver: Driver) -> Result<Start, Driver> {
        let mut guard = self.inbox.lock();
        let failed = guard.edit(|life| life.fail_start(driver));
        let mail = failed.is_ok().then(|| self.cancel_mail(&mut guard));
        let mut requests = Vec::new();
        if failed.is_ok() && guard.gate().has_run() {
            // No task is left that they could be about.
            requests = guard.edit(|life| std::mem::take(&mut life.requests));
            // The next submission tries again.
            guard.fall_asleep();
        }
        guard.moved();
        drop(guard);
        if let Some(mail) = mail {
            self.drop_mail(mail);
        }
        for request in requests {
            request.wish.ended();
        }
        failed
    }

    /// Records that the thread that this thread has started will begin.
    pub(crate) fn will_begin(&self) {
        let by = thread::current().id();
        let mut guard = self.inbox.lock();
        guard.edit(|life| life.will_begin(by));
        guard.moved();
    }

    /// Records that the thread has begun; returns `false` if the loop has ended without it.
    pub(crate) fn begun(&self) -> bool {
        let mut guard = self.inbox.lock();
        let begun = guard.edit(|life| life.begun());
        guard.moved();
        begun
    }

    /// Takes out the submissions of other loops to a loop that gets no thread, and counts them as cancelled.
    fn cancel_mail(&self, guard: &mut InboxGuard<'_>) -> Mail {
        let mail = guard.take();
        let is_task = |message: &&Message| matches!(message, Message::Make(_));
        let to_make = mail.messages.iter().filter(is_task).count();
        let tasks = mail.main.len() + mail.tail.len() + mail.timed.len();
        for _ in 0..tasks + mail.in_runs + to_make {
            self.place.counters.begin();
            self.place.counters.end(TaskEnd::Cancelled);
        }
        mail
    }

    /// Drops the cancelled work, with no lock held. It was never polled, so any thread may drop it.
    fn drop_mail(self: &Arc<Shared>, mail: Mail) {
        let timed = mail.timed.into_iter().map(|(_, runnable)| runnable);
        for runnable in mail.main.into_iter().chain(mail.tail).chain(timed) {
            context::drop_refused(self, runnable);
        }
        for (_, mut run) in mail.runs {
            run.discard(&self.panics);
        }
        for message in mail.messages {
            self.panics.drop(PanicSite::Destructor, None, message);
        }
    }

    /// Ends a loop that never had a thread; starts one only if there are hooks to run.
    pub(super) fn end_unstarted(self: &Arc<Shared>) {
        while !self.end_without_thread(None) {
            let guard = self.inbox.lock();
            match guard.gate().phase() {
                // The hook may have been removed meanwhile: try again.
                Phase::Free(_) if guard.gate().hooks.is_empty() => {}
                Phase::Free(_) => {
                    drop(guard);
                    // Before the factory is called, which may be slow; a failure ends the loop as well.
                    self.watch_start();
                    // The thread, or the drop of its `LoopThread`, handles the request.
                    let _ = self.launch(Duration::ZERO);
                    return;
                }
                // Claimed, or being started: the new thread, or its failure, handles the request.
                _ => return,
            }
        }
    }

    /// Ends the loop after a failed start, if its shutdown was requested: no submission will try again.
    pub(super) fn end_after_failure(self: &Arc<Shared>, reason: RejectReason) {
        let requested = self.inbox.lock().gate().control.is_requested();
        if requested && !self.end_without_thread(None) {
            self.end_without_thread(Some(reason));
        }
    }

    /// Ensures that a loop whose thread has not begun yet ends in time, whether the thread begins or not.
    pub(super) fn watch_start(self: &Arc<Shared>) {
        let terms = self.inbox.lock().gate().terms();
        let limit = match terms {
            // A thread of the system begins, or its start fails at once.
            _ if !self.parent.may_wait_for_thread() => None,
            Some(terms) if terms.until == EndCondition::Now => sync::now().checked_add(GRACE),
            // By the system's clock: it waits for a real thread.
            Some(terms) => terms.deadline.and_then(|deadline| {
                let left = deadline.saturating_duration_since(self.config.clock.now());
                sync::now().checked_add(left)
            }),
            None => None,
        };
        let Some(limit) = limit else {
            return;
        };
        let this = Arc::clone(self);
        let watch = thread::Builder::new().name(format!("loop-{}-start", self.index));
        let spawned = watch.spawn(move || {
            this.await_begin(limit);
            let late = RejectReason::ThreadStart(io::ErrorKind::TimedOut);
            this.end_without_thread(Some(late));
        });
        if let Err(error) = spawned {
            // Without another thread, nothing can wait for the loop's thread.
            self.end_without_thread(Some(RejectReason::ThreadStart(error.kind())));
        }
    }

    /// Waits until the start that is under way has an outcome, at most until `limit`.
    fn await_begin(&self, limit: Instant) {
        let mut guard = self.inbox.lock();
        while let Phase::Free(_) | Phase::Starting(_) | Phase::Parked(_) = guard.gate().phase() {
            if sync::now() >= limit {
                return;
            }
            guard = guard.wait_moved(limit);
        }
    }

    /// Ends the loop on this thread if it is free and has no hooks, or if its start has failed; returns
    /// whether it did.
    fn end_without_thread(self: &Arc<Shared>, failure: Option<RejectReason>) -> bool {
        let mut guard = self.inbox.lock();
        let may_end = match guard.gate().phase() {
            Phase::Free(_) => failure.is_some() || guard.gate().hooks.is_empty(),
            Phase::Starting(_) | Phase::Parked(_) => failure.is_some(),
            _ => false,
        };
        if !may_end {
            return false;
        }
        let driver = guard.edit(|life| life.seal_unstarted());
        let hooks = guard.edit(|life| life.hooks.take_all());
        let terms = guard.gate().terms();
        let idle = guard.gate().control.cause_when_idle();
        let error = failure.or(guard.gate().start_error);
        let started = guard.gate().has_run();
        let mail = self.cancel_mail(&mut guard);
        guard.moved();
        drop(guard);
        drop(driver);
        self.panics.wake_all(self.port.close());
        // Hooks that cannot run are lost, and so are submissions of other loops: that is a failure.
        let lost = !hooks.is_empty() || !mail.is_empty();
        for hook in hooks {
            self.drop_hook(hook);
        }
        self.drop_mail(mail);
        let ending = Ending {
            started,
            cause: if lost { EndCause::Failed } else { idle },
            error: error.map(|reason| Rejected::new((), reason).into()),
            terms,
            left: Vec::new(),
        };
        self.terminate(ending);
        true
    }

    /// Drops a hook that will not run.
    pub(crate) fn drop_hook(&self, hook: Hook) {
        let Hook { call, location } = hook;
        self.panics
            .drop(PanicSite::ShutdownHook, Some(location), call);
    }
}
