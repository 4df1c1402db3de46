//! Closures that are repeated: in a rhythm, with jitter, until they end themselves.
//!
//! - A fixed rate keeps its grid, whatever the jitter: each run is delayed from its own point of the grid.
//! - The jitter is drawn anew for every run. Its seed is the group's, so a test with a seed repeats it.
//! - A closure that breaks completes its task with the value of the break; it does not count as cancelled.

use std::io;
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::random::Random;
use crate::time::here::now;

/// When a closure is run again and again; see [`EventLoop::repeat`](crate::EventLoop::repeat).
///
/// # Examples
///
/// ```
/// use loopgroup::Repeat;
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let beat = Repeat::at_fixed_rate(10 * second); // for the first time in ten seconds
/// let soon = beat.starting_in(Duration::ZERO); // at once, and then every ten seconds
/// let spread = soon.jitter(second); // each run up to a second later, so that servers do not act in step
/// # assert_ne!(spread, soon);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it is the argument of EventLoop::repeat"]
pub struct Repeat {
    rhythm: Rhythm,
    first: First,
    jitter: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    Rate(Duration),
    Delay(Duration),
}

/// When the first run is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// After the period, or the delay.
    Default,
    In(Duration),
    At(Instant),
}

impl Repeat {
    /// Runs on a grid of `period`; missed runs are made up for, one in each turn of the loop.
    pub const fn at_fixed_rate(period: Duration) -> Repeat {
        Repeat::new(Rhythm::Rate(period))
    }

    /// Runs `delay` after the end of the previous run.
    pub const fn with_fixed_delay(delay: Duration) -> Repeat {
        Repeat::new(Rhythm::Delay(delay))
    }

    const fn new(rhythm: Rhythm) -> Repeat {
        Repeat {
            rhythm,
            first: First::Default,
            jitter: Duration::ZERO,
        }
    }

    /// Sets when the first run is due, from the call of [`repeat`](crate::EventLoop::repeat) on. The default
    /// is after one period, or delay.
    pub const fn starting_in(mut self, initial: Duration) -> Repeat {
        self.first = First::In(initial);
        self
    }

    /// Sets when the first run is due, on the clock that [`time::now`](crate::time::now) reads on the loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Repeat, testing::TestLoop};
    /// use std::{ops::ControlFlow, time::Duration};
    ///
    /// let second = Duration::from_secs(1);
    /// let mut test = TestLoop::new();
    /// let at = test.now() + 7 * second;
    /// let repeat = Repeat::at_fixed_rate(second).starting_at(at);
    /// let first = test.repeat(repeat, || ControlFlow::Break(loopgroup::time::now()))?;
    /// assert_eq!(test.block_on(first).unwrap(), at);
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn starting_at(mut self, instant: Instant) -> Repeat {
        self.first = First::At(instant);
        self
    }

    /// Delays each run, the first one included, by a random time of at most `limit`.
    ///
    /// Delays do not add up: at a fixed rate the grid is kept. In a
    /// [`TestGroup`](crate::testing::TestGroup) they are determined by its seed.
    pub const fn jitter(mut self, limit: Duration) -> Repeat {
        self.jitter = limit;
        self
    }

    /// Returns how the closure is timed, and when its first run is due.
    pub(super) fn start(self, config: &Config) -> io::Result<(Timing, Option<Instant>)> {
        let (step, name) = match self.rhythm {
            Rhythm::Rate(period) => (period, "period"),
            Rhythm::Delay(delay) => (delay, "delay"),
        };
        if step.is_zero() {
            let text = format!("{name}: must be above zero");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let after = |delay| config.clock.now().checked_add(delay);
        let first = match self.first {
            First::Default => after(step),
            First::In(initial) => after(initial),
            First::At(instant) => Some(instant),
        };
        let jitter = (!self.jitter.is_zero()).then(|| {
            Box::new(Jitter {
                limit: self.jitter,
                last: Duration::ZERO,
                random: config.seeds.next(),
            })
        });
        let mut timing = Timing {
            rhythm: self.rhythm,
            jitter,
        };
        let first = timing.delayed(first);
        Ok((timing, first))
    }
}

/// The timing of a closure that is being repeated.
#[derive(Debug)]
pub(super) struct Timing {
    rhythm: Rhythm,
    /// Boxed: few closures have one.
    jitter: Option<Box<Jitter>>,
}

#[derive(Debug)]
struct Jitter {
    limit: Duration,
    /// The delay of the current run.
    last: Duration,
    random: Random,
}

impl Timing {
    /// Returns when the next run is due, after one that was due at `due`.
    pub(super) fn next_after(&mut self, due: Option<Instant>) -> Option<Instant> {
        let last = self
            .jitter
            .as_ref()
            .map_or(Duration::ZERO, |jitter| jitter.last);
        let next = match self.rhythm {
            Rhythm::Rate(period) => due
                .and_then(|due| due.checked_sub(last))
                .and_then(|due| due.checked_add(period)),
            Rhythm::Delay(delay) => now().checked_add(delay),
        };
        self.delayed(next)
    }

    /// Adds the jitter of the next run.
    fn delayed(&mut self, due: Option<Instant>) -> Option<Instant> {
        let Some(jitter) = &mut self.jitter else {
            return due;
        };
        jitter.last = jitter.random.up_to(jitter.limit);
        due?.checked_add(jitter.last)
    }
}
