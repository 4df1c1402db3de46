//! Values that live on a loop and are addressed from anywhere.
//!
//! - A key is plain data: it may travel, and a stale one finds nothing (it carries a generation).
//! - A value is taken out while user code works on it, so no borrow is held and a second access
//!   meanwhile finds the place [`Taken`](Visit::Taken).
//! - Everything is dropped on the loop thread: [`Arena::take_all`] hands the rest out at the end, when the loop is
//!   sealed, and from then on nothing new is put here.

use std::any::Any;

use slab::Slab;

/// The address of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: usize,
    generation: u64,
}

/// The values of one loop.
#[derive(Default)]
pub(crate) struct Arena {
    places: Slab<Place>,
    generation: u64,
}

struct Place {
    generation: u64,
    value: Option<Box<dyn Any>>,
}

/// What a look at a place found.
pub(crate) enum Visit {
    /// The value, to be given back.
    Value(Box<dyn Any>),
    /// Somebody has the value.
    Taken,
    /// No such value, or no longer.
    Gone,
}

impl Arena {
    pub(crate) fn insert(&mut self, value: Box<dyn Any>) -> Key {
        self.generation += 1;
        let generation = self.generation;
        let index = self.places.insert(Place {
            generation,
            value: Some(value),
        });
        Key { index, generation }
    }

    pub(crate) fn take(&mut self, key: Key) -> Visit {
        match self.place(key) {
            None => Visit::Gone,
            Some(place) => place.value.take().map_or(Visit::Taken, Visit::Value),
        }
    }

    /// Gives a taken value back; returns it if its place was given up meanwhile.
    pub(crate) fn give_back(&mut self, key: Key, value: Box<dyn Any>) -> Option<Box<dyn Any>> {
        match self.place(key) {
            Some(place) => {
                place.value = Some(value);
                None
            }
            None => Some(value),
        }
    }

    /// Gives a place up and returns its value, if nobody has it.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<dyn Any>> {
        self.place(key)?;
        self.places.remove(key.index).value
    }

    /// Gives every place up.
    pub(crate) fn take_all(&mut self) -> Vec<Box<dyn Any>> {
        std::mem::take(&mut self.places)
            .into_iter()
            .filter_map(|(_, place)| place.value)
            .collect()
    }

    /// Gives the room of a past crowd back, beyond so many places.
    pub(crate) fn give_room_back(&mut self, room: usize) {
        if self.places.capacity() > room && self.places.is_empty() {
            self.places = Slab::new();
        }
    }

    fn place(&mut self, key: Key) -> Option<&mut Place> {
        self.places
            .get_mut(key.index)
            .filter(|place| place.generation == key.generation)
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
        assert!(matches!(arena.take(first), Visit::Gone));
        assert!(matches!(arena.take(second), Visit::Value(_)));
    }

    #[test]
    fn a_value_in_use_is_taken_and_comes_back() {
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
}
