//! The shutdown hooks of one loop.
//!
//! - Hooks run in the order of their registration, once each, on the loop.
//! - A hook may add hooks. Who closes the list takes what is left in the same critical section, so
//!   every hook that was accepted runs, whatever ends the loop.

use std::panic::Location;

use crate::sync::Mutex;

/// Names a shutdown hook, to remove it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

/// A hook, and where it was added.
pub(crate) struct Hook {
    pub(crate) call: Box<dyn FnOnce() + Send>,
    pub(crate) location: &'static Location<'static>,
}

/// The list of hooks.
#[derive(Default)]
pub(crate) struct Hooks(Mutex<List>);

#[derive(Default)]
struct List {
    waiting: Vec<(HookId, Hook)>,
    next: u64,
    closed: bool,
}

impl Hooks {
    /// Adds a hook, or hands it back if the list is closed.
    pub(crate) fn add<F>(&self, hook: F, location: &'static Location<'static>) -> Result<HookId, F>
    where
        F: FnOnce() + Send + 'static,
    {
        let mut list = self.0.lock();
        if list.closed {
            return Err(hook);
        }
        let id = HookId(list.next);
        list.next += 1;
        let call = Box::new(hook);
        list.waiting.push((id, Hook { call, location }));
        Ok(id)
    }

    /// Takes a hook out; dropping it is user code and left to the caller.
    pub(crate) fn remove(&self, id: HookId) -> Option<Hook> {
        let mut list = self.0.lock();
        let place = list.waiting.iter().position(|(other, _)| *other == id)?;
        Some(list.waiting.remove(place).1)
    }

    /// Takes the hooks that wait now.
    pub(crate) fn take(&self) -> Vec<Hook> {
        self.0.lock().take()
    }

    /// Takes what is left and refuses more.
    pub(crate) fn close(&self) -> Vec<Hook> {
        let mut list = self.0.lock();
        list.closed = true;
        list.take()
    }

    /// Refuses more, if nothing waits.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut list = self.0.lock();
        list.closed |= list.waiting.is_empty();
        list.closed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }
}

impl List {
    fn take(&mut self) -> Vec<Hook> {
        self.waiting.drain(..).map(|(_, hook)| hook).collect()
    }
}
