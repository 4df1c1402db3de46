//! A queue of deadlines: a wheel for distant ones, a heap for near ones.
//!
//! Most timers guard against something that does not happen: they are armed far ahead and dropped
//! again. In the wheel both take constant time. Entries that come near move to the heap, which
//! knows the exact order. The bench that pays for the wheel is `w07_timers`: 0.93 of the instructions
//! of a heap alone.
//!
//! The wheel begins at the time up to which entries were popped. Asking for the earliest deadline
//! advances it further only if the earliest bucket holds more than a few entries: later insertions
//! before that bucket then go to the heap.
//!
//! Invariants:
//! - Everything in the heap is earlier than everything in the wheel.
//! - An occupied slot is in a bucket of the wheel, and knows which, or a node of the heap has its order.
//! - A node whose order its slot no longer has is stale. It is dropped when it becomes the first, or
//!   together with the others when most nodes are stale.
//! - Entries with the same deadline come out in the order in which they were inserted.
//! - Removal is immediate: the value is returned, and the slot is free for the next entry.
//!
//! It knows nothing of clocks and tasks: deadlines are numbers, values are of any type.

mod slots;
mod wheel;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) use slots::TimerKey;
use slots::{NONE, Slots};
use wheel::{Earliest, Wheel};

/// Nodes of the heap that may be stale, besides as many as there are entries.
const STALE_NODES: usize = 64;
/// The largest capacity, in nodes, that the heap of an empty queue keeps.
const KEPT_NODES: usize = 1024;

