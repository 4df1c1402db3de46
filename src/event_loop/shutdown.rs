//! How a loop ends.
//!
//! ```text
//!   request ──▶ ShuttingDown ──step says End──▶ finish: hooks ▸ gate ▸ last pass ▸ cancel ▸ close
//!                  │     ▲                                       │
//!                  └─step┘ (works and accepts as before)         └──▶ Terminated, announced last
//! ```
//!
//! - The first request sets the terms; `shutdown_now` may shorten them; all others only observe.
//! - A loop that ends by itself closes its gate in the critical section that finds nothing inside:
//!   what is accepted gets its time, and is not cut off by an end that was decided a moment earlier.
//! - Activity is a task polled or accepted, or a hook run. The quiet period is measured from the later
//!   of the request and the last activity, and waited for in the driver: no sleeping, no ticking.
//! - The timeout is looked at in every turn, whether tasks are queued or not: a task that wakes
//!   itself for ever does not hold the loop. (A poll that never returns does; nothing in one thread
//!   can help that.)
//! - Every accepted hook runs: in order when the queue first runs empty, and what is left at the end.
//! - `finish` runs on every way out, also when the loop fails or its body unwinds. It waits for live
//!   tasks, not merely for an empty queue: a foreign thread may be between async-task's state change
//!   and our push.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::clock::earlier;
use crate::error::{RejectReason, Rejected};
use crate::event_loop::hooks::{Hook, HookId};
use crate::event_loop::local::Local;
use crate::event_loop::shared::{Ending, Mail, Shared};
use crate::event_loop::state::State;
use crate::group::core::GroupCore;
use crate::panic::{PanicSite, contain, contain_drop, discard};
use crate::reactor::Driver;
use crate::report::Cause;
use crate::sync::{Arc, thread};
use crate::trace;

/// The default quiet period, as Netty's.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
/// The default timeout, as Netty's.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

/// Checks the terms of a graceful shutdown.
pub(crate) fn graceful(quiet: Duration, timeout: Duration) -> io::Result<Request> {
    if timeout < quiet {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("timeout ({timeout:?}) must not be shorter than quiet ({quiet:?})"),
        ));
    }
    Ok(Request::Graceful { quiet, timeout })
}

/// What somebody asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    Graceful { quiet: Duration, timeout: Duration },
    Drain { scope: Scope, timeout: Duration },
    Now,
}

/// Whose tasks a drain waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Loop,
    /// All loops of the group: they end together, so that tasks can submit to each other to the last.
    Group,
}

/// What has been asked for; protected by its lock in [`Shared`].
#[derive(Debug, Default)]
pub(crate) struct Control(Option<Terms>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) requested_at: Instant,
    pub(crate) until: Until,
    /// `None`: beyond the end of the clock.
    pub(crate) deadline: Option<Instant>,
}

/// What ends the phase besides the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Quiet(Duration),
    Drained(Scope),
    Now,
}

impl Control {
    /// Notes a request, by the rule that the first one counts and `Now` shortens.
    pub(crate) fn note(&mut self, request: Request, now: Instant) {
        match (&mut self.0, request) {
            (Some(terms), Request::Now) => terms.until = Until::Now,
            (Some(_), _) => {}
            (none, request) => {
                let (until, timeout) = match request {
                    Request::Graceful { quiet, timeout } => (Until::Quiet(quiet), timeout),
                    Request::Drain { scope, timeout } => (Until::Drained(scope), timeout),
                    Request::Now => (Until::Now, Duration::ZERO),
                };
                *none = Some(Terms {
                    requested_at: now,
                    until,
                    deadline: now.checked_add(timeout),
                });
            }
        }
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn terms(&self) -> Option<Terms> {
        self.0
    }
}

impl Shared {
    /// Asks the loop to end.
    pub(crate) fn request(self: &Arc<Shared>, request: Request) {
        let now = self.config.clock.now();
        self.control.lock().note(request, now);
        trace::shutdown(self, "requested");
        if !self.seat.is_taken() {
            if let Some(core) = self.core.upgrade() {
                self.end_unstarted(&core);
            }
        }
        self.state.advance(State::ShuttingDown);
        self.announce_shutdown();
        // Under the inbox lock: a loop that is about to sleep must not miss it.
        self.nudge();
    }

