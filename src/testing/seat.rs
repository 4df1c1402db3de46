//! A loop in the hands of a test: its runner, and how the test thread becomes its thread for a while.
//!
//! - The test thread is the loop's thread during a call, and an ordinary thread between calls.
//! - The loop is alive until its shutdown has run its course; from then on there is nothing to run.

use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::context;
use crate::event_loop::launch::Parts;
use crate::event_loop::run::{Next, Runner};
use crate::group::EventLoopGroup;
use crate::sync::Arc;

/// One driven loop.
pub(super) struct Seat {
    runner: Option<Runner>,
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
        let driver = shared
            .take_seat()
            .expect("the group was made for this and nobody else has it");
        Seat {
            runner: Some(Runner::new(Parts {
                shared,
                core: Arc::clone(group.core()),
                driver,
            })),
        }
    }

    /// Runs one turn, of `tasks` tasks at most.
    #[track_caller]
    pub(super) fn turn(&mut self, tasks: u32) -> Turn {
        let Some(runner) = &mut self.runner else {
            return Turn::Ended;
        };
        let entered = enter(runner);
        runner.set_slice_tasks(tasks);
        match runner.work() {
            Next::End(cause) => {
                if let Some(runner) = self.runner.take() {
                    runner.finish(cause, None, None, entered);
                }
                Turn::Ended
            }
            Next::Rest(until) => {
                let local = runner.local();
                let due = until.is_some_and(|until| until.deadline <= until.now);
                if local.queued() > 0 || local.shared.inbox.has_mail() || due {
                    Turn::Busy
                } else {
                    Turn::Stalled(until.map(|until| until.deadline))
                }
            }
        }
    }

    /// The next moment at which something is due, besides what can run now.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let local = self.runner.as_ref()?.local();
        let timer = local.timers.next_deadline();
        let terms = local.shared.control.lock().terms();
        let shutdown = terms.and_then(|terms| terms.deadline);
        earlier(timer, shutdown)
    }

    /// Calls `inside` on the loop, if it is alive.
    #[track_caller]
    pub(super) fn inside<R>(&mut self, inside: impl FnOnce() -> R) -> Option<R> {
        let _entered = enter(self.runner.as_ref()?);
        Some(inside())
    }

    /// Tasks that the loop has run, ever.
    pub(super) fn polls(&self) -> u64 {
        self.runner
            .as_ref()
            .map_or(0, |runner| runner.local().polls())
    }

    pub(super) fn is_alive(&self) -> bool {
        self.runner.is_some()
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
