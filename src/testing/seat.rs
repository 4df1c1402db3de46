//! A loop in the hands of a test: its runner, and how the test thread becomes its thread for a while.
//!
//! - The test thread is the loop's thread during a call, and an ordinary thread between calls.
//! - The loop is alive until its shutdown has run its course; from then on there is nothing to run.
//! - A loop with nothing to run goes to sleep as in production: it has a reason for another turn when its bell was
//!   rung, or at its deadline. A notification that is lost leaves it asleep, and is seen.

use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::context;
use crate::event_loop::run::{Next, Runner};
use crate::event_loop::shared::Shared;
use crate::group::handle::EventLoopGroup;
use crate::sync::Arc;

/// One driven loop.
pub(super) struct Seat {
    runner: Option<Runner>,
    /// Also when the loop has ended.
    shared: Arc<Shared>,
    /// Until when it sleeps, if it does.
    sleeps: Option<Option<Instant>>,
}

/// What a driven turn left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is more to run now.
    Busy,
    /// Nothing to run before that moment, if there is one.
    Stalled(Option<Instant>),
    Ended,
}

impl Seat {
    /// Takes the seat of loop `index`, so that no thread is ever started for it.
    pub(super) fn take(group: &EventLoopGroup, index: usize) -> Seat {
        let shared = Arc::clone(group.loops()[index].shared());
        let parts = shared.take_parts();
        let parts = parts.expect("the group was made for this and nobody else has it");
        Seat {
            shared,
            sleeps: None,
            runner: Some(Runner::new(parts)),
        }
    }

    /// Runs one turn, of `tasks` tasks at most.
    #[track_caller]
    pub(super) fn turn(&mut self, tasks: u32) -> Turn {
        let Some(runner) = &mut self.runner else {
            return Turn::Ended;
        };
        if self.sleeps.take().is_some() {
            runner.end_sleep();
        }
        let entered = enter(runner);
        runner.set_slice_tasks(tasks);
        match runner.work() {
            Next::End(cause) => {
                if let Some(runner) = self.runner.take() {
                    runner.end(cause, None, None, entered);
                }
                Turn::Ended
            }
            Next::Rest(until) => {
                let local = runner.local();
                let due = until.is_some_and(|until| until.deadline <= until.now);
                let until = until.map(|until| until.deadline);
                if local.queued() > 0 || due || !local.shared.inbox.try_sleep(until) {
                    Turn::Busy
                } else {
                    self.sleeps = Some(until);
                    Turn::Stalled(until)
                }
            }
        }
    }

    /// The next moment after `now` at which something is due.
    pub(super) fn next_deadline_after(&self, now: Instant) -> Option<Instant> {
        let local = self.runner.as_ref()?.local();
        let timer = local.timers.next_deadline_after(now);
        let terms = local.shared.inbox.open().gate().terms();
        let shutdown = terms.and_then(|terms| terms.deadline);
        earlier(timer, shutdown.filter(|&shutdown| shutdown > now))
    }

    /// Calls `inside` on the loop, if it is alive.
    #[track_caller]
    pub(super) fn inside<R>(&mut self, inside: impl FnOnce() -> R) -> Option<R> {
        let runner = self.runner.as_mut()?;
        let _entered = enter(runner);
        // What this thread has submitted from outside comes before what it submits at home.
        runner.collect();
        Some(inside())
    }

    /// Tasks that the loop has run, ever.
    pub(super) fn polls(&self) -> u64 {
        // Every turn ends with the publication of this figure, the last one included.
        self.shared.gauges.polls.get()
    }

    /// Whether there is a reason for a turn: it has work, or was rung, or its deadline has come.
    pub(super) fn is_awake(&self, now: Instant) -> bool {
        let due = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        match &self.runner {
            None => false,
            Some(runner) => self
                .sleeps
                .is_none_or(|until| runner.was_rung() || due(until)),
        }
    }

    /// Whether it sleeps over something that was not worth a ring.
    pub(super) fn has_lazy_mail(&self) -> bool {
        self.is_alive() && self.shared.inbox.has_lazy_mail()
    }

    /// Until when it sleeps, if it does and there is an end to it.
    pub(super) fn sleeps_until(&self) -> Option<Instant> {
        self.sleeps.flatten()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.runner.is_some()
    }
}

/// Tells a crowd, which comes to rest, from a task that never does: by how much has been run.
pub(super) struct Patience {
    /// Polls.
    left: u64,
    /// What a turn counts for that ran less, or nothing.
    least: u64,
}

impl Patience {
    /// For so many tasks, and those that they may spawn.
    pub(super) fn with(tasks: usize, least: u64) -> Patience {
        Patience {
            left: 200_000 + 16 * tasks as u64,
            least,
        }
    }

    /// Notes a turn; `false` if it was one too many.
    pub(super) fn lasts(&mut self, polls: u64) -> bool {
        self.left = self.left.saturating_sub(polls.max(self.least));
        self.left > 0
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
