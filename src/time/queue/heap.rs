//! The near part of a queue: a four-way heap whose entries know their index.
//!
//! Invariants:
//! - A node is not later than its children; "later" is by deadline, then by order of insertion.
//! - The slot of a node knows the index of the node: that makes removal O(log n).

use super::slots::{EntryLocation, Slots};

#[derive(Debug)]
pub(super) struct Heap(Vec<Node>);

#[derive(Clone, Copy, Debug)]
struct Node {
    deadline: u64,
    slot: u32,
}

/// Children per node: shallower than a binary heap, and the children of a node share a cache line
/// or two.
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
        let entry = slots.entry_mut(slot);
        entry.location = EntryLocation::Heap;
        let deadline = entry.deadline;
        self.0.push(Node { deadline, slot });
        self.rise(slots, self.0.len() - 1);
    }

    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32) {
        let index = slots.entry(slot).position as usize;
        self.0.swap_remove(index);
        if index < self.0.len() && self.rise(slots, index) == index {
            self.sink(slots, index);
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

    /// Moves the node at `index` up to where it belongs; returns its new index.
    fn rise<T>(&mut self, slots: &mut Slots<T>, mut index: usize) -> usize {
        let node = self.0[index];
        while index > 0 {
            let parent = (index - 1) / WAYS;
            if !node.is_before(self.0[parent], slots) {
                break;
            }
            self.set(slots, index, self.0[parent]);
            index = parent;
        }
        self.set(slots, index, node);
        index
    }

    /// Moves the node at `index` down to where it belongs.
    fn sink<T>(&mut self, slots: &mut Slots<T>, mut index: usize) {
        let node = self.0[index];
        loop {
            let first = index * WAYS + 1;
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
            self.set(slots, index, self.0[least]);
            index = least;
        }
        self.set(slots, index, node);
    }

    fn set<T>(&mut self, slots: &mut Slots<T>, index: usize, node: Node) {
        // There are fewer nodes than slots, and slots are numbered by a u32.
        slots.entry_mut(node.slot).position = index as u32;
        self.0[index] = node;
    }
}

impl Node {
    fn is_before<T>(self, other: Node, slots: &Slots<T>) -> bool {
        self.deadline < other.deadline
            || self.deadline == other.deadline
                && slots.entry(self.slot).order < slots.entry(other.slot).order
    }
}
