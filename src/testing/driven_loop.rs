//! A loop that is driven by a test, on the test's own thread.
//!
//! - The test thread is the loop's thread during a call, and an ordinary thread between calls.
//! - The loop is alive until its shutdown has finished; from then on there is nothing to run.
//! - A loop with nothing to run sleeps as in production: it runs another turn once it was notified, or
//!   at its deadline. A lost notification leaves it asleep, and so becomes visible.

use std::rc::Rc;
use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::context;
use crate::event_loop::local::QueueKind;
use crate::event_loop::run::{Next, Runner};
use crate::event_loop::shared::{LoopParts, Shared};
use crate::event_loop::waits::QueueName;
use crate::group::handle::EventLoopGroup;
use crate::reactor::Doorbell;
use crate::sim::Bell;
use crate::sync::Arc;

/// A loop that a test drives.
pub(super) struct DrivenLoop {
    /// `None` once the loop has ended.
    runner: Option<Runner>,
    /// Kept after the loop has ended, for its counters.
    shared: Arc<Shared>,
    /// `Some` while the loop sleeps, with its deadline, if any.
    asleep_until: Option<Option<Instant>>,
}

/// The result of a driven turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnResult {
    /// There is more to run now.
    Busy,
    /// There is nothing to run before the deadline, if any.
    Stalled(Option<Instant>),
    Ended,
}

impl DrivenLoop {
    /// Claims loop `index` of the group, so that no thread is ever started for it.
    pub(super) fn claim(group: &EventLoopGroup, index: usize) -> DrivenLoop {
        let shared = Arc::clone(group.loops()[index].shared());
        let parts = shared.take_parts();
        let parts = parts.expect("the group was built for the test and no loop of it was started");
        DrivenLoop::new(parts)
    }

    /// Runs the loop with these parts.
    pub(super) fn new(parts: LoopParts) -> DrivenLoop {
        DrivenLoop {
            shared: Arc::clone(&parts.shared),
            asleep_until: None,
            runner: Some(Runner::new(parts)),
        }
    }

    /// Runs one turn, of `tasks` tasks at most.
    #[track_caller]
    pub(super) fn turn(&mut self, tasks: u32) -> TurnResult {
        self.turn_with(tasks, true)
    }

    /// As [`turn`](DrivenLoop::turn); unless it may sleep, the loop stays awake although it has nothing to
    /// run.
    #[track_caller]
    pub(super) fn turn_with(&mut self, tasks: u32, may_sleep: bool) -> TurnResult {
        let Some(runner) = &mut self.runner else {
            return TurnResult::Ended;
        };
        if self.asleep_until.take().is_some() {
            runner.end_sleep();
        }
        runner.forget_reading(); // the test may have advanced the clock
        let entered = enter(runner);
        // Only a simulated selector could fail here, and it does not.
        let _ = runner.poll_now();
        runner.set_slice_tasks(tasks);
        match runner.work() {
            Next::End(cause) => {
                if let Some(runner) = self.runner.take() {
                    runner.end(cause, None, None, entered);
                }
                TurnResult::Ended
            }
            Next::Rest(until) => {
                let queued = runner.local().queued();
                let due = until.is_some_and(|until| until.deadline <= until.now);
                let until = until.map(|until| until.deadline);
                if queued > 0 || due || !may_sleep || !runner.try_sleep(until) {
                    TurnResult::Busy
                } else {
                    self.asleep_until = Some(until);
                    TurnResult::Stalled(until)
                }
            }
        }
    }

    /// Polls one task, the next one in the order of a turn; `false` if there is none.
    #[track_caller]
    pub(super) fn run_one(&mut self) -> bool {
        let Some(runner) = &mut self.runner else {
            return false;
        };
        if self.asleep_until.take().is_some() {
            runner.end_sleep();
        }
        let _entered = enter(runner);
        runner.collect();
        let local = Rc::clone(runner.local());
        let now = local.shared.config.clock.now();
        let mut due = Vec::new();
        // One timer at a time, until one has woken a task: others may be woken by the task itself.
        while local.queued_of(QueueKind::Timed) == 0 {
            local.timers.collect_due(now, 1, &mut due);
            if due.is_empty() {
                break;
            }
            runner.note_busy();
            local.wake_timed(&mut due);
        }
        let timed = local.next_of(QueueKind::Timed);
        let queue = match timed {
            Some(_) => QueueName::Timed,
            None => QueueName::Tasks,
        };
        let next = timed.or_else(|| local.next_task());
        // A run of closures stops at the end of the stride: after one of them.
        local.timers.set_stride(1);
        let ran = match next {
            Some(runnable) => {
                local.run_one(runnable, queue);
                true
            }
            None if local.run_closures(local.shared.place.shown.get()).is_some() => true,
            None => match local.next_of(QueueKind::Tail) {
                Some(runnable) => {
                    local.run_one(runnable, QueueName::Tail);
                    true
                }
                None => false,
            },
        };
        if ran {
            local.publish();
        }
        ran
    }

