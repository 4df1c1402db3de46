//! A ring of records that one thread writes and any thread reads.
//!
//! - Its memory is fixed. A record is three words; the newest record replaces the oldest one.
//! - The writer never waits: it stores the words of a record, and then the number of records. A reader copies
//!   the ring, looks at that number again, and discards what may have been overwritten meanwhile.
//! - The words are atomics with relaxed accesses, so a reader that races with the writer sees old and new
//!   words mixed, and nothing worse. Two fences make sure that it notices.
//!
//! ```text
//!   writer:  head = n   release fence   words of record n   head = n + 1
//!   reader:  head       words           acquire fence       head again
//! ```
//!
//! A reader that has seen a word of record `n` sees a head of `n` at least when it looks again: the release
//! fence comes after the store of `n` and before that word, and the acquire fence after the load of the word.
//! So what it has read in the place of record `n` counts only for records after `n − length`.

use crate::sync::{AtomicU64, Ordering, fence};

/// A record, as it is stored.
pub(crate) type Record = [u64; 3];

/// The ring.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Ring {
    /// How many records were ever written. Written by the writer alone.
    head: AtomicU64,
    slots: Box<[[AtomicU64; 3]]>,
    /// The length of `slots`, which is a power of two, minus one.
    mask: u64,
}

impl Ring {
    /// Creates a ring of `length` records, a power of two; `None` if there is no memory for it.
    pub(crate) fn new(length: usize) -> Option<Ring> {
        debug_assert!(length.is_power_of_two());
        let mut slots = Vec::new();
        slots.try_reserve_exact(length).ok()?;
        slots.resize_with(length, || [0; 3].map(AtomicU64::new));
        Some(Ring {
            head: AtomicU64::new(0),
            slots: slots.into_boxed_slice(),
            mask: length as u64 - 1,
        })
    }

    fn slot(&self, number: u64) -> &[AtomicU64; 3] {
        &self.slots[(number & self.mask) as usize]
    }

    /// Writes a record; for the one thread that writes.
    #[inline]
    pub(crate) fn push(&self, record: Record) {
        let head = self.head.load(Ordering::Relaxed);
        // Pairs with the fence in `read`: a reader that sees a word of this record sees the head before it.
        fence(Ordering::Release);
        for (word, value) in self.slot(head).iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        // Pairs with the first load in `read`: the words of a record that counts are there.
        self.head.store(head + 1, Ordering::Release);
    }

    /// Copies the records that are there, the oldest one first: fewer than the length of the ring.
    pub(crate) fn read(&self) -> Vec<Record> {
        let end = self.head.load(Ordering::Acquire);
        let begin = end.saturating_sub(self.mask);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let mut records: Vec<Record> = (begin..end)
            .map(|number| self.slot(number).each_ref().map(load))
            .collect();
        fence(Ordering::Acquire);
        // The record of that number may be half written, in the place of one that was copied.
        let now = self.head.load(Ordering::Relaxed);
        let valid = now.saturating_sub(self.mask);
        let overwritten = valid.saturating_sub(begin).min(end - begin);
        records.drain(..overwritten as usize);
        records
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::sync::AtomicBool;

    /// A record whose words belong together.
    fn record(number: u64) -> Record {
        [number, number.wrapping_mul(0x9E37_79B9_7F4A_7C15), !number]
    }

    #[test]
    fn an_empty_ring_has_no_records() {
        assert_eq!(Ring::new(4).unwrap().read(), Vec::<Record>::new());
    }

    #[test]
    fn the_newest_records_are_kept_in_order() {
        let ring = Ring::new(8).unwrap();
        for number in 0..1_000 {
            ring.push(record(number));
            let kept = ring.read();
            let first = (number + 1).saturating_sub(7);
            let expected: Vec<_> = (first..=number).map(record).collect();
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn a_ring_that_does_not_fit_in_memory_is_refused() {
        assert!(Ring::new(1 << 60).is_none());
    }

    #[test]
    fn a_reader_that_races_with_the_writer_never_sees_a_record_that_was_not_written() {
        let ring = Ring::new(16).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let (mut looks, mut seen) = (0, 0);
                        while looks == 0 || !done.load(Ordering::Acquire) {
                            let records = ring.read();
                            for pair in records.windows(2) {
                                assert_eq!(pair[0][0] + 1, pair[1][0], "in order, without a gap");
                            }
                            for one in &records {
                                assert_eq!(*one, record(one[0]), "as it was written");
                            }
                            seen += records.len();
                            looks += 1;
                        }
                        seen
                    })
                })
                .collect();
            for number in 0..200_000 {
                ring.push(record(number));
            }
            done.store(true, Ordering::Release);
            for reader in readers {
                reader.join().unwrap();
            }
        });
        assert_eq!(ring.read().len(), 15);
    }
}
