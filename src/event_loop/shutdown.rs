//! How a loop ends: from the request to the report.
//!
//! ```text
//!   request ──▶ ShuttingDown ──outlook──▶ (gate closed) ──▶ take_down ──▶ terminate
//!                  │     ▲                                  hooks ▸ channels ▸ last pass ▸ cancel ▸ seal ▸ values
//!                  └─────┘ works and accepts as before
//! ```
//!
//! - A loop that ends by itself closes its gate in the critical section that finds nothing inside: what is accepted
//!   gets its time, and is not cut off by an end that was decided a moment earlier. From then on nothing is
//!   accepted, whatever the cause: neither from hooks that are still to run nor from tasks that clean up.
//! - Activity is a task polled or accepted, or a hook run. The quiet period is measured from the later
//!   of the request and the end of the last activity, and waited for in the driver: no sleeping, no ticking.
//! - The timeout is looked at in every turn, whether tasks are queued or not: a task that wakes
//!   itself for ever does not hold the loop. (A poll that never returns does; nothing in one thread
//!   can help that.)
//! - Every accepted hook runs: in order when the queue first runs empty, and what is left at the end.
//! - `take_down` runs on every way out, also when the loop fails or its body unwinds. It waits for live
//!   tasks, not merely for an empty queue: a foreign thread may be between async-task's state change
//!   and our push.
//! - A loop that has no thread ends on the thread that asks for it: see [`launch`](super::launch).

use std::rc::Rc;
use std::time::Instant;

use crate::clock::earlier;
use crate::event_loop::hooks::{Hook, HookId};
use crate::event_loop::inbox::Ring;
use crate::event_loop::lifecycle::Asked;
use crate::event_loop::local::Local;
use crate::event_loop::pace::SLICE;
use crate::event_loop::shared::{InboxGuard, Mail, Shared};
use crate::event_loop::terms::{DrainScope, EndCondition, ShutdownRequest, ShutdownTerms};
use crate::panic::PanicSite;
use crate::reactor::Driver;
use crate::report::EndCause;
use crate::sync::{Arc, thread};
use crate::trace;

impl Shared {
    /// Asks this loop alone to end.
    pub(crate) fn request(self: &Arc<Shared>, request: ShutdownRequest) {
        let now = self.config.clock.now();
        self.parent.note_leaving();
        let (asked, ring) = Shared::ask(&mut self.inbox.lock(), request, now);
        // The loop hears of it first: whoever waits for the request is foreign code, and may take its time.
        self.ring_if_needed(ring);
        self.follow(asked);
    }

    /// Notes a request, with the inbox held: a loop that is about to sleep must not miss it.
    pub(crate) fn ask(
        guard: &mut InboxGuard<'_>,
        request: ShutdownRequest,
        now: Instant,
    ) -> (Asked, Ring) {
        let asked = guard.edit(|life| life.request(request, now));
        let ring = match asked {
            Asked::TooLate => Ring::NotNeeded,
            _ => guard.nudge(),
        };
        (asked, ring)
    }

    /// Does what a request leaves to be done, with no lock held.
    pub(crate) fn follow(self: &Arc<Shared>, asked: Asked) {
        trace::shutdown(self.index, "requested");
        match asked {
            Asked::Unused | Asked::Unstarted => self.end_unstarted(),
            Asked::Starting => self.watch_start(),
            Asked::Running | Asked::Again | Asked::TooLate => {}
        }
        self.announce_shutdown();
    }
}

/// What a turn of a loop that shuts down comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Go on; wait until this moment at most.
    Wait(Option<Instant>),
    /// The gate is closed: take the loop down.
    End(EndCause),
}

