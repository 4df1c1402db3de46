//! The half of a loop that any thread may reach.
//!
//! - Everything a submitter needs is here: the mailbox with the loop's life as its gate, the bell, the counters.
//! - It holds its group weakly; the loop thread is what keeps a group's core alive.
//! - No lock is held while user code runs. Where they nest is in [`GroupEnd`], and in the start of a thread.
//!
//! A submission goes: thread started → bound → gate → queue. Each step may refuse, and what a step
//! has taken is given back when a later one refuses.

use std::fmt;
use std::panic::Location;
use std::task::Waker;

use crate::error::RejectReason;
use crate::event_loop::EventLoop;
use crate::event_loop::arena;
use crate::event_loop::context;
use crate::event_loop::counters::{Bound, Counters};
use crate::event_loop::inbox::{self, Batch, Inbox, Lane, Ring, Urgency};
use crate::event_loop::lifecycle::{self, Life};
use crate::event_loop::local::Local;
use crate::event_loop::state::State;
use crate::group::core::{GroupCore, Token};
use crate::group::end::GroupEnd;
use crate::metrics::gauges::Gauges;
use crate::panic::{PanicSite, TaskPanic, contain, contain_drop, discard, report};
use crate::reactor::Port;
use crate::reactor::table::Table;
use crate::settings::{Config, RejectPolicy, Verdict};
use crate::sync::{Arc, AtomicUsize, Mutex, Ordering, Weak, fence, thread};
use crate::task::Runnable;
use crate::termination::Termination;
use crate::time::queue;
use crate::time::timers::Away;
use crate::trace;
use crate::waiters::Waiters;

/// What a loop takes out of its inbox.
pub(crate) type Mail = Batch<Runnable, Notice>;

/// The inbox of a loop with its lock held, and so the loop's life.
pub(crate) type Desk<'a> = inbox::Desk<'a, Runnable, Notice, Life>;

/// A message to the loop itself.
pub(crate) enum Notice {
    /// A task that is to be made at home. It counts from here on.
    Plant(Box<dyn FnOnce(&Local) + Send>),
    /// The last handle of a loop-bound value is gone.
    Unbind(arena::Key),
    /// A timer of this loop was dropped or reset elsewhere.
    Timer(queue::Key, Away),
}

impl Notice {
    /// Whether a task comes with it, which was accepted.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self, Notice::Plant(_))
    }
}

/// The shared half.
pub(crate) struct Shared {
    pub(crate) index: usize,
    /// The mailbox; under its lock, the life of the loop.
    pub(crate) inbox: Inbox<Runnable, Notice, Life>,
    pub(crate) port: Port,
    pub(crate) counters: Counters,
    pub(crate) gauges: Gauges,
    pub(crate) bound: Option<Bound>,
    /// `EventLoop` values in existence, the core's own one included.
    pub(crate) handles: AtomicUsize,
    /// Who waits for the start of the shutdown.
    pub(crate) shutdown_waiters: Mutex<Waiters>,
    pub(crate) termination: Arc<Termination>,
    pub(crate) config: Arc<Config>,
    pub(crate) core: Weak<GroupCore>,
    pub(crate) token: Weak<Token>,
    /// The end of the group, which hears of this loop's.
    pub(crate) end: Arc<GroupEnd>,
}

impl Shared {
    /// Where the loop is in its life.
    #[inline]
    pub(crate) fn state(&self) -> State {
        lifecycle::state_of(self.inbox.shown())
    }

