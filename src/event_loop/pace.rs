//! How far a turn may go: to the next deadline, and to the end of the task that runs then.
//!
//! - The deadline is that of the next timer, or of the shutdown. Whoever runs tasks is told after how
//!   many to look at the clock: after every task when the deadline is near, after up to [`BATCH`] when it is far. A task that
//!   takes longer than [`LONG`] is a stall of its own, so with none of them no deadline is passed unseen.
//! - What runs when the deadline is found to have passed was the last; what is left goes on in the next turn, in its
//!   order. At least one task of each kind runs in a turn, or timers that are always due would starve all others.
//! - Once the shutdown's own deadline has passed there is no next turn to wait for: nothing more runs.

use std::time::{Duration, Instant};

/// Tasks between two looks at the clock, at most.
const BATCH: u32 = 64;
/// The longest that a task is expected to take.
const LONG: Duration = Duration::from_millis(10);

/// The pace of a turn.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Of the next timer.
    timer: Option<Instant>,
    /// Of the shutdown.
    shutdown: Option<Instant>,
    /// What the loop's life showed when it was last asked.
    pub(crate) shown: u8,
    /// Tasks until the next look.
    stride: u32,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    GoOn,
    /// A timer is due.
    Due,
    /// The shutdown is.
    Over,
}

impl Pace {
    /// For a turn in which the clock was not read yet: with a deadline ahead, it is after the first task.
    pub(crate) fn new(timer: Option<Instant>) -> Pace {
        Pace {
            timer,
            shutdown: None,
            shown: 0,
            stride: if timer.is_none() { BATCH } else { 1 },
            verdict: Verdict::GoOn,
        }
    }

    /// Notes when the loop has to end.
    pub(crate) fn set_shutdown(&mut self, deadline: Option<Instant>) {
        self.shutdown = deadline;
        self.stride = 1;
    }

    /// Goes on to another timer: those that were due have fired, or an earlier one was armed.
    pub(crate) fn set_timer(&mut self, timer: Option<Instant>) {
        self.timer = timer;
    }

    /// How many tasks may run before the next look at the clock; one at least.
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// Looks at a reading of the clock.
    pub(crate) fn look(&mut self, now: Instant) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        self.verdict = if passed(self.shutdown) {
            Verdict::Over
        } else if passed(self.timer) {
            Verdict::Due
        } else {
            Verdict::GoOn
        };
        self.stride = self.deadline().map_or(BATCH, |deadline| {
            let left = deadline.saturating_duration_since(now).as_nanos() / LONG.as_nanos();
            u32::try_from(left).map_or(BATCH, |left| left.clamp(1, BATCH))
        });
    }

    /// Whether the task that ran was the last of its kind in this turn.
    pub(crate) fn is_due(&self) -> bool {
        self.verdict != Verdict::GoOn
    }

    /// Whether it was the last of all.
    pub(crate) fn is_over(&self) -> bool {
        self.verdict == Verdict::Over
    }

    fn deadline(&self) -> Option<Instant> {
        crate::clock::earlier(self.timer, self.shutdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_deadline_the_more_often_the_clock_is_looked_at() {
        let start = Instant::now();
        for (millis, tasks) in [(0, 1), (5, 1), (20, 2), (100, 10), (640, 64), (9_000, 64)] {
            let deadline = Some(start + Duration::from_millis(millis));
            let mut pace = Pace::new(deadline);
            assert_eq!(pace.stride(), 1, "nobody knows how near it is");
            pace.look(start);
            assert_eq!(pace.stride(), tasks, "{millis} ms");
        }
        assert_eq!(Pace::new(None).stride(), BATCH);
    }

    #[test]
    fn a_timer_that_is_due_ends_a_kind_and_a_shutdown_that_is_due_the_turn() {
        let start = Instant::now();
        let ms = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(Some(ms(5)));
        pace.set_shutdown(Some(ms(7)));
        assert!(!pace.is_due());
        pace.look(ms(5));
        assert!(pace.is_due() && !pace.is_over());
        pace.set_timer(Some(ms(50)));
        pace.look(ms(6));
        assert!(!pace.is_due());
        pace.look(ms(7));
        assert!(pace.is_due() && pace.is_over());
    }
}
