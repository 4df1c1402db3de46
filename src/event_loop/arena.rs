//! Values that live on a loop and are addressed from any thread.
//!
//! - A key is plain data: it may be sent anywhere, and a stale one finds nothing (it carries a
//!   generation).
//! - A value is taken out while user code works on it, so no borrow is held, and a second access
//!   meanwhile finds the slot [`Taken`](Visit::Taken). A value that is an `Rc` is cloned instead
//!   ([`Arena::get`]), and its visits may nest.
//! - Everything is dropped on the loop thread: [`Arena::take_all`] hands out the remaining values
//!   when the loop is sealed, and from then on nothing new is inserted.
//! - An arena that becomes empty after a burst frees its memory.
//! - A *spare* value can be made again: it does not keep a loop that is not needed on its thread, and is
//!   dropped before the loop parks ([`Arena::take_spares`]).

use std::any::Any;

use slab::Slab;

use crate::event_loop::inbox::KEPT_CAPACITY;
use crate::sync::{Ordering, plain};

/// Identifies a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArenaKey {
    index: usize,
    generation: u64,
}

/// The values of one loop.
pub(crate) struct Arena {
    slots: Slab<ArenaSlot>,
    /// How many of the slots are spare.
    spares: usize,
    generation: u64,
}

struct ArenaSlot {
    generation: u64,
    is_spare: bool,
    value: Option<Box<dyn Any>>,
}

/// The result of [`Arena::take`].
pub(crate) enum Visit {
    /// The value, to be given back.
    Value(Box<dyn Any>),
    /// The value is taken out at the moment.
    Taken,
    /// There is no such value, or no longer.
    Gone,
}

/// How many arenas there were: a loop has another one after it was parked, and keys of the one do not find
/// values of the other.
static ARENAS: plain::AtomicU64 = plain::AtomicU64::new(0);

impl Default for Arena {
    fn default() -> Arena {
        Arena {
            slots: Slab::new(),
            spares: 0,
            generation: ARENAS.fetch_add(1, Ordering::Relaxed) << 32,
        }
    }
}

impl Arena {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether there is nothing but spare values.
    pub(crate) fn is_spare(&self) -> bool {
        self.slots.len() == self.spares
    }

    pub(crate) fn insert(&mut self, value: Box<dyn Any>) -> ArenaKey {
        self.insert_as(value, false)
    }

    /// Inserts a value that the loop drops before it parks.
    pub(crate) fn insert_spare(&mut self, value: Box<dyn Any>) -> ArenaKey {
        self.spares += 1;
        self.insert_as(value, true)
    }

    fn insert_as(&mut self, value: Box<dyn Any>, is_spare: bool) -> ArenaKey {
        self.generation += 1;
        let generation = self.generation;
        let index = self.slots.insert(ArenaSlot {
            generation,
            is_spare,
            value: Some(value),
        });
        ArenaKey { index, generation }
    }

    /// Returns a value that stays in its slot; no user code may be called with it.
    pub(crate) fn get(&self, key: ArenaKey) -> Option<&dyn Any> {
        let slot = self.slots.get(key.index)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.value.as_deref()
    }

    pub(crate) fn take(&mut self, key: ArenaKey) -> Visit {
        match self.slot(key) {
            None => Visit::Gone,
            Some(slot) => slot.value.take().map_or(Visit::Taken, Visit::Value),
        }
    }

    /// Puts a taken value back; returns it if its slot was removed meanwhile.
    pub(crate) fn give_back(&mut self, key: ArenaKey, value: Box<dyn Any>) -> Option<Box<dyn Any>> {
        match self.slot(key) {
            Some(slot) => {
                slot.value = Some(value);
                None
            }
            None => Some(value),
        }
    }

    /// Removes a slot; returns its value unless that is taken.
    pub(crate) fn remove(&mut self, key: ArenaKey) -> Option<Box<dyn Any>> {
        self.slot(key)?;
        let slot = self.slots.remove(key.index);
        self.spares -= usize::from(slot.is_spare);
        if self.slots.is_empty() && self.slots.capacity() > KEPT_CAPACITY {
            self.slots = Slab::new();
        }
        slot.value
    }

    /// Removes the slots of spare values; returns those that are not taken.
    pub(crate) fn take_spares(&mut self) -> Vec<Box<dyn Any>> {
        let spares = self.slots.iter().filter(|(_, slot)| slot.is_spare);
        let spares: Vec<usize> = spares.map(|(index, _)| index).collect();
        self.spares = 0;
        let values = spares.into_iter().map(|index| self.slots.remove(index));
        values.filter_map(|slot| slot.value).collect()
    }

    /// Removes all slots; returns the values that are not taken.
    pub(crate) fn take_all(&mut self) -> Vec<Box<dyn Any>> {
        self.spares = 0;
        std::mem::take(&mut self.slots)
            .into_iter()
            .filter_map(|(_, slot)| slot.value)
            .collect()
    }

    fn slot(&mut self, key: ArenaKey) -> Option<&mut ArenaSlot> {
        self.slots
            .get_mut(key.index)
            .filter(|slot| slot.generation == key.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_does_not_reach_the_successor() {
        let mut arena = Arena::default();
        let first = arena.insert(Box::new(1));
        assert!(arena.remove(first).is_some());
        let second = arena.insert(Box::new(2));
        assert_eq!(first.index, second.index);
        assert!(arena.remove(first).is_none());
        assert!(arena.get(first).is_none() && arena.get(second).is_some());
        assert!(matches!(arena.take(first), Visit::Gone));
        assert!(matches!(arena.take(second), Visit::Value(_)));
    }

    #[test]
    fn a_value_in_use_is_taken_until_it_is_put_back() {
        let mut arena = Arena::default();
        let key = arena.insert(Box::new(5_u8));
        let Visit::Value(value) = arena.take(key) else {
            panic!("it was there")
        };
        assert!(matches!(arena.take(key), Visit::Taken));
        assert!(arena.give_back(key, value).is_none());
        assert_eq!(arena.take_all().len(), 1);
        assert!(matches!(arena.take(key), Visit::Gone));
    }

    #[test]
    fn spare_values_leave_and_the_others_stay() {
        let mut arena = Arena::default();
        let first = arena.insert_spare(Box::new(1));
        assert!(arena.is_spare() && arena.remove(first).is_some());
        let kept = arena.insert(Box::new(2));
        let spare = arena.insert_spare(Box::new(3));
        assert!(!arena.is_spare());
        assert_eq!(arena.take_spares().len(), 1);
        assert!(arena.get(spare).is_none() && arena.get(kept).is_some());
        assert!(arena.remove(kept).is_some() && arena.is_spare());
    }
}
