//! How a loop ends: from the request to the report.
//!
//! ```text
//!   request ──▶ ShuttingDown ──advance──▶ (gate closed) ──▶ take_down ──▶ terminate
//!                  │     ▲                                  hooks ▸ channels ▸ last pass ▸ cancel
//!                  └─────┘ runs and accepts as before       ▸ seal ▸ values
//! ```
//!
//! - A loop that ends by itself closes its gate in the critical section that finds the inbox empty: work that
//!   was accepted is not cut off by an end decided a moment earlier. From then on nothing is accepted,
//!   whatever the cause: neither from hooks that have not run yet nor from tasks that clean up.
//! - Activity is a task polled or accepted, or a hook run. The quiet period is measured from the later
//!   of the request and the end of the last activity. The loop waits for it in the driver, without polling.
//! - The timeout is checked in every turn, whether tasks are queued or not: a task that wakes itself
//!   for ever does not keep the loop running. (A poll that never returns does; a single thread cannot
//!   prevent that.)
//! - Every accepted hook runs: in order when the queue first runs empty, the remaining ones at the end.
//! - `take_down` runs on every path, also when the loop fails or its body unwinds. It waits for live
//!   tasks, not merely for an empty queue: another thread may be between async-task's state change
//!   and our push.
//! - A loop without a thread ends on the thread that requests it: see [`launch`](super::launch).

use std::rc::Rc;
use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::hooks::{Hook, HookId};
use crate::event_loop::inbox::Ring;
use crate::event_loop::lifecycle::Asked;
use crate::event_loop::local::{Local, Queued};
use crate::event_loop::pace::SLICE;
use crate::event_loop::shared::{InboxGuard, Mail, Shared};
use crate::event_loop::terms::{DrainScope, EndCondition, ShutdownRequest, ShutdownTerms};
use crate::panic::PanicSite;
use crate::reactor::Driver;
use crate::report::EndCause;
use crate::sync::{Arc, thread};
use crate::this_thread::CancelReason;
use crate::trace;
use crate::unwind::contain;

impl Shared {
    /// Requests the shutdown of this loop alone.
    pub(crate) fn request(self: &Arc<Shared>, request: ShutdownRequest) {
        let now = self.config.clock.now();
        self.parent.note_leaving();
        let (asked, ring) = Shared::ask(&mut self.inbox.lock(), request, now, true);
        // The loop is woken first: wakers of `ShutdownRequested` futures are user code, and may be slow.
        self.ring_if_needed(ring);
        self.follow(asked);
    }

    /// Records a request, under the inbox lock: a loop that is about to sleep must not miss it. `is_over`
    /// says whether a drain of the group would be over at once.
    pub(crate) fn ask(
        guard: &mut InboxGuard<'_>,
        request: ShutdownRequest,
        now: Instant,
        is_over: bool,
    ) -> (Asked, Ring) {
        let ends_at_once = match request {
            ShutdownRequest::Now => true,
            ShutdownRequest::Graceful { quiet, .. } => quiet.is_zero(),
            ShutdownRequest::Drain { .. } => is_over,
        };
        let may_end_parked = ends_at_once && guard.is_empty();
        let asked = guard.edit(|life| life.request(request, now, may_end_parked));
        let ring = match asked {
            Asked::Decided => Ring::NotNeeded,
            _ => guard.nudge(),
        };
        (asked, ring)
    }

    /// Carries out what a request leaves to be done, with no lock held.
    pub(crate) fn follow(self: &Arc<Shared>, asked: Asked) {
        trace::shutdown(self.index, "requested");
        match asked {
            Asked::Unused | Asked::NeedsThread => self.end_unstarted(),
            Asked::Starting => self.watch_start(),
            Asked::NeedsRestart => {
                self.watch_start();
                self.restart();
            }
            Asked::Running | Asked::Unchanged | Asked::Decided => {}
        }
        self.announce_shutdown();
    }
}

/// What a loop that shuts down does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Continue; wait until this instant at most.
    Wait(Option<Instant>),
    /// The gate is closed: take the loop down.
    End(EndCause),
}

/// The shutdown of a loop, as its own thread sees it.
#[derive(Debug)]
pub(crate) struct ShuttingDown {
    last_activity: Instant,
    /// The activity when it was last checked.
    seen: Activity,
    /// The group was notified that this loop is idle.
    idle: bool,
    /// Hooks have begun to run, and yield to tasks in between.
    hooks_under_way: bool,
}

/// Counts that change with every activity of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Activity {
    polls: u64,
    pending: usize,
}

