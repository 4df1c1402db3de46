//! How a loop accepts a task.
//!
//! A submission passes four checks in this order: the thread is started, there is a place below the
//! bound, the gate is open, the task is queued. [`Shared::enqueue`] passes all of them or none: a
//! place that was taken is released when a later check refuses.

use crate::error::{Caller, RejectReason, Rejected};
use crate::event_loop::closures::{Errand, join};
use crate::event_loop::context;
use crate::event_loop::counters::PendingLimit;
use crate::event_loop::inbox::{Lane, RunPlaces, Urgency};
use crate::event_loop::runs::Run;
use crate::event_loop::shared::{Message, Runnable, Shared};
use crate::sync::Arc;

/// A task that is about to be queued on another loop.
fn recorded(runnable: Runnable) -> Runnable {
    context::record_spawn(runnable.metadata().id_halves());
    runnable
}

/// What the bound of a loop applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// New work.
    New,
    /// Work that the loop has had before: it is taken back above the bound, too.
    Back,
}

/// Puts a closure behind the last run, or returns a new one.
type JoinRun<'a> = dyn FnMut(RunPlaces<'_, Box<dyn Run>>) -> Option<Box<dyn Run>> + 'a;

impl Shared {
    /// Whether tasks are neither bounded nor listed, and take the shortest way.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.place.counters.limit.is_set()
    }

    /// Makes a task and queues it, or does not even make it.
    pub(crate) fn enqueue(
        self: &Arc<Shared>,
        lane: Lane,
        urgency: Urgency,
        make: impl FnOnce() -> Runnable,
    ) -> Result<(), RejectReason> {
        self.ensure_started()?;
        let place = self.take_place()?;
        self.push(place, lane, urgency, make)
    }

    /// As [`Shared::enqueue`], if the loop is [plain](Shared::is_plain).
    #[inline]
    pub(crate) fn enqueue_plain(
        self: &Arc<Shared>,
        lane: Lane,
        urgency: Urgency,
        make: impl FnOnce() -> Runnable,
    ) -> Result<(), RejectReason> {
        self.ensure_started()?;
        self.push(None, lane, urgency, make)
    }

    /// Makes a task and queues it if the gate is open.
    #[inline(always)]
    fn push(
        self: &Arc<Shared>,
        place: Option<&PendingLimit>,
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
            None => match self.inbox.push_new_with(lane, urgency, || recorded(make())) {
                Some(ring) => {
                    self.ring_if_needed(ring);
                    true
                }
                None => false,
            },
        };
        self.settle(place, accepted)
    }

    /// Queues a closure, or hands it back.
    pub(crate) fn enqueue_errand<E: Errand>(
        self: &Arc<Shared>,
        errand: E,
        urgency: Urgency,
        location: Caller,
    ) -> Result<(), Rejected<E>> {
        if !self.is_plain() {
            return self.enqueue_errand_bounded(errand, urgency, location);
        }
        let mut errand = Some(errand);
        let queued = self
            .ensure_started()
            .and_then(|()| self.push_errand(&mut errand, urgency, location));
        queued.map_err(|reason| refused(errand, reason))
    }

    /// As [`Shared::enqueue_errand`], for a loop that has a bound or lists its tasks.
    #[cold]
    #[inline(never)]
    fn enqueue_errand_bounded<E: Errand>(
        self: &Arc<Shared>,
        errand: E,
        urgency: Urgency,
        location: Caller,
    ) -> Result<(), Rejected<E>> {
        let mut errand = Some(errand);
        let place = self.ensure_started().and_then(|()| self.take_place());
        let queued = place.and_then(|place| {
            if E::IS_TASK && self.tracker.is_some() {
                // It is listed from now on, so it is a task from now on.
                return self.push(place, Lane::Main, urgency, || {
                    let errand = errand.take().expect("an errand is queued once");
                    errand.into_task(self)
                });
            }
            let mut join = |places: RunPlaces<'_, _>| join(places, &mut errand, location);
            self.push_run(place, urgency, &mut join)
        });
        queued.map_err(|reason| refused(errand, reason))
    }

    /// As [`Shared::push_errand`], for a loop that is not plain; see [`RunQueue::push_closure`] for `join`.
    ///
    /// [`RunQueue::push_closure`]: crate::event_loop::run_queue::RunQueue::push_closure
    fn push_run(
        self: &Arc<Shared>,
        place: Option<&PendingLimit>,
        urgency: Urgency,
        join: &mut JoinRun<'_>,
    ) -> Result<(), RejectReason> {
        let at_home = context::with_home(self, |local| {
            self.is_open().then(|| local.push_closure(&mut *join))
        });
        let accepted = match at_home {
            Some(accepted) => accepted.is_some(),
            None => match self.inbox.push_run_with(urgency, join) {
                Some(ring) => {
                    self.ring_if_needed(ring);
                    true
                }
                None => false,
            },
        };
        self.settle(place, accepted)
    }

    /// Queues a closure if the gate is open; takes it out of its place only then.
    #[inline]
    fn push_errand<E: Errand>(
        self: &Arc<Shared>,
        errand: &mut Option<E>,
        urgency: Urgency,
        location: Caller,
    ) -> Result<(), RejectReason> {
        let at_home = context::with_home(self, |local| {
            let join = |places: RunPlaces<'_, _>| join(places, errand, location);
            self.is_open().then(|| local.push_closure(join))
        });
        let accepted = match at_home {
            Some(accepted) => accepted.is_some(),
            None => {
                let join = |places: RunPlaces<'_, _>| join(places, errand, location);
                match self.inbox.push_run_with(urgency, join) {
                    Some(ring) => {
                        self.ring_if_needed(ring);
                        true
                    }
                    None => false,
                }
            }
        };
        self.settle(None, accepted)
    }

    /// Queues a task that is made already; a refused one is dropped here, uncounted.
    pub(crate) fn enqueue_made(
        self: &Arc<Shared>,
        runnable: Runnable,
        lane: Lane,
        urgency: Urgency,
    ) -> Result<(), RejectReason> {
        let mut runnable = Some(runnable);
        let mut take = || runnable.take().expect("the task is queued once");
        let queued = self.enqueue(lane, urgency, &mut take);
        if let Some(refused) = runnable {
            context::drop_refused(self, refused);
        }
        queued
    }

    /// Has a task made on the loop, which need not be `Send`, or does not even send for it.
    pub(crate) fn enqueue_local<M>(
        self: &Arc<Shared>,
        admission: Admission,
        make: impl FnOnce() -> M,
    ) -> Result<(), RejectReason>
    where
        M: FnOnce(&Arc<Shared>) -> Runnable + Send + 'static,
    {
        self.ensure_started()?;
        let limit = &self.place.counters.limit;
        let place = match admission {
            Admission::Back if limit.is_set() => {
                limit.acquire_anyway();
                Some(limit)
            }
            _ => self.take_place()?,
        };
        if context::is_home(self) {
            return self.push(place, Lane::Main, Urgency::Now, || make()(self));
        }
        let message = || Message::Make(Box::new(make()));
        let accepted = match self.inbox.post_new_with(message) {
            Some(ring) => {
                self.ring_if_needed(ring);
                true
            }
            None => false,
        };
        self.settle(place, accepted)
    }

    /// Takes a place below the bound; asks the reject policy when there is none.
    fn take_place(self: &Arc<Shared>) -> Result<Option<&PendingLimit>, RejectReason> {
        let bound = &self.place.counters.limit;
        if !bound.is_set() {
            return Ok(None);
        }
        let mut attempt = 0_u32;
        while !bound.try_acquire() {
            if self.state().is_shutdown() {
                return Err(RejectReason::ShutDown);
            }
            // The queue may be full of lazy closures, for which no producer has rung.
            self.ring_if_needed(self.inbox.hurry());
            attempt = attempt.saturating_add(1);
            if !self.parent.may_retry(self, attempt) {
                return Err(RejectReason::QueueFull);
            }
        }
        Ok(Some(bound))
    }

    /// Ends a submission: the place of an accepted task is released when the task begins.
    #[inline]
    fn settle(&self, place: Option<&PendingLimit>, accepted: bool) -> Result<(), RejectReason> {
        if accepted {
            return Ok(());
        }
        if let Some(bound) = place {
            bound.release();
        }
        Err(self.inbox.lock().gate().refusal())
    }
}

/// Hands back a closure that was not queued.
fn refused<E>(errand: Option<E>, reason: RejectReason) -> Rejected<E> {
    let errand = errand.expect("a refused closure was not queued");
    Rejected::new(errand, reason)
}