/// A loop that shuts down, as its own thread sees it.
#[derive(Debug)]
pub(crate) struct ShuttingDown {
    last_activity: Instant,
    seen: Activity,
    /// The group was told that this loop rests.
    idle: bool,
    /// Hooks have begun to run, and let others in between.
    hooks_under_way: bool,
}

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
    /// Begins now, in the turn that messages the request: what this turn ran was activity, and a
    /// loop with nothing to run messages at once.
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

    /// Tells the group that this loop is about to take something in, if it rests.
    pub(crate) fn note_busy(&mut self, shared: &Shared) {
        if std::mem::take(&mut self.idle) {
            shared.parent.note_busy(shared.index);
        }
    }

    /// Looks where the shutdown stands, and closes the gate if it is over.
    pub(crate) fn outlook(&mut self, local: &Local, now: Instant) -> Outlook {
        let shared = &local.shared;
        let guard = shared.inbox.lock();
        let (decided, terms) = (guard.gate().decided(), guard.gate().terms());
        let hooks = !guard.gate().hooks.is_empty();
        drop(guard);
        if let Some(cause) = decided {
            return Outlook::End(cause);
        }
        let terms = terms.expect("a loop without terms does not shut down");
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
            // They take their time, and the quiet period begins when they are done.
            self.last_activity = shared.config.clock.now();
            return Outlook::Wait(Some(now));
        }
        self.hooks_under_way = false;
        let idle = !hooks && !queued;
        if idle && shared.is_at_rest() {
            if let Some(cause) = self.rest(local, &terms) {
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

    /// A loop at rest ends, if its terms say so; if it drains with its group, that decides.
    fn rest(&mut self, local: &Local, terms: &ShutdownTerms) -> Option<EndCause> {
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

/// Closes the gate at the deadline: of all loops, if they drain together.
fn time_out(shared: &Shared, terms: &ShutdownTerms) -> EndCause {
    if terms.until == EndCondition::Drained(DrainScope::Group) {
        shared.parent.time_out();
    }
    shared.close(EndCause::Timeout)
}

impl Shared {
    /// Closes the gate, unless something has come in since the loop looked: then it goes on.
    fn close_if_empty(&self, cause: EndCause) -> bool {
        let mut guard = self.inbox.lock();
        let empty = guard.is_empty() && guard.gate().hooks.is_empty();
        if empty {
            guard.edit(|life| life.close(cause));
        }
        empty
    }

    /// Closes the gate, and returns the cause: that of whoever closed it first.
    fn close(&self, cause: EndCause) -> EndCause {
        self.parent.note_leaving();
        let mut guard = self.inbox.lock();
        guard.edit(|life| {
            life.close(cause);
            life.decided().unwrap_or(cause)
        })
    }
}

/// Runs the hooks that are waiting now, for a slice of time; what they add waits for the next round. Says whether
/// some are left that were there.
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

/// Runs hooks, one at least, until none is left or `is_over` says so; says whether it did.
fn run_hooks(local: &Local, fence: HookId, is_over: impl Fn() -> bool) -> bool {
    let next = || local.shared.inbox.lock().edit(|life| life.hooks.pop(fence));
    while let Some(Hook { call, location }) = next() {
        let site = PanicSite::ShutdownHook;
        let returned = local.shared.panics.call_from(site, Some(location), call);
        local.shared.counters.hook_run(returned.is_none());
        if is_over() {
            local.shared.inbox.lock().edit(|life| life.hooks.rest());
            return true;
        }
    }
    false
}

/// Takes the loop from wherever it is to the point where nothing of it is left but its report; returns the cause.
pub(crate) fn take_down(
    local: &Rc<Local>,
    driver: &mut Driver,
    mail: &mut Mail,
    cause: EndCause,
) -> EndCause {
    let shared = &local.shared;
    // It may rest as far as the group knows, and hooks and tasks of it run once more.
    shared.parent.note_busy(shared.index);
    let decided = shared.close(cause);
    // A loop that fails has failed, whatever was asked of it.
    let cause = if cause == EndCause::Failed {
        cause
    } else {
        decided
    };
    shared.announce_shutdown();
    trace::shutdown(shared.index, "hooks");
    run_hooks(local, HookId::END, || false);
    trace::shutdown(shared.index, "channels");
    // Channels close while tasks can still run: whoever waits for one hears of it, once.
    local.close_channels();
    local.run_io_once();
    local.collect(mail);
    if !matches!(cause, EndCause::Timeout | EndCause::Now | EndCause::Failed) {
        // What was accepted, or woken, between the last look and the gate gets its run. It is taken
        // out first, or a task that wakes itself would take the run of one in a later lane.
        let accepted: Vec<_> = std::iter::from_fn(|| local.next_of_any()).collect();
        for runnable in accepted {
            local.run_one(runnable);
        }
    }
    trace::shutdown(shared.index, "tasks");
    cancel_all(local, driver, mail);
    local.publish();
    let values = local.arena.borrow_mut().take_all();
    for value in values {
        shared.panics.drop(PanicSite::LoopBound, None, value);
    }
    cause
}

/// Drops every task of the loop, here, and seals the inbox behind the last one.
fn cancel_all(local: &Rc<Local>, driver: &mut Driver, mail: &mut Mail) {
    let shared = &local.shared;
    // Closes the tasks and drops their futures; the harness contains what their destructors do.
    let drop_queued = || std::iter::from_fn(|| local.next_of_any()).for_each(drop);
    for waker in local.take_live() {
        // Ours: the waker of a task, which leads to `schedule`. One by one, while the task is at hand.
        waker.wake();
        drop_queued();
    }
    loop {
        local.collect(mail);
        drop_queued();
        if shared.counters.live() > 0 {
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
