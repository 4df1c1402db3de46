//! A queue of deadlines: a four-way heap whose entries know their places.
//!
//! Invariants:
//! - Heap: a node is not later than its children; "later" is by deadline, then by order of insertion.
//! - `slots[node.slot].place` is the index of `node` in the heap, for every node: that is what makes
//!   removal O(log n). A slot is occupied ⇔ some node refers to it.
//! - A key carries the generation of its slot: a stale one finds nothing.
//! - What is removed is gone at once: the value is handed out, the slot is free for the next.
//!
//! It knows nothing of clocks and tasks: deadlines are numbers, values are whatever is to be told.

/// The address of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: Vec<Node>,
    slots: Vec<Slot<T>>,
    /// The first free slot; they are chained through their places.
    free: u32,
    /// Counts insertions, to keep equal deadlines in order.
    order: u64,
    /// The first generation of a new slot: later than any that was given away.
    first: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: u64,
    order: u64,
    slot: u32,
}

#[derive(Debug)]
struct Slot<T> {
    /// Index in the heap, or the next free slot.
    place: u32,
    generation: u32,
    value: Option<T>,
}

/// The end of the chain of free slots.
const NONE: u32 = u32::MAX;
/// Children per node: shallower than two, and a node's children share a cache line or two.
const WAYS: usize = 4;

impl<T> Queue<T> {
    pub(crate) const fn new() -> Queue<T> {
        Queue {
            heap: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            order: 0,
            first: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.heap.first().map(|node| node.deadline)
    }

    /// The earliest deadline after `now`; O(n).
    pub(crate) fn next_deadline_after(&self, now: u64) -> Option<u64> {
        let deadlines = self.heap.iter().map(|node| node.deadline);
        deadlines.filter(|&deadline| deadline > now).min()
    }

    pub(crate) fn insert(&mut self, deadline: u64, value: T) -> Key {
        let place = to_u32(self.heap.len());
        let slot = self.occupy(place, value);
        self.heap.push(Node {
            deadline,
            order: self.order,
            slot,
        });
        self.order += 1;
        self.rise(place as usize);
        Key {
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// Looks at an entry.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots
            .get_mut(key.slot as usize)
            .filter(|slot| slot.generation == key.generation)?
            .value
            .as_mut()
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get_mut(key)?;
        let place = self.slots[key.slot as usize].place;
        Some(self.take(place as usize))
    }

    /// Gives an entry another deadline; it counts as inserted now. `false` if it is gone.
    pub(crate) fn reset(&mut self, key: Key, deadline: u64) -> bool {
        if self.get_mut(key).is_none() {
            return false;
        }
        let place = self.slots[key.slot as usize].place as usize;
        self.heap[place].deadline = deadline;
        self.heap[place].order = self.order;
        self.order += 1;
        self.settle(place);
        true
    }

    /// Takes the earliest entry out if its deadline is not after `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<T> {
        if self.heap.first()?.deadline > now {
            return None;
        }
        Some(self.take(0))
    }

    /// All values, in no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.heap.len());
        while !self.heap.is_empty() {
            values.push(self.take(0));
        }
        values
    }

    /// Takes the node at `place` out and frees its slot.
    fn take(&mut self, place: usize) -> T {
        let node = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.settle(place);
        }
        let slot = &mut self.slots[node.slot as usize];
        let value = slot.value.take().expect("a node's slot is occupied");
        slot.generation = slot.generation.wrapping_add(1);
        slot.place = self.free;
        self.free = node.slot;
        if self.heap.is_empty() {
            self.shrink();
        }
        value
    }

    fn occupy(&mut self, place: u32, value: T) -> u32 {
        if self.free == NONE {
            self.slots.push(Slot {
                place,
                generation: self.first,
                value: Some(value),
            });
            return to_u32(self.slots.len() - 1);
        }
        let free = self.free;
        let slot = &mut self.slots[free as usize];
        self.free = slot.place;
        slot.place = place;
        slot.value = Some(value);
        free
    }

    /// Gives the room of a past crowd back; new slots begin behind the generations of the old.
    fn shrink(&mut self) {
        if self.heap.capacity() > 1024 {
            let generations = self.slots.iter().map(|slot| slot.generation);
            // A free slot's generation was not given away yet.
            self.first = generations.max().unwrap_or(self.first);
            self.heap = Vec::new();
            self.slots = Vec::new();
            self.free = NONE;
        }
    }

    /// Moves the node at `place` to where it belongs, and notes where that is.
    fn settle(&mut self, place: usize) {
        if self.rise(place) == place {
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) -> usize {
        let node = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / WAYS;
            if !node.is_before(&self.heap[parent]) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, node);
        place
    }

    fn sink(&mut self, mut place: usize) {
        let node = self.heap[place];
        loop {
            let first = place * WAYS + 1;
            if first >= self.heap.len() {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + WAYS).min(self.heap.len()) {
                if self.heap[child].is_before(&self.heap[least]) {
                    least = child;
                }
            }
            if !self.heap[least].is_before(&node) {
                break;
            }
            self.put(place, self.heap[least]);
            place = least;
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: Node) {
        self.slots[node.slot as usize].place = to_u32(place);
        self.heap[place] = node;
    }
}

