//! The timer queue beside a sorted map that does the same the slow way.

use std::collections::BTreeMap;

use crate::fuzzing::Bytes;
use crate::time::queue::{Queue, TimerKey};

/// More than this many at once are a crowd, whose room is given back.
const CROWD: usize = 1025;

#[derive(Debug)]
struct Pair {
    queue: Queue<u64>,
    /// By deadline, then by order of insertion.
    model: BTreeMap<(u64, u64), u64>,
    /// Every key that was given out, stale ones too, with its place in the model and its value.
    keys: Vec<(TimerKey, (u64, u64), u64)>,
    order: u64,
}

/// Runs the operations that `data` spells.
pub fn queue(data: &[u8]) {
    let mut bytes = Bytes(data);
    let mut pair = Pair {
        queue: Queue::new(),
        model: BTreeMap::new(),
        keys: Vec::new(),
        order: 0,
    };
    let mut now = 0_u64;
    // Few distinct deadlines, so that equal ones are common; or all over the wheel, to the end of time.
    let scale = bytes.below(3);
    let mut crowds = 0;
    while let Some(operation) = bytes.next() {
        let spread = 1_u64 << [0, 18, bytes.below(57)][scale];
        let deadline = now.saturating_add(bytes.below(256) as u64 * spread);
        let which = bytes.below(256) * pair.keys.len() / 256;
        match operation % 16 {
            0..=5 => pair.insert(deadline),
            6..=7 if which < pair.keys.len() => pair.remove(which),
            8..=9 if which < pair.keys.len() => pair.reset(which, deadline),
            10 if which < pair.keys.len() => pair.look(which),
            11 if crowds < 2 => {
                crowds += 1;
                (0..CROWD).for_each(|_| pair.insert(deadline));
            }
            12 => pair.look_after(deadline),
            13 if operation > 128 => pair.clear(),
            _ => {
                now = deadline;
                pair.advance(now);
            }
        }
        // Not after every operation: asking for the earliest brings what is far near.
        if operation < 128 {
            pair.check();
        }
    }
    pair.advance(u64::MAX);
    assert!(pair.queue.is_empty() && pair.model.is_empty());
    let gone = pair
        .keys
        .iter()
        .all(|&(key, ..)| pair.queue.remove(key).is_none());
    assert!(gone, "every key is stale at the end");
}

impl Pair {
    fn insert(&mut self, deadline: u64) {
        let (place, value) = ((deadline, self.order), self.order);
        self.order += 1;
        let key = self.queue.insert(deadline, value);
        assert!(self.model.insert(place, value).is_none());
        self.keys.push((key, place, value));
    }

    fn remove(&mut self, which: usize) {
        let (key, place, _) = self.keys[which];
        assert_eq!(self.queue.remove(key), self.model.remove(&place));
        assert_eq!(self.queue.remove(key), None, "gone at once");
    }

    fn reset(&mut self, which: usize, deadline: u64) {
        let (key, place, value) = self.keys[which];
        let known = self.model.remove(&place).is_some();
        assert_eq!(self.queue.reset(key, deadline), known);
        if known {
            let place = (deadline, self.order);
            self.order += 1;
            self.model.insert(place, value);
            self.keys[which].1 = place;
        }
    }

    fn look(&mut self, which: usize) {
        let (key, place, _) = self.keys[which];
        let known = self.model.get(&place).copied();
        assert_eq!(self.queue.get_mut(key).copied(), known);
    }

    fn look_after(&self, now: u64) {
        let after = self.model.keys().find(|&&(deadline, _)| deadline > now);
        let expected = after.map(|&(deadline, _)| deadline);
        assert_eq!(self.queue.next_deadline_after(now), expected);
    }

    fn advance(&mut self, now: u64) {
        while let Some(value) = self.queue.pop_due(now) {
            let ((deadline, _), expected) = self.model.pop_first().expect("due in both");
            assert!(deadline <= now, "never early");
            assert_eq!(value, expected, "in order");
        }
        let earliest = self.model.keys().next().map(|&(deadline, _)| deadline);
        assert!(
            earliest.is_none_or(|earliest| earliest > now),
            "none is late"
        );
    }

    fn clear(&mut self) {
        let mut cleared = self.queue.clear();
        cleared.sort_unstable();
        let mut expected: Vec<u64> = std::mem::take(&mut self.model).into_values().collect();
        expected.sort_unstable();
        assert_eq!(cleared, expected);
    }

    fn check(&mut self) {
        assert_eq!(self.queue.len(), self.model.len());
        assert_eq!(self.queue.is_empty(), self.model.is_empty());
        let earliest = self.model.keys().next().map(|&(deadline, _)| deadline);
        assert_eq!(self.queue.next_deadline(), earliest);
        assert_eq!(self.queue.values().count(), self.model.len());
    }
}
