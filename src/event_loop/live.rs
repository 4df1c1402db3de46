//! The table of live tasks of one loop.
//!
//! - An entry exists ⇔ the task has returned `Pending` once and its future is not dropped yet.
//!   (Before that the task is in a queue of the loop, where the shutdown finds it as well.)
//! - It holds the task's own waker: waking it queues the task on the loop, so a shutdown can drop tasks
//!   that wait for something outside.
//! - Loop thread only; never borrowed while user code runs.

use std::task::Waker;

use slab::Slab;

/// The key of a task in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveKey(pub(crate) u32);

/// The table of live tasks.
#[derive(Debug, Default)]
pub(crate) struct Live {
    wakers: Slab<Waker>,
}

impl Live {
    pub(crate) fn insert(&mut self, waker: Waker) -> LiveKey {
        let key = self.wakers.insert(waker);
        LiveKey(u32::try_from(key).expect("four thousand million live tasks do not fit in memory"))
    }

    /// Removes an entry; the caller drops the waker with no borrow held.
    ///
    /// Returns `None` once the shutdown has taken all entries.
    pub(crate) fn remove(&mut self, key: LiveKey) -> Option<Waker> {
        self.wakers.try_remove(key.0 as usize)
    }

    /// Frees the memory if the table is empty and has a capacity of more than `capacity` entries.
    pub(crate) fn shrink(&mut self, capacity: usize) {
        if self.wakers.capacity() > capacity && self.wakers.is_empty() {
            self.wakers = Slab::new();
        }
    }

    /// Removes all wakers, to be woken with no borrow held.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        let wakers = std::mem::take(&mut self.wakers);
        wakers.into_iter().map(|(_, waker)| waker)
    }
}
