//! The signal that a handle sends to all connections of its server.
//!
//! - It is sent once, and stays sent.
//! - The flag is set before the wakers are taken, and a connection looks at it after it has stored its
//!   waker, under the same lock: no signal is lost.
//! - Wakers are woken with no lock held.

use std::task::{Context, Poll};

use crate::event_loop::context;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};
use crate::waiters::EventWaiters;

/// The sender's side.
#[derive(Debug)]
pub(super) struct Stop {
    /// A copy of the event, to be read without the lock. `Release` here, `Acquire` in `is_stopping`.
    stopping: AtomicBool,
    waiters: Mutex<EventWaiters>,
}

impl Stop {
    pub(super) fn new() -> Stop {
        Stop {
            stopping: AtomicBool::new(false),
            waiters: Mutex::new(EventWaiters::new()),
        }
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let wakers = self.waiters.lock().fire();
        context::panics().wake_all(wakers.into_iter().map(|(_, waker)| waker));
    }
}

/// The side of one connection.
#[derive(Debug)]
pub(super) struct StopSignal {
    stop: Arc<Stop>,
    /// The key of this connection among the waiters.
    key: Option<usize>,
}

impl StopSignal {
    pub(super) fn of(stop: &Arc<Stop>) -> StopSignal {
        StopSignal {
            stop: Arc::clone(stop),
            key: None,
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.stopping.load(Ordering::Acquire)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is user code: both happen outside the lock.
        let waker = cx.waker().clone();
        let mut waiters = self.stop.waiters.lock();
        if waiters.has_fired() {
            return Poll::Ready(());
        }
        let replaced = waiters.store(&mut self.key, waker);
        drop(waiters);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        if self.key.is_some() {
            let removed = self.stop.waiters.lock().remove(&mut self.key);
            drop(removed);
        }
    }
}
