//! The table of live tasks of one loop.
//!
//! - An entry exists ⇔ the task has returned `Pending` once and its future is not dropped yet.
//!   (Before that the task is in a queue of the loop, where the shutdown finds it as well.)
//! - It holds the task's own waker: waking it brings the task into the loop's hands, which is how a
//!   shutdown gets hold of tasks that wait for something outside.
//! - Loop thread only; never borrowed while anything of the user's runs.

use std::task::Waker;

use slab::Slab;

/// The place of a task in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveKey(pub(crate) u32);

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Live {
    wakers: Slab<Waker>,
}

impl Live {
    pub(crate) fn insert(&mut self, waker: Waker) -> LiveKey {
        let key = self.wakers.insert(waker);
        LiveKey(u32::try_from(key).expect("four thousand million live tasks do not fit in memory"))
    }

    /// Takes an entry out; the caller drops the waker once the borrow is gone.
    ///
    /// There is none once the shutdown has taken them all.
    pub(crate) fn remove(&mut self, key: LiveKey) -> Option<Waker> {
        self.wakers.try_remove(key.0 as usize)
    }

    /// Gives the room of a past crowd back, beyond so many entries.
    pub(crate) fn shrink(&mut self, room: usize) {
        if self.wakers.capacity() > room && self.wakers.is_empty() {
            self.wakers = Slab::new();
        }
    }

    /// Takes all wakers out, to be woken with no borrow held.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let wakers = std::mem::take(&mut self.wakers);
        wakers.into_iter().map(|(_, waker)| waker)
    }
}
