//! How much a future may do in one poll before it has to yield to other tasks.
//!
//! - Every poll by a loop or by `block_on` starts with a full budget. On the thread of another
//!   runtime, which has its own means, nothing is counted.
//! - A future that has used the budget up wakes itself and returns `Pending`, and its task polls
//!   the next future that it waits for. That future gets half as much, and at least one operation,
//!   so that the first future of a `join` starves neither the others nor a timeout around it.
//! - After [`LAST_FUNDED_YIELD`] yields in one poll the task gets nothing any more: of two branches
//!   of a `select` that are always ready, one would otherwise always have something to do, and the
//!   poll would never end.
//! - After still more yields ([`RESTART_YIELD`]) the future is not about to return: an executor
//!   inside the task polls it until it completes. The budget is renewed, because nothing else would
//!   renew it.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

use crate::sync::thread_local;

/// The last yield after which the next future gets any budget: most tasks have fewer branches.
const LAST_FUNDED_YIELD: u32 = 32;
/// The yield after which the budget is full again.
const RESTART_YIELD: u32 = 4096;

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget::UNLIMITED) };
}

// One word: the loop renews it with one store before every poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
struct Budget {
    /// Operations that may still complete.
    left: u32,
    /// How often a future was made to yield; or [`NEVER`].
    yields: u32,
}

/// Instead of a number of yields: nothing is counted.
const NEVER: u32 = u32::MAX;

impl Budget {
    const FULL: Budget = Budget {
        left: 128,
        yields: 0,
    };
    const UNLIMITED: Budget = Budget {
        left: u32::MAX,
        yields: NEVER,
    };

    /// The budget of the next future when one is made to yield.
    fn after_yield(self) -> Budget {
        let yields = self.yields + 1;
        match yields {
            RESTART_YIELD => Budget::FULL,
            ..=LAST_FUNDED_YIELD => Budget {
                left: Budget::FULL.left.checked_shr(yields).unwrap_or(0).max(1),
                yields,
            },
            _ => Budget { left: 0, yields },
        }
    }
}

/// Renews the budget for the next poll of a loop.
#[inline]
pub(crate) fn reset() {
    BUDGET.set(Budget::FULL);
}

/// Gives a poll inside another one, or a loop inside a poll, its own budget until the guard is dropped.
pub(crate) fn enter() -> BudgetGuard {
    let outer = BUDGET.get();
    reset();
    BudgetGuard(outer)
}

/// Guard of [`begin`]: restores the budget of the outer poll.
#[derive(Debug)]
pub(crate) struct BudgetGuard(Budget);

impl Drop for BudgetGuard {
    fn drop(&mut self) {
        BUDGET.set(self.0);
    }
}

/// Returns `Pending`, and wakes the running future, if the budget of this poll is used up.
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    let budget = BUDGET.get();
    if budget.left > 0 {
        return Poll::Ready(());
    }
    if budget.yields == NEVER {
        BUDGET.set(Budget::UNLIMITED);
        return Poll::Ready(());
    }
    BUDGET.set(budget.after_yield());
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// Waits for the next poll if the budget of this one is used up.
pub(crate) async fn proceed() {
    poll_fn(poll_proceed).await;
}

/// Counts a completed operation. One that has to wait does not count: a task may wait for any number of
/// events at once.
pub(crate) fn spend() {
    spend_many(1);
}

/// Like [`spend`], for something that counts as several operations.
pub(crate) fn spend_many(operations: u32) {
    let Budget { left, yields } = BUDGET.get();
    let left = left.saturating_sub(operations);
    BUDGET.set(Budget { left, yields });
}

/// Spends budget for an operation that hardly ever waits, so that a task that repeats it still yields.
pub(crate) async fn proceed_and_spend() {
    proceed().await;
    spend();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spends the budget until it has to yield; returns how many operations that were.
    fn use_up() -> u64 {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut done = 0;
        while poll_proceed(&mut cx).is_ready() {
            spend();
            done += 1;
        }
        done
    }

    #[test]
    fn every_future_after_a_yield_gets_less_and_a_task_that_goes_on_gets_nothing() {
        let _outer = enter();
        let halves: Vec<_> = (0..9).map(|_| use_up()).collect();
        assert_eq!(halves, [128, 64, 32, 16, 8, 4, 2, 1, 1]);
        let rest: Vec<_> = (9..RESTART_YIELD).map(|_| use_up()).collect();
        let ones = (LAST_FUNDED_YIELD - 8) as usize;
        assert!(rest[..ones].iter().all(|done| *done == 1));
        assert!(rest[ones..].iter().all(|done| *done == 0));
        assert_eq!(
            use_up(),
            128,
            "an executor inside the task is not blocked for ever"
        );
    }

    #[test]
    fn a_nested_budget_is_independent() {
        let outer = enter();
        assert_eq!(use_up(), 128);
        let inner = enter();
        assert_eq!(use_up(), 128);
        drop(inner);
        assert_eq!(use_up(), 64);
        drop(outer);
        spend_many(u32::MAX);
        spend();
        assert!(poll_proceed(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
    }
}