/// The queue; `T` is the value of an entry.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Deadline, order and slot of the near entries.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    wheel: Wheel,
    slots: Slots<T>,
    /// Counts insertions, to keep equal deadlines in order.
    order: u64,
    /// The time up to which entries were popped last.
    now: u64,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Queue<T> {
        Queue {
            heap: BinaryHeap::new(),
            wheel: Wheel::new(),
            slots: Slots::new(),
            order: 0,
            now: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        loop {
            if let Some((deadline, _)) = self.first_near() {
                return Some(deadline);
            }
            match self.wheel.earliest(&self.slots)? {
                Earliest::At(deadline) => return Some(deadline),
                Earliest::OfMany => self.cascade(),
            }
        }
    }

    /// The earliest deadline after `now`; O(n).
    pub(crate) fn next_deadline_after(&self, now: u64) -> Option<u64> {
        let deadlines = self.slots.deadlines();
        deadlines.filter(|&deadline| deadline > now).min()
    }

    #[inline]
    pub(crate) fn insert(&mut self, deadline: u64, value: T) -> TimerKey {
        if self.is_empty() {
            self.wheel.begin(self.now);
        }
        let order = self.order;
        self.order += 1;
        let key = self.slots.occupy(deadline, order, value);
        self.link(key.slot, deadline, order);
        key
    }

    /// Returns the value of an entry.
    pub(crate) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.slots.get_mut(key)
    }

    /// Removes an entry.
    #[inline]
    pub(crate) fn remove(&mut self, key: TimerKey) -> Option<T> {
        self.slots.has(key).then(|| self.remove_slot(key.slot))
    }

    /// Changes the deadline of an entry, which then counts as inserted now; `false` if it is gone.
    pub(crate) fn reset(&mut self, key: TimerKey, deadline: u64) -> bool {
        if !self.slots.has(key) {
            return false;
        }
        self.unlink(key.slot);
        let order = self.order;
        self.order += 1;
        let entry = self.slots.entry_mut(key.slot);
        entry.deadline = deadline;
        entry.order = order;
        self.link(key.slot, deadline, order);
        true
    }

    /// Removes the earliest entry if its deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<T> {
        loop {
            if let Some((deadline, slot)) = self.first_near() {
                return (deadline <= now).then(|| self.remove_slot(slot));
            }
            if self.wheel.try_advance_to(now) {
                self.now = now;
                return None;
            }
            self.cascade();
        }
    }

    /// The deadline and slot of the earliest entry in the heap.
    fn first_near(&mut self) -> Option<(u64, u32)> {
        loop {
            let &Reverse((deadline, order, slot)) = self.heap.peek()?;
            if self.slots.has_order(slot, order) {
                return Some((deadline, slot));
            }
            self.heap.pop();
        }
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.values()
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let now = self.now;
        let mut values = Vec::with_capacity(self.len());
        while let Some(value) = self.pop_due(u64::MAX) {
            values.push(value);
        }
        self.now = now;
        values
    }

    /// Distributes the entries of the earliest bucket over finer buckets and the heap.
    fn cascade(&mut self) {
        let mut slot = self.wheel.advance();
        while slot != NONE {
            let entry = self.slots.entry(slot);
            let next = entry.next;
            self.link(slot, entry.deadline, entry.order);
            slot = next;
        }
    }

    /// Links an entry into the wheel or the heap, by its deadline.
    #[inline(always)] // A timer is armed by one function.
    fn link(&mut self, slot: u32, deadline: u64, order: u64) {
        match self.wheel.bucket(deadline) {
            Some(bucket) => self.wheel.insert(&mut self.slots, slot, bucket),
            None => {
                self.slots.entry_mut(slot).bucket = None;
                self.heap.push(Reverse((deadline, order, slot)));
            }
        }
    }

    /// Unlinks an entry from the wheel; its node in the heap becomes stale with the caller's next step.
    #[inline(always)] // A timer is cancelled by one function.
    fn unlink(&mut self, slot: u32) {
        match self.slots.entry(slot).bucket {
            Some(bucket) => self.wheel.remove(&mut self.slots, slot, bucket),
            None => self.drop_stale(),
        }
    }

    /// Drops the stale nodes of the heap, if most are.
    #[inline(never)]
    fn drop_stale(&mut self) {
        if self.heap.len() > 2 * self.slots.len() + STALE_NODES {
            let slots = &self.slots;
            self.heap
                .retain(|&Reverse((_, order, slot))| slots.has_order(slot, order));
        }
    }

    #[inline(always)] // As `unlink`.
    fn remove_slot(&mut self, slot: u32) -> T {
        self.unlink(slot);
        let value = self.slots.vacate(slot);
        if self.is_empty() {
            self.shrink();
        }
        value
    }

    /// Frees the memory that a large number of past entries has needed; the queue is empty.
    #[inline(never)]
    fn shrink(&mut self) {
        self.heap.clear();
        if self.heap.capacity() > KEPT_NODES {
            self.heap = BinaryHeap::new();
        }
        self.slots.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn equal_deadlines_come_in_the_order_of_insertion() {
        let mut queue = Queue::new();
        for value in 0..101 {
            queue.insert(7, value);
        }
        for value in 0..101 {
            assert_eq!(queue.pop_due(7), Some(value));
        }
    }

    #[test]
    fn a_reset_entry_comes_after_those_with_the_same_deadline() {
        let mut queue = Queue::new();
        let first = queue.insert(1, 'a');
        queue.insert(5, 'b');
        assert!(queue.reset(first, 5));
        assert_eq!((queue.pop_due(5), queue.pop_due(5)), (Some('b'), Some('a')));
        assert!(!queue.reset(first, 9), "a fired entry is gone");
        let second = queue.insert(6, 'c');
        assert!(queue.reset(second, 7));
        queue.insert(7, 'd');
        let order = (queue.pop_due(7), queue.pop_due(7));
        assert_eq!(
            order,
            (Some('c'), Some('d')),
            "and before those that are inserted later"
        );
    }

    #[test]
    fn entries_reset_to_one_deadline_come_in_the_order_of_their_resets() {
        let mut queue = Queue::new();
        let keys: Vec<_> = (0..101).map(|value| queue.insert(7, value)).collect();
        for key in keys.into_iter().rev() {
            assert!(queue.reset(key, 7));
        }
        for value in (0..101).rev() {
            assert_eq!(queue.pop_due(7), Some(value));
        }
    }

    #[test]
    fn a_far_entry_does_not_send_nearer_ones_to_the_heap() {
        const SECOND: u64 = 1_000_000_000;
        let mut queue = Queue::new();
        let start = 70 * SECOND;
        assert_eq!(queue.pop_due(start), None);
        queue.insert(start + 3_600 * SECOND, 0);
        for number in 1..1000 {
            // As a loop does on every turn.
            assert_eq!(queue.pop_due(start + number), None);
            assert!(queue.next_deadline() >= Some(start + 20 * SECOND));
            let deadline = start + 30 * SECOND - number % 10 * SECOND;
            let key = queue.insert(deadline, number);
            assert!(queue.heap.is_empty(), "in the wheel");
            if number > 10 {
                assert_eq!(queue.remove(key), Some(number));
            }
        }
        let order: Vec<_> = std::iter::from_fn(|| {
            let deadline = queue.next_deadline()?;
            assert_eq!(queue.pop_due(deadline - 1), None, "exact");
            queue.pop_due(deadline)
        })
        .collect();
        assert_eq!(order, [9, 8, 7, 6, 5, 4, 3, 2, 1, 10, 0]);
    }

    #[test]
    fn many_entries_come_out_in_order_while_time_advances() {
        let mut rng = Random::new(2);
        let mut queue = Queue::<(u64, u64)>::new();
        let mut model = std::collections::BTreeSet::new();
        let mut now = 0;
        for number in 0..20_000_u64 {
            now += rng.below(3_000_000) as u64;
            while let Some(due) = queue.pop_due(now) {
                assert_eq!(model.pop_first(), Some(due));
                assert!(due.0 <= now);
            }
            assert_eq!(
                queue.next_deadline(),
                model.first().map(|&(deadline, _)| deadline)
            );
            let spread = 1 << rng.below(40);
            let entry = (now + rng.below(spread) as u64, number);
            queue.insert(entry.0, entry);
            model.insert(entry);
        }
        assert_eq!(queue.len(), model.len());
    }

    #[test]
    fn a_stale_key_does_not_reach_the_successor() {
        let mut queue = Queue::new();
        let first = queue.insert(1, 'a');
        assert_eq!(queue.pop_due(1), Some('a'));
        let second = queue.insert(2, 'b');
        assert_eq!(first.slot, second.slot);
        assert_eq!(queue.remove(first), None);
        assert_eq!(queue.get_mut(second), Some(&mut 'b'));
    }

    #[test]
    fn a_million_live_timers_are_inserted_cancelled_and_fired() {
        let mut rng = Random::new(1);
        let mut queue = Queue::new();
        let keys: Vec<_> = (0..1_000_000_u64)
            .map(|value| queue.insert(rng.below(1_000_000_000) as u64, value))
            .collect();
        let mut cancelled = 0;
        for key in keys.into_iter().step_by(2) {
            cancelled += u64::from(queue.remove(key).is_some());
        }
        assert_eq!((cancelled, queue.len()), (500_000, 500_000));
        let mut last = 0;
        while let Some(deadline) = queue.next_deadline() {
            assert!(deadline >= last);
            last = deadline;
            queue.pop_due(deadline).expect("it is due");
        }
        let capacity = (queue.heap.capacity(), queue.slots.capacity());
        assert_eq!(capacity, (0, 0), "the memory is freed");
    }

    #[test]
    fn an_old_key_is_stale_after_the_memory_was_freed() {
        let mut queue = Queue::new();
        let keys: Vec<_> = (0..2_000).map(|value| queue.insert(1, value)).collect();
        while queue.pop_due(1).is_some() {}
        assert_eq!((queue.heap.capacity(), queue.slots.capacity()), (0, 0));
        for value in 0..2_000 {
            queue.insert(2, value);
        }
        assert!(keys.into_iter().all(|key| queue.remove(key).is_none()));
        assert_eq!(queue.len(), 2_000);
    }

    #[test]
    fn removed_entries_do_not_fill_the_heap() {
        let mut queue = Queue::new();
        let mut keys: Vec<_> = (0..1_000).map(|value| queue.insert(1, value)).collect();
        for live in [1_000, 10] {
            for key in keys.drain(live..) {
                queue.remove(key).expect("it is live");
            }
            for value in 0..100_000 {
                let key = queue.insert(1, value);
                assert_eq!(queue.remove(key), Some(value));
            }
            assert!(queue.heap.len() <= 2 * live + STALE_NODES + 3);
        }
        for key in keys.into_iter().rev() {
            assert!(queue.reset(key, 2));
        }
        for value in (0..10).rev() {
            assert_eq!(queue.pop_due(2), Some(value), "no entry is lost");
        }
        assert!(queue.heap.is_empty());
    }

    #[test]
    fn the_memory_of_a_small_queue_is_kept() {
        let mut queue = Queue::new();
        for value in 0..1024 {
            queue.insert(1, value);
        }
        let capacity = (queue.heap.capacity(), queue.slots.capacity());
        assert_eq!(capacity, (1024, 1024), "the largest capacity that is kept");
        assert_eq!(queue.clear().len(), 1024);
        assert_eq!((queue.heap.capacity(), queue.slots.capacity()), capacity);
    }
}