    /// Ends a loop that never had a thread; starts one only if there are hooks to run.
    pub(crate) fn end_unstarted(self: &Arc<Shared>, core: &Arc<GroupCore>) {
        while !self.end_without_thread(core, None) {
            // Taken, or being started: the new thread, or its failure, sees the request.
            if !self.seat.is_free() {
                return;
            }
            // A hook that was there a moment ago may have been taken back: then look again.
            if !self.hooks.is_empty() {
                // A failure ends the loop as well: `end_after_failure`.
                self.start_without_waiting();
                return;
            }
        }
    }

    /// Ends the loop after a start that failed, if its end was requested: nobody will try again.
    pub(crate) fn end_after_failure(
        self: &Arc<Shared>,
        core: &Arc<GroupCore>,
        reason: RejectReason,
    ) {
        if self.control.lock().is_requested() && !self.end_without_thread(core, None) {
            self.end_without_thread(core, Some(reason));
        }
    }

    /// Ends the loop here if its seat is free and it has no hooks, or cannot run them.
    fn end_without_thread(
        self: &Arc<Shared>,
        core: &Arc<GroupCore>,
        failure: Option<RejectReason>,
    ) -> bool {
        // The gate closes before the seat counts as taken: a submission that finds it taken finds
        // the gate closed too, and is not stranded in an inbox that nobody empties.
        let closable = || {
            let closable = failure.is_some() || self.hooks.close_if_empty();
            if closable {
                self.inbox.refuse_new();
            }
            closable
        };
        let Some(driver) = self.seat.take_if(closable) else {
            return false;
        };
        drop(driver);
        self.wake_all(self.port.close());
        self.hooks.close();
        while let Some(hook) = self.hooks.pop(HookId::END) {
            self.drop_hook(hook);
        }
        let closed = self.inbox.close_if_empty();
        debug_assert!(closed, "nothing is accepted before the thread runs");
        let terms = self.control.lock().terms();
        let cause = match (&failure, terms.map(|terms| terms.until)) {
            (Some(_), _) => Cause::Failed,
            (None, Some(Until::Drained(_))) => Cause::Drained,
            (None, Some(Until::Now)) => Cause::Now,
            (None, _) => Cause::Idle,
        };
        let ending = Ending {
            started: false,
            cause,
            error: failure.map(|reason| Rejected::new((), reason).into()),
            requested_at: terms.map_or_else(|| self.config.clock.now(), |terms| terms.requested_at),
        };
        self.terminate(ending, Some(&core.termination));
        true
    }

    /// Drops a hook that will not run.
    pub(crate) fn drop_hook(&self, hook: Hook) {
        let Hook { call, location } = hook;
        if let Err(payload) = contain_drop(call) {
            let site = PanicSite::ShutdownHook;
            self.report_panic(site, &*payload, Some(location));
            discard(payload);
        }
    }
}

/// What a turn of a loop that shuts down comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Go on; wait until this moment at most.
    Wait(Option<Instant>),
    End(Cause),
}

/// How far the shutdown of a running loop has come; loop thread only.
#[derive(Debug)]
pub(crate) struct Progress {
    last_activity: Instant,
    seen: Activity,
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

impl Progress {
    /// Begins now, in the turn that notices the request: what this turn ran was activity, and a
    /// loop with nothing to run notices at once.
    pub(crate) fn begin(local: &Local, now: Instant) -> Progress {
        Progress {
            last_activity: now,
            seen: Activity::of(local),
        }
    }

