//! How work comes to a group: to the loop that the chooser picks, or to another one if that closes meanwhile.
//!
//! - Between the choice and the push a loop may close its gate. Then the others that accept are asked, in order, each
//!   once. What one of them takes was not refused: the books know of one attempt.
//! - A full queue, or a thread that cannot be started, is a refusal: the chooser has chosen. Only a connection, which
//!   is accepted already and waits in somebody's hands, is offered to every loop in turn.

use std::future::Future;
use std::panic::Location;

use crate::error::{RejectReason, Rejected};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::group::core::GroupCore;
use crate::panic::PanicSite;
use crate::task::join::JoinHandle;
use crate::task::stand_in::StandIn;

impl GroupCore {
    #[track_caller]
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        if let [only] = &*self.loops {
            return only.spawn(future);
        }
        let location = Location::caller();
        refused_in_the_handle(
            self.spawn_wrapped(future, |future| future, location),
            location,
        )
    }

    #[track_caller]
    pub(crate) fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let spawned = self.spawn_wrapped(future, |future| future, Location::caller());
        spawned.map_err(|(_, rejected)| rejected)
    }

    #[track_caller]
    pub(crate) fn spawn_with<I, F>(&self, init: I) -> JoinHandle<F::Output>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let location = Location::caller();
        refused_in_the_handle(self.spawn_wrapped(init, StandIn::new, location), location)
    }

    /// Spawns what `wrap` makes of a value; hands it back with the loop that has refused it.
    fn spawn_wrapped<V, F>(
        &self,
        value: V,
        wrap: impl Fn(V) -> F,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, (&EventLoop, Rejected<V>)>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let chosen = self.next();
        let refused = match chosen.offer(value, &wrap, Lane::Main, Urgency::Now, location) {
            Ok(handle) => return Ok(handle),
            Err(refused) => refused,
        };
        let refused = match refused.reason() {
            RejectReason::ShutDown => {
                match self.offer_to_others(chosen, refused, &wrap, location) {
                    Ok(handle) => return Ok(handle),
                    Err(refused) => refused,
                }
            }
            _ => refused,
        };
        chosen.shared().note_refusal(refused.reason(), location);
        Err((chosen, refused))
    }

    #[cold]
    fn offer_to_others<V, F>(
        &self,
        chosen: &EventLoop,
        mut refused: Rejected<V>,
        wrap: &impl Fn(V) -> F,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, Rejected<V>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        for one in self.others_than(chosen) {
            let value = refused.into_inner();
            match one.offer(value, wrap, Lane::Main, Urgency::Now, location) {
                Ok(handle) => return Ok(handle),
                Err(again) => refused = again,
            }
        }
        Err(refused)
    }
}

impl GroupCore {
    /// Starts a connection's task on the chosen loop, or on the next one that takes it; hands it back if none does.
    pub(crate) fn start<I, F>(
        &self,
        init: I,
        location: &'static Location<'static>,
    ) -> Result<(), Rejected<I>>
    where
        I: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let chosen = self.next();
        let mut refused = match chosen.offer_local(init, location) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        for one in self.others_than(chosen) {
            refused = match one.offer_local(refused.into_inner(), location) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
        }
        chosen.shared().note_refusal(refused.reason(), location);
        Err(refused)
    }

    /// The other loops that accept, beginning behind that one.
    fn others_than(&self, chosen: &EventLoop) -> impl Iterator<Item = &EventLoop> {
        let (before, from) = self.loops.split_at(chosen.index());
        let others = from.iter().chain(before).skip(1);
        others.filter(|one| !one.state().is_shutdown())
    }
}

/// Drops what was refused; the handle tells why.
fn refused_in_the_handle<T, V>(
    spawned: Result<JoinHandle<T>, (&EventLoop, Rejected<V>)>,
    location: &'static Location<'static>,
) -> JoinHandle<T> {
    spawned.unwrap_or_else(|(by, rejected)| {
        let reason = rejected.reason();
        let (site, location) = (PanicSite::Destructor, Some(location));
        by.shared()
            .panics
            .drop(site, location, rejected.into_inner());
        JoinHandle::refused(reason)
    })
}
