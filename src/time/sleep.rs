//! A future that waits for a moment.
//!
//! - It is armed on the thread that polls it; polled elsewhere later, it moves there.
//! - It holds numbers only, so it is `Send`, `Sync` and `Unpin` wherever it is armed.
//! - Once armed, it reads no clock: that its entry is gone is the news that it fired.
//! - One that is over when it is first polled is an operation of the task's budget, as a ready socket is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::event_loop::budget;
use crate::sync;
use crate::time::queue::Key;
use crate::time::timers::{Armed, Away, HomeId, Kind, Timers};
use crate::time::{at, here, now};

/// Waits for `duration`.
///
/// [`Duration::MAX`], like any time beyond the end of the clock, means for ever. The time counts from
/// this call, not from the first poll. A zero duration may be ready at once: to let other tasks go
/// first, use [`yield_now`](crate::yield_now).
///
/// # Panics
///
/// The future panics when it is polled, before its time, on a thread that has no timers: one that is
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
    Sleep::at(now().checked_add(duration), Kind::Sleep)
}

/// Waits until `deadline`.
///
/// Panics and cancel safety as [`sleep`].
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
    Sleep::at(Some(deadline), Kind::Sleep)
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
    /// `None`: never.
    deadline: Option<Instant>,
    armed: Option<(HomeId, Key)>,
    kind: Kind,
}

impl Sleep {
    pub(crate) fn at(deadline: Option<Instant>, kind: Kind) -> Sleep {
        Sleep {
            deadline,
            armed: None,
            kind,
        }
    }

    /// Returns the moment that it waits for; `None` means never.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Waits for another moment instead, also if it has been ready before.
    ///
    /// A task that waits for it already is woken at the new moment, without polling it again. (If it
    /// waits on another thread, it is woken at once to see for itself.)
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
        self.deadline = deadline;
        let Some((home, key)) = self.armed else {
            return;
        };
        let moved = at(home, |timers| {
            deadline.is_some_and(|deadline| timers.reset(key, deadline))
        });
        match moved {
            Some(true) => {}
            // Fired, or never: the next poll arms it anew.
            Some(false) => self.disarm(),
            // Armed elsewhere: there, who waits for it is made to poll it.
            None if deadline.is_some() => {
                self.armed = None;
                home.tell(key, Away::Reset);
            }
            None => self.disarm(),
        }
    }

    fn disarm(&mut self) {
        let Some((home, key)) = self.armed.take() else {
            return;
        };
        match at(home, |timers| timers.cancel(key)) {
            // Foreign code: no borrow is held here.
            Some(waker) => drop(waker),
            None => home.tell(key, Away::Dropped),
        }
    }

    /// Looks whether it has fired, if it is armed on this thread; moves away from another one.
    fn look(&mut self, cx: &mut Context<'_>) -> Option<Armed> {
        let (home, key) = self.armed?;
        // Not `at`: a thread's own timers rest while it is a loop, or outside `block_on`.
        let look = |timers: &Timers| (timers.home() == home).then(|| timers.look(key, cx.waker()));
        match here(look).flatten() {
            Some(Armed::Stale) => {
                let waker = cx.waker().clone();
                let old = at(home, |timers| timers.replace(key, waker));
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
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // A scheduled closure that is never due is armed all the same: a shutdown looks for it there.
        if this.deadline.is_none() && this.kind == Kind::Sleep {
            return Poll::Pending;
        }
        match this.look(cx) {
            None => {}
            Some(Armed::Fired) => {
                this.armed = None;
                return Poll::Ready(());
            }
            Some(_) => return Poll::Pending,
        }
        let waker = cx.waker().clone();
        match here(|timers| (timers.home(), timers.arm(this.deadline, waker, this.kind))) {
            Some((home, Ok(key))) => {
                this.armed = Some((home, key));
                Poll::Pending
            }
            Some((_, Err(waker))) => {
                drop(waker);
                // Over without a wait: a task that never waits for its timers lets others in all the same.
                ready!(budget::poll_go_on(cx));
                budget::spend();
                Poll::Ready(())
            }
            None if this
                .deadline
                .is_some_and(|deadline| sync::now() >= deadline) =>
            {
                Poll::Ready(())
            }
            None => panic!(
                "a timer of loopgroup was polled on a thread that has no timers: poll it inside a \
                 task of a group, inside loopgroup::run or inside loopgroup::block_on; in a task of \
                 another runtime use that runtime's timers"
            ),
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
            .field("deadline", &self.deadline)
            .field("armed", &self.armed.is_some())
            .finish()
    }
}
