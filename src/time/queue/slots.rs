//! The storage of a queue's entries, whether they are in its heap or in its wheel.
//!
//! - An entry keeps its slot for life; its key is the slot and the slot's generation, so that a stale
//!   key finds nothing.
//! - Heap and wheel hold slot numbers; what they need to know about an entry is stored here.

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
    /// The first free slot; free slots are linked through `next`.
    free: u32,
    /// The first generation of a new slot: later than any that a key has.
    first_generation: u32,
}

#[derive(Debug)]
pub(super) struct QueueSlot<T> {
    pub(super) deadline: u64,
    /// Orders entries with the same deadline: the older is smaller.
    pub(super) order: u64,
    /// The entry; a free slot has none.
    value: Option<T>,
    /// Which part of the queue holds the entry.
    pub(super) location: EntryLocation,
    /// In the heap, the index there; in a bucket of the wheel, the previous slot.
    pub(super) position: u32,
    /// In a bucket of the wheel, or in the list of free slots, the next slot.
    pub(super) next: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryLocation {
    Heap,
    /// In this bucket, on this level.
    Wheel {
        level: u8,
        bucket: u8,
    },
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: NONE,
            first_generation: 0,
        }
    }

    pub(super) fn occupy(&mut self, deadline: u64, order: u64, value: T) -> TimerKey {
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.slots.len())
                .ok()
                .filter(|&slot| slot < NONE);
            self.slots.push(QueueSlot {
                deadline: 0,
                order: 0,
                value: None,
                location: EntryLocation::Heap,
                position: NONE,
                next: NONE,
                generation: self.first_generation,
            });
            slot.expect("fewer timers than a u32 can number")
        } else {
            self.free
        };
        let entry = &mut self.slots[slot as usize];
        if slot == self.free {
            self.free = entry.next;
        }
        entry.deadline = deadline;
        entry.order = order;
        entry.value = Some(value);
        TimerKey {
            slot,
            generation: entry.generation,
        }
    }

    /// Frees a slot and returns its value.
    pub(super) fn vacate(&mut self, slot: u32) -> T {
        let entry = &mut self.slots[slot as usize];
        let value = entry.value.take().expect("only occupied slots are queued");
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = slot;
        value
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut QueueSlot<T> {
        &mut self.slots[slot as usize]
    }

    pub(super) fn entry(&self, slot: u32) -> &QueueSlot<T> {
        &self.slots[slot as usize]
    }

    pub(super) fn is_current(&self, key: TimerKey) -> bool {
        let slot = self.slots.get(key.slot as usize);
        slot.is_some_and(|slot| slot.generation == key.generation && slot.value.is_some())
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

    /// Frees a large allocation; for when all slots are free. New slots begin after the generations
    /// of the old ones.
    pub(super) fn shrink(&mut self) {
        if self.slots.capacity() > 1024 {
            let generations = self.slots.iter().map(|slot| slot.generation);
            // No key has the generation of a free slot yet.
            self.first_generation = generations.max().unwrap_or(self.first_generation);
            self.slots = Vec::new();
            self.free = NONE;
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
