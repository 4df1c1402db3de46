//! A queue of deadlines: a wheel for what is far off, a heap for what is near.
//!
//! Most timers guard against something that does not happen: they are armed far ahead and dropped
//! again. In the wheel both take constant time. What comes near moves to the heap, which knows the exact
//! order.
//!
//! The wheel begins at the moment up to which entries were popped. Asking for the earliest deadline moves it further only
//! if the earliest bucket holds more than a few entries: what is put in before that bucket goes to the heap then.
//!
//! Invariants:
//! - Everything in the heap is earlier than everything in the wheel.
//! - An occupied slot is in exactly one of the two, and knows where.
//! - Entries of one deadline come out in the order in which they were put in.
//! - What is removed is gone at once: the value is handed out, the slot is free for the next.
//!
//! It knows nothing of clocks and tasks: deadlines are numbers, values are whatever is to be told.

mod heap;
mod slots;
mod wheel;

use heap::Heap;
pub(crate) use slots::Key;
use slots::{NONE, Part, Slots};
use wheel::{Earliest, Wheel};

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    near: Heap,
    far: Wheel,
    slots: Slots<T>,
    len: usize,
    /// Counts insertions, to keep equal deadlines in order.
    order: u64,
    /// The moment up to which entries were popped last.
    now: u64,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Queue<T> {
        Queue {
            near: Heap::new(),
            far: Wheel::new(),
            slots: Slots::new(),
            len: 0,
            order: 0,
            now: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        loop {
            if let Some((deadline, _)) = self.near.first() {
                return Some(deadline);
            }
            match self.far.earliest(&self.slots)? {
                Earliest::At(deadline) => return Some(deadline),
                Earliest::OfMany => self.approach(),
            }
        }
    }

    /// The earliest deadline after `now`; O(n).
    pub(crate) fn next_deadline_after(&self, now: u64) -> Option<u64> {
        let deadlines = self.slots.deadlines();
        deadlines.filter(|&deadline| deadline > now).min()
    }

    pub(crate) fn insert(&mut self, deadline: u64, value: T) -> Key {
        if self.len == 0 {
            self.far.begin(self.now);
        }
        let key = self.slots.occupy(deadline, self.order, value);
        self.order += 1;
        self.len += 1;
        self.put(key.slot);
        key
    }

    /// Looks at an entry.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key)
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.slots.is_current(key).then(|| self.take(key.slot))
    }

    /// Gives an entry another deadline; it counts as inserted now. `false` if it is gone.
    pub(crate) fn reset(&mut self, key: Key, deadline: u64) -> bool {
        if !self.slots.is_current(key) {
            return false;
        }
        self.unlink(key.slot);
        let entry = self.slots.at(key.slot);
        entry.deadline = deadline;
        entry.order = self.order;
        self.order += 1;
        self.put(key.slot);
        true
    }

    /// Takes the earliest entry out if its deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<T> {
        while self.near.is_empty() {
            if self.far.pass(now) {
                self.now = now;
                return None;
            }
            self.approach();
        }
        let (deadline, slot) = self.near.first()?;
        (deadline <= now).then(|| self.take(slot))
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.values()
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let now = self.now;
        let mut values = Vec::with_capacity(self.len);
        while let Some(value) = self.pop_due(u64::MAX) {
            values.push(value);
        }
        self.now = now;
        values
    }

    /// Brings the earliest bucket nearer.
    fn approach(&mut self) {
        let mut slot = self.far.advance();
        while slot != NONE {
            let next = self.slots.look(slot).next;
            self.put(slot);
            slot = next;
        }
    }

    /// Puts an entry where its deadline belongs.
    fn put(&mut self, slot: u32) {
        if !self.far.insert(&mut self.slots, slot) {
            self.near.push(&mut self.slots, slot);
        }
    }

    /// Takes an entry from where it is.
    fn unlink(&mut self, slot: u32) {
        match self.slots.look(slot).part {
            Part::Near => self.near.remove(&mut self.slots, slot),
            Part::Far { level, bucket } => {
                self.far.remove(&mut self.slots, slot, level, bucket);
            }
        }
    }

    fn take(&mut self, slot: u32) -> T {
        self.unlink(slot);
        let value = self.slots.vacate(slot);
        self.len -= 1;
        if self.len == 0 {
            // The room of a past crowd is given back.
            self.near.shrink();
            self.slots.shrink();
        }
        value
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
    fn a_reset_entry_goes_behind_its_equals() {
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
            "and ahead of those that come later"
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
            // As a loop does in every turn.
            assert_eq!(queue.pop_due(start + number), None);
            assert!(queue.next_deadline() >= Some(start + 20 * SECOND));
            let deadline = start + 30 * SECOND - number % 10 * SECOND;
            let key = queue.insert(deadline, number);
            assert!(queue.near.is_empty(), "in the wheel");
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
    fn entries_that_are_many_come_near_in_their_order_while_time_goes_on() {
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
        let room = (queue.near.capacity(), queue.slots.capacity());
        assert_eq!(room, (0, 0), "the room is given back");
    }

    #[test]
    fn a_key_from_before_a_crowd_is_stale_after_it() {
        let mut queue = Queue::new();
        let keys: Vec<_> = (0..2_000).map(|value| queue.insert(1, value)).collect();
        while queue.pop_due(1).is_some() {}
        assert_eq!((queue.near.capacity(), queue.slots.capacity()), (0, 0));
        for value in 0..2_000 {
            queue.insert(2, value);
        }
        assert!(keys.into_iter().all(|key| queue.remove(key).is_none()));
        assert_eq!(queue.len(), 2_000);
    }

    #[test]
    fn the_room_of_a_small_crowd_is_kept() {
        let mut queue = Queue::new();
        for value in 0..1024 {
            queue.insert(1, value);
        }
        let room = (queue.near.capacity(), queue.slots.capacity());
        assert_eq!(room, (1024, 1024), "so much and no more is kept");
        assert_eq!(queue.clear().len(), 1024);
        assert_eq!((queue.near.capacity(), queue.slots.capacity()), room);
    }
}
