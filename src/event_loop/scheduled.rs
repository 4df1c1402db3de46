//! Closures that run later, once or again and again.
//!
//! - A scheduled closure is a task of its loop that waits for a timer: accounted for like any other,
//!   and dropped on its loop, with its captures, as soon as it is cancelled.
//! - A closure either runs or is cancelled, never both: each side decides by one atomic step on one word
//!   ([`ScheduledState`]).
//! - A cancelled closure is finished at once, or at the end of the run if it is running.
//! - A shutdown cancels closures that are not due: such a task, polled while its loop shuts down,
//!   has the loop drop it (see [`Local::cancel_after_poll`]): a task can neither drop itself nor
//!   complete, which would count it as completed.
//! - Scheduling from another thread wakes the loop only if it would otherwise sleep past the deadline. The
//!   task arms its timer ahead of the queue, so the closure is late by the running task, not by the queue.
//! - A periodic closure arms a timer for every run, also for one that is already due: other tasks run in
//!   between.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::error::JoinError;
use crate::event_loop::context;
use crate::event_loop::course::{Repetition, ScheduledState};
use crate::event_loop::handle::EventLoop;
use crate::event_loop::inbox::{Lane, Urgency};
use crate::event_loop::local::Local;
use crate::event_loop::repeat::{Repeat, Timing};
use crate::event_loop::shared::Shared;
use crate::sync::{Arc, Mutex};
use crate::task::join::JoinHandle;
use crate::time::sleep::Sleep;
use crate::time::timers::TimerKind;

impl EventLoop {
    /// Runs a closure on this loop after `delay`.
    ///
    /// Any thread may call it; it wakes the loop only if nothing is due earlier. A rejection is reported by
    /// the handle. [`Duration::MAX`] means never.
    ///
    /// A shutdown request cancels closures that are not due yet; to run a closure at the end, use a
    /// [shutdown hook](EventLoop::add_shutdown_hook).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let later = group.next().schedule(Duration::from_millis(1), || 7);
    /// assert_eq!(group.block_on(later).unwrap(), 7);
    /// let never = group.next().schedule(Duration::MAX, || ());
    /// assert!(never.cancel());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn schedule<F, T>(&self, delay: Duration, call: F) -> Scheduled<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.schedule_by(self.deadline_after(delay), call)
    }

    /// Runs a closure on this loop at `deadline`, or as soon as possible if that has passed.
    ///
    /// The deadline is on the clock of the loop, which [`time::now`](crate::time::now) reads. In all else it
    /// is [`schedule`](EventLoop::schedule).
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let mut test = TestLoop::new();
    /// let at = test.now() + 5 * second;
    /// let later = test.schedule_at(at, loopgroup::time::now);
    /// test.advance(4 * second);
    /// assert!(!later.is_finished());
    /// assert_eq!(test.block_on(later).unwrap(), at);
    /// ```
    #[track_caller]
    pub fn schedule_at<F, T>(&self, deadline: Instant, call: F) -> Scheduled<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.schedule_by(Some(deadline), call)
    }

    #[track_caller]
    fn schedule_by<F, T>(&self, deadline: Option<Instant>, call: F) -> Scheduled<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (task, state) = Delayed::new(deadline, call);
        let handle = self.spawn_by(task, Lane::Timed, urgency(deadline), Location::caller());
        Scheduled::new(handle, state, self.shared(), Repetition::Once)
    }

    /// Runs a closure on this loop after `initial` and then on a grid of `period`.
    ///
    /// Missed runs are made up for, one in each turn of the loop. A run that panics is the last. A shutdown
    /// cancels it, and a rejection is reported by the handle, as for [`schedule`](EventLoop::schedule).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let runs = Arc::new(AtomicU32::new(0));
    /// let count = Arc::clone(&runs);
    /// let mut test = TestLoop::new();
    /// let beat = test.schedule_at_fixed_rate(second, second, move || {
    ///     count.fetch_add(1, Ordering::Relaxed);
    /// })?;
    /// test.advance(10 * second);
    /// assert_eq!(runs.load(Ordering::Relaxed), 10);
    /// assert!(beat.cancel());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn schedule_at_fixed_rate<F>(
        &self,
        initial: Duration,
        period: Duration,
        call: F,
    ) -> io::Result<Scheduled<()>>
    where
        F: FnMut() + Send + 'static,
    {
        let repeat = Repeat::at_fixed_rate(period).starting_in(initial);
        self.repeat(repeat, endless(call))
    }

    /// Runs a closure on this loop after `initial` and then `delay` after the end of each run.
    ///
    /// A run that panics is the last. A shutdown cancels it, and a rejection is reported by the handle, as
    /// for [`schedule`](EventLoop::schedule).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `delay` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::EventLoopGroup;
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::new(1)?;
    /// let (tx, rx) = mpsc::channel();
    /// let ms = Duration::from_millis(1);
    /// let beat = group.next().schedule_with_fixed_delay(ms, ms, move || tx.send("beat").unwrap())?;
    /// assert_eq!(rx.recv(), Ok("beat"));
    /// assert_eq!(rx.recv(), Ok("beat"));
    /// assert!(beat.cancel());
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn schedule_with_fixed_delay<F>(
        &self,
        initial: Duration,
        delay: Duration,
        call: F,
    ) -> io::Result<Scheduled<()>>
    where
        F: FnMut() + Send + 'static,
    {
        let repeat = Repeat::with_fixed_delay(delay).starting_in(initial);
        self.repeat(repeat, endless(call))
    }

    /// Runs a closure on this loop again and again, until it breaks.
    ///
    /// The handle resolves to the value of the break. A run that panics is the last. A shutdown cancels it,
    /// and a rejection is reported by the handle, as for [`schedule`](EventLoop::schedule).
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the period or the delay is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{Repeat, testing::TestLoop};
    /// use std::{ops::ControlFlow, time::Duration};
    ///
    /// let second = Duration::from_secs(1);
    /// let mut test = TestLoop::new();
    /// let mut attempts = 0;
    /// let retry = test.repeat(Repeat::with_fixed_delay(second), move || {
    ///     attempts += 1;
    ///     if attempts < 5 {
    ///         return ControlFlow::Continue(());
    ///     }
    ///     ControlFlow::Break(attempts)
    /// })?;
    /// assert_eq!(test.block_on(retry).unwrap(), 5);
    /// assert_eq!(test.elapsed(), 5 * second);
    /// # std::io::Result::Ok(())
    /// ```
    #[track_caller]
    pub fn repeat<F, T>(&self, repeat: Repeat, call: F) -> io::Result<Scheduled<T>>
    where
        F: FnMut() -> ControlFlow<T> + Send + 'static,
        T: Send + 'static,
    {
        let (timing, first) = repeat.start(&self.shared().config)?;
        let (task, state) = Periodic::new(first, timing, call);
        let handle = self.spawn_by(task, Lane::Timed, urgency(first), Location::caller());
        let rule = Repetition::Periodic;
        Ok(Scheduled::new(handle, state, self.shared(), rule))
    }

    /// The instant `delay` from now; `None` if it is beyond the range of the clock.
    pub(super) fn deadline_after(&self, delay: Duration) -> Option<Instant> {
        self.shared().config.clock.now().checked_add(delay)
    }
}