    /// The earliest deadline after `now`, of a timer or the shutdown.
    pub(super) fn next_deadline_after(&self, now: Instant) -> Option<Instant> {
        let local = self.runner.as_ref()?.local();
        let timer = local.timers.next_deadline_after(now);
        let terms = local.shared.inbox.lock().gate().terms();
        let shutdown = terms.and_then(|terms| terms.deadline);
        earlier(timer, shutdown.filter(|&shutdown| shutdown > now))
    }

    /// Calls `call` on the loop, if it is alive.
    #[track_caller]
    pub(super) fn run_inside<R>(&mut self, call: impl FnOnce() -> R) -> Option<R> {
        let runner = self.runner.as_mut()?;
        // What `call` wakes or spawns here rings no bell.
        if self.asleep_until.take().is_some() {
            runner.end_sleep();
        }
        let _entered = enter(runner);
        // Earlier submissions of this thread, from outside the loop, come before those made by `call`.
        runner.collect();
        Some(call())
    }

    /// The total number of polls of tasks on this loop.
    pub(super) fn polls(&self) -> u64 {
        // Every turn publishes this count at its end, including the last one.
        self.shared.gauges.polls.get()
    }

    /// Whether the loop needs a turn: it has work, was notified, or its deadline has passed.
    pub(super) fn is_awake(&self, now: Instant) -> bool {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match &self.runner {
            None => false,
            Some(runner) => self
                .asleep_until
                .is_none_or(|until| runner.was_rung() || due(until)),
        }
    }

    /// Ends the loop as the end of its process does: nothing of the user's runs any more but destructors.
    #[track_caller]
    pub(super) fn kill(&mut self) {
        let Some(runner) = self.runner.take() else {
            return;
        };
        let entered = enter(&runner);
        runner.kill(entered);
    }

    /// Its bell, in a simulation.
    pub(super) fn bell(&self) -> Option<&Bell> {
        match &self.shared.port.bell {
            Doorbell::Simulated(bell) => Some(bell),
            _ => None,
        }
    }

    /// Whether it sleeps with lazy submissions in its inbox, which do not notify the loop.
    pub(super) fn has_lazy_submissions(&self) -> bool {
        self.is_alive() && self.shared.inbox.has_lazy_mail()
    }

    /// The deadline until which it sleeps, if it sleeps and has one.
    pub(super) fn sleep_deadline(&self) -> Option<Instant> {
        self.asleep_until.flatten()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.runner.is_some()
    }
}

/// A limit on polls, to tell many tasks, which stall eventually, from a task that never does.
pub(super) struct PollLimit {
    remaining: u64,
    /// What a turn with fewer polls counts for.
    min_per_turn: u64,
}

impl PollLimit {
    /// A limit for this many tasks, and those that they may spawn.
    pub(super) fn for_tasks(tasks: usize, min_per_turn: u64) -> PollLimit {
        PollLimit {
            remaining: 200_000 + 16 * tasks as u64,
            min_per_turn,
        }
    }

    /// Counts the polls of a turn; `false` once the limit is reached.
    pub(super) fn spend(&mut self, polls: u64) -> bool {
        self.remaining = self.remaining.saturating_sub(polls.max(self.min_per_turn));
        self.remaining > 0
    }
}

#[track_caller]
fn enter(runner: &Runner) -> context::LoopGuard {
    match context::enter_loop(runner.local()) {
        Some(entered) => entered,
        None => panic!(
            "a test loop was driven on the thread of an event loop: drive it from the test itself, \
             not from a task"
        ),
    }
}
