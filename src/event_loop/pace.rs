//! How long a turn may run: until the next deadline, and to the end of the task that runs then.
//!
//! - The deadline is that of the next timer, or of the shutdown. The pace says after how many tasks
//!   the clock has to be read: after each when the deadline is near, and after up to [`BATCH`] when
//!   it is far and tasks are short. No task of [`LONG_TASK`] or less runs past a deadline together
//!   with another one.
//! - How long tasks take is measured from one reading to the next, and kept from turn to turn:
//!   where they take long, the clock is read after each, and slices end on time.
//! - When the deadline is found to have passed, no further task of the same kind runs; the
//!   remaining ones go on in the next turn, in order. Timers that have just fired cut no tasks off
//!   for a while: otherwise timers that are always due would starve the tasks.
//! - Once the shutdown's own deadline has passed there is no next turn to wait for: nothing more runs.

use std::time::{Duration, Instant};

/// Time of a turn without I/O, at most.
pub(crate) const SLICE: Duration = Duration::from_millis(1);
/// The most tasks between two readings of the clock.
pub(crate) const BATCH: u32 = 64;
/// The most tasks after the first reading of a turn, which cannot tell how long earlier tasks took.
const PROBE_STEP: u32 = 8;
/// The longest time that a task is expected to take.
const LONG_TASK: Duration = Duration::from_millis(100);
/// If the tasks between two readings take less than this, there may be more of them.
const SHORT_STEP: Duration = Duration::from_millis(1);

/// The pace of a turn.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The deadline of the next timer.
    timer: Option<Instant>,
    /// The deadline of the shutdown.
    shutdown: Option<Instant>,
    /// Timers have just fired, and do not cut tasks off before this instant.
    not_before: Option<Instant>,
    /// The phase that the inbox showed when it was last read.
    pub(crate) shown: u8,
    /// The previous reading of the clock.
    last_reading: Option<Instant>,
    /// Tasks between two readings, as far as their length allows.
    step: u32,
    /// Tasks until the next reading.
    stride: u32,
    verdict: PaceVerdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PaceVerdict {
    Continue,
    /// A timer is due.
    TimerDue,
    /// The deadline of the shutdown has passed.
    ShutdownDue,
}

impl Pace {
    /// Creates the pace of a turn in which the clock was not read yet; `step` is that of the
    /// previous turn.
    pub(crate) fn new(timer: Option<Instant>, not_before: Option<Instant>, step: u32) -> Pace {
        Pace {
            timer,
            shutdown: None,
            not_before,
            shown: 0,
            last_reading: None,
            step,
            stride: if timer.is_none() { step } else { 1 },
            verdict: PaceVerdict::Continue,
        }
    }

    /// Sets the deadline of the shutdown.
    pub(crate) fn set_shutdown(&mut self, deadline: Option<Instant>) {
        self.shutdown = deadline;
        self.stride = 1;
    }

    /// Sets the deadline of the next timer: those that were due have fired, or an earlier one was
    /// armed.
    pub(crate) fn set_timer(&mut self, timer: Option<Instant>) {
        self.timer = timer;
    }

    /// Records that timers have fired, and from when on they may cut tasks off again.
    pub(crate) fn set_not_before(&mut self, then: Option<Instant>) {
        self.not_before = then;
    }

    /// How many tasks may run before the next reading of the clock; at least one.
    pub(crate) fn stride(&self) -> u32 {
        self.stride
    }

    /// The step to begin the next turn with.
    pub(crate) fn step(&self) -> u32 {
        self.step
    }

    /// Evaluates a reading of the clock, taken after as many tasks as the stride says.
    pub(crate) fn update(&mut self, now: Instant) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        self.verdict = if passed(self.shutdown) {
            PaceVerdict::ShutdownDue
        } else if passed(self.timer) && self.not_before.is_none_or(|then| now >= then) {
            PaceVerdict::TimerDue
        } else {
            PaceVerdict::Continue
        };
        let took = self
            .last_reading
            .map(|last| now.saturating_duration_since(last));
        self.last_reading = Some(now);
        self.step = match took {
            None => self.step.min(PROBE_STEP),
            Some(took) if took < SHORT_STEP => (self.step * 2).min(BATCH),
            Some(_) => 1,
        };
        self.stride = self.step.min(self.max_stride(now));
    }

    /// How many tasks of [`LONG_TASK`] fit in before the deadline; at least one.
    fn max_stride(&self, now: Instant) -> u32 {
        let deadline = crate::clock::earlier(self.timer, self.shutdown);
        deadline.map_or(BATCH, |deadline| {
            let left = deadline.saturating_duration_since(now).as_nanos() / LONG_TASK.as_nanos();
            u32::try_from(left).map_or(BATCH, |left| left.clamp(1, BATCH))
        })
    }

    /// Whether no further task of the same kind may run in this turn.
    pub(crate) fn is_due(&self) -> bool {
        self.verdict != PaceVerdict::Continue
    }

    /// Whether no further task at all may run.
    pub(crate) fn is_over(&self) -> bool {
        self.verdict == PaceVerdict::ShutdownDue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_the_deadline_the_more_often_the_clock_is_read() {
        let start = Instant::now();
        for (millis, tasks) in [(0, 1), (50, 1), (250, 2), (700, 7), (9_000, 64)] {
            let deadline = Some(start + Duration::from_millis(millis));
            let mut pace = Pace::new(deadline, None, BATCH);
            assert_eq!(pace.stride(), 1, "the clock was not read yet");
            for _ in 0..9 {
                pace.update(start);
            }
            assert_eq!(pace.stride(), tasks, "{millis} ms");
        }
        assert_eq!(Pace::new(None, None, BATCH).stride(), BATCH);
    }

    #[test]
    fn where_tasks_take_long_the_clock_is_read_after_each() {
        let start = Instant::now();
        let mut pace = Pace::new(None, None, BATCH);
        pace.update(start);
        assert_eq!(
            pace.stride(),
            PROBE_STEP,
            "the length of the tasks is not known yet"
        );
        pace.update(start + SHORT_STEP);
        assert_eq!((pace.stride(), pace.step()), (1, 1));
        let strides: Vec<_> = (0..8)
            .map(|_| {
                pace.update(start + SHORT_STEP);
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
        pace.update(ms(5));
        assert!(pace.is_due() && !pace.is_over());
        pace.set_timer(Some(ms(6)));
        pace.set_not_before(Some(ms(7)));
        pace.update(ms(6));
        assert!(!pace.is_due(), "timers have just fired");
        pace.update(ms(7));
        assert!(pace.is_due());
        pace.update(ms(9));
        assert!(pace.is_due() && pace.is_over());
    }
}
