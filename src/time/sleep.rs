//! A future that waits for an instant.
//!
//! - It is armed on the thread that polls it; polled on another thread later, it moves there.
//! - It holds only plain data, so it is `Send`, `Sync` and `Unpin` wherever it is armed.
//! - Once armed, it reads no clock: it has fired when its entry is gone.
//! - A sleep whose deadline has passed is ready when polled, armed or not. That spends the task's
//!   budget, as a ready socket does. Only the timer of a scheduled closure waits until it is fired.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::event_loop::budget;
use crate::noted::{self, Noted};
use crate::sync;
use crate::this_thread;
use crate::time::here::{at, cancel, clock_here, here, now, try_arm};
use crate::time::moment::Moment;
use crate::time::queue::TimerKey;
use crate::time::timers::{Armed, Away, HomeId, TimerKind, Timers};

/// The cost of a sleep that completes without waiting, in operations: a task that sleeps for no
/// time over and over has nothing else to do, but other tasks may have.
const IMMEDIATE_COST: u32 = 16;

/// Waits for `duration`.
///
/// [`Duration::MAX`], like any time beyond the range of the clock, means for ever. The time counts
/// from this call, not from the first poll. (A sleep that a test creates beside its
/// [`TestLoop`](crate::testing::TestLoop) counts on the clock of the loop or `block_on` that first
/// polls it: from this call, or on the clock of another test loop from that poll.) A zero duration
/// is ready at once: to yield to other tasks, use [`yield_now`](crate::yield_now).
///
/// # Panics
///
/// The future panics if it is polled, before its deadline, on a thread that has no timers: one that is
/// neither a loop nor inside `block_on`.
///
/// # Cancel safety
///
/// Cancel safe: dropping it frees its timer at once, or soon if it is dropped on another thread.
///
/// # Examples
///
/// ```
/// use loopgroup::time::sleep;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// loopgroup::block_on(sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2)); // never early
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::after(duration)
}

/// Waits until `deadline`.
///
/// Panics and cancel safety are those of [`sleep`].
///
/// # Examples
///
/// ```
/// use loopgroup::time::sleep_until;
/// use std::time::{Duration, Instant};
///
/// let deadline = Instant::now() + Duration::from_millis(2);
/// loopgroup::block_on(sleep_until(deadline));
/// assert!(Instant::now() >= deadline);
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::at(Some(deadline), TimerKind::Sleep)
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// # Examples
///
/// ```
/// use loopgroup::{testing::TestLoop, time::{now, sleep}};
/// use std::time::Duration;
///
/// TestLoop::new().block_on(async {
///     let mut wait = sleep(Duration::from_secs(1));
///     assert_eq!(wait.deadline(), Some(now() + Duration::from_secs(1)));
///     (&mut wait).await; // by reference, to use it again
///     wait.reset(now() + Duration::from_secs(1));
///     wait.await;
/// });
/// assert_eq!(sleep(Duration::MAX).deadline(), None); // never
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    moment: Moment,
    armed: Option<(HomeId, TimerKey)>,
    kind: TimerKind,
}

impl Sleep {
    pub(crate) fn at(deadline: Option<Instant>, kind: TimerKind) -> Sleep {
        Sleep {
            moment: Moment::At(deadline),
            armed: None,
            kind,
        }
    }

    pub(super) fn after(duration: Duration) -> Sleep {
        Sleep {
            moment: Moment::after(duration),
            armed: None,
            kind: TimerKind::Sleep,
        }
    }

    /// Returns the instant that it waits for; `None` means never.
    ///
    /// Until it is first polled, a sleep that was created beside a
    /// [`TestLoop`](crate::testing::TestLoop) shows the instant on the clock that
    /// [`now`](crate::time::now) reads.
    pub fn deadline(&self) -> Option<Instant> {
        match self.moment {
            Moment::At(deadline) => deadline,
            Moment::Unresolved(_) => self.moment.on(&clock_here()),
        }
    }

