//! The state of a scheduled closure: one word, shared by its task and its handle.
//!
//! - The start of a run and a cancellation are one atomic step each: whichever comes second sees
//!   the other.
//! - A cancellation during a run of a periodic closure forbids the next run; it is complete
//!   when that run ends.

use std::task::{Context, Poll, Waker};

use crate::event_loop::context;
use crate::noted::{self, Noted};
use crate::sync::{AtomicU8, Mutex, Ordering};

/// A run has begun; stays set for a closure that runs once.
const RUNNING: u8 = 1;
/// Cancelled: no further run begins.
const CANCELLED: u8 = 1 << 1;
/// The closure was dropped.
const ENDED: u8 = 1 << 2;

/// The state of a scheduled closure; shared by its task and its handle.
#[derive(Debug, Default)]
pub(super) struct ScheduledState {
    bits: AtomicU8,
    /// The waker of the handle that waits for a cancelled run to end.
    waiter: Mutex<Option<Waker>>,
}

impl ScheduledState {
    /// Begins a run; `false` if the closure was cancelled.
    pub(super) fn begin(&self) -> bool {
        self.bits.fetch_or(RUNNING, Ordering::AcqRel) & CANCELLED == 0
    }

    /// Ends a run of a periodic closure; `false` if it was cancelled meanwhile.
    pub(super) fn pause(&self) -> bool {
        let continues = self.bits.fetch_and(!RUNNING, Ordering::AcqRel) & CANCELLED == 0;
        if !continues {
            self.wake_waiter();
        }
        continues
    }

    /// Cancels the closure; `false` if that comes too late to have an effect.
    pub(super) fn cancel(&self, rule: Repetition) -> bool {
        let too_late = match rule {
            Repetition::Once => RUNNING | CANCELLED | ENDED,
            Repetition::Periodic => CANCELLED | ENDED,
        };
        self.bits.fetch_or(CANCELLED, Ordering::AcqRel) & too_late == 0
    }

    /// Whether no run of a cancelled closure is in progress.
    pub(super) fn is_over(&self) -> bool {
        let bits = self.bits.load(Ordering::Acquire);
        bits & RUNNING == 0 || bits & ENDED != 0
    }

    /// Records that the closure was dropped.
    pub(super) fn end(&self) {
        self.bits.fetch_or(ENDED, Ordering::AcqRel);
        self.wake_waiter();
    }

    fn wake_waiter(&self) {
        let waiter = self.waiter.lock().take();
        context::panics().wake_all(waiter);
    }

    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is user code: both happen outside the lock. The waker is
        // stored first and the word read afterwards: of an end and a waiter that race, one sees the
        // other.
        let waker = cx.waker().clone();
        let replaced = self.waiter.lock().replace(waker);
        drop(replaced);
        if self.is_over() {
            return Poll::Ready(());
        }
        noted::waits_for(|| Noted::Event("the end of a scheduled closure"));
        Poll::Pending
    }
}

/// How often a scheduled closure runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    Once,
    Periodic,
}
