//! The table of live tasks of one loop.
//!
//! - An entry exists ⇔ the task has returned `Pending` once and its future is not dropped yet.
//!   (Before that the task is in a queue of the loop, where the shutdown finds it as well.)
//! - It holds the task's own waker: waking it queues the task on the loop, so a shutdown can drop tasks
//!   that wait for something outside.
//! - The first search for a task by its address makes an index of addresses, which is kept up to date from
//!   then on. A loop whose tasks are never aborted has none.
//! - Loop thread only; never borrowed while user code runs.

use std::collections::HashMap;
use std::task::Waker;

use slab::Slab;

/// The key of a task in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveKey(pub(crate) u32);

/// The table of live tasks.
#[derive(Debug, Default)]
pub(crate) struct Live {
    wakers: Slab<Waker>,
    by_address: Option<HashMap<usize, usize>>,
}

impl Live {
    pub(crate) fn insert(&mut self, waker: Waker) -> LiveKey {
        let address = waker.data().addr();
        let key = self.wakers.insert(waker);
        if let Some(index) = &mut self.by_address {
            index.insert(address, key);
        }
        LiveKey(u32::try_from(key).expect("four thousand million live tasks do not fit in memory"))
    }

    /// Removes an entry; the caller drops the waker with no borrow held.
    ///
    /// Returns `None` once the shutdown has taken all entries.
    pub(crate) fn remove(&mut self, key: LiveKey) -> Option<Waker> {
        let waker = self.wakers.try_remove(key.0 as usize)?;
        if let Some(index) = &mut self.by_address {
            index.remove(&waker.data().addr());
        }
        Some(waker)
    }

    /// Returns the waker of the task at an address, if it waits.
    pub(crate) fn find(&mut self, address: usize) -> Option<Waker> {
        let key = *self.addresses().get(&address)?;
        self.wakers.get(key).cloned()
    }

    /// The keys of all entries, by the addresses of their tasks.
    pub(crate) fn addresses(&mut self) -> &HashMap<usize, usize> {
        self.by_address.get_or_insert_with(|| {
            let wakers = self.wakers.iter();
            wakers
                .map(|(key, waker)| (waker.data().addr(), key))
                .collect()
        })
    }

    /// Frees the memory if the table is empty and has a capacity of more than `capacity` entries; returns
    /// whether it has not.
    pub(crate) fn shrink(&mut self, capacity: usize) -> bool {
        if self.wakers.capacity() > capacity && self.wakers.is_empty() {
            *self = Live::default();
        }
        self.wakers.capacity() <= capacity
    }

    /// Removes all wakers, to be woken with no borrow held.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.by_address = None;
        let wakers = std::mem::take(&mut self.wakers);
        wakers.into_iter().map(|(_, waker)| waker)
    }
}
