//! Several loops on one thread, interleaved by a seed.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::clock::{self, Clock, ReadHere, VirtualClock};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::random::Random;
use crate::report::TerminationReport;
use crate::sync::Arc;
use crate::testing::seat::{Patience, Seat};
use crate::testing::test_loop::{SLICE, later};

/// A group whose loops take turns on the test's thread, in an order that a seed decides.
///
/// Which loop goes next, and how many tasks it runs before the next one does, are drawn from the
/// seed: one seed is one interleaving, and many seeds are many. [`trace`](TestGroup::trace) is a
/// hash over everything that was run; two runs of one seed and one test have the same.
///
/// # Examples
///
/// ```
/// use loopgroup::testing::TestGroup;
///
/// let run = |seed| {
///     let mut test = TestGroup::seeded(seed, 3);
///     for n in 0..20 {
///         test.group().spawn(async move {
///             for _ in 0..n {
///                 loopgroup::yield_now().await;
///             }
///         });
///     }
///     test.run_until_stalled();
///     assert_eq!(test.pending(), 0);
///     test.trace()
/// };
/// assert_eq!(run(7), run(7)); // an interleaving can be had again
/// assert_ne!(run(7), run(8));
/// ```
pub struct TestGroup {
    group: EventLoopGroup,
    seats: Vec<Seat>,
    clock: Arc<VirtualClock>,
    _reading: ReadHere,
    random: Random,
    trace: u64,
}

impl TestGroup {
    /// Makes a group of `loops` loops whose turns are drawn from `seed`.
    ///
    /// # Panics
    ///
    /// If `loops` is 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestGroup;
    ///
    /// for seed in 0..20 {
    ///     let mut test = TestGroup::seeded(seed, 3);
    ///     let task = test.group().spawn(async { 7 });
    ///     test.run_until_stalled();
    ///     assert!(task.is_finished(), "seed {seed}"); // the seed that fails is the one to run again
    /// }
    /// ```
    #[track_caller]
    pub fn seeded(seed: u64, loops: usize) -> TestGroup {
        assert!(loops > 0, "a group needs at least one loop");
        TestGroup::from_builder(seed, Builder::new().loops(loops))
            .expect("the settings are right, and loops without a selector need no resources")
    }

