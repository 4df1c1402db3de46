//! How far a turn may go: to the next deadline, and to the end of the task that runs then.
//!
//! - The deadline is that of the next timer, or of the shutdown. Whoever runs tasks is told after how many to look at
//!   the clock: after each when the deadline is near, and after up to [`BATCH`] when it is far and tasks are short. No
//!   task of [`LONG`] or less goes past a deadline together with another one.
//! - How long tasks take is seen from one look to the next, and remembered from turn to turn: where they take long, the
//!   clock is looked at after each, and a slice is as short as it says.
//! - What runs when the deadline is found to have passed was the last of its kind; what is left goes on in the next
//!   turn, in its order. Timers that have just had their turn cut nobody off for a while: others would starve beside
//!   timers that are always due.
//! - Once the shutdown's own deadline has passed there is no next turn to wait for: nothing more runs.

use std::time::{Duration, Instant};

/// Time of a turn without I/O, at most.
pub(crate) const SLICE: Duration = Duration::from_millis(1);
/// Tasks between two looks at the clock, at most.
pub(crate) const BATCH: u32 = 64;
/// Tasks after the first look of a turn, which cannot tell how long those before took.
const PROBE: u32 = 8;
/// The longest that a task is expected to take.
const LONG: Duration = Duration::from_millis(100);
/// What tasks between two looks may take, if they are to be more.
const SHORT: Duration = Duration::from_millis(1);

/// The pace of a turn.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Of the next timer.
    timer: Option<Instant>,
    /// Of the shutdown.
    shutdown: Option<Instant>,
    /// Timers have had their turn, and do not cut others off before this.
    not_before: Option<Instant>,
    /// What the loop's life showed when it was last asked.
    pub(crate) shown: u8,
    /// The last look at the clock.
    looked: Option<Instant>,
    /// Tasks between two looks, by how long they take.
    step: u32,
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
    /// For a turn in which the clock was not read yet; `step` is what the last turn has learned.
    pub(crate) fn new(timer: Option<Instant>, not_before: Option<Instant>, step: u32) -> Pace {
        Pace {
            timer,
            shutdown: None,
            not_before,
            shown: 0,
            looked: None,
            step,
            stride: if timer.is_none() { step } else { 1 },
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

    /// Notes that timers have had their turn, and when they may have the next.
    pub(crate) fn set_not_before(&mut self, then: Option<Instant>) {
        self.not_before = then;
    }

    /// How many tasks may run before the next look at the clock; one at least.
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// What this turn has learned.
    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    /// Looks at a reading of the clock, after as many tasks as the stride says.
    pub(crate) fn look(&mut self, now: Instant) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        self.verdict = if passed(self.shutdown) {
            Verdict::Over
        } else if passed(self.timer) && self.not_before.is_none_or(|then| now >= then) {
            Verdict::Due
        } else {
            Verdict::GoOn
        };
        let took = self.looked.map(|last| now.saturating_duration_since(last));
        self.looked = Some(now);
        self.step = match took {
            None => self.step.min(PROBE),
            Some(took) if took < SHORT => (self.step * 2).min(BATCH),
            Some(_) => 1,
        };
        self.stride = self.step.min(self.far(now));
    }

    /// How many tasks of the longest kind fit in before the deadline; one at least.
    fn far(&self, now: Instant) -> u32 {
        let deadline = crate::clock::earlier(self.timer, self.shutdown);
        deadline.map_or(BATCH, |deadline| {
            let left = deadline.saturating_duration_since(now).as_nanos() / LONG.as_nanos();
            u32::try_from(left).map_or(BATCH, |left| left.clamp(1, BATCH))
        })
    }

    /// Whether the task that ran was the last of its kind in this turn.
    pub(crate) fn is_due(&self) -> bool {
        self.verdict != Verdict::GoOn
    }

    /// Whether it was the last of all.
    pub(crate) fn is_over(&self) -> bool {
        self.verdict == Verdict::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_deadline_the_more_often_the_clock_is_looked_at() {
        let start = Instant::now();
        for (millis, tasks) in [(0, 1), (50, 1), (250, 2), (700, 7), (9_000, 64)] {
            let deadline = Some(start + Duration::from_millis(millis));
            let mut pace = Pace::new(deadline, None, BATCH);
            assert_eq!(pace.stride(), 1, "nobody knows how near it is");
            for _ in 0..9 {
                pace.look(start);
            }
            assert_eq!(pace.stride(), tasks, "{millis} ms");
        }
        assert_eq!(Pace::new(None, None, BATCH).stride(), BATCH);
    }

    #[test]
    fn where_tasks_take_long_the_clock_is_looked_at_after_each() {
        let start = Instant::now();
        let mut pace = Pace::new(None, None, BATCH);
        pace.look(start);
        assert_eq!(pace.stride(), PROBE, "who knows how long they took");
        pace.look(start + SHORT);
        assert_eq!((pace.stride(), pace.step()), (1, 1));
        let strides: Vec<_> = (0..8)
            .map(|_| {
                pace.look(start + SHORT);
                pace.stride()
            })
            .collect();
        assert_eq!(
            strides,
            [2, 4, 8, 16, 32, 64, 64, 64],
            "and less often again"
        );
    }

    #[test]
    fn a_timer_that_is_due_ends_a_kind_and_a_shutdown_that_is_due_the_turn() {
        let start = Instant::now();
        let ms = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(Some(ms(5)), None, BATCH);
        pace.set_shutdown(Some(ms(9)));
        assert!(!pace.is_due());
        pace.look(ms(5));
        assert!(pace.is_due() && !pace.is_over());
        pace.set_timer(Some(ms(6)));
        pace.set_not_before(Some(ms(7)));
        pace.look(ms(6));
        assert!(!pace.is_due(), "timers have just had their turn");
        pace.look(ms(7));
        assert!(pace.is_due());
        pace.look(ms(9));
        assert!(pace.is_due() && pace.is_over());
    }
}
