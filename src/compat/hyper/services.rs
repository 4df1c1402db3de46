//! The services of a server, one per worker loop.
//!
//! - A service is made by the first connection of its loop, and shared by all connections there.
//! - It lives on its loop: it is dropped there after the server's last connection, or when the loop ends.
//! - A factory that panics fails the connection that called it; the next connection of that loop calls it
//!   again.

use std::rc::Rc;

use crate::event_loop::bound::LoopBound;
use crate::event_loop::handle::EventLoop;
use crate::sync::Mutex;

/// The factory, and what it has made.
pub(super) struct Services<N, S> {
    factory: N,
    /// By the index of the loop. The value is `None` until the factory has returned.
    slots: Mutex<Vec<Option<ServiceSlot<S>>>>,
}

type ServiceSlot<S> = LoopBound<Option<Rc<S>>>;

impl<N, S> Services<N, S>
where
    N: Fn(&EventLoop) -> S,
    S: 'static,
{
    pub(super) fn new(factory: N) -> Services<N, S> {
        Services {
            factory,
            slots: Mutex::new(Vec::new()),
        }
    }

    /// Returns the service of the current loop.
    pub(super) fn here(&self) -> Rc<S> {
        let here = EventLoop::current().expect("a handler runs on a worker loop");
        let slot = self.slot(&here);
        if let Some(service) = slot.with_local(|service| service.clone()) {
            return service;
        }
        // User code: no visit is under way, and no lock held.
        let made = Rc::new((self.factory)(&here));
        slot.with_local(|service| *service = Some(Rc::clone(&made)));
        made
    }

    fn slot(&self, here: &EventLoop) -> ServiceSlot<S> {
        let index = here.index();
        let mut slots = self.slots.lock();
        if slots.len() <= index {
            slots.resize_with(index + 1, || None);
        }
        if let Some(slot) = &slots[index] {
            return slot.clone();
        }
        drop(slots);
        // Only connections of this loop use this entry, and they run one after the other.
        let slot = here.bind(|| None);
        self.slots.lock()[index] = Some(slot.clone());
        slot
    }
}
