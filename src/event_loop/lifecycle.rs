//! The lifecycle of a loop, in one place: its phase, the shutdown request, and so what it accepts.
//!
//! A [`Life`] is the gate of its loop's inbox and is protected by the inbox lock. The public [`LoopState`] is
//! derived from it ([`state_of`]), and it accepts or rejects every submission: the two cannot differ.
//!
//! ```text
//!    ┌──────────────fail_start (from any Starting: the LoopThread was dropped)
//!    ▼
//!   Free ──begin_start──▶ Starting: InFactory ──await_start──▶ Awaited ──time_out_start──▶ Abandoned
//!    │ └───claim───┐        │           └─────────────────────fail_factory─────────────────────▲
//!    │             ▼        │
//!    │          Running ◀───┘ begun (from any Starting; directly to the phase of the terms, if any)
//!    │             │ request
//!    │             ▼
//!    │        ShuttingDown ──close, request(Now)──▶ Draining ──seal──▶ Sealed ──end──▶ Ended
//!    │        (also from Running: on a failure, or if it ends now)       ▲
//!    └──seal_unstarted (never used; from Starting: not started in time)──┘
//!
//!   Running ──park──▶ Parked ──begin_restart──▶ Starting ──begun──▶ Running
//!              │ ▲        └──unpark_unused (a request finds no mail)──▶ Free
//!              │ └─fail_start
//! ```
//!
//! - Phases only move forward, except after a failed start, and except for a loop of an elastic group that
//!   is not needed: it parks, which ends its thread, and whatever is submitted to it next starts another
//!   one. What users see of a parked loop is `Started`: it accepts as before.
//! - New work is accepted in `Starting` (only loops submit then, and they must not wait; see
//!   [`launch`](super::launch)), but not from the factory itself, in `Parked`, `Running` and
//!   `ShuttingDown`. Wakes are accepted until `Sealed`. Hooks are accepted until the end is decided.
//! - The end is decided in the critical section that closes the gate: by the loop itself, if it finds the
//!   inbox empty; by [`GroupEnd`](crate::group::end::GroupEnd) for all loops of a draining group at once;
//!   by `shutdown_now`, on any thread. The loop reads the cause from `Draining` and takes itself down
//!   ([`take_down`](super::shutdown::take_down)).
//! - A loop with a thread ends on that thread; a loop without one is ended by the thread that requests it.
//! - Not part of the lifecycle: whether the loop sleeps (the inbox), whether channels are registered (the
//!   table), whether the report exists (the termination).

use std::io;

use crate::error::RejectReason;
use crate::event_loop::hooks::Hooks;
use crate::event_loop::inbox::Gate;
use crate::event_loop::requests::Request;
use crate::event_loop::state::LoopState;
use crate::event_loop::terms::{EndCondition, ShutdownControl, ShutdownRequest, ShutdownTerms};
use crate::reactor::Driver;
use crate::report::EndCause;
use crate::sync::thread::{self, ThreadId};
use std::time::Instant;

/// The phase of a loop.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It has no thread; holds the driver that the thread will need.
    Free(Driver),
    Starting(Start),
    /// It has its thread.
    Running,
    /// It had a thread, which has ended for want of work; holds the driver for the next one. Unless somebody
    /// is about to start that, its inbox is empty and asleep.
    Parked(Driver),
    /// It runs and accepts work as before, until its terms are met.
    ShuttingDown,
    /// Its end is decided: it accepts no new work, and cancels the remaining tasks.
    Draining(EndCause),
    /// Every task has ended; nothing is accepted.
    Sealed,
    /// Its report exists.
    Ended,
}

/// The progress of a thread start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// This thread is calling the factory.
    InFactory(ThreadId),
    /// The factory has returned, and the `LoopThread` has not begun yet.
    Awaited,
    /// The factory failed, or the wait timed out; the `LoopThread` may still begin.
    Abandoned,
}

/// The answer to a thread that wants the loop started.
pub(crate) enum Begin {
    /// The caller starts the thread, with this driver.
    Granted(Driver),
    /// The loop has its thread, or has ended.
    NotNeeded,
    /// Another thread is starting it.
    Wait,
    /// The start failed, or waiting for it would deadlock.
    Refused(io::ErrorKind),
}

/// What a request leaves to be done once the lock is released.
#[derive(Debug)]
pub(crate) enum Asked {
    /// The end was already decided.
    Decided,
    /// It changes nothing. The loop is woken all the same: the last handle of its group may be dropped.
    Unchanged,
    /// The loop's thread handles it.
    Running,
    /// The starting thread handles it, or the drop of its `LoopThread`.
    Starting,
    /// The loop was never used: the requesting thread ends it.
    Unused,
    /// The loop was never used but has hooks to run: it needs a thread.
    NeedsThread,
    /// The loop is parked and has mail: it needs its thread again.
    NeedsRestart,
}