    /// Whether the loop, which has its thread, lets new work in; the answer on that thread.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        lifecycle::is_open(self.inbox.shown())
    }

    /// Whether the loop watches no descriptor any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.port.table.as_ref().is_none_or(Table::is_closed)
    }

    /// Whether every task of the loop has ended.
    pub(crate) fn is_sealed(&self) -> bool {
        lifecycle::is_sealed(self.inbox.shown())
    }

    /// Makes sure that the thread runs and that there is a place below the bound.
    ///
    /// Asks the reject policy when there is none. A place that was taken is given back by
    /// [`Shared::cancel_admission`] if the gate refuses later.
    pub(crate) fn admit(self: &Arc<Shared>) -> Result<(), RejectReason> {
        self.ensure_started()?;
        let Some(bound) = &self.bound else {
            return Ok(());
        };
        let mut attempt = 0_u32;
        while !bound.take() {
            if self.state().is_shutdown() {
                return Err(RejectReason::ShutDown);
            }
            // What fills the queue may be lazy closures that nobody has rung for.
            self.answer(self.inbox.hurry());
            attempt = attempt.saturating_add(1);
            if !self.may_retry(attempt) {
                return Err(RejectReason::QueueFull);
            }
        }
        Ok(())
    }

    /// Asks the policy about a full queue; waits as the policy says.
    #[cold]
    fn may_retry(self: &Arc<Shared>, attempt: u32) -> bool {
        match self.config.reject_policy {
            RejectPolicy::Reject => false,
            RejectPolicy::Backoff { retries, interval } => {
                // A loop must not sleep, and while this very loop waits nothing leaves its queue.
                if attempt > retries || context::is_loop() {
                    return false;
                }
                thread::sleep(interval);
                true
            }
            RejectPolicy::Custom(decide) => {
                let this = EventLoop::new(self);
                match contain(|| decide(&this, attempt)) {
                    // On the loop itself a retry cannot succeed: the queue moves only when the
                    // caller returns.
                    Ok(Verdict::Retry) => context::with_home(self, |_| ()).is_none(),
                    Ok(Verdict::Reject) => false,
                    Err(payload) => {
                        self.report_panic(PanicSite::RejectPolicy, &*payload, None);
                        discard(payload);
                        false
                    }
                }
            }
        }
    }

    /// Gives back what [`Shared::admit`] took.
    pub(crate) fn cancel_admission(&self) {
        if let Some(bound) = &self.bound {
            bound.release();
        }
    }

    /// Queues an admitted task that is already made; a refused one is dropped here, uncounted.
    pub(crate) fn push(
        self: &Arc<Shared>,
        runnable: Runnable,
        lane: Lane,
        urgency: Urgency,
    ) -> Result<(), RejectReason> {
        let mut runnable = Some(runnable);
        let mut take = || runnable.take().expect("the task is taken once");
        let pushed = self.push_with(lane, urgency, &mut take);
        if let Some(refused) = runnable {
            context::drop_refused(self, refused);
        }
        pushed
    }

    /// Counts a submission that was refused.
    pub(crate) fn note_refusal(&self, reason: RejectReason, location: &'static Location<'static>) {
        self.counters.reject();
        trace::rejected(self, reason, location);
    }

    /// Drops a value that was refused before it became a task; its destructor is user code.
    pub(crate) fn drop_refused<V>(&self, value: V, location: &'static Location<'static>) {
        if let Err(payload) = contain_drop(value) {
            self.report_panic(PanicSite::Destructor, &*payload, Some(location));
            discard(payload);
        }
    }

    /// Makes and queues an admitted task, or does not even make it.
    pub(crate) fn push_with(
        self: &Arc<Shared>,
        lane: Lane,
        urgency: Urgency,
        make: impl FnOnce() -> Runnable,
    ) -> Result<(), RejectReason> {
        let mut make = Some(make);
        let mut make = || (make.take().expect("the task is made once"))();
        let at_home = context::with_home(self, |local| {
            self.is_open().then(|| local.push_new(make(), lane))
        });
        let accepted = match at_home {
            Some(accepted) => accepted.is_some(),
            None => match self.inbox.push_new_with(lane, urgency, make) {
                Some(ring) => {
                    self.answer(ring);
                    true
                }
                None => false,
            },
        };
        if accepted {
            return Ok(());
        }
        self.cancel_admission();
        Err(self.refusal())
    }

    /// Rings if the inbox says so.
    pub(crate) fn answer(&self, ring: Ring) {
        if ring == Ring::NotNeeded {
            return;
        }
        // The write of a few bytes to an eventfd does not fail; should it, the duty to ring is
        // handed to the next producer.
        for _ in 0..16 {
            if self.port.bell.ring().is_ok() {
                return;
            }
            thread::yield_now();
        }
        self.inbox.ring_failed();
    }

    /// Has the loop take a turn: something changed that it looks at in every turn.
    pub(crate) fn nudge(&self) {
        self.answer(self.inbox.nudge());
    }

    /// Leaves a message for the loop.
    pub(crate) fn post(&self, notice: Notice) {
        let ring = self.inbox.post(notice, Urgency::Now);
        self.answer(ring);
    }

    /// Has an admitted task made at home, on another thread than this, or does not even send for it.
    pub(crate) fn plant_with(
        &self,
        make: impl FnOnce() -> Box<dyn FnOnce(&Local) + Send>,
    ) -> Result<(), RejectReason> {
        match self.inbox.post_new_with(|| Notice::Plant(make())) {
            Some(ring) => {
                self.answer(ring);
                Ok(())
            }
            None => {
                self.cancel_admission();
                Err(self.refusal())
            }
        }
    }

    /// Why the gate has refused.
    #[cold]
    fn refusal(&self) -> RejectReason {
        self.inbox.open().gate().refusal()
    }

    /// Tasks ever accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.counters.accepted_at_home() + self.inbox.accepted()
    }

    /// Whether nothing is queued or live: on the loop's own thread, or with its inbox held.
    pub(crate) fn is_at_rest(&self) -> bool {
        // What has ended was accepted before, and both only grow: if they are equal, read in this order,
        // there was nothing at the first reading. (Live and then pending would miss a task that begins in
        // between.)
        let ended = self.counters.ended();
        self.accepted() == ended
    }

    pub(crate) fn pending(&self) -> usize {
        self.counters.pending(self.inbox.accepted())
    }

    /// Whether nobody outside the loop's own tasks could submit any more; for a loop that shuts down.
    pub(crate) fn is_unreachable(&self) -> bool {
        if self.token.strong_count() > 0 {
            return false;
        }
        // Pairs with the fence below.
        fence(Ordering::SeqCst);
        self.handles.load(Ordering::Acquire) <= 1
    }

    /// Notes the end of a handle.
    pub(crate) fn handle_gone(&self) {
        match self.handles.fetch_sub(1, Ordering::AcqRel) {
            // The last one besides the group's own: a loop that shuts down may end now.
            2 => {
                // Pairs with the fence above: either the shutdown is seen here, or the loop that shuts
                // down sees that this handle is gone.
                fence(Ordering::SeqCst);
                if self.state().is_shutting_down() {
                    self.nudge();
                }
            }
            // The group's own one, too: the loop has ended. Only wakers may keep it.
            1 => self.termination.abandon(),
            _ => {}
        }
    }

    pub(crate) fn report_panic(
        &self,
        site: PanicSite,
        payload: &(dyn std::any::Any + Send),
        location: Option<&'static Location<'static>>,
    ) {
        Shared::report_panic_of(Some(self), site, payload, location);
    }

    /// Reports a panic that nobody can join, of a loop or of no loop.
    #[cold]
    pub(crate) fn report_panic_of(
        shared: Option<&Shared>,
        site: PanicSite,
        payload: &(dyn std::any::Any + Send),
        location: Option<&'static Location<'static>>,
    ) {
        let panic = TaskPanic {
            site,
            payload,
            location,
            index: shared.map(|shared| shared.index),
        };
        let handler = shared.and_then(|shared| shared.config.on_panic.as_deref());
        report(handler, &panic);
    }

    /// Wakes who waits for the start of the shutdown.
    pub(crate) fn announce_shutdown(&self) {
        // The state says so by now, and whoever comes later looks at that under this lock.
        let wakers = self.shutdown_waiters.lock().fire();
        self.wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }

    /// Wakes everybody: tasks of ours and of others, whose wakers may panic.
    pub(crate) fn wake_all(&self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            if let Err(payload) = contain(|| waker.wake()) {
                self.report_panic(PanicSite::Waker, &*payload, None);
                discard(payload);
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("index", &self.index)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
