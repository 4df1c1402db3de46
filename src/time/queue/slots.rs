//! Where the entries of a queue live, wherever in it they are.
//!
//! - An entry keeps its slot for life; its key is the slot and the slot's generation, so that a stale
//!   key finds nothing.
//! - Heap and wheel hold numbers of slots; what they need to know of an entry stands here.

/// The number of no slot: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// The address of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) slot: u32,
    generation: u32,
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot; they are chained through `next`.
    free: u32,
    /// The first generation of a new slot: later than any that was given away.
    first: u32,
}

#[derive(Debug)]
pub(super) struct Slot<T> {
    pub(super) deadline: u64,
    /// Tells entries of one deadline apart: the older is smaller.
    pub(super) order: u64,
    /// The entry; a free slot has none.
    value: Option<T>,
    /// Which part of the queue has it.
    pub(super) part: Part,
    /// In the heap, the place there; in a bucket of the wheel, the slot before this one.
    pub(super) place: u32,
    /// In a bucket of the wheel or free, the slot after this one.
    pub(super) next: u32,
    generation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Near,
    /// In this bucket, on this level.
    Far {
        level: u8,
        bucket: u8,
    },
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots {
            slots: Vec::new(),
            free: NONE,
            first: 0,
        }
    }

    pub(super) fn occupy(&mut self, deadline: u64, order: u64, value: T) -> Key {
        let slot = if self.free == NONE {
            let slot = u32::try_from(self.slots.len())
                .ok()
                .filter(|&slot| slot < NONE);
            self.slots.push(Slot {
                deadline: 0,
                order: 0,
                value: None,
                part: Part::Near,
                place: NONE,
                next: NONE,
                generation: self.first,
            });
            slot.expect("four thousand million timers do not fit in memory")
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
        Key {
            slot,
            generation: entry.generation,
        }
    }

    /// Frees a slot, and hands out what was in it.
    pub(super) fn vacate(&mut self, slot: u32) -> T {
        let entry = &mut self.slots[slot as usize];
        let value = entry.value.take().expect("only occupied slots are queued");
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = slot;
        value
    }

    pub(super) fn at(&mut self, slot: u32) -> &mut Slot<T> {
        &mut self.slots[slot as usize]
    }

    pub(super) fn look(&self, slot: u32) -> &Slot<T> {
        &self.slots[slot as usize]
    }

    pub(super) fn is_current(&self, key: Key) -> bool {
        let slot = self.slots.get(key.slot as usize);
        slot.is_some_and(|slot| slot.generation == key.generation && slot.value.is_some())
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
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

    /// Gives the room of a past crowd back, once all are free; new slots begin behind the generations
    /// of the old.
    pub(super) fn shrink(&mut self) {
        if self.slots.capacity() > 1024 {
            let generations = self.slots.iter().map(|slot| slot.generation);
            // A free slot's generation was not given away yet.
            self.first = generations.max().unwrap_or(self.first);
            self.slots = Vec::new();
            self.free = NONE;
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
