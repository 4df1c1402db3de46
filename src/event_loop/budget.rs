//! How much a future may do in one poll before it lets others in.
//!
//! - It counts in the polls of loops and of `block_on`, anew in each. A thread of another runtime has means of
//!   its own, and nothing is counted there.
//! - A future that has used it up is told to stop: it wakes itself and returns, and its task goes on to the next
//!   one that it waits for. That one gets half as much, and one operation at least, so that the first of a `join`
//!   starves neither the others nor a timeout around it.
//! - A task that asks on and on ([`LAST_STOP`]) gets nothing any more: of two branches of a `select` that are always
//!   ready, one would otherwise always have something to do, and the poll would never end.
//! - A future that is asked still more often ([`ANEW`]) is not on its way out: an executor inside of the task polls
//!   it until it is done. It goes on from the beginning, for nobody else would let it.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::sync::thread_local;

/// The stop after which there is nothing left for others: more than a task has branches, mostly.
const LAST_STOP: u32 = 32;
/// The stop after which it begins anew.
const ANEW: u32 = 4096;

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget::UNLIMITED) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget {
    /// Operations that may still be done.
    left: u64,
    /// How many futures were told to stop.
    stops: u32,
}

impl Budget {
    const FULL: Budget = Budget {
        left: 128,
        stops: 0,
    };
    const UNLIMITED: Budget = Budget {
        left: u64::MAX,
        stops: 0,
    };

    /// What there is for the next one when a future is told to stop.
    fn after_a_stop(self) -> Budget {
        let stops = self.stops + 1;
        match stops {
            ANEW => Budget::FULL,
            ..=LAST_STOP => Budget {
                left: (Budget::FULL.left >> stops).max(1),
                stops,
            },
            _ => Budget { left: 0, stops },
        }
    }
}

/// Lets the next poll of a loop do as much as any.
#[inline]
pub(crate) fn renew() {
    BUDGET.set(Budget::FULL);
}

/// Gives a poll inside of another one, or a loop inside of a poll, a budget of its own, until the guard is dropped.
pub(crate) fn begin() -> Outer {
    let outer = BUDGET.get();
    renew();
    Outer(outer)
}

/// Gives back what was left around it.
#[derive(Debug)]
pub(crate) struct Outer(Budget);

impl Drop for Outer {
    fn drop(&mut self) {
        BUDGET.set(self.0);
    }
}

/// Puts the running future off to its next poll if enough was done in this one.
pub(crate) fn poll_go_on(cx: &mut Context<'_>) -> Poll<()> {
    let budget = BUDGET.get();
    if budget.left > 0 {
        return Poll::Ready(());
    }
    BUDGET.set(budget.after_a_stop());
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Waits for the next poll if enough was done in this one.
pub(crate) async fn go_on() {
    poll_fn(poll_go_on).await;
}

/// Notes that an operation was done. One that has to wait is none: a task may wait for any number of things
/// at once.
pub(crate) fn spend() {
    spend_much(1);
}

/// As [`spend`], for something that counts as so many operations.
pub(crate) fn spend_much(operations: u64) {
    let Budget { left, stops } = BUDGET.get();
    let left = left.saturating_sub(operations);
    BUDGET.set(Budget { left, stops });
}

/// Pays for an operation that hardly ever waits: who tries again and again lets others in all the same.
pub(crate) async fn pay() {
    go_on().await;
    spend();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does all that it may, and is told to stop.
    fn use_up() -> u64 {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut done = 0;
        while poll_go_on(&mut cx).is_ready() {
            spend();
            done += 1;
        }
        done
    }

    #[test]
    fn every_future_that_comes_after_gets_less_and_a_task_without_end_nothing() {
        let _outer = begin();
        let halves: Vec<_> = (0..9).map(|_| use_up()).collect();
        assert_eq!(halves, [128, 64, 32, 16, 8, 4, 2, 1, 1]);
        let rest: Vec<_> = (9..ANEW).map(|_| use_up()).collect();
        let ones = (LAST_STOP - 8) as usize;
        assert!(rest[..ones].iter().all(|done| *done == 1));
        assert!(rest[ones..].iter().all(|done| *done == 0));
        assert_eq!(use_up(), 128, "an executor of its own is not held for ever");
    }

    #[test]
    fn a_budget_inside_of_another_is_its_own() {
        let outer = begin();
        assert_eq!(use_up(), 128);
        let inner = begin();
        assert_eq!(use_up(), 128);
        drop(inner);
        assert_eq!(use_up(), 64);
        drop(outer);
        for _ in 0..1000 {
            spend();
        }
        assert!(poll_go_on(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
    }
}
