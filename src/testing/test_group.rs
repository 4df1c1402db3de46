//! Several loops on one thread, with turns interleaved by a seed.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::clock::{self, Clock, ReadHere, VirtualClock};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::group::handle::EventLoopGroup;
use crate::random::Random;
use crate::report::TerminationReport;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::testing::driven_loop::{DrivenLoop, PollLimit};
use crate::testing::test_loop::{TASKS_PER_TURN, add_capped};

/// A group whose loops take turns on the test's thread, in an order determined by a seed.
///
/// The seed determines which loop runs next, and how many tasks it runs in that turn: one seed is one
/// interleaving. [`trace`](TestGroup::trace) is a hash over everything that was run; two runs of the same
/// test with the same seed have the same trace.
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
/// assert_eq!(run(7), run(7)); // the interleaving is reproducible
/// assert_ne!(run(7), run(8));
/// ```
pub struct TestGroup {
    group: EventLoopGroup,
    driven: Vec<DrivenLoop>,
    clock: Arc<VirtualClock>,
    _reading: ReadHere,
    random: Random,
    trace: u64,
}

impl TestGroup {
    /// Creates a group of `loops` loops whose turns are determined by `seed`.
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
    ///     assert!(task.is_finished(), "seed {seed}"); // the seed reproduces a failure
    /// }
    /// ```
    #[track_caller]
    pub fn seeded(seed: u64, loops: usize) -> TestGroup {
        assert!(loops > 0, "a group needs at least one loop");
        TestGroup::from_builder(seed, Builder::new().loops(loops))
            .expect("the settings are valid, and loops without a selector need no resources")
    }

