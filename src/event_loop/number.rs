//! Loops by number: a task names its home by 32 bits instead of by a pointer.
//!
//! - A number is in use from the creation of its loop until the last reference to the loop is dropped;
//!   then another loop may get it, if the loop has come to its end. (A loop that is dropped while the
//!   thread-locals of its thread are destroyed does not: its number is not used again.)
//! - A number that is used again does no harm. Only a task that has not ended is scheduled, and a loop does
//!   not end while it has such a task: whatever looks a number up finds the loop that it means.
//! - A wake on the home thread compares numbers and looks nothing up. A wake from elsewhere takes the lock of
//!   one slot, which belongs to one loop.
//! - Slots are in chunks, each twice as large as the one before, which are never moved or freed: finding a
//!   slot takes no lock.

use std::fmt;

use crate::sync::{Arc, AtomicBool, Ordering, Weak, plain};

/// The first chunk has so many slots.
const FIRST_CHUNK: u32 = 64;
/// Enough for all numbers.
const CHUNKS: usize = 27;

/// The things of one kind that have numbers.
pub(crate) struct Numbered<T: 'static> {
    chunks: [plain::OnceLock<Box<[NumberSlot<T>]>>; CHUNKS],
    numbers: plain::Mutex<Numbers>,
}

type NumberSlot<T> = plain::Mutex<Weak<T>>;

struct Numbers {
    /// Numbers up to this one were given out.
    used: u32,
    free: Vec<u32>,
    /// How many were ever given out, those that were used again included.
    given: u64,
}

impl<T> Numbered<T> {
    pub(crate) const fn new() -> Numbered<T> {
        Numbered {
            chunks: [const { plain::OnceLock::new() }; CHUNKS],
            numbers: plain::Mutex::new(Numbers {
                used: 0,
                free: Vec::new(),
                given: 0,
            }),
        }
    }

    /// Reserves a number for a thing that is about to be created.
    pub(crate) fn reserve(&'static self) -> Number<T> {
        let mut numbers = self.numbers.lock();
        let number = numbers.free.pop().unwrap_or_else(|| {
            numbers.used += 1; // zero is none
            numbers.used
        });
        numbers.given += 1;
        Number {
            number,
            serial: numbers.given,
            released: AtomicBool::new(false),
            of: self,
        }
    }

    /// Finds what has a number, if there is anything.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<T>> {
        self.slot(number).lock().upgrade()
    }

    fn slot(&self, number: u32) -> &NumberSlot<T> {
        let (chunk, index) = position(number);
        let slots = self.chunks[chunk].get_or_init(|| {
            let len = FIRST_CHUNK << chunk;
            (0..len).map(|_| NumberSlot::new(Weak::new())).collect()
        });
        &slots[index]
    }
}

/// A number, until it is dropped.
pub(crate) struct Number<T: 'static> {
    number: u32,
    serial: u64,
    /// Nothing names the owner by it any more: it may be used again.
    released: AtomicBool,
    of: &'static Numbered<T>,
}

impl<T> Number<T> {
    pub(crate) fn get(&self) -> u32 {
        self.number
    }

    /// A number that no owner has had before, for what outlives this one.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Has the number lead to its owner.
    pub(crate) fn assign(&self, owner: &Arc<T>) {
        *self.of.slot(self.number).lock() = Arc::downgrade(owner);
    }
}

impl<T> Number<T> {
    /// Lets another owner have the number once this one is dropped.
    pub(crate) fn release(&self) {
        // Relaxed: the drop comes later, on whichever thread.
        self.released.store(true, Ordering::Relaxed);
    }
}

impl<T> Drop for Number<T> {
    fn drop(&mut self) {
        // The weak reference is dropped with no lock held: it may be the last one to the memory.
        let slot = self.of.slot(self.number);
        let owner = std::mem::take(&mut *slot.lock());
        drop(owner);
        if self.released.load(Ordering::Relaxed) {
            self.of.numbers.lock().free.push(self.number);
        }
    }
}

impl<T> fmt::Debug for Number<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Number").field(&self.number).finish()
    }
}

/// The chunk of a number, and its index there.
fn position(number: u32) -> (usize, usize) {
    let offset = u64::from(number) + u64::from(FIRST_CHUNK);
    let chunk = offset.ilog2() - FIRST_CHUNK.ilog2();
    let index = offset - (u64::from(FIRST_CHUNK) << chunk);
    (chunk as usize, index as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_slot_of_its_own() {
        assert_eq!(position(0), (0, 0));
        assert_eq!(position(63), (0, 63));
        assert_eq!(position(64), (1, 0));
        assert_eq!(position(191), (1, 127));
        assert_eq!(position(192), (2, 0));
        let (chunk, index) = position(u32::MAX);
        assert!(chunk < CHUNKS && (index as u64) < u64::from(FIRST_CHUNK) << chunk);
    }

    #[test]
    fn a_number_is_used_again_after_its_loop_and_not_before() {
        static TABLE: Numbered<&str> = Numbered::new();
        let mut numbers: Vec<_> = (0..200).map(|_| TABLE.reserve()).collect();
        let taken: Vec<_> = numbers.iter().map(Number::get).collect();
        assert_eq!(taken, (1..=200).collect::<Vec<_>>(), "zero is none");
        let owner = Arc::new("owner");
        numbers[99].assign(&owner);
        assert_eq!(TABLE.find(100).as_deref(), Some(&"owner"));
        assert!(TABLE.find(99).is_none(), "it has no owner");
        let left = numbers.remove(98);
        drop(left);
        let ended = numbers.remove(98);
        ended.release();
        drop(ended);
        assert!(TABLE.find(100).is_none());
        assert_eq!((TABLE.reserve().get(), Arc::weak_count(&owner)), (100, 0));
    }
}
