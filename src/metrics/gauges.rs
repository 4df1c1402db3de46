//! The counters of a running loop.
//!
//! - Each counter has one writer, the loop thread: a plain load and store, no read-modify-write. Polls and
//!   wakes are counted in cells and published once per turn. Submissions and wakes by other threads are
//!   counted by the inbox, under the lock that they hold anyway.
//! - The counters are for observation only, so they order nothing: a reader may see values from slightly
//!   different times, which add up once the loop is idle.
//! - The clock is read only for times, and only in groups that were built to measure them.

use std::sync::OnceLock;
use std::time::Duration;

use crate::sync::{Ordering, plain};

/// The counters; on their own cache line, apart from data that other threads write.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gauges {
    pub(crate) polls: Gauge,
    /// Tasks woken on the loop itself.
    pub(crate) woken_here: Gauge,
    pub(crate) parks: Gauge,
    pub(crate) timers_fired: Gauge,
    /// In nanoseconds.
    pub(crate) busy: Gauge,
    pub(crate) longest_poll: Gauge,
    /// Tasks of other loops of the group that were woken here, by the index of their loop; allocated at the
    /// first such wake.
    sent: OnceLock<Box<[Gauge]>>,
}

impl Gauges {
    /// Counts a wake of a task whose home is loop `to` of `loops`.
    pub(crate) fn sent(&self, to: usize, loops: usize) {
        let make = || (0..loops).map(|_| Gauge::default()).collect();
        self.sent.get_or_init(make)[to].add(1);
    }

    /// Returns how many tasks of loop `to` were woken here.
    pub(crate) fn sent_to(&self, to: usize) -> u64 {
        self.sent.get().map_or(0, |sent| sent[to].get())
    }

    /// Records how long a poll took.
    pub(crate) fn polled(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.busy.add(nanos);
        if nanos > self.longest_poll.get() {
            self.longest_poll.set(nanos);
        }
    }
}

/// A number that one thread writes at a time, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Gauge(plain::AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
