//! A set of wakers that wait for one event.
//!
//! - The event happens once; from then on no waker is stored.
//! - A waker is stored under a key that its future keeps: each poll replaces the waker, and
//!   dropping the future removes it.
//! - Wakers are user code: [`EventWaiters::fire`] returns them, and the caller wakes them with no lock held.

use std::task::Waker;

use slab::Slab;

/// The wakers, and whether the event has happened.
#[derive(Debug, Default)]
pub(crate) struct EventWaiters {
    slots: Slab<Waker>,
    fired: bool,
}

impl EventWaiters {
    pub(crate) fn new() -> EventWaiters {
        EventWaiters::default()
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.fired
    }

    /// Stores `waker`, replacing the one under `key` if there is one.
    ///
    /// Returns the waker that was replaced: dropping it is user code, so the caller does it once
    /// the lock is released.
    pub(crate) fn store(&mut self, key: &mut Option<usize>, waker: Waker) -> Option<Waker> {
        debug_assert!(!self.fired, "the event has already happened");
        match key.and_then(|key| self.slots.get_mut(key)) {
            Some(slot) => Some(std::mem::replace(slot, waker)),
            None => {
                *key = Some(self.slots.insert(waker));
                None
            }
        }
    }

    /// Removes the waker under `key`.
    pub(crate) fn remove(&mut self, key: &mut Option<usize>) -> Option<Waker> {
        // After the event the slots are empty and every key is stale.
        key.take().and_then(|key| self.slots.try_remove(key))
    }

    /// Records that the event has happened, and returns all wakers.
    pub(crate) fn fire(&mut self) -> Slab<Waker> {
        self.fired = true;
        std::mem::take(&mut self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_keeps_one_slot_however_often_it_polls() {
        let mut waiters = EventWaiters::new();
        let mut key = None;
        for _ in 0..10 {
            drop(waiters.store(&mut key, Waker::noop().clone()));
        }
        assert_eq!(waiters.slots.len(), 1);
        assert!(waiters.remove(&mut key).is_some());
        assert_eq!(key, None);
        assert!(waiters.fire().is_empty());
    }

    #[test]
    fn a_stale_key_after_the_event_is_harmless() {
        let mut waiters = EventWaiters::new();
        let mut key = None;
        waiters.store(&mut key, Waker::noop().clone());
        assert_eq!(waiters.fire().len(), 1);
        assert!(waiters.has_fired());
        assert!(waiters.remove(&mut key).is_none());
    }
}
