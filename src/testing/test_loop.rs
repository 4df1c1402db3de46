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
use crate::testing::driven_loop::{DrivenLoop, PollLimit, TurnResult};

/// The most tasks per turn, as in production.
pub(super) const TASKS_PER_TURN: u32 = 1024;
/// The least that a turn counts for in a [`PollLimit`], so that short and empty turns reach the limit
/// too.
const MIN_POLLS_PER_TURN: u64 = 64;

/// Adds `duration` to `now`, capped at a century so that it cannot overflow.
pub(super) fn add_capped(now: Instant, duration: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    now + duration.min(CENTURY)
}

/// A loop without a thread, with a clock that the test advances.
///
/// It dereferences to its [`EventLoop`]: `spawn`, `schedule`, `shutdown_gracefully_with` and all other
/// methods are the production ones. Submissions from the test pass through the inbox like those of any
/// other thread; they run when the test drives the loop. Dropping it ends the loop and cancels the
/// remaining tasks.
///
/// Virtual time applies to the loop only: `std::time::Instant::now()` stays real, and work on real
/// threads (those of [`blocking`](crate::blocking), for example) takes no virtual time and is not
/// waited for. A [`sleep`](crate::time::sleep), `timeout` or `interval` that the test creates outside
/// of the loop uses the clock of the loop or `block_on` that first polls it: spawned here it takes
/// virtual time, awaited in [`block_on`](crate::block_on) or spawned on a real group it takes real
/// time.
///
/// # Examples
///
/// Await futures that sleep with [`TestLoop::block_on`]: the crate's own `block_on` uses the real clock.
///
/// A shutdown of minutes, tested in microseconds:
///
/// ```
/// use loopgroup::{EndCause, testing::TestLoop};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let mut test = TestLoop::new();
/// test.run_until_stalled();
/// test.shutdown_gracefully_with(minute, 10 * minute).unwrap();
/// test.advance(minute / 2);
/// test.spawn(async {}); // activity restarts the quiet period
/// test.advance(minute - Duration::from_nanos(1));
/// assert!(test.report().is_none());
/// test.advance(Duration::from_nanos(1));
/// let report = test.report().unwrap();
/// assert_eq!(report.loops()[0].cause(), EndCause::Quiet);
/// assert_eq!(report.elapsed(), minute * 3 / 2);
/// ```
pub struct TestLoop {
    core: Arc<GroupCore>,
    /// `None` after [`TestLoop::let_go`].
    group: Option<EventLoopGroup>,
    driven: DrivenLoop,
    clock: Arc<VirtualClock>,
    _reading: ReadHere,
}

impl TestLoop {
    /// Creates a test loop whose virtual time starts now.
    pub fn new() -> TestLoop {
        TestLoop::from_builder(Builder::new())
            .expect("default settings are valid, and a loop without a selector needs no resources")
    }

    /// Creates a test loop with these settings. Bounds, policies, choosers and handlers apply; the
    /// number of loops and the settings of threads, selectors and waits have no effect.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with the name of the invalid setting.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EventLoopGroup, RejectReason, testing::TestLoop};
    ///
    /// let settings = EventLoopGroup::builder().max_pending_tasks(1);
    /// let mut test = TestLoop::from_builder(settings)?;
    /// let first = test.spawn(async {});
    /// let rejected = test.try_spawn(async {}).unwrap_err();
    /// assert_eq!(rejected.reason(), RejectReason::QueueFull);
    /// test.run_until_stalled();
    /// assert!(first.is_finished() && test.try_spawn(async {}).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_builder(builder: Builder) -> io::Result<TestLoop> {
        let clock = Arc::new(VirtualClock::new());
        let builder = builder.loops(1).without_io().seed(0);
        let group = builder.clock(Clock::Virtual(Arc::clone(&clock))).build()?;
        let driven = DrivenLoop::claim(&group, 0);
        Ok(TestLoop {
            core: Arc::clone(group.core()),
            group: Some(group),
            driven,
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
        self.group
            .as_ref()
            .expect("the group was dropped by let_go()")
    }

    /// Drops the test's own handle of the group, like a program that no longer needs it.
    ///
    /// Dropping the last handle requests a shutdown; a loop that is already shutting down may end
    /// early, since no more tasks can be submitted.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{EndCause, testing::TestLoop};
    ///
    /// let mut test = TestLoop::new();
    /// test.run_until_stalled();
    /// assert_eq!(test.group().len(), 1);
    /// test.let_go(); // the last handle: requests a shutdown
    /// test.run_until_stalled();
    /// assert_eq!(test.report().unwrap().loops()[0].cause(), EndCause::Idle);
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

    /// Runs everything that can run without time passing; returns the number of polls.
    ///
    /// A task that wakes itself without end does not block it: it returns after some thousands of turns.
    ///
    /// # Panics
    ///
    /// Like every method that drives the loop: on the thread of an event loop, for example in a task.
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
        let before = self.driven.polls();
        self.run_to_stall();
        self.driven.polls().saturating_sub(before)
    }

