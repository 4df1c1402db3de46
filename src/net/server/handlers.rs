//! Where a worker loop finds its handler: one for all loops, or one made on each loop.
//!
//! - A handler of a loop is made when the loop's first connection arrives, and called through an `Rc` that is
//!   cloned for the call: no borrow is held while it runs.
//! - It is dropped on its loop ([`spares`](crate::event_loop::spares)): when the server ends, when the loop
//!   ends, before its termination is announced, and when the loop parks. Each handler holds the [`Lifetime`]
//!   of its server, so the server has not ended before.
//! - A factory is called once per loop, and again after the loop has parked. If it fails or panics, that loop
//!   has no handler for ever; the caller passes its connections to other loops.

use std::fmt;
use std::io;
use std::panic::Location;
use std::rc::Rc;

use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::spares::{Spare, Spares};
use crate::net::server::hooks::ServerHooks;
use crate::net::server::outcome::ErrorRef;
use crate::net::server::state::{Lifetime, ServerState};
use crate::panic::PanicSite;
use crate::sync::{Arc, Ordering};
use crate::unwind::contain;

/// The handlers of a server.
pub(super) trait Handlers: Send + Sync + 'static {
    type Handler: 'static;

    /// Returns the handler of this thread's loop; `None` if it has none.
    fn here(&self) -> Option<HandlerRef<'_, Self::Handler>>;

    /// Whether the loop of this index may have a handler.
    fn may_serve(&self, index: usize) -> bool;
}

/// A handler, for one call.
pub(super) enum HandlerRef<'a, H> {
    Shared(&'a H),
    Local(Rc<Spare<LoopHandler<H>>>),
}

impl<H> HandlerRef<'_, H> {
    pub(super) fn get(&self) -> &H {
        match self {
            HandlerRef::Shared(handler) => handler,
            HandlerRef::Local(local) => local.handler.as_ref().expect("present until the drop"),
        }
    }
}

/// One handler for all loops.
pub(super) struct SharedHandler<H>(pub(super) H);

impl<H: Send + Sync + 'static> Handlers for SharedHandler<H> {
    type Handler = H;

    fn here(&self) -> Option<HandlerRef<'_, H>> {
        Some(HandlerRef::Shared(&self.0))
    }

    fn may_serve(&self, _index: usize) -> bool {
        true
    }
}

type Factory<H> = dyn Fn(&EventLoop) -> io::Result<H> + Send + Sync;

/// A handler for each loop.
pub(super) struct LoopHandlers<H> {
    /// `None` only during the drop.
    factory: Option<Box<Factory<H>>>,
    handlers: Spares<LoopHandler<H>>,
    lifetime: Arc<Lifetime>,
    hooks: ServerHooks,
    /// Where the server was started.
    location: &'static Location<'static>,
}

/// A handler of one loop.
pub(super) struct LoopHandler<H> {
    /// `None` only during the drop.
    handler: Option<H>,
    location: &'static Location<'static>,
    /// Dropped after the handler.
    _lifetime: Arc<Lifetime>,
}

impl<H: 'static> LoopHandlers<H> {
    pub(super) fn new(
        factory: Box<Factory<H>>,
        loops: &[EventLoop],
        lifetime: Arc<Lifetime>,
        hooks: ServerHooks,
        location: &'static Location<'static>,
    ) -> LoopHandlers<H> {
        LoopHandlers {
            factory: Some(factory),
            handlers: Spares::new(loops),
            lifetime,
            hooks,
            location,
        }
    }

    fn make(&self, here: &EventLoop) -> Option<LoopHandler<H>> {
        let factory = self.factory.as_ref().expect("taken only by the drop");
        let handler = match contain(|| factory(here)) {
            Ok(Ok(handler)) => handler,
            Ok(Err(error)) => {
                self.note_failure();
                let error = ErrorRef {
                    text: &error,
                    value: &error,
                };
                self.hooks.error(None, error);
                return None;
            }
            Err(payload) => {
                self.note_failure();
                let (site, location) = (PanicSite::Server, Some(self.location));
                here.shared().panics.report(site, payload, location);
                return None;
            }
        };
        Some(LoopHandler {
            handler: Some(handler),
            location: self.location,
            _lifetime: Arc::clone(&self.lifetime),
        })
    }

    fn note_failure(&self) {
        let state: &ServerState = &self.lifetime.0;
        state.failed_loops.fetch_add(1, Ordering::Release);
    }
}

impl<H: 'static> Handlers for LoopHandlers<H> {
    type Handler = H;

    fn here(&self) -> Option<HandlerRef<'_, H>> {
        let handler = self.handlers.here(|here| self.make(here));
        handler.map(HandlerRef::Local)
    }

    fn may_serve(&self, index: usize) -> bool {
        self.handlers.may_be_at(index)
    }
}

impl<H> Drop for LoopHandlers<H> {
    fn drop(&mut self) {
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics_in_drop().drop(site, location, self.factory.take());
    }
}

impl<H> Drop for LoopHandler<H> {
    fn drop(&mut self) {
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics_in_drop().drop(site, location, self.handler.take());
    }
}

impl<H> fmt::Debug for LoopHandler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopHandler").finish_non_exhaustive()
    }
}
