//! The services of a server, one per worker loop.
//!
//! - A service is made by the first connection of its loop, and shared by all connections there.
//! - It lives on its loop, and is dropped there ([`spares`](crate::event_loop::spares)): after the server's
//!   last connection, when the loop ends, or when it parks; the next connection makes another one.
//! - A factory that panics fails the connection that called it; the next connection of that loop calls it
//!   again.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::event_loop::handle::EventLoop;
use crate::event_loop::spares::{Spare, Spares};

/// The factory, and what it has made.
pub(super) struct Services<N, S> {
    factory: N,
    made: Spares<S>,
}

/// A service that is used: by its own connection, or by all those of its loop.
pub(super) enum ServiceRef<S> {
    Own(Rc<S>),
    OfLoop(Rc<Spare<S>>),
}

impl<N, S> Services<N, S>
where
    N: Fn(&EventLoop) -> S,
    S: 'static,
{
    pub(super) fn new(factory: N, loops: &[EventLoop]) -> Services<N, S> {
        Services {
            factory,
            made: Spares::new(loops),
        }
    }

    /// Returns the service of the current loop.
    pub(super) fn here(&self) -> ServiceRef<S> {
        let service = self.made.here(|here| Some((self.factory)(here)));
        ServiceRef::OfLoop(service.expect("a handler runs on a worker loop, which has not ended"))
    }
}

impl<S> Clone for ServiceRef<S> {
    fn clone(&self) -> ServiceRef<S> {
        match self {
            ServiceRef::Own(service) => ServiceRef::Own(Rc::clone(service)),
            ServiceRef::OfLoop(service) => ServiceRef::OfLoop(Rc::clone(service)),
        }
    }
}

impl<S> fmt::Debug for ServiceRef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceRef").finish_non_exhaustive()
    }
}

impl<S> Deref for ServiceRef<S> {
    type Target = S;

    fn deref(&self) -> &S {
        match self {
            ServiceRef::Own(service) => service,
            ServiceRef::OfLoop(service) => service,
        }
    }
}