    /// Runs a single turn, of at most 1,024 tasks; returns whether there is more to run now.
    ///
    /// # Panics
    ///
    /// The same as [`run_until_stalled`](TestLoop::run_until_stalled).
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
        self.driven.turn(TASKS_PER_TURN) == TurnResult::Busy
    }

    /// Polls exactly one task, the next one in the order of a turn; returns `false` if there is none.
    ///
    /// To check an invariant between any two polls. A shutdown advances in whole turns only: see
    /// [`turn`](TestLoop::turn).
    ///
    /// # Panics
    ///
    /// The same as [`run_until_stalled`](TestLoop::run_until_stalled).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    ///
    /// let mut test = TestLoop::new();
    /// let one = test.spawn(async { loopgroup::yield_now().await });
    /// let other = test.spawn(async {});
    /// assert!(test.run_one()); // the first task, up to its yield
    /// assert!(!one.is_finished() && !other.is_finished());
    /// assert!(test.run_one());
    /// assert!(!one.is_finished() && other.is_finished());
    /// assert!(test.run_one() && one.is_finished());
    /// assert!(!test.run_one());
    /// ```
    #[track_caller]
    pub fn run_one(&mut self) -> bool {
        self.driven.run_one()
    }

    /// Advances virtual time; at each deadline on the way it runs what is due, in order, like
    /// [`run_until_stalled`](TestLoop::run_until_stalled).
    ///
    /// # Panics
    ///
    /// The same as [`run_until_stalled`](TestLoop::run_until_stalled).
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

    /// Runs turns until there is nothing to run now; returns the next deadline.
    #[track_caller]
    fn run_to_stall(&mut self) -> Option<Instant> {
        let mut limit = PollLimit::for_tasks(self.pending(), MIN_POLLS_PER_TURN);
        loop {
            let before = self.driven.polls();
            match self.driven.turn(TASKS_PER_TURN) {
                TurnResult::Busy if limit.spend(self.driven.polls() - before) => {}
                // A task never stops waking itself: time must advance nevertheless.
                TurnResult::Busy => return self.driven.next_deadline_after(self.now()),
                TurnResult::Stalled(next) => return next,
                TurnResult::Ended => return None,
            }
        }
    }

    /// Drives `future` and the loop until the future completes. Time jumps to the next deadline whenever
    /// nothing can run before it, or a task that wakes itself without end keeps the loop busy.
    ///
    /// The future is polled on the loop while the loop is alive: it may use `spawn_local`, timers and
    /// everything else.
    ///
    /// # Panics
    ///
    /// If the future is pending and nothing on the loop could wake it: no runnable task, no timer.
    /// (Wakes from other threads are not waited for.) Also on the thread of an event loop, for example
    /// in a task.
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
        let mut limit = PollLimit::for_tasks(self.pending(), MIN_POLLS_PER_TURN);
        loop {
            if woken.swap(false, Ordering::SeqCst) {
                let mut poll = || future.as_mut().poll(&mut cx);
                let polled = match self.driven.run_inside(&mut poll) {
                    Some(polled) => polled,
                    None => poll(),
                };
                if let Poll::Ready(output) = polled {
                    return output;
                }
            }
            let before = self.driven.polls();
            let next = match self.driven.turn(TASKS_PER_TURN) {
                TurnResult::Busy if limit.spend(self.driven.polls() - before) => continue,
                TurnResult::Busy => self.driven.next_deadline_after(self.now()),
                _ if woken.load(Ordering::SeqCst) => continue,
                TurnResult::Stalled(Some(next)) => Some(next),
                TurnResult::Stalled(None) | TurnResult::Ended => {
                    let tasks = match self.pending() {
                        1 => "1 task waits".to_owned(),
                        tasks => format!("{tasks} tasks wait"),
                    };
                    panic!("the future waits for ever: nothing can run, no timer is armed, {tasks}")
                }
            };
            if let Some(next) = next {
                self.clock.move_to(next);
            }
            limit = PollLimit::for_tasks(self.pending(), MIN_POLLS_PER_TURN);
        }
    }

    /// Returns how many tasks are not finished, whether they have begun or not.
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
        // Also while the test panics, and inside another loop: another thread may wait for a handle.
        // During the destruction of thread-locals it does nothing.
        let Some(_outside) = context::step_out() else {
            return;
        };
        drop(self.shutdown_now());
        while self.driven.turn(TASKS_PER_TURN) != TurnResult::Ended {}
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
