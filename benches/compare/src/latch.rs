//! A latch that opens when it was counted down to zero: how every workload knows that all tasks ran.
//!
//! - It is leaked: a child process makes a handful of them, and a task that holds a plain reference costs
//!   no reference count while it is measured.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;

pub(crate) struct Latch {
    left: AtomicUsize,
    waiter: AtomicWaker,
}

impl Latch {
    pub(crate) fn leak(count: usize) -> &'static Latch {
        Box::leak(Box::new(Latch {
            left: AtomicUsize::new(count),
            waiter: AtomicWaker::new(),
        }))
    }

    pub(crate) fn count_down(&self) {
        // AcqRel: who sees the latch open sees what happened before each count.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.wake();
        }
    }

    /// Ends when the latch is open; there may be one waiter.
    pub(crate) async fn opened(&self) {
        poll_fn(|cx| {
            self.waiter.register(cx.waker());
            match self.left.load(Ordering::Acquire) {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Blocks this thread until the latch is open.
    pub(crate) fn wait(&self) {
        futures::executor::block_on(self.opened());
    }
}
