//! The end of a loop that has no thread.
//!
//! - A loop that was never used, and has no hooks, ends where it is asked to. One with hooks gets a thread to run them.
//! - While a factory is at it, or has promised a thread, the loop is not ended before that has had its time: the
//!   timeout of the shutdown, or [`GRACE`] if it is to end now, and no longer. Whoever comes later finds it ended. (Of a
//!   group whose factory runs loops where it is called, one at most can run hooks at the end: it waits for the others.)
//! - What is lost by that, hooks and what other loops have submitted meanwhile, makes the end a failure.

use std::io;
use std::time::{Duration, Instant};

use crate::error::{RejectReason, Rejected};
use crate::event_loop::hooks::Hook;
use crate::event_loop::lifecycle::Phase;
use crate::event_loop::shared::Shared;
use crate::event_loop::shutdown::Ending;
use crate::event_loop::terms::Until;
use crate::panic::{PanicSite, contain_drop, discard};
use crate::report::Cause;
use crate::sync::{self, Arc, thread};

/// How long `shutdown_now` waits for a thread that is on its way, to run the hooks.
const GRACE: Duration = Duration::from_secs(1);

impl Shared {
    /// Ends a loop that never had a thread; starts one only if there are hooks to run.
    pub(super) fn end_unstarted(self: &Arc<Shared>) {
        while !self.end_without_thread(None) {
            let desk = self.inbox.open();
            match desk.gate().phase() {
                // A hook that was there a moment ago may have been taken back: then look again.
                Phase::Free(_) if desk.gate().hooks.is_empty() => {}
                Phase::Free(_) => {
                    drop(desk);
                    // Before the factory is called, which may take its time; a failure ends the loop as well.
                    self.watch_start();
                    self.start_without_waiting();
                    return;
                }
                // Taken, or being started: the new thread, or its failure, sees the request.
                _ => return,
            }
        }
    }

    /// Ends the loop after a start that failed, if its end was requested: nobody will try again.
    pub(crate) fn end_after_failure(self: &Arc<Shared>, reason: RejectReason) {
        let requested = self.inbox.open().gate().control.is_requested();
        if requested && !self.end_without_thread(None) {
            self.end_without_thread(Some(reason));
        }
    }

    /// Sees to it that a loop whose thread was promised by a factory ends in time, whether the thread comes or not.
    pub(super) fn watch_start(self: &Arc<Shared>) {
        let terms = self.inbox.open().gate().terms();
        let limit = match terms {
            // What the system starts comes, or fails at once.
            _ if self.config.thread_factory.is_none() => None,
            Some(terms) if terms.until == Until::Now => sync::now().checked_add(GRACE),
            // By the system's clock, as the threads that this waits for.
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
        let watching = watch.spawn(move || {
            this.await_begin(limit);
            let late = RejectReason::ThreadStart(io::ErrorKind::TimedOut);
            this.end_without_thread(Some(late));
        });
        if let Err(error) = watching {
            // With no thread to be had, nobody can wait for the other one.
            self.end_without_thread(Some(RejectReason::ThreadStart(error.kind())));
        }
    }

    /// Waits until the start that is under way has an outcome, or for `limit`.
    fn await_begin(&self, limit: Instant) {
        let mut desk = self.inbox.open();
        while let Phase::Free(_) | Phase::Starting(_) = desk.gate().phase() {
            let left = limit.saturating_duration_since(sync::now());
            if left.is_zero() {
                return;
            }
            desk = desk.wait_moved(left);
        }
    }

    /// Ends the loop here if it is free and has no hooks, or if it fails to get a thread.
    fn end_without_thread(self: &Arc<Shared>, failure: Option<RejectReason>) -> bool {
        let mut desk = self.inbox.open();
        let unused = match desk.gate().phase() {
            Phase::Free(_) => failure.is_some() || desk.gate().hooks.is_empty(),
            Phase::Starting(_) => failure.is_some(),
            _ => false,
        };
        if !unused {
            return false;
        }
        let driver = desk.edit(|life| life.seal_unstarted());
        let (hooks, terms, start_error) =
            desk.edit(|life| (life.hooks.take(), life.terms(), life.start_error));
        let mail = desk.take();
        self.cancel_mail(&mail);
        desk.moved();
        drop(desk);
        drop(driver);
        self.wake_all(self.port.close());
        // Hooks that cannot run are lost, and so is what loops have submitted: that is a failure.
        let lost = !hooks.is_empty() || !mail.is_empty();
        for hook in hooks {
            self.drop_hook(hook);
        }
        self.drop_mail(mail);
        let cause = match terms.map(|terms| terms.until) {
            _ if lost => Cause::Failed,
            Some(Until::Drained(_)) => Cause::Drained,
            Some(Until::Now) => Cause::Now,
            _ => Cause::Idle,
        };
        let error = failure.or(start_error);
        let ending = Ending {
            started: false,
            cause,
            error: error.map(|reason| Rejected::new((), reason).into()),
            terms,
        };
        self.terminate(ending);
        true
    }

    /// Drops a hook that will not run.
    pub(crate) fn drop_hook(&self, hook: Hook) {
        let Hook { call, location } = hook;
        if let Err(payload) = contain_drop(call) {
            let site = PanicSite::ShutdownHook;
            self.report_panic(site, &*payload, Some(location));
            discard(payload);
        }
    }
}
