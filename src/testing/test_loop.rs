//! One loop that a test drives by hand.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::clock::{self, Clock, ReadHere, VirtualClock};
use crate::event_loop::context;
use crate::event_loop::handle::EventLoop;
use crate::group::core::GroupCore;
use crate::group::handle::EventLoopGroup;
use crate::report::TerminationReport;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::testing::seat::{Patience, Seat, Turn};

/// Tasks per turn, as in production.
pub(super) const SLICE: u32 = 1024;
/// What a turn counts for at least, when a loop is suspected to be restless: a long one is expected.
const LEAST: u64 = 64;

/// The moment `duration` after `now`, or as late as it makes sense.
pub(super) fn later(now: Instant, duration: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    now + duration.min(CENTURY)
}

/// A loop without a thread, over a clock that the test moves.
///
/// It dereferences to its [`EventLoop`]: `spawn`, `schedule`, `shutdown_gracefully_with` and all the
/// rest are the production ones. Submissions from the test go through the inbox like those of any
/// other thread; they run when the test drives the loop. Dropping it ends the loop: what is left is
/// cancelled.
///
/// Time is the loop's own: `std::time::Instant::now()` stays real, and what real threads do (those of
/// [`blocking`](crate::blocking), say) takes no virtual time and is not waited for. A
/// [`sleep`](crate::time::sleep), `timeout` or `interval` that the test makes outside of the loop counts by the clock of
/// whoever polls it first: spawned here it takes virtual time, awaited in [`block_on`](crate::block_on) or spawned on a
/// real group it takes real time.
///
/// # Examples
///
/// Futures that sleep are awaited with [`TestLoop::block_on`]: the crate's own `block_on` waits by the
/// real clock.
///
/// A shutdown of minutes, tested in microseconds:
///
/// ```
/// use loopgroup::{Cause, testing::TestLoop};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let mut test = TestLoop::new();
/// test.run_until_stalled();
/// test.shutdown_gracefully_with(minute, 10 * minute).unwrap();
/// test.advance(minute / 2);
/// test.spawn(async {}); // activity: the quiet period starts again
/// test.advance(minute - Duration::from_nanos(1));
/// assert!(test.report().is_none());
/// test.advance(Duration::from_nanos(1));
/// let report = test.report().unwrap();
/// assert_eq!(report.loops()[0].cause(), Cause::Quiet);
/// assert_eq!(report.elapsed(), minute * 3 / 2);
/// ```
pub struct TestLoop {
    core: Arc<GroupCore>,
    /// `None` once it was let go.
    group: Option<EventLoopGroup>,
    seat: Seat,
    clock: Arc<VirtualClock>,
    _reading: ReadHere,
}

impl TestLoop {
    /// Makes a test loop whose time starts now.
    pub fn new() -> TestLoop {
        TestLoop::from_builder(Builder::new())
            .expect("default settings are right, and a loop without a selector needs no resources")
    }

