//! Where a worker loop finds its handler: one for all loops, or one made on each loop.
//!
//! - A handler of a loop is made when the loop's first connection arrives, lives in the loop's arena, and is
//!   called through an `Rc` that is cloned for the call: no borrow is held while it runs.
//! - It is dropped on its loop: when the server ends, by a message to the loop; when the loop ends, with the
//!   loop's other values, before its termination is announced. Each handler holds the
//!   [`Lifetime`] of its server, so the server has not ended before.
//! - A factory is called once per loop. If it fails or panics, that loop has no handler for ever; the caller
//!   passes its connections to other loops.

use std::fmt;
use std::io;
use std::panic::Location;
use std::rc::Rc;

use crate::event_loop::arena::{ArenaKey, Visit};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Message, Shared};
use crate::net::server::hooks::ServerHooks;
use crate::net::server::outcome::ErrorRef;
use crate::net::server::state::{Lifetime, ServerState};
use crate::panic::PanicSite;
use crate::sync::{Arc, Mutex, Ordering, Weak};
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
    Local(Rc<LoopHandler<H>>),
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
    /// By the index of the loop.
    slots: Box<[LoopSlot]>,
    lifetime: Arc<Lifetime>,
    hooks: ServerHooks,
    /// Where the server was started.
    location: &'static Location<'static>,
}

struct LoopSlot {
    home: Weak<Shared>,
    state: Mutex<SlotState>,
}

#[derive(Clone, Copy)]
enum SlotState {
    Empty,
    /// The factory is running, on the loop.
    Making,
    Made(ArenaKey),
    Failed,
}

/// A handler in the arena of its loop.
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
        let slot = |one: &EventLoop| LoopSlot {
            home: Arc::downgrade(one.shared()),
            state: Mutex::new(SlotState::Empty),
        };
        LoopHandlers {
            factory: Some(factory),
            slots: loops.iter().map(slot).collect(),
            lifetime,
            hooks,
            location,
        }
    }

    fn make(&self, local: &Rc<Local>) -> Option<Rc<LoopHandler<H>>> {
        let factory = self.factory.as_ref().expect("taken only by the drop");
        let here = EventLoop::new(&local.shared);
        let handler = match contain(|| factory(&here)) {
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
                local.shared.panics.report(site, payload, location);
                return None;
            }
        };
        Some(Rc::new(LoopHandler {
            handler: Some(handler),
            location: self.location,
            _lifetime: Arc::clone(&self.lifetime),
        }))
    }

    fn note_failure(&self) {
        let state: &ServerState = &self.lifetime.0;
        state.failed_loops.fetch_add(1, Ordering::Release);
    }
}

impl<H: 'static> Handlers for LoopHandlers<H> {
    type Handler = H;

    fn here(&self) -> Option<HandlerRef<'_, H>> {
        let local = context::current()?;
        let slot = self.slots.get(local.shared.index)?;
        let mut state = slot.state.lock();
        match *state {
            SlotState::Making | SlotState::Failed => return None,
            SlotState::Made(key) => {
                drop(state);
                return find(&local, key).map(HandlerRef::Local);
            }
            // A destructor at the end of the loop: a handler made now would not be dropped on it.
            SlotState::Empty if local.shared.is_sealed() => return None,
            SlotState::Empty => *state = SlotState::Making,
        }
        drop(state);
        let made = self.make(&local);
        let key = made.as_ref().map(|made| {
            let value = Box::new(Rc::clone(made));
            local.arena.borrow_mut().insert(value)
        });
        *slot.state.lock() = key.map_or(SlotState::Failed, SlotState::Made);
        made.map(HandlerRef::Local)
    }

    fn may_serve(&self, index: usize) -> bool {
        let slot = self.slots.get(index);
        slot.is_some_and(|slot| !matches!(*slot.state.lock(), SlotState::Failed))
    }
}

/// Returns the handler with this key, unless the loop has dropped it.
fn find<H: 'static>(local: &Local, key: ArenaKey) -> Option<Rc<LoopHandler<H>>> {
    let mut arena = local.arena.borrow_mut();
    let Visit::Value(value) = arena.take(key) else {
        return None;
    };
    let handler = value.downcast_ref::<Rc<LoopHandler<H>>>().cloned();
    let orphan = arena.give_back(key, value);
    debug_assert!(orphan.is_none(), "nothing was removed in between");
    handler
}

impl<H> Drop for LoopHandlers<H> {
    fn drop(&mut self) {
        let (site, location) = (PanicSite::Destructor, Some(self.location));
        context::panics_in_drop().drop(site, location, self.factory.take());
        for slot in &mut self.slots {
            if let (SlotState::Made(key), Some(home)) = (*slot.state.get_mut(), slot.home.upgrade())
            {
                // A loop that has ended has already dropped it.
                home.post(Message::Unbind(key));
            }
        }
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