pub(super) fn urgency(deadline: Option<Instant>) -> Urgency {
    deadline.map_or(Urgency::Lazy, Urgency::By)
}

/// A closure that is repeated until it is cancelled.
pub(super) fn endless(mut call: impl FnMut()) -> impl FnMut() -> ControlFlow<()> {
    move || {
        call();
        ControlFlow::Continue(())
    }
}

/// The handle of a scheduled closure: resolves to its result, or to the reason why there is none.
///
/// Dropping it detaches the closure, which still runs. The handle of a periodic closure resolves when a run
/// panics, when a [repeated](EventLoop::repeat) closure ends itself, or when it is cancelled, by
/// [`cancel`](Scheduled::cancel) or by a shutdown.
///
/// # Examples
///
/// ```
/// use loopgroup::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::new(1)?;
/// let hour = Duration::from_secs(3600);
/// let later = group.next().schedule(hour, || "not before an hour has passed");
/// group.shutdown_now().wait();
/// assert!(loopgroup::block_on(later).unwrap_err().is_cancelled());
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Awaiting `&mut scheduled` is cancel safe; dropping the handle does not cancel the closure.
///
/// # Panics
///
/// If it is polled again after it was ready. (After [`cancel`](Scheduled::cancel) it is ready each time.)
#[must_use = "dropping it does not cancel the closure; use drop() to say so"]
pub struct Scheduled<T> {
    /// `None` once it was cancelled.
    handle: Mutex<Option<JoinHandle<T>>>,
    state: Arc<ScheduledState>,
    home: Arc<Shared>,
    rule: Repetition,
}

impl<T> Scheduled<T> {
    pub(super) fn new(
        handle: JoinHandle<T>,
        state: Arc<ScheduledState>,
        home: &Arc<Shared>,
        rule: Repetition,
    ) -> Scheduled<T> {
        Scheduled {
            handle: Mutex::new(Some(handle)),
            state,
            home: Arc::clone(home),
            rule,
        }
    }

    /// Cancels the closure, from any thread.
    ///
    /// Returns `true` if this call cancelled it: the closure has not run and will not, or, if it is
    /// periodic, will not run again. Its captures are dropped soon, on its loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::testing::TestLoop;
    /// use std::time::Duration;
    ///
    /// let mut test = TestLoop::new();
    /// let never = test.schedule(Duration::from_secs(1), || unreachable!());
    /// assert!(never.cancel() && !never.cancel()); // the second call has no effect
    /// test.advance(Duration::from_secs(2));
    /// assert!(never.is_finished());
    /// ```
    pub fn cancel(&self) -> bool {
        if !self.state.cancel(self.rule) {
            return false;
        }
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            handle.abort();
            // The task may still be in the inbox of a sleeping loop: wake it to drop the captures soon.
            self.home.ring_if_needed(self.home.inbox.hurry());
        }
        true
    }

    /// Returns whether the closure is not running and will not run again, for whatever reason. If it is
    /// cancelled while it runs, it is finished when that run ends.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut test = loopgroup::testing::TestLoop::new();
    /// let soon = test.schedule(std::time::Duration::ZERO, || 7);
    /// test.run_until_stalled();
    /// assert!(soon.is_finished());
    /// ```
    pub fn is_finished(&self) -> bool {
        match &*self.handle.lock() {
            Some(handle) => handle.is_finished(),
            None => self.state.is_over(),
        }
    }
}