    /// Makes a test loop with these settings: bounds, policies, choosers and handlers count; the
    /// number of loops, threads, selectors and waits do not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` names the setting that is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectReason, testing::TestLoop};
    ///
    /// let settings = EventLoopGroup::builder().max_pending_tasks(1);
    /// let mut test = TestLoop::from_builder(settings)?;
    /// let first = test.spawn(async {});
    /// let refused = test.try_spawn(async {}).unwrap_err();
    /// assert_eq!(refused.reason(), RejectReason::QueueFull);
    /// test.run_until_stalled();
    /// assert!(first.is_finished() && test.try_spawn(async {}).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_builder(builder: Builder) -> io::Result<TestLoop> {
        let clock = Arc::new(VirtualClock::new());
        let builder = builder.loops(1).without_io();
        let group = builder.clock(Clock::Virtual(Arc::clone(&clock))).build()?;
        let seat = Seat::take(&group, 0);
        Ok(TestLoop {
            core: Arc::clone(group.core()),
            group: Some(group),
            seat,
            _reading: clock::read_here(&clock),
            clock,
        })
    }

    /// Returns the loop's group, which has no other loop.
    ///
    /// # Panics
    ///
    /// After [`let_go`](TestLoop::let_go).
    #[track_caller]
    pub fn group(&self) -> &EventLoopGroup {
        self.group.as_ref().expect("the group was let go")
    }

    /// Drops the test's own handle of the group, as a program does that has no more use for it.
    ///
    /// If it was the last one, that is a request for shutdown; a loop that shuts down already may end
    /// early, for nobody can submit any more.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Cause, testing::TestLoop};
    ///
    /// let mut test = TestLoop::new();
    /// test.run_until_stalled();
    /// assert_eq!(test.group().len(), 1);
    /// test.let_go(); // the last handle: a request for shutdown
    /// test.run_until_stalled();
    /// assert_eq!(test.report().unwrap().loops()[0].cause(), Cause::Idle);
    /// ```
    pub fn let_go(&mut self) {
        self.group = None;
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Returns how much virtual time has passed.
    pub fn elapsed(&self) -> Duration {
        self.clock.passed()
    }

    /// Runs whatever can run without time passing; returns how many polls that took.
    ///
    /// A task that wakes itself for ever does not hold it: it gives up after some thousands of
    /// turns.
    ///
    /// # Panics
    ///
    /// Like every method that drives the loop: on the thread of an event loop, as in a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// test.spawn(async { loopgroup::yield_now().await });
    /// assert_eq!(test.run_until_stalled(), 2); // two polls
    /// assert_eq!(test.run_until_stalled(), 0);
    /// ```
    #[track_caller]
    pub fn run_until_stalled(&mut self) -> u64 {
        let before = self.seat.polls();
        self.settle();
        self.seat.polls().saturating_sub(before)
    }

    /// Runs a single turn, of 1,024 tasks at most; returns whether there is more to run now.
    ///
    /// # Panics
    ///
    /// As [`run_until_stalled`](TestLoop::run_until_stalled).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// test.spawn(async { loopgroup::yield_now().await });
    /// let mut turns = 1;
    /// while test.turn() {
    ///     turns += 1;
    /// }
    /// println!("{turns} turns");
    /// assert_eq!(test.pending(), 0);
    /// ```
    #[track_caller]
    pub fn turn(&mut self) -> bool {
        self.seat.turn(SLICE) == Turn::Busy
    }

    /// Lets virtual time pass; at each deadline on the way runs what is due, in order, as
    /// [`run_until_stalled`](TestLoop::run_until_stalled) does.
    ///
    /// # Panics
    ///
    /// As [`run_until_stalled`](TestLoop::run_until_stalled).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::sleep};
    /// use std::time::Duration;
    ///
    /// let (mut test, day) = (TestLoop::new(), Duration::from_secs(86_400));
    /// let start = test.now();
    /// let task = test.spawn(sleep(day));
    /// test.advance(day - Duration::from_nanos(1));
    /// assert!(!task.is_finished());
    /// test.advance(Duration::from_nanos(1));
    /// assert!(task.is_finished());
    /// assert_eq!((test.now() - start, test.elapsed()), (day, day));
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

    /// Runs turns until there is nothing to run now; returns the next deadline.
    #[track_caller]
    fn settle(&mut self) -> Option<Instant> {
        let mut patience = Patience::with(self.pending(), LEAST);
        loop {
            let before = self.seat.polls();
            match self.seat.turn(SLICE) {
                Turn::Busy if patience.lasts(self.seat.polls() - before) => {}
                // Restless: time has to pass all the same.
                Turn::Busy => return self.seat.next_deadline_after(self.now()),
                Turn::Stalled(next) => return next,
                Turn::Ended => return None,
            }
        }
    }

    /// Drives `future` and the loop until the future is done; time jumps to the next deadline
    /// whenever nothing can run before, or a task that wakes itself for ever keeps the loop busy.
    ///
    /// The future is polled on the loop while that is alive: it may use `spawn_local`, timers,
    /// everything.
    ///
    /// # Panics
    ///
    /// If the future waits and nothing is left on the loop that could wake it: no task to run, no
    /// timer. (A wake that is to come from another thread is not waited for.) Also on the thread of an
    /// event loop, as in a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::sleep};
    /// use std::{rc::Rc, time::Duration};
    ///
    /// let mut test = TestLoop::new();
    /// let text = Rc::new("an hour passes");
    /// let length = test.block_on(async {
    ///     sleep(Duration::from_secs(3600)).await;
    ///     loopgroup::spawn_local(async move { text.len() }).await.unwrap()
    /// });
    /// assert_eq!((length, test.elapsed()), (14, Duration::from_secs(3600)));
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        let woken = Arc::new(AtomicBool::new(true));
        let flag = Arc::clone(&woken);
        let waker = waker_fn::waker_fn(move || flag.store(true, Ordering::SeqCst));
        let mut cx = Context::from_waker(&waker);
        let mut patience = Patience::with(self.pending(), LEAST);
        loop {
            if woken.swap(false, Ordering::SeqCst) {
                let mut poll = || future.as_mut().poll(&mut cx);
                let polled = match self.seat.inside(&mut poll) {
                    Some(polled) => polled,
                    None => poll(),
                };
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            let before = self.seat.polls();
            let next = match self.seat.turn(SLICE) {
                Turn::Busy if patience.lasts(self.seat.polls() - before) => continue,
                Turn::Busy => self.seat.next_deadline_after(self.now()),
                _ if woken.load(Ordering::SeqCst) => continue,
                Turn::Stalled(Some(next)) => Some(next),
                Turn::Stalled(None) | Turn::Ended => panic!(
                    "the future waits for ever: nothing can run, no timer is armed, {} tasks wait",
                    self.pending()
                ),
            };
            if let Some(next) = next {
                self.clock.move_to(next);
            }
            patience = Patience::with(self.pending(), LEAST);
        }
    }

    /// Returns how many tasks are not finished, begun or not.
    pub fn pending(&self) -> usize {
        self.pending_tasks() + self.live_tasks()
    }

    /// Returns the report, once the loop has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// test.spawn(async {});
    /// test.run_until_stalled();
    /// assert!(test.report().is_none()); // it has not ended
    /// test.shutdown_now();
    /// test.run_until_stalled();
    /// assert_eq!(test.report().unwrap().completed(), 1);
    /// ```
    pub fn report(&self) -> Option<TerminationReport> {
        self.termination().wait_timeout(Duration::ZERO)
    }
}

impl Default for TestLoop {
    fn default() -> TestLoop {
        TestLoop::new()
    }
}

impl Deref for TestLoop {
    type Target = EventLoop;

    fn deref(&self) -> &EventLoop {
        &self.core.loops[0]
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        // Also while the test panics, and inside another loop: somebody may wait for a handle. Among dying
        // thread-locals, though, it is left as it is.
        let Some(_outside) = context::step_out() else {
            return;
        };
        drop(self.shutdown_now());
        while self.seat.turn(SLICE) != Turn::Ended {}
    }
}

impl fmt::Debug for TestLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestLoop")
            .field("elapsed", &self.elapsed())
            .field("event_loop", &**self)
            .finish()
    }
}