    /// Makes a group with these settings, whose turns are drawn from `seed`: bounds, policies, choosers
    /// and handlers count; threads, selectors and waits do not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` names the setting that is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, LeastLoaded, testing::TestGroup};
    ///
    /// let settings = EventLoopGroup::builder().loops(2).chooser(LeastLoaded::default());
    /// let test = TestGroup::from_builder(7, settings)?;
    /// test.group().spawn_on(0, std::future::pending::<()>());
    /// assert_eq!(test.group().next().index(), 1);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_builder(seed: u64, builder: Builder) -> io::Result<TestGroup> {
        let clock = Arc::new(VirtualClock::new());
        let builder = builder.without_io();
        let group = builder.clock(Clock::Virtual(Arc::clone(&clock))).build()?;
        let seats = (0..group.len())
            .map(|index| Seat::take(&group, index))
            .collect();
        Ok(TestGroup {
            group,
            seats,
            _reading: clock::read_here(&clock),
            clock,
            random: Random::new(seed),
            trace: 0xCBF2_9CE4_8422_2325,
        })
    }

    /// Returns the group, whose API is the production one.
    pub fn group(&self) -> &EventLoopGroup {
        &self.group
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns how much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.clock.passed()
    }

    /// Runs one short turn of one loop, both drawn from the seed.
    ///
    /// # Panics
    ///
    /// Like every method that drives the loops: on the thread of an event loop, as in a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestGroup;
    ///
    /// let mut test = TestGroup::seeded(1, 2);
    /// for _ in 0..4 {
    ///     test.group().spawn(async { loopgroup::yield_now().await });
    /// }
    /// let mut steps = 0;
    /// while test.pending() > 0 {
    ///     test.step(); // an invariant could be checked here, between any two turns
    ///     steps += 1;
    /// }
    /// assert!(steps >= 2);
    /// ```
    #[track_caller]
    pub fn step(&mut self) {
        let index = self.random.below(self.seats.len());
        self.turn(index);
    }

    /// Runs turns, drawn from the seed, until no loop has anything to run now.
    ///
    /// A task that wakes itself for ever does not hold it: it gives up after two hundred thousand
    /// polls, and some more if there are many tasks.
    ///
    /// # Panics
    ///
    /// As [`step`](TestGroup::step).
    #[track_caller]
    pub fn run_until_stalled(&mut self) {
        self.settle();
    }

    /// Lets virtual time pass; at each deadline on the way runs what is due, as
    /// [`run_until_stalled`](TestGroup::run_until_stalled) does.
    ///
    /// # Panics
    ///
    /// As [`step`](TestGroup::step).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestGroup;
    /// use std::time::Duration;
    ///
    /// let (mut test, hour) = (TestGroup::seeded(1, 2), Duration::from_secs(3600));
    /// let start = test.now();
    /// let task = test.group().spawn(loopgroup::time::sleep(hour));
    /// test.advance(hour);
    /// assert!(task.is_finished());
    /// assert_eq!((test.now() - start, test.elapsed()), (hour, hour));
    /// ```
    #[track_caller]
    pub fn advance(&mut self, duration: Duration) {
        let target = later(self.now(), duration);
        while let Some(next) = self.settle() {
            if next > target {
                break;
            }
            self.clock.move_to(next);
        }
        self.clock.move_to(target);
        self.settle();
    }

    /// Returns how many tasks of all loops are not finished, begun or not.
    pub fn pending(&self) -> usize {
        let count = |one: &EventLoop| one.pending_tasks() + one.live_tasks();
        self.group.loops().iter().map(count).sum()
    }

    /// Returns a hash over every turn so far: who ran, how much, and when.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestGroup;
    ///
    /// let run = |seed| {
    ///     let mut test = TestGroup::seeded(seed, 2);
    ///     test.group().spawn(async { loopgroup::yield_now().await });
    ///     test.run_until_stalled();
    ///     test.trace()
    /// };
    /// assert_eq!(run(3), run(3)); // if not, the test depends on more than its seed
    /// ```
    pub fn trace(&self) -> u64 {
        self.trace
    }

    /// Returns the report, once every loop has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestGroup;
    ///
    /// let mut test = TestGroup::seeded(1, 2);
    /// test.group().spawn(std::future::pending::<()>());
    /// test.run_until_stalled();
    /// test.group().shutdown_now();
    /// test.run_until_stalled();
    /// assert_eq!(test.report().unwrap().cancelled(), 1);
    /// ```
    pub fn report(&self) -> Option<TerminationReport> {
        self.group.termination().wait_timeout(Duration::ZERO)
    }

    /// Runs turns until every loop sleeps; returns the next deadline of all.
    #[track_caller]
    fn settle(&mut self) -> Option<Instant> {
        let mut patience = Patience::with(self.pending(), 1);
        loop {
            let now = self.now();
            let with = |reason: &dyn Fn(&Seat) -> bool| -> Vec<usize> {
                let indexes = 0..self.seats.len();
                indexes
                    .filter(|&index| reason(&self.seats[index]))
                    .collect()
            };
            let mut awake = with(&|seat| seat.is_awake(now));
            if awake.is_empty() {
                // What was submitted lazily runs as well, after everything else.
                awake = with(&Seat::has_lazy_mail);
            }
            if awake.is_empty() {
                return self.seats.iter().filter_map(Seat::sleeps_until).min();
            }
            let index = awake[self.random.below(awake.len())];
            let polls = self.seats[index].polls();
            self.turn(index);
            let ran = self.seats[index].polls().saturating_sub(polls);
            if !patience.lasts(ran) {
                // Restless: time has to pass all the same.
                let deadlines = self.seats.iter();
                return deadlines
                    .filter_map(|seat| seat.next_deadline_after(now))
                    .min();
            }
        }
    }

    #[track_caller]
    fn turn(&mut self, index: usize) {
        let tasks = 1 + self.random.below(4);
        self.seats[index].turn(tasks as u32);
        let polls = self.seats[index].polls();
        let passed = self.clock.passed().as_nanos() as u64;
        for word in [index as u64, polls, passed] {
            // FNV-1a, a word at a time.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // As for a `TestLoop`.
        let Some(_outside) = context::step_out() else {
            return;
        };
        drop(self.group.shutdown_now());
        while self.seats.iter().any(Seat::is_alive) {
            for seat in &mut self.seats {
                seat.turn(SLICE);
            }
        }
    }
}

impl fmt::Debug for TestGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestGroup")
            .field("elapsed", &self.elapsed())
            .field("trace", &self.trace)
            .field("group", &self.group)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_that_is_lost_is_seen() {
        for answered in [true, false] {
            let mut test = TestGroup::seeded(1, 2);
            test.run_until_stalled();
            let before = test.trace();
            let shared = test.group().loops()[1].shared();
            let ring = shared.inbox.open().nudge();
            if answered {
                shared.answer(ring);
            }
            test.run_until_stalled();
            assert_eq!(
                test.trace() != before,
                answered,
                "a loop turns if it is rung"
            );
        }
    }
}