impl Activity {
    fn of(local: &Local) -> Activity {
        Activity {
            polls: local.polls(),
            pending: local.shared.pending(),
        }
    }
}

impl ShuttingDown {
    /// Begins the shutdown in the turn that notices the request: the tasks of this turn were activity,
    /// and a loop with nothing to run notices at once.
    pub(crate) fn begin(local: &Local, now: Instant) -> ShuttingDown {
        ShuttingDown {
            last_activity: now,
            seen: Activity::of(local),
            idle: false,
            hooks_under_way: false,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Notifies the group that this loop is about to take work, if it was idle.
    pub(crate) fn note_busy(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.idle) {
            shared.parent.note_busy(shared.index);
        }
    }

    /// Advances the shutdown: runs hooks, and closes the gate if the terms are met.
    pub(crate) fn advance(&mut self, local: &Local, now: Instant) -> Outlook {
        let shared = &local.shared;
        let guard = shared.inbox.lock();
        let (decided, terms) = (guard.gate().decided(), guard.gate().terms());
        let hooks = !guard.gate().hooks.is_empty();
        drop(guard);
        if let Some(cause) = decided {
            return Outlook::End(cause);
        }
        let terms = terms.expect("a loop that shuts down has terms");
        let seen = Activity::of(local);
        if seen != self.seen {
            self.seen = seen;
            self.last_activity = now;
        }
        let late = terms.deadline.is_some_and(|deadline| now >= deadline);
        let queued = local.queued() > 0 || shared.inbox.has_mail();
        if hooks && !late && (!queued || self.hooks_under_way) {
            self.note_busy(shared);
            self.hooks_under_way = run_waiting_hooks(local, now);
            // Hooks may be slow, and the quiet period begins when they have returned.
            self.last_activity = shared.config.clock.now();
            return Outlook::Wait(Some(now));
        }
        self.hooks_under_way = false;
        let idle = !hooks && !queued;
        if idle && shared.is_at_rest() {
            if let Some(cause) = self.end_if_idle(local, &terms) {
                return Outlook::End(cause);
            }
        }
        let quiet_at = match terms.until {
            EndCondition::Quiet(quiet) => self.last_activity.checked_add(quiet),
            EndCondition::Drained(_) | EndCondition::Now => None,
        };
        if idle && quiet_at.is_some_and(|quiet_at| now >= quiet_at) {
            if shared.close_if_empty(EndCause::Quiet) {
                return Outlook::End(EndCause::Quiet);
            }
            return Outlook::Wait(Some(now));
        }
        if late {
            return Outlook::End(time_out(shared, &terms));
        }
        if queued {
            return Outlook::Wait(Some(now));
        }
        Outlook::Wait(earlier(quiet_at, terms.deadline))
    }

    /// Ends a loop without tasks if its terms say so; if it drains with its group, the group decides.
    fn end_if_idle(&mut self, local: &Local, terms: &ShutdownTerms) -> Option<EndCause> {
        let shared = &local.shared;
        let cause = match terms.until {
            EndCondition::Drained(DrainScope::Loop) => EndCause::Drained,
            EndCondition::Quiet(_) if shared.is_unreachable() => EndCause::Idle,
            EndCondition::Quiet(_)
            | EndCondition::Drained(DrainScope::Group)
            | EndCondition::Now => {
                if !std::mem::replace(&mut self.idle, true) {
                    shared.parent.note_idle(shared.index);
                }
                return shared.inbox.lock().gate().decided();
            }
        };
        shared.close_if_empty(cause).then_some(cause)
    }
}

/// Closes the gate at the deadline: those of all loops, if they drain together.
fn time_out(shared: &Shared, terms: &ShutdownTerms) -> EndCause {
    if terms.until == EndCondition::Drained(DrainScope::Group) {
        shared.parent.time_out();
    }
    shared.close(EndCause::Timeout)
}

impl Shared {
    /// Closes the gate, unless work or a hook was accepted since the loop checked; returns whether it did.
    fn close_if_empty(&self, cause: EndCause) -> bool {
        let mut guard = self.inbox.lock();
        let empty = guard.is_empty() && guard.gate().hooks.is_empty();
        if empty {
            guard.edit(|life| life.close(cause));
        }
        empty
    }

