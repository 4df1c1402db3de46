//! The recorder of a group, and the tape of each of its loops.
//!
//! - The state of a recorder is a number: odd while it is frozen. Loops look at it before every record, with
//!   one relaxed load of a word that hardly ever changes.
//! - A loop notes on its tape that the recorder was frozen and goes on; what was open then has no end there.
//! - Times are nanoseconds since a moment that all recorders of the process share, so that the traces of
//!   several groups fit together.
//! - Times of a virtual clock begin with the clock. It stands still while loops work, so every reading is a
//!   nanosecond after the one before: events keep their order, also between loops.

use std::collections::HashMap;
use std::time::Instant;

use crate::clock::Clock;
use crate::recorder::names::Names;
use crate::recorder::ring::{Record, Ring};
use crate::sync::{self, Arc, Ordering, plain};

/// The fewest records of a tape, and the most: 384 MiB per loop.
pub(crate) const FEWEST: usize = 64;
pub(crate) const MOST: usize = 1 << 24;
pub(crate) const TOO_MANY: usize = MOST + 1;

/// The recorder of a group.
#[derive(Debug)]
pub(crate) struct Recorder {
    clock: Clock,
    zero: Instant,
    /// The last reading of a virtual clock.
    last_virtual: plain::AtomicU64,
    /// Odd while it is frozen.
    state: plain::AtomicU64,
    /// When it was last frozen.
    frozen_at: plain::AtomicU64,
    /// Taken to freeze and to resume.
    switch: plain::Mutex<()>,
}

impl Recorder {
    pub(crate) fn new(clock: Clock) -> Recorder {
        static ZERO: plain::OnceLock<Instant> = plain::OnceLock::new();
        let now = clock.now();
        Recorder {
            zero: match clock {
                Clock::System => *ZERO.get_or_init(|| now),
                Clock::Virtual(_) => now,
            },
            clock,
            last_virtual: plain::AtomicU64::new(0),
            state: plain::AtomicU64::new(0),
            frozen_at: plain::AtomicU64::new(0),
            switch: plain::Mutex::new(()),
        }
    }

    /// The time of the group's clock.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match &self.clock {
            Clock::System => self.nanos(sync::now()),
            Clock::Virtual(clock) => self.next_nanos(clock.now()),
        }
    }

    /// A reading of the clock that was taken just now, as a time of this recorder.
    #[inline]
    pub(crate) fn time_of(&self, now: Instant) -> u64 {
        match &self.clock {
            Clock::System => self.nanos(now),
            Clock::Virtual(_) => self.now(),
        }
    }

    /// A time of its own for a reading of a virtual clock.
    #[cold]
    fn next_nanos(&self, now: Instant) -> u64 {
        let now = self.nanos(now);
        let next = |last: u64| Some(now.max(last + 1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let last = self.last_virtual.fetch_update(set, fetch, next);
        now.max(last.map_or(0, |last| last + 1))
    }

    #[inline]
    fn nanos(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.zero);
        passed.as_secs() * 1_000_000_000 + u64::from(passed.subsec_nanos())
    }

    /// Changes with every freeze and every resume; odd while it is frozen.
    #[inline]
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Relaxed)
    }

    /// Stops recording; has no effect if it is frozen.
    pub(crate) fn freeze(&self) {
        let _switch = self.switch.lock();
        if self.state() % 2 == 0 {
            self.frozen_at.store(self.now(), Ordering::Relaxed);
            // Release pairs with the Acquire in `frozen_at`.
            self.state.fetch_add(1, Ordering::Release);
        }
    }

    /// Records again; has no effect if it is not frozen.
    pub(crate) fn resume(&self) {
        let _switch = self.switch.lock();
        if self.state() % 2 == 1 {
            self.state.fetch_add(1, Ordering::Release);
        }
    }

    /// When it was frozen, if it is.
    pub(crate) fn frozen(&self) -> Option<u64> {
        let frozen = self.state.load(Ordering::Acquire) % 2 == 1;
        frozen.then(|| self.frozen_at.load(Ordering::Relaxed))
    }

    /// When it was last frozen.
    pub(crate) fn last_frozen(&self) -> u64 {
        self.frozen_at.load(Ordering::Relaxed)
    }
}

/// The tape of a loop.
#[derive(Debug)]
pub(crate) struct Tape {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) ring: Ring,
    /// Locked for one name, or to be copied; polls of tasks without a name do not take it.
    names: plain::Mutex<Names>,
}

impl Tape {
    /// Creates a tape for so many records, a power of two; `None` if there is no memory for it.
    pub(crate) fn new(recorder: Arc<Recorder>, records: usize) -> Option<Tape> {
        Some(Tape {
            recorder,
            ring: Ring::new(records)?,
            names: plain::Mutex::new(Names::default()),
        })
    }

    /// Returns the number of a name, for records.
    pub(crate) fn number_of(&self, name: &str) -> u32 {
        self.names.lock().number(name)
    }

    /// Copies what is on the tape.
    pub(crate) fn read(&self) -> (Vec<Record>, HashMap<u32, Arc<str>>) {
        // Names last: those of the records are there, unless they were forgotten.
        let records = self.ring.read();
        (records, self.names.lock().all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_is_frozen_and_resumed_once() {
        let recorder = Recorder::new(Clock::System);
        assert_eq!((recorder.state(), recorder.frozen()), (0, None));
        recorder.resume();
        assert_eq!(recorder.state(), 0);
        recorder.freeze();
        let frozen = recorder.frozen();
        assert!(frozen.is_some_and(|at| at <= recorder.now()));
        recorder.freeze();
        assert_eq!((recorder.state(), recorder.frozen()), (1, frozen));
        recorder.resume();
        assert_eq!((recorder.state(), recorder.frozen()), (2, None));
    }

    #[test]
    fn recorders_of_the_system_clock_share_their_zero() {
        let [one, other] = [(); 2].map(|()| Recorder::new(Clock::System));
        let now = Instant::now();
        assert_eq!(one.nanos(now), other.nanos(now));
    }
}