impl Node {
    fn is_before(&self, other: &Node) -> bool {
        (self.deadline, self.order) < (other.deadline, other.order)
    }
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("four thousand million timers do not fit in memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeMap;

    /// The queue beside a sorted map that does the same the slow way.
    struct Pair {
        queue: Queue<u64>,
        model: BTreeMap<(u64, u64), u64>,
        keys: Vec<(Key, (u64, u64), u64)>,
        order: u64,
        next: u64,
    }

    impl Pair {
        fn insert(&mut self, deadline: u64) {
            let value = self.next;
            self.next += 1;
            let key = self.queue.insert(deadline, value);
            self.model.insert((deadline, self.order), value);
            self.keys.push((key, (deadline, self.order), value));
            self.order += 1;
        }

        fn remove(&mut self, at: usize) {
            let (key, place, value) = self.keys.swap_remove(at);
            let known = self.model.remove(&place);
            assert_eq!(self.queue.remove(key), known);
            assert!(known.is_none_or(|known| known == value));
            assert_eq!(self.queue.remove(key), None, "gone at once");
        }

        fn reset(&mut self, at: usize, deadline: u64) {
            let (key, place, value) = self.keys[at];
            let known = self.model.remove(&place).is_some();
            assert_eq!(self.queue.reset(key, deadline), known);
            if known {
                self.model.insert((deadline, self.order), value);
                self.keys[at].1 = (deadline, self.order);
                self.order += 1;
            }
        }

        fn advance(&mut self, now: u64) {
            while let Some(value) = self.queue.pop_due(now) {
                let ((deadline, _), expected) = self.model.pop_first().expect("due in both");
                assert!(deadline <= now, "never early");
                assert_eq!(value, expected, "in order");
            }
            let earliest = self.model.keys().next().map(|&(deadline, _)| deadline);
            assert!(
                earliest.is_none_or(|earliest| earliest > now),
                "none is late"
            );
        }

        fn check(&mut self) {
            assert_eq!(self.queue.len(), self.model.len());
            let earliest = self.model.keys().next().map(|&(deadline, _)| deadline);
            assert_eq!(self.queue.next_deadline(), earliest);
        }
    }

    #[test]
    fn random_operations_agree_with_a_sorted_model() {
        for seed in 0..2_000_u64 {
            let mut rng = Random::new(seed);
            let mut pair = Pair {
                queue: Queue::new(),
                model: BTreeMap::new(),
                keys: Vec::new(),
                order: 0,
                next: 0,
            };
            let mut now = 0_u64;
            // Few distinct deadlines, so that equal ones are common.
            let spread = [3, 50, usize::MAX][rng.below(3)];
            for _ in 0..rng.below(200) {
                let deadline = now.saturating_add(rng.below(spread) as u64);
                match rng.below(6) {
                    0..=2 => pair.insert(deadline),
                    3 if !pair.keys.is_empty() => {
                        pair.remove(rng.below(pair.keys.len()));
                    }
                    4 if !pair.keys.is_empty() => {
                        pair.reset(rng.below(pair.keys.len()), deadline);
                    }
                    _ => {
                        now = now.saturating_add(rng.below(20) as u64);
                        pair.advance(now);
                    }
                }
                pair.check();
            }
            pair.advance(u64::MAX);
            assert!(pair.queue.is_empty(), "seed {seed}");
        }
    }

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
        let room = (queue.heap.capacity(), queue.slots.capacity());
        assert_eq!(room, (0, 0), "the room is given back");
    }

    #[test]
    fn a_key_from_before_a_crowd_is_stale_after_it() {
        let mut queue = Queue::new();
        let keys: Vec<_> = (0..2_000).map(|value| queue.insert(1, value)).collect();
        while queue.pop_due(1).is_some() {}
        assert_eq!(queue.slots.capacity(), 0);
        for value in 0..2_000 {
            queue.insert(2, value);
        }
        assert!(keys.into_iter().all(|key| queue.remove(key).is_none()));
        assert_eq!(queue.len(), 2_000);
    }
}
