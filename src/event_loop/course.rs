//! What has become of a scheduled closure: one word, on which its task and its handle meet.
//!
//! - A run begins, and a cancellation comes, in one step each: of the two, the second sees the first.
//! - A cancellation during a run of several forbids the next; it is over when that run is.

use std::task::{Context, Poll, Waker};

use crate::event_loop::context;
use crate::sync::{AtomicU8, Mutex, Ordering};

/// A run has begun; for a closure that runs once, it stays so.
const RUNNING: u8 = 1;
/// It was cancelled: no run begins any more.
const CANCELLED: u8 = 1 << 1;
/// The closure is gone.
const ENDED: u8 = 1 << 2;

/// What has become of a scheduled closure; shared by its task and its handle.
#[derive(Debug, Default)]
pub(super) struct Course {
    bits: AtomicU8,
    /// Who waits for the end of a run that was cancelled.
    waiter: Mutex<Option<Waker>>,
}

impl Course {
    /// Begins a run; `false` if it was cancelled.
    pub(super) fn begin(&self) -> bool {
        self.bits.fetch_or(RUNNING, Ordering::AcqRel) & CANCELLED == 0
    }

    /// Ends a run of several; `false` if it was cancelled meanwhile.
    pub(super) fn pause(&self) -> bool {
        let goes_on = self.bits.fetch_and(!RUNNING, Ordering::AcqRel) & CANCELLED == 0;
        if !goes_on {
            self.tell();
        }
        goes_on
    }

    /// Cancels it; `false` if that makes no difference any more.
    pub(super) fn cancel(&self, rule: Rule) -> bool {
        let too_late = match rule {
            Rule::Once => RUNNING | CANCELLED | ENDED,
            Rule::Periodic => CANCELLED | ENDED,
        };
        self.bits.fetch_or(CANCELLED, Ordering::AcqRel) & too_late == 0
    }

    /// Whether a closure that was cancelled runs no more.
    pub(super) fn is_over(&self) -> bool {
        let bits = self.bits.load(Ordering::Acquire);
        bits & RUNNING == 0 || bits & ENDED != 0
    }

    /// Notes that the closure is gone.
    pub(super) fn end(&self) {
        self.bits.fetch_or(ENDED, Ordering::AcqRel);
        self.tell();
    }

    fn tell(&self) {
        let waiter = self.waiter.lock().take();
        context::panics().wake_all(waiter);
    }

    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is user code: both happen outside the lock. The waker is stored first and the
        // word looked at after: of an end and a waiter that meet, one sees the other.
        let waker = cx.waker().clone();
        let replaced = self.waiter.lock().replace(waker);
        drop(replaced);
        if self.is_over() {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// How often it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Once,
    Periodic,
}
