//! The storage of a queue's entries, whether they are in its heap or in its wheel.
//!
//! - An entry keeps its slot for life; its key is the slot and the lower half of its first order, so
//!   that a stale key finds nothing.
//! - Heap and wheel hold slot numbers; what they need to know about an entry is stored here.
//! - A slot is free if it has no value. Free slots are a list, through `next`; the slot that was freed last
//!   is used first. (Not a `Slab`: that moves whole slots in and out; here a drop moves the value alone.)

use std::num::NonZeroU16;

/// Not a slot: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// Identifies an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    pub(super) slot: u32,
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<QueueSlot<T>>,
    /// The first free slot.
    free: u32,
    /// How many slots are occupied.
    len: usize,
}

#[derive(Debug)]
pub(super) struct QueueSlot<T> {
    pub(super) deadline: u64,
    /// Orders entries with the same deadline: the older is smaller.
    pub(super) order: u64,
    /// `None` if the slot is free.
    value: Option<T>,
    /// The previous slot in its bucket.
    pub(super) previous: u32,
    /// The next slot in its bucket, or in the list of free slots.
    pub(super) next: u32,
    generation: u32,
    /// Its bucket, if it is in the wheel.
    pub(super) bucket: Option<Bucket>,
}

/// A bucket of the wheel: its level and its number there.
pub(super) type Bucket = NonZeroU16;

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Occupies a slot; its place in a bucket is set by the wheel.
    #[inline]
    pub(super) fn occupy(&mut self, deadline: u64, order: u64, value: T) -> TimerKey {
        let generation = order as u32;
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let entry = self.entry_mut(slot);
        let next = entry.next;
        entry.deadline = deadline;
        entry.order = order;
        entry.value = Some(value);
        entry.generation = generation;
        self.free = next;
        self.len += 1;
        TimerKey { slot, generation }
    }

    /// Adds a free slot; there is none.
    #[cold]
    fn grow(&mut self) {
        let slot = self.slots.len();
        assert!(slot < NONE as usize, "fewer timers than a u32 can number");
        self.slots.push(QueueSlot {
            deadline: 0,
            order: 0,
            value: None,
            previous: NONE,
            next: NONE,
            generation: 0,
            bucket: None,
        });
        self.free = slot as u32;
    }

    /// Frees an occupied slot and returns its value.
    #[inline]
    pub(super) fn vacate(&mut self, slot: u32) -> T {
        let free = self.free;
        let entry = self.entry_mut(slot);
        let value = entry.value.take().expect("the slot is occupied");
        entry.next = free;
        self.free = slot;
        self.len -= 1;
        value
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut QueueSlot<T> {
        &mut self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn entry(&self, slot: u32) -> &QueueSlot<T> {
        &self.slots[slot as usize]
    }

    /// Whether there is an entry of this order in the slot.
    pub(super) fn has_order(&self, slot: u32, order: u64) -> bool {
        let entry = self.slots.get(slot as usize);
        entry.is_some_and(|entry| entry.order == order && entry.value.is_some())
    }

    /// Whether there is an entry with this key.
    #[inline]
    pub(super) fn has(&self, key: TimerKey) -> bool {
        let entry = self.slots.get(key.slot as usize);
        entry.is_some_and(|entry| entry.generation == key.generation && entry.value.is_some())
    }

    pub(super) fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.slots
            .get_mut(key.slot as usize)
            .filter(|slot| slot.generation == key.generation)?
            .value
            .as_mut()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = u64> {
        let occupied = self.slots.iter().filter(|slot| slot.value.is_some());
        occupied.map(|slot| slot.deadline)
    }

    /// Frees a large allocation; for when all slots are free.
    pub(super) fn shrink(&mut self) {
        if self.slots.capacity() > 1024 {
            *self = Slots::new();
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
