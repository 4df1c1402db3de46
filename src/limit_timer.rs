//! A timer that limits what a task does, and that the task does not wait for.
//!
//! - A shutdown says what the tasks that it cancels waited for, and finds those that have a timer by the
//!   address of their waker. The timer of a time limit would be named there in place of what it limits.
//! - So it is taken off the account when it is dropped: a task is dropped before it is named.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
#[cfg(feature = "hyper")]
use std::time::Instant;

use crate::event_loop::context;
use crate::time::{self, Sleep};

/// A [`Sleep`] that does not count as what its task waits for.
#[derive(Debug)]
pub(crate) struct LimitTimer {
    sleep: Sleep,
    /// The address of the waker that waits for it; `None` if it is not armed.
    waiter: Option<usize>,
}

impl LimitTimer {
    pub(crate) fn after(limit: Duration) -> LimitTimer {
        LimitTimer::of(time::sleep(limit))
    }

    /// The same limit as a timer that is not armed: it may be sent to another thread.
    pub(crate) fn disarmed(self) -> LimitTimer {
        LimitTimer::of(match self.sleep.deadline() {
            Some(deadline) => time::sleep_until(deadline),
            None => time::sleep(Duration::MAX),
        })
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn at(deadline: Instant) -> LimitTimer {
        LimitTimer::of(time::sleep_until(deadline))
    }

    fn of(sleep: Sleep) -> LimitTimer {
        let waiter = None;
        LimitTimer { sleep, waiter }
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sleep.deadline()
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A timer that never fires is never armed.
        let is_armed = self.sleep.deadline().is_some();
        self.waiter = is_armed.then(|| cx.waker().data().addr());
        ready!(Pin::new(&mut self.sleep).poll(cx));
        self.waiter = None;
        Poll::Ready(())
    }
}

impl Drop for LimitTimer {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            context::with_local(|local| local.leftovers.borrow_mut().sleeps_not(waiter));
        }
    }
}
