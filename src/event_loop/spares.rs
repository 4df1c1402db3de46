//! A value on each loop that needs one, which its loop drops when it parks, and which is then made again.
//!
//! - A value is made when it is first asked for on its loop, lives in the loop's arena, and is handed out as
//!   an `Rc`: no borrow is held while it is used.
//! - It is dropped on its loop: when its [`Spares`] are dropped, by a message to the loop; when the loop
//!   parks, since nothing uses it then; and when the loop ends, with the loop's other values.
//! - Where there can be no value, that is remembered: it is not tried again on that loop.
//!
//! ```text
//! Empty --here--> Making --+--made--> Made --park, end--> Empty
//!   ^                      +--none--> Missing
//!   +------- a panic ------+
//! ```

use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;

use crate::event_loop::arena::ArenaKey;
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Message, Shared};
use crate::sync::{Arc, Mutex, Weak};

/// The values of type `T` of some loops, by their index.
pub(crate) struct Spares<T> {
    slots: Arc<[SpareSlot]>,
    value: PhantomData<fn() -> T>,
}

struct SpareSlot {
    home: Weak<Shared>,
    state: Mutex<SpareState>,
}

#[derive(Clone, Copy)]
enum SpareState {
    Empty,
    /// It is being made, on the loop.
    Making,
    Made(ArenaKey),
    /// There can be none.
    Missing,
}

/// A value; its loop's slot is empty again when it is dropped.
pub(crate) struct Spare<T> {
    value: T,
    slots: Arc<[SpareSlot]>,
    index: usize,
}

impl<T: 'static> Spares<T> {
    pub(crate) fn new(loops: &[EventLoop]) -> Spares<T> {
        let slot = |one: &EventLoop| SpareSlot {
            home: Arc::downgrade(one.shared()),
            state: Mutex::new(SpareState::Empty),
        };
        Spares {
            slots: loops.iter().map(slot).collect(),
            value: PhantomData,
        }
    }

    /// Returns the value of this thread's loop. `make` makes it, or says that there can be none; it is user
    /// code, and is called with nothing held.
    pub(crate) fn here(&self, make: impl FnOnce(&EventLoop) -> Option<T>) -> Option<Rc<Spare<T>>> {
        let local = context::current()?;
        let index = local.shared.index;
        let slot = self.slots.get(index)?;
        let mut state = slot.state.lock();
        match *state {
            SpareState::Making | SpareState::Missing => return None,
            SpareState::Made(key) => {
                drop(state);
                return find(&local, key);
            }
            // A destructor at the end of the loop: a value made now would not be dropped on it.
            SpareState::Empty if local.shared.is_sealed() => return None,
            SpareState::Empty => *state = SpareState::Making,
        }
        drop(state);
        let making = Making(slot);
        let value = make(&EventLoop::new(&local.shared));
        drop(making);
        let made = value.map(|value| {
            Rc::new(Spare {
                value,
                slots: Arc::clone(&self.slots),
                index,
            })
        });
        let key = made.as_ref().map(|made| {
            let value = Box::new(Rc::clone(made));
            local.arena.borrow_mut().insert_spare(value)
        });
        *slot.state.lock() = key.map_or(SpareState::Missing, SpareState::Made);
        made
    }

    /// Whether the loop of this index has a value, or may have one.
    pub(crate) fn may_be_at(&self, index: usize) -> bool {
        let slot = self.slots.get(index);
        slot.is_some_and(|slot| !matches!(*slot.state.lock(), SpareState::Missing))
    }
}

/// Empties the slot again, whether making its value succeeds or panics.
struct Making<'a>(&'a SpareSlot);

impl Drop for Making<'_> {
    fn drop(&mut self) {
        *self.0.state.lock() = SpareState::Empty;
    }
}

/// Returns the value with this key, unless the loop has dropped it.
fn find<T: 'static>(local: &Local, key: ArenaKey) -> Option<Rc<Spare<T>>> {
    let arena = local.arena.borrow();
    arena.get(key)?.downcast_ref::<Rc<Spare<T>>>().cloned()
}

impl<T> Drop for Spares<T> {
    fn drop(&mut self) {
        for slot in &*self.slots {
            let state = *slot.state.lock();
            if let (SpareState::Made(key), Some(home)) = (state, slot.home.upgrade()) {
                // A loop that has ended has already dropped it.
                home.post(Message::Unbind(key));
            }
        }
    }
}

impl<T> Deref for Spare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Spare<T> {
    fn drop(&mut self) {
        // On the loop, which alone asks for the value; what the destructor of `value` asks for is a new one.
        *self.slots[self.index].state.lock() = SpareState::Empty;
    }
}
