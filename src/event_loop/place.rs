//! What a task finds of its loop through a plain cell of its thread.
//!
//! - The counters of a loop and what its gate shows have a static place, which another loop uses after it. So
//!   a reference to it fits in a cell without a destructor ([`this_thread`](crate::this_thread)), and a task
//!   that is spawned, begins or ends on its home thread looks no loop up. The bench that pays for it is
//!   `instructions spawn-detached`.
//! - A place is a loop's from its creation until its shared half is dropped. The cell of its thread is
//!   cleared before that.
//! - Places are never freed: there are as many as loops ever were at the same time.

use std::fmt;
use std::ops::Deref;

use crate::event_loop::counters::Counters;
use crate::event_loop::inbox::Shown;
use crate::sync::plain;

/// The place of a loop.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) counters: Counters,
    /// What the gate of the loop's inbox shows.
    pub(crate) shown: Shown,
}

/// Places that no loop uses. Those of models are used once: their atomics live for one execution.
static FREE: plain::Mutex<Vec<&'static Place>> = plain::Mutex::new(Vec::new());
const REUSED: bool = !cfg!(any(loom, shuttle));

/// Owns a place.
pub(crate) struct PlaceHandle(&'static Place);

impl PlaceHandle {
    /// Takes a place, with counters of zero.
    pub(crate) fn take(max_pending: Option<usize>) -> PlaceHandle {
        let free = FREE.lock().pop();
        let place = free.unwrap_or_else(|| Box::leak(Box::default()));
        place.counters.reset(max_pending);
        PlaceHandle(place)
    }

    /// The place, for the thread of its loop and for the inbox.
    pub(crate) fn get(&self) -> &'static Place {
        self.0
    }
}

impl Deref for PlaceHandle {
    type Target = Place;

    fn deref(&self) -> &Place {
        self.0
    }
}

impl fmt::Debug for PlaceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for PlaceHandle {
    fn drop(&mut self) {
        if REUSED {
            FREE.lock().push(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_loops_at_a_time_and_begins_with_zero() {
        let (one, other) = (PlaceHandle::take(None), PlaceHandle::take(Some(1)));
        assert!(!std::ptr::eq(one.get(), other.get()));
        assert!(!one.counters.limit.is_set() && other.counters.limit.is_set());
        other.counters.accept_local();
        assert_eq!(other.counters.pending(0), 1);
        drop(other);
        let next = PlaceHandle::take(None);
        assert_eq!(next.counters.pending(0), 0);
        assert!(!next.counters.limit.is_set());
    }
}