    /// Returns whether its instant has passed, on the clock that [`now`](crate::time::now) reads: polled
    /// there, it is ready.
    ///
    /// It need not be polled for that, and is not elapsed any more after a [`reset`](Sleep::reset) to a later
    /// instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::{testing::TestLoop, time::{now, sleep}};
    /// use std::time::Duration;
    ///
    /// TestLoop::new().block_on(async {
    ///     let mut idle = sleep(Duration::from_secs(60));
    ///     sleep(Duration::from_secs(59)).await;
    ///     assert!(!idle.is_elapsed());
    ///     sleep(Duration::from_secs(1)).await;
    ///     assert!(idle.is_elapsed()); // although it was never polled
    ///     idle.reset(now() + Duration::from_secs(60));
    ///     assert!(!idle.is_elapsed());
    /// });
    /// ```
    pub fn is_elapsed(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= now())
    }

    /// Changes the instant that it waits for, even if it has been ready before.
    ///
    /// A task that already waits for it is woken at the new instant, without polling it again. (If it
    /// waits on another thread, it is woken at once and polls it again.)
    ///
    /// # Examples
    ///
    /// ```
    /// use loopgroup::time::sleep;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut wait = sleep(Duration::from_secs(3600));
    /// wait.reset(Instant::now());
    /// loopgroup::block_on(wait);
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.reset_to(Some(deadline));
    }

    pub(crate) fn reset_to(&mut self, deadline: Option<Instant>) {
        self.moment = Moment::At(deadline);
        let Some((home, key)) = self.armed else {
            return;
        };
        let moved = at(home, |timers| {
            deadline.is_some_and(|deadline| timers.reset(key, deadline))
        });
        match moved {
            Some(true) => {}
            // Fired, or never: the next poll arms it again.
            Some(false) => self.disarm(),
            // Armed on another thread: the task that waits there is woken to poll it again.
            None if deadline.is_some() => {
                self.armed = None;
                home.notify(key, Away::Reset);
            }
            None => self.disarm(),
        }
    }

    /// Like [`Sleep::reset_to`], `duration` from now.
    pub(super) fn reset_after(&mut self, duration: Duration) {
        match Moment::after(duration) {
            // Beside a test loop, and not polled yet: the clock that polls it decides, as for a new one.
            moment @ Moment::Unresolved(_) if self.armed.is_none() => self.moment = moment,
            moment => self.reset_to(moment.on(&clock_here())),
        }
    }

    /// Notes that the task that is polled waits for it.
    #[inline]
    fn note(&self) {
        if this_thread::notes_waits() {
            self.note_now();
        }
    }

    #[cold]
    #[inline(never)]
    fn note_now(&self) {
        let Moment::At(until) = self.moment else {
            return; // it is resolved by its first poll
        };
        match self.armed {
            Some((_, key)) => noted::waits_for_timer(key, until),
            None => noted::waits_for(|| Noted::Sleep(until)),
        }
    }

    #[inline(never)] // What a drop does, in one function.
    fn disarm(&mut self) {
        let Some((home, key)) = self.armed.take() else {
            return;
        };
        match cancel(home, key) {
            // Dropping a waker is user code: no borrow is held here.
            Some(waker) => drop(waker),
            None => home.notify(key, Away::Dropped),
        }
    }

    /// Checks whether it has fired or is due, if it is armed on this thread; disarms it on any
    /// other thread.
    fn poll_armed(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> Option<Armed> {
        let (home, key) = self.armed?;
        // Not `at`: a thread's own timers are not driven while it is a loop, or outside `block_on`.
        let check = |timers: &Timers| {
            let here = timers.home() == home;
            here.then(|| match timers.state_of(key, cx.waker()) {
                Armed::Waiting | Armed::Stale if timers.is_over(deadline, self.kind) => Armed::Due,
                armed => armed,
            })
        };
        match here(check).flatten() {
            Some(Armed::Stale) => {
                let waker = Cell::new(Some(cx.waker().clone()));
                let old = at(home, |timers| Some(timers.replace(key, waker.take()?)));
                drop(old);
                Some(Armed::Waiting)
            }
            Some(armed) => Some(armed),
            None => {
                self.disarm();
                None
            }
        }
    }

    /// The deadline, on the clock of the loop or `block_on` that first polls it.
    fn resolve(&mut self) -> Option<Instant> {
        if let Moment::At(deadline) = self.moment {
            return deadline;
        }
        let deadline = here(|timers| self.moment.on(timers.clock()));
        let deadline = deadline.unwrap_or_else(|| self.moment.on(&Clock::System));
        self.moment = Moment::At(deadline);
        deadline
    }

    /// Arms it on this thread, unless it is over.
    #[inline(never)] // What a first poll does, in one function; the rest is rare or elsewhere.
    fn poll_unarmed(&mut self, deadline: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning a waker, and dropping it if it is not needed, is user code: no borrow is held.
        let waker = cx.waker().clone();
        match try_arm(deadline, waker, self.kind) {
            Some(Ok(armed)) => {
                self.armed = Some(armed);
                self.note();
                Poll::Pending
            }
            Some(Err(waker)) => {
                drop(waker);
                self.poll_elapsed(cx)
            }
            None if deadline.is_some_and(|deadline| sync::now() >= deadline) => Poll::Ready(()),
            None => panic!(
                "a timer of loopgroup was polled on a thread that has no timers: poll it inside a \
                 task of a group, inside loopgroup::run or inside loopgroup::block_on; in a task of \
                 another runtime use that runtime's timers"
            ),
        }
    }

    /// Polls it when it has been polled before, and in rare cases for the first time.
    #[inline(never)]
    fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.resolve();
        // A scheduled closure that is never due is armed nevertheless: a shutdown searches the
        // timers for it.
        if deadline.is_none() && self.kind == TimerKind::Sleep {
            self.note();
            return Poll::Pending;
        }
        match self.poll_armed(deadline, cx) {
            None => self.poll_unarmed(deadline, cx),
            Some(Armed::Fired) => {
                self.armed = None;
                Poll::Ready(())
            }
            Some(Armed::Due) => self.poll_elapsed(cx),
            Some(_) => {
                self.note();
                Poll::Pending
            }
        }
    }

    /// Completes without having fired; spends budget, so that a task that never waits for its
    /// timers still yields.
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(budget::poll_proceed(cx));
        budget::spend_many(IMMEDIATE_COST);
        self.disarm();
        Poll::Ready(())
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match (&self.moment, &self.armed) {
            (&Moment::At(Some(deadline)), None) => self.poll_unarmed(Some(deadline), cx),
            _ => self.poll_again(cx),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline())
            .field("armed", &self.armed.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestLoop;
    use std::future::poll_fn;

    #[test]
    fn the_timer_of_a_scheduled_closure_waits_to_be_fired_even_if_it_is_due() {
        let second = Duration::from_secs(1);
        let mut test = TestLoop::new();
        let past = test.now();
        test.advance(second);
        for (kind, polls) in [(TimerKind::Sleep, 1), (TimerKind::Scheduled, 2)] {
            let mut wait = Sleep::at(Some(past), kind);
            let mut count = 0;
            test.block_on(poll_fn(|cx| {
                count += 1;
                Pin::new(&mut wait).poll(cx)
            }));
            assert_eq!((count, test.elapsed()), (polls, second), "{kind:?}");
        }
    }
}
