//! The storage of a queue's entries, whether they are in its heap or in its wheel.
//!
//! - An entry keeps its slot for life; its key is the slot and the lower half of its first order, so
//!   that a stale key finds nothing.
//! - Heap and wheel hold slot numbers; what they need to know about an entry is stored here.

use slab::Slab;

/// Not a slot: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Identifies an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    pub(super) slot: u32,
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Slots<T>(Slab<QueueSlot<T>>);

#[derive(Debug)]
pub(super) struct QueueSlot<T> {
    pub(super) deadline: u64,
    /// Orders entries with the same deadline: the older is smaller.
    pub(super) order: u64,
    value: T,
    /// The level and number of its bucket, if it is in the wheel.
    pub(super) bucket: Option<(u8, u8)>,
    /// The previous slot in its bucket.
    pub(super) previous: u32,
    /// The next slot in its bucket.
    pub(super) next: u32,
    generation: u32,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots(Slab::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn occupy(&mut self, deadline: u64, order: u64, value: T) -> TimerKey {
        let generation = order as u32;
        let slot = self.0.insert(QueueSlot {
            deadline,
            order,
            value,
            bucket: None,
            previous: NONE,
            next: NONE,
            generation,
        });
        assert!(slot < NONE as usize, "fewer timers than a u32 can number");
        let slot = slot as u32;
        TimerKey { slot, generation }
    }

    /// Frees a slot and returns its value.
    pub(super) fn vacate(&mut self, slot: u32) -> T {
        self.0.remove(slot as usize).value
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut QueueSlot<T> {
        &mut self.0[slot as usize]
    }

    pub(super) fn entry(&self, slot: u32) -> &QueueSlot<T> {
        &self.0[slot as usize]
    }

    /// Whether there is an entry of this order in the slot.
    pub(super) fn has_order(&self, slot: u32, order: u64) -> bool {
        let entry = self.0.get(slot as usize);
        entry.is_some_and(|entry| entry.order == order)
    }

    pub(super) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.0
            .get_mut(key.slot as usize)
            .filter(|slot| slot.generation == key.generation)
            .map(|slot| &mut slot.value)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, slot)| &slot.value)
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(_, slot)| slot.deadline)
    }

    /// Frees a large allocation; for when all slots are free.
    pub(super) fn shrink(&mut self) {
        if self.0.capacity() > 1024 {
            self.0 = Slab::new();
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