    /// Closes the gate, and returns the cause: that of the first close.
    fn close(&self, cause: EndCause) -> EndCause {
        self.parent.note_leaving();
        let mut guard = self.inbox.lock();
        guard.edit(|life| {
            life.close(cause);
            life.decided().unwrap_or(cause)
        })
    }
}

/// Runs the hooks that are waiting now, for a slice of time; hooks that they add wait for the next round.
/// Returns whether the slice ended it, so that some may be left.
fn run_waiting_hooks(local: &Local, start: Instant) -> bool {
    let fence = local.shared.inbox.lock().gate().hooks.fence();
    let is_over = || {
        local
            .shared
            .config
            .clock
            .now()
            .saturating_duration_since(start)
            >= SLICE
    };
    run_hooks(local, fence, is_over)
}

/// Runs hooks, at least one, until none is left or `is_over` returns `true`; returns whether it did.
fn run_hooks(local: &Local, fence: HookId, is_over: impl Fn() -> bool) -> bool {
    let next = || local.shared.inbox.lock().edit(|life| life.hooks.pop(fence));
    while let Some(Hook { call, location }) = next() {
        let observed = local.observer.begin_hook(location);
        let result = contain(call);
        drop(observed);
        // Counted before it is reported: the handler of panics may read the counters.
        local.shared.place.counters.hook_run(result.is_err());
        if let Err(payload) = result {
            let (site, location) = (PanicSite::ShutdownHook, Some(location));
            local.shared.panics.report(site, payload, location);
        }
        if is_over() {
            local.shared.inbox.lock().edit(|life| life.hooks.rest());
            return true;
        }
    }
    false
}

/// Whether hooks and tasks run once more when the loop is taken down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastRun {
    Yes,
    /// As if the process had ended: destructors run, and nothing else of the user's.
    No,
}

/// Takes the loop down, from any phase, until only its report is left to be made; returns the cause.
pub(crate) fn take_down(
    local: &Rc<Local>,
    driver: &mut Driver,
    mail: &mut Mail,
    cause: EndCause,
    last_run: LastRun,
) -> EndCause {
    let shared = &local.shared;
    // The group may have it as idle, and its hooks and tasks run once more.
    shared.parent.note_busy(shared.index);
    let decided = shared.close(cause);
    // A failure is the cause, whatever was requested.
    let cause = if cause == EndCause::Failed {
        cause
    } else {
        decided
    };
    shared.announce_shutdown();
    if last_run == LastRun::Yes {
        trace::shutdown(shared.index, "hooks");
        run_hooks(local, HookId::END, || false);
        trace::shutdown(shared.index, "channels");
        // Channels close while tasks can still run: tasks that wait for one get an error, once.
        local.close_channels_at_end();
    }
    local.collect(mail);
    local.take_requests();
    if !matches!(cause, EndCause::Timeout | EndCause::Now | EndCause::Failed) {
        // Tasks that were accepted or woken between the last check and the close get one poll. They are
        // taken out first: otherwise a task that wakes itself would run instead of one in a later lane.
        let accepted: Vec<_> = std::iter::from_fn(|| local.next_of_any()).collect();
        for queued in accepted {
            local.run_queued(queued);
        }
    }
    trace::shutdown(shared.index, "tasks");
    local.note_waits();
    cancel_all(local, driver, mail);
    local.publish();
    let values = local.arena.borrow_mut().take_all();
    for value in values {
        shared.panics.drop(PanicSite::LoopBound, None, value);
    }
    cause
}

/// Drops every task of the loop, on this thread, and seals the inbox after the last one.
fn cancel_all(local: &Rc<Local>, driver: &mut Driver, mail: &mut Mail) {
    let shared = &local.shared;
    // Drops their futures; the harness contains panics of their destructors.
    let cancel = |queued| match queued {
        Queued::Task(runnable) => local.cancel(runnable, CancelReason::Ended),
        Queued::Closures(mut run) => run.cancel(),
    };
    let drop_queued = || std::iter::from_fn(|| local.next_of_any()).for_each(cancel);
    for waker in local.take_live() {
        // The task's own waker: it calls `schedule`. Each task is dropped right after its wake.
        waker.wake();
        drop_queued();
    }
    loop {
        local.collect(mail);
        drop_queued();
        if shared.place.counters.live() > 0 {
            // Some thread has taken a wake and not pushed it yet: its push rings.
            if shared.inbox.try_sleep(None) {
                if driver.wait(&shared.port, None, &mut Vec::new()).is_err() {
                    thread::yield_now();
                }
                shared.inbox.awake();
            }
            continue;
        }
        let mut guard = shared.inbox.lock();
        if guard.is_empty() {
            guard.edit(|life| life.seal());
            return;
        }
    }
}
