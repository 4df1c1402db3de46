//! What a task finds of its loop through a plain cell of its thread.
//!
//! - The counters of a loop and what its gate shows have a static place, which another loop uses after it. So
//!   a reference to it fits in a cell without a destructor ([`this_thread`](crate::this_thread)), and a task
//!   that is spawned, begins or ends on its home thread looks no loop up. The bench that pays for it is
//!   `instructions spawn-detached`.
//! - A place is a loop's from its creation until its shared half is dropped. The cell of its thread is
//!   cleared before that.
//! - What producers read with every submission (the limit, what the gate shows) and what the loop writes
//!   with every task (the counters) are on cache lines of their own, in pairs: processors fetch neighbours.
//!   On one line they made a submission take twice as long; the benches are `w1.execute` and `w1.detached`
//!   of `benches/compare`.
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
    /// Takes a place, with counters of zero, for a loop that lists its tasks or does not.
    pub(crate) fn take(max_pending: Option<usize>, tracked: bool) -> PlaceHandle {
        let free = FREE.lock().pop();
        let place = free.unwrap_or_else(|| Box::leak(Box::default()));
        place.counters.reset(max_pending, tracked);
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
    fn what_producers_read_is_on_other_lines_than_what_the_loop_writes() {
        let place = Place::default();
        let limit = std::ptr::from_ref(&place.counters.limit).addr();
        let shown = std::ptr::from_ref(&place.shown).addr();
        let lines = |address: usize, size: usize| address / 128..(address + size).div_ceil(128);
        let read = [lines(limit, 1), lines(shown, 1)];
        for counter in place.counters.written() {
            let written = std::ptr::from_ref(counter).addr() / 128;
            assert!(read.iter().all(|lines| !lines.contains(&written)));
        }
    }

    #[test]
    fn a_place_is_one_loops_at_a_time_and_begins_with_zero() {
        let one = PlaceHandle::take(None, false);
        let other = PlaceHandle::take(Some(1), false);
        assert!(!std::ptr::eq(one.get(), other.get()));
        assert!(!one.counters.limit.is_set() && other.counters.limit.is_set());
        other.counters.accept_local();
        assert_eq!(other.counters.pending(0), 1);
        drop(other);
        let next = PlaceHandle::take(None, false);
        assert_eq!(next.counters.pending(0), 0);
        assert!(!next.counters.limit.is_set());
        let tracked = PlaceHandle::take(None, true);
        let limit = &tracked.counters.limit;
        assert!(limit.is_set() && !limit.is_reachable() && limit.try_acquire());
    }
}
