//! The far part of a queue: buckets that get wider with distance, each a list of slots.
//!
//! Time is counted in grains of about a millisecond, written with digits of six bits. An entry is on
//! the level of the highest digit in which its grain differs from `base`, in the bucket of that digit.
//!
//! Invariants:
//! - Every entry's grain is after `base`; so on each level only buckets after the digit of `base` are
//!   occupied, and everything on a level is earlier than everything on the levels above.
//! - `base` moves to the first grain of the earliest bucket, which is then emptied, or to a grain
//!   before that: the digits above that level stay, so the other buckets keep the right entries.
//! - A list is doubly linked through the slots: insertion and removal are O(1), and nothing is
//!   allocated.

use super::slots::{Bucket, NONE, Slots};

/// A grain is 2^20 ns.
const GRAIN_BITS: u32 = 20;
const DIGIT_BITS: u32 = 6;
const BUCKETS: usize = 1 << DIGIT_BITS;
/// A bucket with up to this many entries is scanned rather than distributed.
const SCAN_LIMIT: usize = 16;
/// The number of digits of the greatest grain.
const LEVELS: usize = (u64::BITS - GRAIN_BITS).div_ceil(DIGIT_BITS) as usize;

#[derive(Debug)]
pub(super) struct Wheel {
    /// The grain that the wheel has advanced to.
    base: u64,
    /// The first slot of each bucket, level by level.
    heads: [u32; LEVELS * BUCKETS],
    /// Which buckets of a level are occupied, one bit each.
    occupied: [u64; LEVELS],
}

impl Wheel {
    pub(super) const fn new() -> Wheel {
        Wheel {
            base: 0,
            heads: [NONE; LEVELS * BUCKETS],
            occupied: [0; LEVELS],
        }
    }

    /// The bucket of a deadline; `None` if it belongs to the heap.
    #[inline]
    pub(super) fn bucket(&self, deadline: u64) -> Option<Bucket> {
        let grain = deadline >> GRAIN_BITS;
        if grain <= self.base {
            return None;
        }
        let level = (grain ^ self.base).ilog2() / DIGIT_BITS;
        let digit = (grain >> (level * DIGIT_BITS)) as usize % BUCKETS;
        // Never zero: the digit is greater than that of `base`.
        Bucket::new((level as usize * BUCKETS + digit) as u16)
    }

    /// Inserts a slot into a bucket, as the first.
    #[inline]
    pub(super) fn insert<T>(&mut self, slots: &mut Slots<T>, slot: u32, bucket: Bucket) {
        let (level, digit) = split(bucket);
        self.occupied[level] |= 1 << digit;
        let next = std::mem::replace(&mut self.heads[level * BUCKETS + digit], slot);
        let entry = slots.entry_mut(slot);
        entry.bucket = Some(bucket);
        entry.previous = NONE;
        entry.next = next;
        if next != NONE {
            slots.entry_mut(next).previous = slot;
        }
    }

    /// Removes a slot from its bucket.
    #[inline]
    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32, bucket: Bucket) {
        let entry = slots.entry(slot);
        let (before, after) = (entry.previous, entry.next);
        if after != NONE {
            slots.entry_mut(after).previous = before;
        }
        if before != NONE {
            slots.entry_mut(before).next = after;
            return;
        }
        let (level, digit) = split(bucket);
        self.heads[level * BUCKETS + digit] = after;
        if after == NONE {
            self.occupied[level] &= !(1 << digit);
        }
    }

    /// The level of the earliest bucket, its number there and its first grain.
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&buckets| buckets != 0)?;
        let bucket = self.occupied[level].trailing_zeros();
        let shift = level as u32 * DIGIT_BITS;
        let above = (self.base >> shift) >> DIGIT_BITS;
        let grain = (above << DIGIT_BITS | u64::from(bucket)) << shift;
        Some((level, bucket as usize, grain))
    }

    /// The earliest deadline, if few entries have to be scanned for it.
    pub(super) fn earliest<T>(&self, slots: &Slots<T>) -> Option<Earliest> {
        let (level, bucket, _) = self.first()?;
        let mut slot = self.heads[level * BUCKETS + bucket];
        let mut least = u64::MAX;
        for _ in 0..SCAN_LIMIT {
            let entry = slots.entry(slot);
            least = least.min(entry.deadline);
            slot = entry.next;
            if slot == NONE {
                return Some(Earliest::At(least));
            }
        }
        Some(Earliest::OfMany)
    }

    /// Advances to `now`, unless there may be entries up to then.
    pub(super) fn try_advance_to(&mut self, now: u64) -> bool {
        let now = now >> GRAIN_BITS;
        if self.first().is_some_and(|(.., grain)| grain <= now) {
            return false;
        }
        self.base = self.base.max(now);
        true
    }

    /// Advances to the earliest bucket and empties it. Returns the first slot of its list, all of which
    /// have to be queued again; `NONE` if the wheel is empty.
    pub(super) fn advance(&mut self) -> u32 {
        let Some((level, bucket, grain)) = self.first() else {
            return NONE;
        };
        self.occupied[level] &= !(1 << bucket);
        self.base = grain;
        std::mem::replace(&mut self.heads[level * BUCKETS + bucket], NONE)
    }

    /// Sets the start of an empty wheel to `now`.
    pub(super) fn begin(&mut self, now: u64) {
        self.base = now >> GRAIN_BITS;
    }
}

/// The level of a bucket, and its number there.
#[inline]
fn split(bucket: Bucket) -> (usize, usize) {
    let bucket = usize::from(bucket.get());
    (bucket / BUCKETS % LEVELS, bucket % BUCKETS)
}

/// What a scan of the earliest bucket finds.
pub(super) enum Earliest {
    /// Its earliest deadline.
    At(u64),
    /// It holds too many entries to scan, and has to be distributed.
    OfMany,
}