impl<T> Future for Scheduled<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.handle.get_mut() {
            Some(handle) => Pin::new(handle).poll(cx),
            None => {
                ready!(self.state.poll_over(cx));
                Poll::Ready(Err(JoinError::cancelled()))
            }
        }
    }
}

impl<T> fmt::Debug for Scheduled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduled")
            .field("rule", &self.rule)
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// The timer of a scheduled closure.
struct ClosureTimer {
    sleep: Sleep,
    state: Arc<ScheduledState>,
}

impl ClosureTimer {
    fn new(deadline: Option<Instant>, state: &Arc<ScheduledState>) -> ClosureTimer {
        ClosureTimer {
            sleep: Sleep::at(deadline, TimerKind::Scheduled),
            state: Arc::clone(state),
        }
    }

    /// Ready when the closure is to run now; this run can then no longer be cancelled.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.sleep).poll(cx).is_pending() {
            self.cancel_if_shutting_down(cx);
            return Poll::Pending;
        }
        if self.state.begin() {
            return Poll::Ready(());
        }
        // Cancelled: the `cancel` call closes the task.
        Poll::Pending
    }

    /// Cancels the task if its loop is shutting down; returns whether it did.
    fn cancel_if_shutting_down(&self, cx: &Context<'_>) -> bool {
        let local = context::current().expect("a task is polled on its loop");
        let shutting_down = local.shared.state().is_shutting_down();
        if shutting_down {
            local.cancel_after_poll(cx.waker().clone());
        }
        shutting_down
    }
}

impl Drop for ClosureTimer {
    fn drop(&mut self) {
        self.state.end();
    }
}

/// A closure that waits for its only run.
pub(super) struct Delayed<F> {
    call: Option<F>,
    /// Dropped last: its drop records the end.
    timer: ClosureTimer,
}

impl<F> Delayed<F> {
    /// A closure that runs once, and the state that it shares with its handle.
    pub(super) fn new(deadline: Option<Instant>, call: F) -> (Delayed<F>, Arc<ScheduledState>) {
        let state = Arc::new(ScheduledState::default());
        let timer = ClosureTimer::new(deadline, &state);
        let call = Some(call);
        (Delayed { call, timer }, state)
    }
}

// The closure is moved out before it is called and never pinned.
impl<F> Unpin for Delayed<F> {}

impl<F: FnOnce() -> T, T> Future for Delayed<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        ready!(self.timer.poll_due(cx));
        let call = self.call.take().expect("a finished future is not polled");
        Poll::Ready(call())
    }
}

/// A closure that waits for its next run.
pub(super) struct Periodic<F> {
    call: F,
    timing: Timing,
    /// Dropped last: its drop records the end.
    timer: ClosureTimer,
}

impl<F> Periodic<F> {
    /// A closure that runs again and again, and the state that it shares with its handle.
    pub(super) fn new(
        deadline: Option<Instant>,
        timing: Timing,
        call: F,
    ) -> (Periodic<F>, Arc<ScheduledState>) {
        let state = Arc::new(ScheduledState::default());
        let timer = ClosureTimer::new(deadline, &state);
        let task = Periodic {
            call,
            timing,
            timer,
        };
        (task, state)
    }
}

// The closure is called by reference and never pinned.
impl<F> Unpin for Periodic<F> {}

impl<F: FnMut() -> ControlFlow<T>, T> Future for Periodic<F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        ready!(self.timer.poll_due(cx));
        if let ControlFlow::Break(value) = (self.call)() {
            return Poll::Ready(value);
        }
        // Cancelled while it ran: no timer is armed.
        if !self.timer.state.pause() {
            return Poll::Pending;
        }
        let due = self.timer.sleep.deadline();
        let next = self.timing.next_after(due);
        self.timer.sleep.reset_to(next);
        if self.timer.cancel_if_shutting_down(cx) {
            // Even if the next run is already due: a closure that is always late would never end.
            return Poll::Pending;
        }
        // Armed even if it is already due: it fires with the timers of the next turn, after other tasks.
        let armed = Pin::new(&mut self.timer.sleep).poll(cx);
        debug_assert!(
            armed.is_pending(),
            "a scheduled closure waits for its timer"
        );
        Poll::Pending
    }
}

impl Local {
    /// Has the loop drop the running task after its poll: cancelled, not completed.
    fn cancel_after_poll(&self, waker: std::task::Waker) {
        self.given_up.borrow_mut().push(waker);
    }
}
