//! A place for one message between two tasks: a flag and a waker, the same for all runtimes.
//!
//! - Leaked, as [`Latch`](crate::latch::Latch) is, and for the same reason.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;

/// Holds one number that is not zero, or nothing.
pub(crate) struct Slot {
    value: AtomicU64,
    taker: AtomicWaker,
}

impl Slot {
    pub(crate) fn leak() -> &'static Slot {
        Box::leak(Box::new(Slot {
            value: AtomicU64::new(0),
            taker: AtomicWaker::new(),
        }))
    }

    /// Fills the slot and wakes the task that waits for it.
    pub(crate) fn put(&self, value: u64) {
        debug_assert_ne!(value, 0, "zero means empty");
        self.value.store(value, Ordering::Release);
        self.taker.wake();
    }

    /// Waits for a value and leaves the slot empty; there may be one taker.
    pub(crate) async fn take(&self) -> u64 {
        poll_fn(|cx| {
            // Looked at first: a message that is here already costs no registration.
            match self.value.swap(0, Ordering::Acquire) {
                0 => {}
                value => return Poll::Ready(value),
            }
            self.taker.register(cx.waker());
            match self.value.swap(0, Ordering::Acquire) {
                0 => Poll::Pending,
                value => Poll::Ready(value),
            }
        })
        .await
    }
}