    /// Creates a group with these settings, whose turns are determined by `seed`. Bounds, policies,
    /// choosers and handlers apply; settings of threads, selectors and waits have no effect.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with the name of the invalid setting.
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
        let builder = builder.without_io().seed(seed);
        let group = builder.clock(Clock::Virtual(Arc::clone(&clock))).build()?;
        let driven = (0..group.len())
            .map(|index| DrivenLoop::claim(&group, index))
            .collect();
        Ok(TestGroup {
            group,
            driven,
            _reading: clock::read_here(&clock),
            clock,
            random: Random::new(seed),
            trace: 0xCBF2_9CE4_8422_2325,
        })
    }

    /// Returns the group, with the production API.
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

    /// Runs one short turn of one loop, both determined by the seed.
    ///
    /// # Panics
    ///
    /// Like every method that drives the loops: on the thread of an event loop, for example in a task.
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
        let index = self.random.below(self.driven.len());
        self.turn(index);
    }

    /// Runs turns, determined by the seed, until no loop has anything to run now.
    ///
    /// A task that wakes itself without end does not block it: it returns after two hundred thousand
    /// polls, or more if there are many tasks.
    ///
    /// # Panics
    ///
    /// The same as [`step`](TestGroup::step).
    #[track_caller]
    pub fn run_until_stalled(&mut self) {
        self.run_to_stall();
    }

    /// Advances virtual time; at each deadline on the way it runs what is due, like
    /// [`run_until_stalled`](TestGroup::run_until_stalled).
    ///
    /// # Panics
    ///
    /// The same as [`step`](TestGroup::step).
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
        let target = add_capped(self.now(), duration);
        while let Some(next) = self.run_to_stall() {
            if next > target {
                break;
            }
            self.clock.move_to(next);
        }
        self.clock.move_to(target);
        self.run_to_stall();
    }

    /// Drives `future` and the loops until the future completes. Time jumps to the next deadline whenever
    /// nothing can run before it, or a task that wakes itself without end keeps a loop busy.
    ///
    /// The seed determines when the future is polled, as it does for the turns of the loops. It is polled on
    /// loop 0 while that loop is alive: it may use `spawn_local`, timers and everything else, and
    /// [`spawn`](crate::spawn) spawns on this group.
    ///
    /// # Panics
    ///
    /// If the future is pending and nothing in the group could wake it: no runnable task, no timer. The
    /// message says how many tasks of each loop wait. (Wakes from other threads are not waited for.) Also on
    /// the thread of an event loop, for example in a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestGroup, time::sleep};
    /// use std::time::Duration;
    ///
    /// let (mut test, hour) = (TestGroup::seeded(7, 2), Duration::from_secs(3600));
    /// let answer = test.block_on(async {
    ///     let task = loopgroup::spawn(async move {
    ///         sleep(hour).await;
    ///         42
    ///     });
    ///     task.await.unwrap()
    /// });
    /// assert_eq!((answer, test.elapsed()), (42, hour));
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&woken);
        let waker = waker_fn::waker_fn(move || flag.store(true, Ordering::SeqCst));
        let mut cx = Context::from_waker(&waker);
        let mut limit = PollLimit::for_tasks(self.pending(), 1);
        let mut polls = 0;
        loop {
            let mut awake = self.awake();
            let main = woken.load(Ordering::SeqCst);
            if awake.is_empty() && !main {
                awake = self.with_lazy_submissions();
            }
            let candidates = awake.len() + usize::from(main);
            let next = if candidates == 0 {
                let next = self.sleep_deadline();
                assert!(
                    next.is_some(),
                    "the future waits for ever: nothing can run, no timer is armed, {}",
                    self.waiting()
                );
                next
            } else if let Some(&index) = awake.get(self.random.below(candidates)) {
                let before = self.driven[index].polls();
                self.turn(index);
                let ran = self.driven[index].polls().saturating_sub(before);
                if limit.spend(ran) {
                    continue;
                }
                // A task never stops waking itself: time must advance nevertheless.
                self.deadline_after_now()
            } else {
                woken.store(false, Ordering::SeqCst);
                polls += 1;
                self.note(u64::MAX, polls);
                let mut poll = || future.as_mut().poll(&mut cx);
                let polled = match self.driven[0].run_inside(&mut poll) {
                    Some(polled) => polled,
                    None => poll(),
                };
                match polled {
                    Poll::Ready(output) => return output,
                    Poll::Pending => continue,
                }
            };
            if let Some(next) = next {
                self.clock.move_to(next);
            }
            limit = PollLimit::for_tasks(self.pending(), 1);
        }
    }

    /// Returns how many tasks of all loops are not finished, whether they have begun or not.
    pub fn pending(&self) -> usize {
        let count = |one: &EventLoop| one.pending_tasks() + one.live_tasks();
        self.group.loops().iter().map(count).sum()
    }

    /// Returns a hash over every turn so far: which loop ran, how many polls, and when.
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

    /// Runs turns until every loop sleeps; returns the earliest deadline of all loops.
    #[track_caller]
    fn run_to_stall(&mut self) -> Option<Instant> {
        let mut limit = PollLimit::for_tasks(self.pending(), 1);
        loop {
            let mut awake = self.awake();
            if awake.is_empty() {
                awake = self.with_lazy_submissions();
            }
            if awake.is_empty() {
                return self.sleep_deadline();
            }
            let index = awake[self.random.below(awake.len())];
            let polls = self.driven[index].polls();
            self.turn(index);
            let ran = self.driven[index].polls().saturating_sub(polls);
            if !limit.spend(ran) {
                // A task never stops waking itself: time must advance nevertheless.
                return self.deadline_after_now();
            }
        }
    }

    /// The loops that need a turn.
    fn awake(&self) -> Vec<usize> {
        let now = self.now();
        self.indexes(|driven| driven.is_awake(now))
    }

    /// The loops with lazy submissions, which run as well, after everything else.
    fn with_lazy_submissions(&self) -> Vec<usize> {
        self.indexes(DrivenLoop::has_lazy_submissions)
    }

    fn indexes(&self, needs_turn: impl Fn(&DrivenLoop) -> bool) -> Vec<usize> {
        let indexes = 0..self.driven.len();
        indexes
            .filter(|&index| needs_turn(&self.driven[index]))
            .collect()
    }

    /// The earliest deadline of the loops that sleep.
    fn sleep_deadline(&self) -> Option<Instant> {
        let deadlines = self.driven.iter().filter_map(DrivenLoop::sleep_deadline);
        deadlines.min()
    }

    /// The earliest deadline of all loops that has not passed.
    fn deadline_after_now(&self) -> Option<Instant> {
        let (now, loops) = (self.now(), self.driven.iter());
        loops
            .filter_map(|driven| driven.next_deadline_after(now))
            .min()
    }

    #[track_caller]
    fn turn(&mut self, index: usize) {
        let tasks = 1 + self.random.below(4);
        self.driven[index].turn(tasks as u32);
        self.note(index as u64, self.driven[index].polls());
    }

    /// Adds an event to the trace.
    fn note(&mut self, what: u64, count: u64) {
        let passed = self.clock.passed().as_nanos() as u64;
        for word in [what, count, passed] {
            // FNV-1a, a word at a time.
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    /// Says what the tasks of each loop are waiting for, as far as it is known.
    fn waiting(&self) -> String {
        let of = |one: &EventLoop| {
            let (index, tasks) = (one.index(), one.pending_tasks() + one.live_tasks());
            match one.state() {
                state if state.is_terminated() => format!("loop {index} has ended"),
                _ => format!("loop {index} has {tasks} waiting tasks"),
            }
        };
        let loops: Vec<_> = self.group.loops().iter().map(of).collect();
        loops.join(", ")
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // The same as for a `TestLoop`.
        let Some(_outside) = context::step_out() else {
            return;
        };
        drop(self.group.shutdown_now());
        while self.driven.iter().any(DrivenLoop::is_alive) {
            for driven in &mut self.driven {
                driven.turn(TASKS_PER_TURN);
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
            let ring = shared.inbox.lock().nudge();
            if answered {
                shared.ring_if_needed(ring);
            }
            test.run_until_stalled();
            assert_eq!(
                test.trace() != before,
                answered,
                "a loop runs a turn if it was notified"
            );
        }
    }
}