    /// Looks where the shutdown stands.
    pub(crate) fn step(&mut self, local: &Local, terms: &Terms, now: Instant) -> Step {
        let seen = Activity::of(local);
        if seen != self.seen {
            self.seen = seen;
            self.last_activity = now;
        }
        if terms.until == Until::Now {
            return Step::End(Cause::Now);
        }
        if terms.deadline.is_some_and(|deadline| now >= deadline) {
            return Step::End(Cause::Timeout);
        }
        let shared = &local.shared;
        if local.queued() > 0 || shared.inbox.has_mail() {
            return Step::Wait(Some(now));
        }
        if run_waiting_hooks(local) {
            self.last_activity = now;
            return Step::Wait(Some(now));
        }
        if shared.is_at_rest() {
            let drained = match terms.until {
                Until::Drained(Scope::Loop) => true,
                Until::Drained(Scope::Group) => local.core.is_at_rest(),
                Until::Quiet(_) | Until::Now => false,
            };
            if drained {
                if terms.until == Until::Drained(Scope::Group) {
                    // The others may have come to rest before and be waiting for this news.
                    local.core.nudge();
                }
                return end(local, Cause::Drained, now);
            }
            if shared.is_unreachable() {
                return end(local, Cause::Idle, now);
            }
        }
        let quiet_at = match terms.until {
            Until::Quiet(quiet) => {
                let quiet_at = self.last_activity.checked_add(quiet);
                if quiet_at.is_some_and(|quiet_at| now >= quiet_at) {
                    return end(local, Cause::Quiet, now);
                }
                quiet_at
            }
            Until::Drained(_) | Until::Now => None,
        };
        Step::Wait(earlier(quiet_at, terms.deadline))
    }
}

/// Ends the loop, unless something has come in since it looked: then it goes on.
fn end(local: &Local, cause: Cause, now: Instant) -> Step {
    if local.refuse_new_if_empty() {
        Step::End(cause)
    } else {
        Step::Wait(Some(now))
    }
}

/// Runs the hooks that are waiting now; what they add waits for the next round.
fn run_waiting_hooks(local: &Local) -> bool {
    let hooks = &local.shared.hooks;
    let fence = hooks.fence();
    let mut any = false;
    while let Some(hook) = hooks.pop(fence) {
        any = true;
        run_hook(local, hook);
    }
    any
}

fn run_hook(local: &Local, hook: Hook) {
    let Hook { call, location } = hook;
    let result = contain(call);
    local.shared.counters.hook_run(result.is_err());
    if let Err(payload) = result {
        let site = PanicSite::ShutdownHook;
        local.shared.report_panic(site, &*payload, Some(location));
        discard(payload);
    }
}

/// Takes the loop from wherever it is to the point where nothing of it is left but its report.
pub(crate) fn finish(local: &Rc<Local>, driver: &mut Driver, mail: &mut Mail, cause: Cause) {
    let shared = &local.shared;
    shared.state.advance(State::ShuttingDown);
    shared.announce_shutdown();
    trace::shutdown(shared, "hooks");
    // The list closes first: a hook that adds itself again for ever is refused here.
    shared.hooks.close();
    while let Some(hook) = shared.hooks.pop(HookId::END) {
        run_hook(local, hook);
    }
    trace::shutdown(shared, "channels");
    // Channels close while tasks can still run: whoever waits for one hears of it, once.
    local.close_channels();
    local.run_io();
    shared.state.advance(State::Shutdown);
    local.refuse_new();
    local.collect(mail);
    if !matches!(cause, Cause::Timeout | Cause::Now | Cause::Failed) {
        // What was accepted, or woken, between the last look and the gate gets its run. It is taken
        // out first, or a task that wakes itself would take the run of one in a later lane.
        let accepted: Vec<_> = std::iter::from_fn(|| local.next_of_any()).collect();
        for runnable in accepted {
            local.run_one(runnable);
        }
    }
    trace::shutdown(shared, "tasks");
    cancel_all(local, driver, mail);
    local.publish();
    let values = local.arena.borrow_mut().close();
    for value in values {
        if let Err(payload) = contain_drop(value) {
            shared.report_panic(PanicSite::LoopBound, &*payload, None);
            discard(payload);
        }
    }
}

/// Drops every task of the loop, here, and closes the inbox behind the last one.
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
        } else if shared.inbox.close_if_empty() {
            return;
        }
    }
}
