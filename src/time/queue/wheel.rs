//! The far part of a queue: buckets that get wider with distance, each a chain of slots.
//!
//! Time is counted in grains of a millisecond or so, written with digits of six bits. An entry lies on
//! the level of the highest digit in which its grain differs from `base`, in the bucket of that digit.
//!
//! Invariants:
//! - Every entry's grain is after `base`; so on each level only buckets after the digit of `base` are
//!   occupied, and whatever lies on a level is earlier than everything on the levels above.
//! - `base` moves to the first grain of the earliest bucket, which is emptied then, or to a grain before that:
//!   digits above that level stay, so the other buckets hold what they should.
//! - A chain goes through the slots both ways: in and out is O(1), and nothing is allocated.

use super::slots::{NONE, Part, Slots};

/// A grain is 2^20 ns.
const GRAIN: u32 = 20;
const DIGIT: u32 = 6;
const BUCKETS: usize = 1 << DIGIT;
/// So many entries of a bucket are looked at rather than moved.
const FEW: usize = 16;
/// The digits of the last grain.
const LEVELS: usize = (u64::BITS - GRAIN).div_ceil(DIGIT) as usize;

#[derive(Debug)]
pub(super) struct Wheel {
    base: u64,
    /// The first slot of each bucket.
    heads: [[u32; BUCKETS]; LEVELS],
    /// Which buckets of a level are occupied, a bit each.
    occupied: [u64; LEVELS],
}

impl Wheel {
    pub(super) const fn new() -> Wheel {
        Wheel {
            base: 0,
            heads: [[NONE; BUCKETS]; LEVELS],
            occupied: [0; LEVELS],
        }
    }

    /// Where a deadline belongs; `None` if it is near.
    fn bucket(&self, deadline: u64) -> Option<(u8, u8)> {
        let grain = deadline >> GRAIN;
        if grain <= self.base {
            return None;
        }
        let level = (grain ^ self.base).ilog2() / DIGIT;
        let bucket = (grain >> (level * DIGIT)) as usize % BUCKETS;
        Some((level as u8, bucket as u8))
    }

    /// Takes an entry in; `false` if its deadline is too near.
    pub(super) fn insert<T>(&mut self, slots: &mut Slots<T>, slot: u32) -> bool {
        let Some((level, bucket)) = self.bucket(slots.look(slot).deadline) else {
            return false;
        };
        let head = &mut self.heads[usize::from(level)][usize::from(bucket)];
        let next = std::mem::replace(head, slot);
        self.occupied[usize::from(level)] |= 1 << bucket;
        let entry = slots.at(slot);
        entry.part = Part::Far { level, bucket };
        entry.place = NONE;
        entry.next = next;
        if next != NONE {
            slots.at(next).place = slot;
        }
        true
    }

    pub(super) fn remove<T>(&mut self, slots: &mut Slots<T>, slot: u32, level: u8, bucket: u8) {
        let entry = slots.look(slot);
        let (before, after) = (entry.place, entry.next);
        if after != NONE {
            slots.at(after).place = before;
        }
        if before != NONE {
            slots.at(before).next = after;
            return;
        }
        self.heads[usize::from(level)][usize::from(bucket)] = after;
        if after == NONE {
            self.occupied[usize::from(level)] &= !(1 << bucket);
        }
    }

    /// The level of the earliest bucket, its number there and its first grain.
    fn first(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&buckets| buckets != 0)?;
        let bucket = self.occupied[level].trailing_zeros();
        let shift = level as u32 * DIGIT;
        let above = (self.base >> shift) >> DIGIT;
        let grain = (above << DIGIT | u64::from(bucket)) << shift;
        Some((level, bucket as usize, grain))
    }

    /// The earliest deadline, if few entries have to be looked at for it.
    pub(super) fn earliest<T>(&self, slots: &Slots<T>) -> Option<Earliest> {
        let (level, bucket, _) = self.first()?;
        let mut slot = self.heads[level][bucket];
        let mut least = u64::MAX;
        for _ in 0..FEW {
            let entry = slots.look(slot);
            least = least.min(entry.deadline);
            slot = entry.next;
            if slot == NONE {
                return Some(Earliest::At(least));
            }
        }
        Some(Earliest::OfMany)
    }

    /// Moves on to `now`, unless there may be entries up to there.
    pub(super) fn pass(&mut self, now: u64) -> bool {
        let now = now >> GRAIN;
        if self.first().is_some_and(|(.., grain)| grain <= now) {
            return false;
        }
        self.base = self.base.max(now);
        true
    }

    /// Moves on to the earliest bucket and empties it: the first of its chain of slots, all of which
    /// are to be queued again, `NONE` if there is nothing far.
    pub(super) fn advance(&mut self) -> u32 {
        let Some((level, bucket, grain)) = self.first() else {
            return NONE;
        };
        self.occupied[level] &= !(1 << bucket);
        self.base = grain;
        std::mem::replace(&mut self.heads[level][bucket], NONE)
    }

    /// Has an empty wheel begin at `now`.
    pub(super) fn begin(&mut self, now: u64) {
        self.base = now >> GRAIN;
    }
}

/// What is known of the earliest bucket.
pub(super) enum Earliest {
    /// Its earliest deadline.
    At(u64),
    /// That it holds many entries, and is better brought nearer.
    OfMany,
}
