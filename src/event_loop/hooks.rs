//! The shutdown hooks of one loop.
//!
//! - Hooks run in the order of their registration, once each, on the loop.
//! - A hook may add hooks, and remove any that has not begun: they leave the list one by one.
//! - Nothing is added to a closed list, and who closes it runs what is left: every hook that was
//!   accepted and not removed runs, whatever ends the loop.

use std::collections::VecDeque;
use std::panic::Location;

use crate::sync::{Mutex, Ordering, plain};

/// Counts the hooks of all loops: an id means one hook, and nothing to another loop.
static NEXT: plain::AtomicU64 = plain::AtomicU64::new(0);

/// Names a shutdown hook, to remove it again.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
///
/// let group = EventLoopGroup::new(1)?;
/// let ev = group.next();
/// let one = ev.add_shutdown_hook(|| println!("never")).unwrap();
/// let other = ev.add_shutdown_hook(|| println!("at the end")).unwrap();
/// assert_ne!(one, other);
/// assert!(ev.remove_shutdown_hook(one));
/// assert_eq!(group.shutdown_now().wait().hooks_run(), 1);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId(u64);

impl HookId {
    /// Behind every hook.
    pub(crate) const END: HookId = HookId(u64::MAX);
}

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
    /// In the order of their ids.
    waiting: VecDeque<(HookId, Hook)>,
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
        let id = HookId(NEXT.fetch_add(1, Ordering::Relaxed));
        let call = Box::new(hook);
        list.waiting.push_back((id, Hook { call, location }));
        Ok(id)
    }

    /// Takes a hook out; dropping it is user code and left to the caller.
    pub(crate) fn remove(&self, id: HookId) -> Option<Hook> {
        let mut list = self.0.lock();
        let place = list.waiting.iter().position(|(other, _)| *other == id)?;
        list.waiting.remove(place).map(|(_, hook)| hook)
    }

    /// The place behind the hooks that wait now.
    pub(crate) fn fence(&self) -> HookId {
        // Under the lock, so that what is in the list is below it.
        let _list = self.0.lock();
        HookId(NEXT.load(Ordering::Relaxed))
    }

    /// Takes the first hook, if it was added before `fence`.
    pub(crate) fn pop(&self, fence: HookId) -> Option<Hook> {
        let mut list = self.0.lock();
        let (id, _) = list.waiting.front()?;
        if id.0 >= fence.0 {
            return None;
        }
        list.waiting.pop_front().map(|(_, hook)| hook)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().waiting.is_empty()
    }

    /// Refuses more.
    pub(crate) fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Refuses more, if nothing waits.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut list = self.0.lock();
        list.closed |= list.waiting.is_empty();
        list.closed
    }
}
