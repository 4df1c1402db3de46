//! The futures that wait for one descriptor, in order of arrival.
//!
//! - An entry belongs to its future alone, from [`insert`](WaitList::insert) to
//!   [`remove`](WaitList::remove): no other code frees it, so a key is never stale and needs no
//!   generation.
//! - A waiting entry is in one of four queues: each direction has one for futures that operate on
//!   the descriptor and one for those that only observe readiness. A queue is linked through the
//!   entries, by index: every operation but `notify_all` takes constant time, however many futures
//!   wait.
//! - [`source`](super::source) explains what a baton is and how it is passed on.
//!
//! ```text
//! insert ──▶ Waiting ──notify_one──▶ Baton    ──requeue──▶ Waiting, at the front
//!               └──────notify_all──▶ Notified ──requeue──▶ Waiting, at the back
//! ```

use std::task::Waker;

use slab::Slab;

use crate::reactor::direction::Direction;

/// No entry: the end of a queue.
const NONE: u32 = u32::MAX;
/// Capacity that an empty list keeps: most lists are small, and fill again at once.
const KEPT_CAPACITY: usize = 64;

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// To operate on the descriptor: a datagram, a connection or send space that one future takes,
    /// another does not get.
    Operate,
    /// To observe that the descriptor is ready: one event serves any number of futures.
    Observe,
}

/// Identifies the entry of one future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitKey(u32);

/// The entries of all futures that wait.
#[derive(Debug, Default)]
pub(super) struct WaitList {
    entries: Slab<WaitEntry>,
    fifos: [Fifo; 4],
}

#[derive(Debug)]
struct WaitEntry {
    /// Present while it is `Waiting`.
    waker: Option<Waker>,
    state: EntryState,
    direction: Direction,
    intent: Intent,
    /// The neighbours in its queue; meaningless unless it is `Waiting`.
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    /// In its queue.
    Waiting,
    /// Woken alone: its future passes the baton on when it leaves.
    Baton,
    /// Woken together with the whole queue.
    Notified,
}

/// One queue: indices of its first and last entry.
#[derive(Clone, Copy, Debug)]
struct Fifo {
    head: u32,
    tail: u32,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo {
            head: NONE,
            tail: NONE,
        }
    }
}

/// The result of [`WaitList::remove`].
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) waker: Option<Waker>,
    /// The direction whose baton the future held.
    pub(super) baton: Option<Direction>,
}

impl WaitList {
    /// Adds a future at the back of its queue.
    pub(super) fn insert(&mut self, direction: Direction, intent: Intent, waker: Waker) -> WaitKey {
        let index = self.entries.insert(WaitEntry {
            waker: Some(waker),
            state: EntryState::Waiting,
            direction,
            intent,
            prev: NONE,
            next: NONE,
        });
        let index = u32::try_from(index).expect("fewer futures than an index can count");
        self.push_back(index);
        WaitKey(index)
    }

    /// Puts a future back into its queue, or keeps it there; returns the waker that it had.
    ///
    /// A future that held the baton and found nothing goes to the front: it was first. One that was
    /// notified with all others goes to the back: they requeue in their order, too.
    pub(super) fn requeue(&mut self, key: WaitKey, waker: Waker) -> Option<Waker> {
        let entry = self.entry(key.0);
        let state = std::mem::replace(&mut entry.state, EntryState::Waiting);
        let old = entry.waker.replace(waker);
        match state {
            EntryState::Waiting => {}
            EntryState::Baton => self.push_front(key.0),
            EntryState::Notified => self.push_back(key.0),
        }
        old
    }

    /// Removes a future.
    pub(super) fn remove(&mut self, key: WaitKey) -> Removed {
        if self.entry(key.0).state == EntryState::Waiting {
            self.unlink(key.0);
        }
        let entry = self.entries.remove(key.0 as usize);
        if self.entries.is_empty() && self.entries.capacity() > KEPT_CAPACITY {
            self.entries = Slab::new();
        }
        Removed {
            waker: entry.waker,
            baton: (entry.state == EntryState::Baton).then_some(entry.direction),
        }
    }

    /// Whether no future has an entry.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Gives the baton to the first future that waits to operate.
    pub(super) fn notify_one(&mut self, direction: Direction) -> Option<Waker> {
        self.pop(direction, Intent::Operate, EntryState::Baton)
    }

    /// Notifies every future in a queue.
    pub(super) fn notify_all(
        &mut self,
        direction: Direction,
        intent: Intent,
        woken: &mut Vec<Waker>,
    ) {
        while let Some(waker) = self.pop(direction, intent, EntryState::Notified) {
            woken.push(waker);
        }
    }

    /// Unlinks the first entry of a queue; the entry itself stays.
    fn pop(&mut self, direction: Direction, intent: Intent, state: EntryState) -> Option<Waker> {
        let head = self.fifos[fifo_index(direction, intent)].head;
        if head == NONE {
            return None;
        }
        self.unlink(head);
        let entry = self.entry(head);
        entry.state = state;
        entry.waker.take()
    }

    fn push_back(&mut self, index: u32) {
        let at = self.fifo_of(index);
        let last = std::mem::replace(&mut self.fifos[at].tail, index);
        self.link(last, index);
        self.link(index, NONE);
        if last == NONE {
            self.fifos[at].head = index;
        }
    }

