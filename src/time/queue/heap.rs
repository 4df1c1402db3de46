//! The near part of a queue: a four-way heap whose entries know their places.
//!
//! Invariants:
//! - A node is not later than its children; "later" is by deadline, then by order of insertion.
//! - The slot of a node knows the node's place: that is what makes removal O(log n).

use super::slots::{Part, Slots};

#[derive(Debug)]
pub(super) struct Heap(Vec<Node>);

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: u64,
    slot: u32,
}

/// Children per node: shallower than two, and a node's children share a cache line or two.
const WAYS: usize = 4;

impl Heap {
    pub(super) const fn new() -> Heap {
        Heap(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The earliest entry: its deadline and its slot.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.0.first().map(|node| (node.deadline, node.slot))
    }

    pub(super) fn push<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let entry = slots.at(slot);
        entry.part = Part::Near;
        let deadline = entry.deadline;
        self.0.push(Node { deadline, slot });
        self.rise(slots, self.0.len() - 1);
    }

    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let place = slots.look(slot).place as usize;
        self.0.swap_remove(place);
        if place < self.0.len() && self.rise(slots, place) == place {
            self.sink(slots, place);
        }
    }

    pub(super) fn shrink(&mut self) {
        if self.0.capacity() > 1024 {
            self.0 = Vec::new();
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Moves the node at `place` up to where it belongs; returns where that is.
    fn rise<T>(&mut self, slots: &mut Slots<T>, mut place: usize) -> usize {
        let node = self.0[place];
        while place > 0 {
            let parent = (place - 1) / WAYS;
            if !node.is_before(self.0[parent], slots) {
                break;
            }
            self.put(slots, place, self.0[parent]);
            place = parent;
        }
        self.put(slots, place, node);
        place
    }

    fn sink<T>(&mut self, slots: &mut Slots<T>, mut place: usize) {
        let node = self.0[place];
        loop {
            let first = place * WAYS + 1;
            if first >= self.0.len() {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + WAYS).min(self.0.len()) {
                if self.0[child].is_before(self.0[least], slots) {
                    least = child;
                }
            }
            if !self.0[least].is_before(node, slots) {
                break;
            }
            self.put(slots, place, self.0[least]);
            place = least;
        }
        self.put(slots, place, node);
    }

    fn put<T>(&mut self, slots: &mut Slots<T>, place: usize, node: Node) {
        // There are fewer nodes than slots, and slots are numbered by a u32.
        slots.at(node.slot).place = place as u32;
        self.0[place] = node;
    }
}

impl Node {
    fn is_before<T>(self, other: Node, slots: &Slots<T>) -> bool {
        self.deadline < other.deadline
            || self.deadline == other.deadline
                && slots.look(self.slot).order < slots.look(other.slot).order
    }
}
