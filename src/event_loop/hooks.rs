//! The shutdown hooks of one loop: a list owned by its [`Life`](super::lifecycle::Life).
//!
//! - Hooks run in the order of their registration, once each, on the loop.
//! - A hook may add hooks, and remove any that has not begun: they leave the list one by one.
//! - Whether the list accepts more hooks depends on the phase of the loop; every hook that was
//!   accepted and not removed runs, whatever ends the loop.

use std::collections::VecDeque;

use crate::error::Caller;
use crate::sync::{Ordering, plain};

/// Counts the hooks of all loops: an id identifies one hook, and nothing on another loop.
static NEXT: plain::AtomicU64 = plain::AtomicU64::new(0);

/// Identifies a shutdown hook, to remove it again.
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
    /// Greater than the id of any hook.
    pub(crate) const END: HookId = HookId(u64::MAX);
}

/// A hook, and the source location that added it.
pub(crate) struct Hook {
    pub(crate) call: Box<dyn FnOnce() + Send>,
    pub(crate) location: Caller,
}

/// The list of hooks.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Hooks that have not begun, in the order of their ids.
    waiting: VecDeque<(HookId, Hook)>,
    /// Whether the loop is running a hook.
    running: bool,
}

impl Hooks {
    pub(crate) fn add(&mut self, hook: Hook) -> HookId {
        let id = HookId(NEXT.fetch_add(1, Ordering::Relaxed));
        self.waiting.push_back((id, hook));
        id
    }

    /// Removes a hook; dropping it is user code and left to the caller.
    pub(crate) fn remove(&mut self, id: HookId) -> Option<Hook> {
        let index = self.waiting.iter().position(|(other, _)| *other == id)?;
        self.waiting.remove(index).map(|(_, hook)| hook)
    }

    /// An id greater than those of all hooks that wait now.
    pub(crate) fn fence(&self) -> HookId {
        HookId(NEXT.load(Ordering::Relaxed))
    }

    /// Removes the first hook in order to run it, if it was added before `fence`; the previous one
    /// has ended.
    pub(crate) fn pop(&mut self, fence: HookId) -> Option<Hook> {
        let first = self.waiting.front().filter(|(id, _)| id.0 < fence.0);
        self.running = first.is_some();
        if !self.running {
            return None;
        }
        self.waiting.pop_front().map(|(_, hook)| hook)
    }

    /// Records that the running hook has ended and the next one waits.
    pub(crate) fn rest(&mut self) {
        self.running = false;
    }

    /// Removes all hooks; none of them will run.
    pub(crate) fn take_all(&mut self) -> Vec<Hook> {
        self.waiting.drain(..).map(|(_, hook)| hook).collect()
    }

    /// How many hooks wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no hook waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no hook waits and none runs.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && !self.running
    }
}
