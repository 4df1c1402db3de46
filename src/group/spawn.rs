//! Submissions to a group: to the loop that the chooser picks, or to another one if that loop
//! closes meanwhile.
//!
//! - Between the choice and the push a loop may close its gate. Then the other loops that accept
//!   are asked in order, each once. A submission that one of them accepts was not rejected: it is
//!   counted as one attempt.
//! - A full queue, or a thread that cannot be started, is a rejection. Only a connection, which is
//!   accepted already, is offered to every loop in turn.

use std::future::Future;

use crate::error::{Caller, RejectReason, Rejected};
use crate::event_loop::enqueue::Admission;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::group::core::GroupCore;
use crate::panic::PanicSite;
use crate::task::join::JoinHandle;
use crate::task::origin::Origin;
use crate::task::stand_in::StandIn;

impl GroupCore {
    /// Spawns a future on the next loop.
    pub(crate) fn spawn<F>(
        &self,
        future: F,
        origin: impl Origin + Clone + Send + 'static,
    ) -> Result<JoinHandle<F::Output>, Refused<'_, F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.offer(future, origin.location(), is_closed, |one, future| {
            let (lane, urgency) = (Lane::Main, Urgency::Now);
            one.offer(future, |future| future, lane, urgency, origin.clone())
        })
    }

    /// Spawns a future without a handle on the next loop.
    pub(crate) fn spawn_detached<F>(
        &self,
        future: F,
        origin: impl Origin + Clone + Send + 'static,
    ) -> Result<(), Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.offer(future, origin.location(), is_closed, |one, future| {
            one.offer_detached(future, origin.clone())
        })
        .map_err(Refused::into_rejected)
    }

    /// Makes a future on the next loop, and runs it there.
    pub(crate) fn spawn_with<I, F>(
        &self,
        init: I,
        origin: impl Origin + Clone + Send + 'static,
    ) -> Result<JoinHandle<F::Output>, Refused<'_, I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        self.offer(init, origin.location(), is_closed, |one, init| {
            let (lane, urgency) = (Lane::Main, Urgency::Now);
            one.offer(init, StandIn::new, lane, urgency, origin.clone())
        })
    }

    /// Starts a connection's task on the next loop, or on another one that accepts it.
    pub(crate) fn start_connection<I, F>(
        &self,
        init: I,
        location: Caller,
    ) -> Result<(), Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let started = self.offer(
            init,
            location,
            |_| true,
            |one, init| one.offer_local(init, Admission::New, location),
        );
        started.map_err(Refused::into_rejected)
    }

    /// Offers a value to the next loop, and to the other open ones if `again` says so of the rejection.
    fn offer<V, R>(
        &self,
        value: V,
        location: Caller,
        again: fn(RejectReason) -> bool,
        offer: impl Fn(&EventLoop, V) -> Result<R, Rejected<V>>,
    ) -> Result<R, Refused<'_, V>> {
        let next = self.next();
        let mut refused = match offer(next, value) {
            Ok(accepted) => return Ok(accepted),
            Err(refused) => refused,
        };
        if again(refused.reason()) {
            let (before, from) = self.loops.split_at(next.index());
            let loops = from.iter().chain(before);
            let is_open = |one: &&EventLoop| !one.state().is_shutdown();
            // As `next` does: a paused loop only if all are.
            let all_paused = loops.clone().filter(is_open).all(EventLoop::is_paused);
            let may_take = |one: &&EventLoop| is_open(one) && (all_paused || !one.is_paused());
            for one in loops.skip(1).filter(may_take) {
                refused = match offer(one, refused.into_inner()) {
                    Ok(accepted) => return Ok(accepted),
                    Err(refused) => refused,
                };
            }
        }
        next.shared().note_refusal(refused.reason(), location);
        Err(Refused {
            by: next,
            rejected: refused,
            location,
        })
    }
}

/// Whether another loop may accept what this one has rejected: only its gate was closed.
fn is_closed(reason: RejectReason) -> bool {
    reason == RejectReason::ShutDown
}

/// A value that no loop has accepted, and the loop that was chosen for it.
pub(crate) struct Refused<'a, V> {
    by: &'a EventLoop,
    rejected: Rejected<V>,
    location: Caller,
}

impl<V> Refused<'_, V> {
    /// Hands the value back.
    pub(crate) fn into_rejected(self) -> Rejected<V> {
        self.rejected
    }

    /// Drops the value; the handle carries the reason.
    #[cold]
    pub(crate) fn into_handle<T: 'static>(self) -> JoinHandle<T> {
        let reason = self.rejected.reason();
        let panics = &self.by.shared().panics;
        panics.drop(PanicSite::Destructor, Some(self.location), self.rejected);
        JoinHandle::refused(reason)
    }
}
