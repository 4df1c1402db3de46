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
    pub(crate) fn remove(&mut self, key: LiveKey) -> Waker {
        self.wakers.remove(key.0 as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// Copies of all wakers, to be woken with no borrow held.
    pub(crate) fn wakers(&self) -> Vec<Waker> {
        self.wakers.iter().map(|(_, waker)| waker.clone()).collect()
    }
}