/// The lifecycle of a loop; protected by the lock of its inbox.
pub(crate) struct Life {
    phase: Phase,
    /// Whether it has ever had a thread.
    has_run: bool,
    pub(crate) control: ShutdownControl,
    pub(crate) hooks: Hooks,
    /// Why the last start failed, until one succeeds.
    pub(crate) start_error: Option<RejectReason>,
    /// What handles on other threads ask of tasks, until the loop takes it.
    pub(crate) requests: Vec<Request>,
}

impl Life {
    pub(crate) fn new(driver: Driver) -> Life {
        Life {
            phase: Phase::Free(driver),
            has_run: false,
            control: ShutdownControl::default(),
            hooks: Hooks::default(),
            start_error: None,
            requests: Vec::new(),
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether the loop has ever had a thread.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    pub(crate) fn terms(&self) -> Option<ShutdownTerms> {
        self.control.terms()
    }

    /// The cause of the end, while it is decided and the loop has to carry it out.
    pub(crate) fn decided(&self) -> Option<EndCause> {
        match self.phase {
            Phase::Draining(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether hooks are accepted.
    pub(crate) fn takes_hooks(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Draining(_) | Phase::Sealed | Phase::Ended
        )
    }

    // ---- the start ----------------------------------------------------------------------------

    /// Grants the start of the thread to `by`, unless it is under way or done.
    pub(crate) fn begin_start(&mut self, by: ThreadId) -> Begin {
        if let Some(driver) = self.leave_free(Phase::Starting(Start::InFactory(by))) {
            return Begin::Granted(driver);
        }
        match self.phase {
            // A factory that submits to the loop it is starting would wait for itself.
            Phase::Starting(Start::InFactory(other)) if other == by => {
                Begin::Refused(io::ErrorKind::Deadlock)
            }
            Phase::Starting(Start::Abandoned) => Begin::Refused(io::ErrorKind::TimedOut),
            // It accepts work while it gets another thread: nothing has to be waited for.
            Phase::Starting(_) if self.has_run => Begin::NotNeeded,
            Phase::Starting(_) => Begin::Wait,
            _ => Begin::NotNeeded,
        }
    }

    /// Records that the factory called by `by` has returned, if the thread has not begun yet.
    pub(crate) fn await_start(&mut self, by: ThreadId) {
        if self.is_in_factory(by) {
            self.phase = Phase::Starting(Start::Awaited);
        }
    }

    /// Records that the factory called by `by` has failed. Its thread may still begin, but is no longer
    /// waited for. Returns `false` if another start has succeeded or is under way: that one counts.
    pub(crate) fn fail_factory(&mut self, by: ThreadId, reason: RejectReason) -> bool {
        let free = matches!(self.phase, Phase::Free(_) | Phase::Parked(_));
        let in_factory = self.is_in_factory(by);
        if free || in_factory {
            self.start_error = Some(reason);
        }
        if in_factory {
            self.phase = Phase::Starting(Start::Abandoned);
        }
        free || in_factory
    }

    /// Whether the last start of a parked loop has failed.
    pub(crate) fn has_failed_to_restart(&self) -> bool {
        matches!(self.phase, Phase::Parked(_)) && self.start_error.is_some()
    }

    /// Records that the wait for a thread, after its factory returned, has timed out.
    pub(crate) fn time_out_start(&mut self, reason: RejectReason) {
        if let Phase::Starting(Start::Awaited) = self.phase {
            self.start_error = Some(reason);
            self.phase = Phase::Starting(Start::Abandoned);
        }
    }

    /// Whether `by` is calling the factory.
    fn is_in_factory(&self, by: ThreadId) -> bool {
        matches!(self.phase, Phase::Starting(Start::InFactory(other)) if other == by)
    }

    /// The reason for which new work is rejected, if it is rejected.
    pub(crate) fn refusal(&self) -> RejectReason {
        match self.phase {
            _ if self.ends_now() => RejectReason::ShutDown,
            Phase::Starting(Start::InFactory(_)) => {
                RejectReason::ThreadStart(io::ErrorKind::Deadlock)
            }
            // A start has failed since the submitter saw it under way.
            Phase::Free(_) | Phase::Starting(Start::Abandoned) => self
                .start_error
                .unwrap_or(RejectReason::ThreadStart(io::ErrorKind::Other)),
            _ => RejectReason::ShutDown,
        }
    }

    /// Whether the terms are to end now.
    fn ends_now(&self) -> bool {
        self.terms()
            .is_some_and(|terms| terms.until == EndCondition::Now)
    }

    /// Records that the `LoopThread` was dropped: the loop is free again, unless it has ended meanwhile.
    pub(crate) fn fail_start(&mut self, driver: Driver) -> Result<Start, Driver> {
        let Phase::Starting(start) = self.phase else {
            return Err(driver);
        };
        if start != Start::Abandoned {
            self.start_error = Some(RejectReason::ThreadStart(io::ErrorKind::Other));
        }
        self.phase = match self.has_run {
            true => Phase::Parked(driver),
            false => Phase::Free(driver),
        };
        Ok(start)
    }

    // ---- parking ------------------------------------------------------------------------------

    /// Parks the loop, whose thread is about to end and whose inbox is empty; returns the driver if the loop
    /// has something to do after all.
    pub(crate) fn park(&mut self, driver: Driver) -> Result<(), Driver> {
        if !matches!(self.phase, Phase::Running) || !self.requests.is_empty() {
            return Err(driver);
        }
        self.phase = Phase::Parked(driver);
        Ok(())
    }

    /// Grants the start of another thread for a parked loop to `by`; to one caller only.
    pub(crate) fn begin_restart(&mut self, by: ThreadId) -> Option<Driver> {
        let next = Phase::Starting(Start::InFactory(by));
        match std::mem::replace(&mut self.phase, next) {
            Phase::Parked(driver) => Some(driver),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Treats a parked loop without mail as one that was never used: its end needs no thread, but for hooks.
    fn unpark_unused(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Running) {
            Phase::Parked(driver) => Phase::Free(driver),
            other => other,
        };
    }

    /// Records that the thread that `by` has started will begin, if it has not begun yet.
    pub(crate) fn will_begin(&mut self, by: ThreadId) {
        if self.is_in_factory(by) {
            self.follow_terms();
        }
    }

    /// Records that the thread has begun; returns `false` if the loop has ended without it.
    pub(crate) fn begun(&mut self) -> bool {
        if let Phase::Starting(_) = self.phase {
            self.follow_terms();
        }
        !matches!(self.phase, Phase::Sealed | Phase::Ended)
    }

    /// Assigns the loop to the calling thread, if it has none.
    pub(crate) fn claim(&mut self) -> Option<Driver> {
        let driver = self.leave_free(Phase::Running)?;
        self.follow_terms();
        Some(driver)
    }

    /// Moves on from `Free` and returns its driver; stays in any other phase.
    fn leave_free(&mut self, next: Phase) -> Option<Driver> {
        match std::mem::replace(&mut self.phase, next) {
            Phase::Free(driver) => Some(driver),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Moves to the phase that the terms demand; the loop has a thread.
    fn follow_terms(&mut self) {
        self.start_error = None;
        self.has_run = true;
        self.phase = match self.terms().map(|terms| terms.until) {
            None => Phase::Running,
            Some(EndCondition::Now) => Phase::Draining(EndCause::Now),
            Some(_) => Phase::ShuttingDown,
        };
    }

    // ---- the end ------------------------------------------------------------------------------

    /// Records a request, and changes the phase if there is a thread. `may_end_parked` says whether the loop
    /// has no mail and, without work, would end at once on these terms.
    pub(crate) fn request(
        &mut self,
        request: ShutdownRequest,
        now: Instant,
        may_end_parked: bool,
    ) -> Asked {
        if !self.takes_hooks() {
            return Asked::Decided;
        }
        let changed = self.control.note(request, now);
        // Not if it changes nothing: an earlier request may be about to start a thread, and needs it parked.
        if changed && may_end_parked {
            self.unpark_unused();
        }
        match self.phase {
            _ if !changed => Asked::Unchanged,
            Phase::Free(_) if self.hooks.is_empty() => Asked::Unused,
            Phase::Free(_) => Asked::NeedsThread,
            Phase::Starting(_) => Asked::Starting,
            Phase::Parked(_) => Asked::NeedsRestart,
            _ => {
                self.follow_terms();
                Asked::Running
            }
        }
    }

    /// Decides the end: no new work is accepted from here on.
    pub(crate) fn close(&mut self, cause: EndCause) {
        if let Phase::Running | Phase::ShuttingDown = self.phase {
            self.phase = Phase::Draining(cause);
        }
    }

    /// Ends the loop without a thread; returns the driver unless a thread was given it.
    pub(crate) fn seal_unstarted(&mut self) -> Option<Driver> {
        match std::mem::replace(&mut self.phase, Phase::Sealed) {
            Phase::Free(driver) | Phase::Parked(driver) => Some(driver),
            _ => None,
        }
    }

    /// Seals the loop: no task is live and the inbox is empty. Nothing is accepted from here on.
    pub(crate) fn seal(&mut self) {
        debug_assert!(matches!(self.phase, Phase::Draining(_)));
        self.phase = Phase::Sealed;
    }

    /// Records that the report exists.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
    }
}

// The values of `Gate::shown`, in the order of the phases. The lowest bit is not part of the phase.
/// There are requests: the loop looks after every task whether something has changed here.
const REQUESTS: u8 = 1;
const UNUSED: u8 = 0;
/// A shutdown was requested, and there is no thread yet.
const UNUSED_SHUTTING_DOWN: u8 = 1 << 1;
const RUNNING: u8 = 2 << 1;
/// It accepts as a running loop does, and has no thread: a producer with the duty to ring starts one.
const PARKED: u8 = 3 << 1;
const SHUTTING_DOWN: u8 = 4 << 1;
const DRAINING: u8 = 5 << 1;
const SEALED: u8 = 6 << 1;
const ENDED: u8 = 7 << 1;

impl Gate for Life {
    fn takes_new(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::ShuttingDown => true,
            _ if self.ends_now() => false,
            // A factory that submits to the loop it is starting would wait for itself.
            Phase::Starting(Start::InFactory(by)) => by != thread::current().id(),
            Phase::Starting(Start::Awaited) | Phase::Parked(_) => true,
            _ => false,
        }
    }

    fn takes_wakes(&self) -> bool {
        !matches!(self.phase, Phase::Sealed | Phase::Ended)
    }

    fn hurries(&self) -> bool {
        self.control.is_requested()
    }

    fn shown(&self) -> u8 {
        let phase = match self.phase {
            // It accepts nothing, and the starting thread will find it so.
            Phase::Free(_) | Phase::Starting(_) | Phase::Parked(_) if self.ends_now() => DRAINING,
            Phase::Starting(_) | Phase::Parked(_) if self.has_run => {
                match self.control.is_requested() {
                    true => SHUTTING_DOWN,
                    false => PARKED,
                }
            }
            Phase::Free(_) | Phase::Starting(_) | Phase::Parked(_)
                if self.control.is_requested() =>
            {
                UNUSED_SHUTTING_DOWN
            }
            Phase::Free(_) | Phase::Starting(_) | Phase::Parked(_) => UNUSED,
            Phase::Running => RUNNING,
            Phase::ShuttingDown => SHUTTING_DOWN,
            Phase::Draining(_) => DRAINING,
            Phase::Sealed => SEALED,
            Phase::Ended => ENDED,
        };
        if self.requests.is_empty() {
            phase
        } else {
            phase | REQUESTS
        }
    }
}

/// The public state for a value of [`Gate::shown`].
pub(crate) fn state_of(shown: u8) -> LoopState {
    match shown & !REQUESTS {
        UNUSED => LoopState::NotStarted,
        RUNNING | PARKED => LoopState::Started,
        UNUSED_SHUTTING_DOWN | SHUTTING_DOWN => LoopState::ShuttingDown,
        DRAINING | SEALED => LoopState::Shutdown,
        _ => LoopState::Terminated,
    }
}

/// Whether the loop runs, and neither a shutdown nor a handle asks anything of it.
pub(crate) fn is_plain(shown: u8) -> bool {
    shown == RUNNING
}

/// Whether the loop is parked, or about to get a thread again.
pub(crate) fn is_parked(shown: u8) -> bool {
    shown & !REQUESTS == PARKED
}

/// Whether handles ask something of tasks.
pub(crate) fn has_requests(shown: u8) -> bool {
    shown & REQUESTS != 0
}

/// Whether a loop has its thread, or no longer needs one.
pub(crate) fn has_thread(shown: u8) -> bool {
    shown >= RUNNING
}

/// Whether a loop with a thread accepts new work.
pub(crate) fn is_open(shown: u8) -> bool {
    shown < DRAINING
}

/// Whether a loop with a thread is shutting down, or has ended.
pub(crate) fn is_shutting_down(shown: u8) -> bool {
    shown >= SHUTTING_DOWN
}

/// Whether every task of the loop has ended.
pub(crate) fn is_sealed(shown: u8) -> bool {
    shown >= SEALED
}