    fn push_front(&mut self, index: u32) {
        let at = self.fifo_of(index);
        let first = std::mem::replace(&mut self.fifos[at].head, index);
        self.link(NONE, index);
        self.link(index, first);
        if first == NONE {
            self.fifos[at].tail = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let at = self.fifo_of(index);
        let &mut WaitEntry { prev, next, .. } = self.entry(index);
        self.link(prev, next);
        let fifo = &mut self.fifos[at];
        if prev == NONE {
            fifo.head = next;
        }
        if next == NONE {
            fifo.tail = prev;
        }
    }

    /// Makes two entries neighbours; one of them may be `NONE`, the end of the queue.
    fn link(&mut self, prev: u32, next: u32) {
        if prev != NONE {
            self.entry(prev).next = next;
        }
        if next != NONE {
            self.entry(next).prev = prev;
        }
    }

    fn fifo_of(&mut self, index: u32) -> usize {
        let entry = self.entry(index);
        fifo_index(entry.direction, entry.intent)
    }

    fn entry(&mut self, index: u32) -> &mut WaitEntry {
        &mut self.entries[index as usize]
    }
}

fn fifo_index(direction: Direction, intent: Intent) -> usize {
    direction as usize * 2 + intent as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;
    use std::task::Wake;

    struct NoopWake;

    impl Wake for NoopWake {
        fn wake(self: Arc<Self>) {}
    }

    fn wakers<const N: usize>() -> [Waker; N] {
        [(); N].map(|()| Waker::from(Arc::new(NoopWake)))
    }

    /// A list of futures that wait to read, one for each waker.
    fn readers<const N: usize>(wakers: &[Waker; N]) -> (WaitList, [WaitKey; N]) {
        let mut list = WaitList::default();
        let keys = wakers
            .each_ref()
            .map(|waker| list.insert(Direction::Read, Intent::Operate, waker.clone()));
        (list, keys)
    }

    /// Gives the baton out; returns the index of the notified waker in `wakers`.
    fn notified(list: &mut WaitList, wakers: &[Waker]) -> Option<usize> {
        let waker = list.notify_one(Direction::Read)?;
        wakers.iter().position(|one| one.will_wake(&waker))
    }

    #[test]
    fn the_first_to_wait_is_the_first_to_be_notified() {
        let wakers = wakers::<3>();
        let (mut list, _) = readers(&wakers);
        let order = [(); 4].map(|()| notified(&mut list, &wakers));
        assert_eq!(order, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn a_future_is_removed_from_anywhere_in_the_queue_with_its_own_waker() {
        for removed in 0..3 {
            let wakers = wakers::<3>();
            let (mut list, keys) = readers(&wakers);
            let entry = list.remove(keys[removed]);
            assert!(entry.waker.unwrap().will_wake(&wakers[removed]));
            assert_eq!(entry.baton, None);
            let rest: Vec<_> = std::iter::from_fn(|| notified(&mut list, &wakers)).collect();
            let expected: Vec<_> = (0..3).filter(|&one| one != removed).collect();
            assert_eq!(rest, expected);
        }
    }

    #[test]
    fn a_holder_that_found_nothing_requeues_at_the_front() {
        let wakers = wakers::<3>();
        let (mut list, keys) = readers(&wakers);
        assert_eq!(notified(&mut list, &wakers), Some(0));
        assert!(list.requeue(keys[0], wakers[0].clone()).is_none());
        assert_eq!(notified(&mut list, &wakers), Some(0));
        assert_eq!(list.remove(keys[0]).baton, Some(Direction::Read));
        assert_eq!(notified(&mut list, &wakers), Some(1));
    }

    #[test]
    fn futures_notified_together_requeue_in_their_order() {
        let wakers = wakers::<3>();
        let (mut list, keys) = readers(&wakers);
        let mut woken = Vec::new();
        list.notify_all(Direction::Read, Intent::Operate, &mut woken);
        assert_eq!(woken.len(), 3);
        assert_eq!(notified(&mut list, &wakers), None);
        for (key, waker) in keys.into_iter().zip(&wakers) {
            drop(list.requeue(key, waker.clone()));
        }
        let order = [(); 3].map(|()| notified(&mut list, &wakers));
        assert_eq!(order, [Some(0), Some(1), Some(2)]);
        drop(list.requeue(keys[0], wakers[0].clone()));
        list.notify_all(Direction::Read, Intent::Operate, &mut woken);
        assert_eq!(
            list.remove(keys[0]).baton,
            None,
            "it was notified with all others"
        );
    }

    #[test]
    fn each_direction_and_aim_has_its_own_queue() {
        let mut list = WaitList::default();
        let mut expected = Vec::new();
        for direction in [Direction::Read, Direction::Write] {
            for intent in [Intent::Operate, Intent::Observe] {
                let _ = list.insert(direction, intent, Waker::noop().clone());
                expected.push((direction, intent));
            }
        }
        for (direction, intent) in expected {
            let mut woken = Vec::new();
            list.notify_all(direction, intent, &mut woken);
            assert_eq!(woken.len(), 1);
        }
    }

    #[test]
    fn a_large_list_frees_its_memory_when_it_is_empty() {
        let mut list = WaitList::default();
        let mut insert = || list.insert(Direction::Read, Intent::Operate, Waker::noop().clone());
        let keys: Vec<_> = (0..=KEPT_CAPACITY).map(|_| insert()).collect();
        for key in keys {
            drop(list.remove(key));
        }
        assert_eq!(list.entries.capacity(), 0);
        let key = list.insert(Direction::Read, Intent::Operate, Waker::noop().clone());
        drop(list.remove(key));
        assert_ne!(list.entries.capacity(), 0, "a small list keeps its memory");
    }
}
