//! What the loops of a group ask of it: the user's callbacks, and the end of the group.
//!
//! - The loops hold it strongly and it holds the group weakly, so there is no cycle.
//! - Callbacks are user code: they are called with no lock held, and their panics are reported.

use std::any::Any;
use std::io;
use std::time::Instant;

use crate::event_loop::handle::EventLoop;
use crate::event_loop::loop_thread::LoopThread;
use crate::event_loop::shared::{LoopParts, Parent, Shared};
use crate::group::core::{GroupCore, HandleToken};
use crate::group::end::GroupEnd;
use crate::panic::PanicSite;
use crate::reject_policy::{RejectPolicy, RejectVerdict};
use crate::report::LoopReport;
use crate::sync::{Arc, Weak, thread};
use crate::termination::ThreadSlot;
use crate::this_thread;

/// The side of a group that its loops see.
pub(crate) struct GroupParent {
    pub(crate) core: Weak<GroupCore>,
    pub(crate) token: Weak<HandleToken>,
    pub(crate) end: Arc<GroupEnd>,
    pub(crate) callbacks: Callbacks,
}

/// What the user has set that names loops.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(crate) thread_factory: Option<Box<ThreadFactory>>,
    pub(crate) on_thread_start: Option<Box<StartHook>>,
    pub(crate) reject_policy: RejectPolicy,
}

pub(crate) type ThreadFactory = dyn Fn(LoopThread) -> io::Result<()> + Send + Sync;
pub(crate) type StartHook = dyn Fn(&EventLoop) -> Box<dyn Any> + Send + Sync;

impl Parent for GroupParent {
    fn start_thread(&self, parts: LoopParts) -> io::Result<()> {
        let Some(factory) = &self.callbacks.thread_factory else {
            return LoopThread::new(parts).start();
        };
        let panics = parts.shared.panics.clone();
        let thread = LoopThread::new(parts);
        panics
            .call(PanicSite::ThreadFactory, || factory(thread))
            .unwrap_or_else(|| Err(io::ErrorKind::Other.into()))
    }

    fn thread_started(&self, one: &Arc<Shared>) -> Option<Box<dyn Any>> {
        let hook = self.callbacks.on_thread_start.as_ref()?;
        let this = EventLoop::new(one);
        one.panics.call(PanicSite::ThreadHook, || hook(&this))
    }

    fn may_retry(&self, one: &Arc<Shared>, attempt: u32) -> bool {
        match &self.callbacks.reject_policy {
            RejectPolicy::Reject => false,
            RejectPolicy::Backoff { retries, interval } => {
                // A loop must not sleep, and while the full loop waits nothing leaves its queue.
                if attempt > *retries || this_thread::is_loop() {
                    return false;
                }
                thread::sleep(*interval);
                true
            }
            RejectPolicy::Custom(decide) => ask(one, attempt, decide),
            RejectPolicy::Closure(decide) => ask(one, attempt, &*decide.0),
        }
    }

    fn may_wait_for_thread(&self) -> bool {
        self.callbacks.thread_factory.is_some()
    }

    fn group(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.core.upgrade()?)
    }

    fn handles(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.token.upgrade()?)
    }

    fn has_handles(&self) -> bool {
        self.token.strong_count() > 0
    }

    fn add_thread(&self, slot: &ThreadSlot) {
        self.end.termination.add_thread(Arc::clone(slot));
    }

    fn remove_thread(&self, slot: &ThreadSlot) {
        self.end.termination.remove_thread(slot);
    }

    fn note_leaving(&self) {
        self.end.note_leaving();
    }

    fn note_paused(&self) {
        self.end.note_paused();
    }

    fn note_resumed(&self) {
        self.end.note_resumed();
    }

    fn look_at_load(&self) {
        let Some(core) = self.core.upgrade().filter(|core| core.scaler.is_some()) else {
            return;
        };
        // Loops without a thread have no load; the first turn of one of them looks.
        let with_thread = core.loops.iter().find(|one| one.shared().has_thread());
        if let Some(one) = with_thread {
            one.shared().nudge();
        }
    }

    fn scale(&self, now: Instant) -> Option<Instant> {
        let core = self.core.upgrade()?;
        let scaler = core.scaler.as_ref()?;
        if scaler.is_due(now) {
            self.end.termination.reap_threads();
        }
        scaler.look_if_due(&core.loops, now)
    }

    fn note_idle(&self, index: usize) {
        self.end.note_idle(index);
    }

    fn note_busy(&self, index: usize) {
        self.end.note_busy(index);
    }

    fn time_out(&self) {
        self.end.time_out();
    }

    fn sibling_ended(&self, index: usize) {
        self.end.ended(index);
    }

    fn report(&self, report: LoopReport) {
        self.end.termination.child_done(report.index, report);
    }
}

/// Asks a policy of the user's.
fn ask(one: &Arc<Shared>, attempt: u32, decide: impl Fn(&EventLoop, u32) -> RejectVerdict) -> bool {
    let this = EventLoop::new(one);
    let verdict = one
        .panics
        .call(PanicSite::RejectPolicy, || decide(&this, attempt));
    // On the loop itself a retry cannot succeed: the queue moves only when the caller returns.
    verdict == Some(RejectVerdict::Retry) && !this.in_event_loop()
}
